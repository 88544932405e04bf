/* Muon and Adafactor in float64, tensor by tensor, as their papers have them, with plain loops: written apart from the
 * code under test. */
#ifndef SHD_TESTS_SUPPORT_TEXTBOOK_WHOLE_H
#define SHD_TESTS_SUPPORT_TEXTBOOK_WHOLE_H

#include <math.h>
#include <sherd/model.h>
#include <sherd/options.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* `s0`, `s1`: room for as many values as the tensor has, zero before the first step. */
typedef struct textbook_whole {
    const sherd_tensor *tensor;
    double *p, *s0, *s1;
} textbook_whole;

static inline int64_t textbook_count(const sherd_tensor *tensor) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->dim_count; i++) count *= tensor->shape[i];
    return count;
}

static inline double textbook_norm(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
    return sqrt(sum);
}

/* x [m, n] becomes nearly orthogonal: the iteration on the singular values, written on the longer side. */
static inline void textbook_newton_schulz(double *x, int64_t m, int64_t n, int32_t steps) {
    double norm = fmax(textbook_norm(x, m * n), 1e-7);
    double *gram = malloc(sizeof *gram * (size_t)(m * m)), *mixed = malloc(sizeof *mixed * (size_t)(m * m));
    double *next = malloc(sizeof *next * (size_t)(m * n));
    for (int64_t i = 0; i < m * n; i++) x[i] /= norm;
    while (steps-- > 0) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) {
                gram[i * m + j] = 0;
                for (int64_t k = 0; k < n; k++) gram[i * m + j] += x[i * n + k] * x[j * n + k];
            }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) {
                double square = 0;
                for (int64_t k = 0; k < m; k++) square += gram[i * m + k] * gram[k * m + j];
                mixed[i * m + j] = -4.7750 * gram[i * m + j] + 2.0315 * square;
            }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                next[i * n + j] = 3.4445 * x[i * n + j];
                for (int64_t k = 0; k < m; k++) next[i * n + j] += mixed[i * m + k] * x[k * n + j];
            }
        memcpy(x, next, sizeof *x * (size_t)(m * n));
    }
    free(gram), free(mixed), free(next);
}

static inline void textbook_muon(const sherd_optimizer *o, textbook_whole *t, const double *g, double lr, double wd) {
    int64_t m = t->tensor->shape[0], n = t->tensor->shape[1], count = m * n;
    double *x = malloc(sizeof *x * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        t->s0[i] += (1 - o->momentum) * (g[i] - t->s0[i]);
        x[i] = o->nesterov ? g[i] + o->momentum * (t->s0[i] - g[i]) : t->s0[i];
    }
    textbook_newton_schulz(x, m, n, o->ns_steps);
    double rate = lr * (o->adjust_lr == SHERD_ADJUST_LR_ORIGINAL ? sqrt(fmax(1, (double)m / (double)n))
                                                                 : 0.2 * sqrt((double)(m > n ? m : n)));
    for (int64_t i = 0; i < count; i++) t->p[i] = (1 - lr * wd) * t->p[i] - rate * x[i];
    free(x);
}

static inline void textbook_adafactor(const sherd_optimizer *o, textbook_whole *t, const double *g, int64_t step,
                                      double lr, double wd) {
    const double eps = 1.1920928955078125e-7;
    int64_t count = textbook_count(t->tensor);
    int32_t dims = t->tensor->dim_count;
    double updates = (double)step + 1, weight = pow(updates, o->beta2_decay);
    double *u = malloc(sizeof *u * (size_t)count);
    double alpha = fmax(o->scale_floor, textbook_norm(t->p, count) / sqrt((double)count)) * fmin(lr, 1 / sqrt(updates));
    if (dims < 2) {
        for (int64_t i = 0; i < count; i++) {
            t->s0[i] += weight * (g[i] * g[i] - t->s0[i]);
            u[i] = g[i] / sqrt(fmax(t->s0[i], eps * eps));
        }
    } else {
        int64_t m = t->tensor->shape[dims - 2], n = t->tensor->shape[dims - 1];
        for (int64_t b = 0; b < count / (m * n); b++) {
            const double *gb = g + b * m * n;
            double *rows = t->s0 + b * m, *columns = t->s1 + b * n, mean = 0;
            for (int64_t i = 0; i < m; i++) {
                double sum = 0;
                for (int64_t j = 0; j < n; j++) sum += gb[i * n + j] * gb[i * n + j];
                rows[i] += weight * (sum / (double)n - rows[i]);
                mean += rows[i] / (double)m;
            }
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t i = 0; i < m; i++) sum += gb[i * n + j] * gb[i * n + j];
                columns[j] += weight * (sum / (double)m - columns[j]);
            }
            for (int64_t i = 0; i < m * n; i++)
                u[b * m * n + i] = gb[i] / sqrt(fmax(rows[i / n] * columns[i % n] / fmax(mean, eps), eps * eps));
        }
    }
    double excess = fmax(1, textbook_norm(u, count) / sqrt((double)count) / o->update_clip);
    for (int64_t i = 0; i < count; i++) t->p[i] = (1 - lr * wd) * t->p[i] - alpha / excess * u[i];
    free(u);
}

#endif
