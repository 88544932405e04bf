#include "plain.h"

#include "runtime/base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One sequence's state. */
typedef struct plain {
    const shd_model_config *c;
    int64_t sequence; /* its number in the run */
    int32_t unit;     /* that runs */
    int64_t T, d, H, K, hd, f;
    double *h, *a, *q, *k, *v, *o, *g, *u;
} plain;

/* y[T][n] = x[T][m] · w + b; w is [m][n], or [n][m] when `out_in`. */
static void affine(int64_t T, int64_t m, int64_t n, const double *x, const double *w, bool out_in, const double *b,
                   double *y) {
    for (int64_t t = 0; t < T; t++)
        for (int64_t j = 0; j < n; j++) {
            double sum = b ? b[j] : 0;
            for (int64_t i = 0; i < m; i++) sum += x[t * m + i] * (out_in ? w[j * m + i] : w[i * n + j]);
            y[t * n + j] = sum;
        }
}

static void add(int64_t count, double *y, const double *x) {
    for (int64_t i = 0; i < count; i++) y[i] += x[i];
}

static void layer_norm(int64_t T, int64_t d, const double *x, const double *w, const double *b, double *y) {
    for (int64_t t = 0; t < T; t++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < d; i++) mean += x[t * d + i] / (double)d;
        for (int64_t i = 0; i < d; i++) var += (x[t * d + i] - mean) * (x[t * d + i] - mean) / (double)d;
        for (int64_t i = 0; i < d; i++) y[t * d + i] = (x[t * d + i] - mean) / sqrt(var + 1e-5) * w[i] + b[i];
    }
}

static void rms_norm(int64_t T, int64_t d, const double *x, const double *w, double *y) {
    for (int64_t t = 0; t < T; t++) {
        double square = 0;
        for (int64_t i = 0; i < d; i++) square += x[t * d + i] * x[t * d + i] / (double)d;
        for (int64_t i = 0; i < d; i++) y[t * d + i] = x[t * d + i] / sqrt(square + 1e-5) * w[i];
    }
}

/* What dropout multiplies with, from docs/NUMERICS.md. Places: 0 embeddings, 1 probabilities, 2 and 3 a block's two
 * sums; head is -1 but for probabilities. */
static double kept(const plain *p, uint64_t place, int64_t head, int64_t row, int64_t column) {
    if (p->c->dropout == 0) return 1;
    uint64_t key = shd_random_key(p->c->seed, "dropout");
    uint32_t drop = (uint32_t)lround(p->c->dropout * 65536), words[4];
    key = shd_random_subkey(shd_random_subkey(key, (uint64_t)p->unit), place);
    if (head >= 0) key = shd_random_subkey(key, (uint64_t)head);
    shd_philox(key, (uint64_t)column / 8 + ((uint64_t)row << 32), (uint64_t)p->sequence, words);
    uint32_t number = words[column % 8 / 2] >> (column % 2 ? 16 : 0) & 0xffff;
    return number < drop ? 0 : 65536.0 / (65536.0 - drop);
}

static void drop(const plain *p, uint64_t place, double *x) {
    for (int64_t i = 0; i < p->T * p->d; i++) x[i] *= kept(p, place, -1, i / p->d, i % p->d);
}

/* o[t] = Σ_s softmax(q·k/√hd)[t,s] v[s] over s ≤ t; q has H heads, k and v K. */
static void attend(const plain *p) {
    double *w = calloc((size_t)p->T, sizeof *w);
    int64_t kd = p->K * p->hd;
    for (int64_t head = 0; head < p->H; head++)
        for (int64_t t = 0; t < p->T; t++) {
            const double *q = p->q + t * p->d + head * p->hd;
            double top = -INFINITY, total = 0;
            for (int64_t s = 0; s <= t; s++) {
                const double *k = p->k + s * kd + head / (p->H / p->K) * p->hd;
                w[s] = 0;
                for (int64_t i = 0; i < p->hd; i++) w[s] += q[i] * k[i] / sqrt((double)p->hd);
                top = fmax(top, w[s]);
            }
            for (int64_t s = 0; s <= t; s++) total += w[s] = exp(w[s] - top);
            double *o = p->o + t * p->d + head * p->hd;
            memset(o, 0, (size_t)p->hd * sizeof *o);
            for (int64_t s = 0; s <= t; s++)
                for (int64_t i = 0; i < p->hd; i++)
                    o[i] += w[s] / total * kept(p, 1, head, t, s) * p->v[s * kd + head / (p->H / p->K) * p->hd + i];
        }
    free(w);
}

static void rotary(const plain *p, int64_t heads, double *x) {
    for (int64_t t = 0; t < p->T; t++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t j = 0; j < p->hd / 2; j++) {
                double *a = x + (t * heads + head) * p->hd + j, *b = a + p->hd / 2, before = *a;
                double angle = (double)t * pow(p->c->rope_theta, -2.0 * (double)j / (double)p->hd);
                *a = before * cos(angle) - *b * sin(angle);
                *b = *b * cos(angle) + before * sin(angle);
            }
}

static void gpt2_block(const plain *p, double *const *w) {
    int64_t T = p->T, d = p->d;
    layer_norm(T, d, p->h, w[0], w[1], p->a);
    affine(T, d, 3 * d, p->a, w[2], false, w[3], p->g);
    for (int64_t t = 0; t < T; t++) {
        memcpy(p->q + t * d, p->g + t * 3 * d, (size_t)d * sizeof *p->q);
        memcpy(p->k + t * d, p->g + t * 3 * d + d, (size_t)d * sizeof *p->k);
        memcpy(p->v + t * d, p->g + t * 3 * d + 2 * d, (size_t)d * sizeof *p->v);
    }
    attend(p);
    affine(T, d, d, p->o, w[4], false, w[5], p->a);
    drop(p, 2, p->a);
    add(T * d, p->h, p->a);
    layer_norm(T, d, p->h, w[6], w[7], p->a);
    affine(T, d, p->f, p->a, w[8], false, w[9], p->g);
    for (int64_t i = 0; i < T * p->f; i++) {
        double x = p->g[i];
        p->g[i] = 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    }
    affine(T, p->f, d, p->g, w[10], false, w[11], p->a);
    drop(p, 3, p->a);
    add(T * d, p->h, p->a);
}

static void llama_block(const plain *p, double *const *w) {
    int64_t T = p->T, d = p->d;
    rms_norm(T, d, p->h, w[0], p->a);
    affine(T, d, d, p->a, w[1], true, NULL, p->q);
    affine(T, d, p->K * p->hd, p->a, w[2], true, NULL, p->k);
    affine(T, d, p->K * p->hd, p->a, w[3], true, NULL, p->v);
    rotary(p, p->H, p->q);
    rotary(p, p->K, p->k);
    attend(p);
    affine(T, d, d, p->o, w[4], true, NULL, p->a);
    drop(p, 2, p->a);
    add(T * d, p->h, p->a);
    rms_norm(T, d, p->h, w[5], p->a);
    affine(T, d, p->f, p->a, w[6], true, NULL, p->g);
    affine(T, d, p->f, p->a, w[7], true, NULL, p->u);
    for (int64_t i = 0; i < T * p->f; i++) p->g[i] = p->g[i] / (1 + exp(-p->g[i])) * p->u[i];
    affine(T, p->f, d, p->g, w[8], true, NULL, p->a);
    drop(p, 3, p->a);
    add(T * d, p->h, p->a);
}

/* Leaves the last norm's output of every row in `a`; returns the matrix of the logits. */
static const double *run_sequence(plain *p, double *const *w, const int32_t *inputs) {
    bool gpt2 = p->c->family == SHD_MODEL_GPT2;
    int64_t T = p->T, d = p->d, layers = p->c->n_layer;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < d; i++) p->h[t * d + i] = w[0][inputs[t] * d + i] + (gpt2 ? w[1][t * d + i] : 0);
    p->unit = 0;
    drop(p, 0, p->h);
    for (int64_t l = 0; l < layers; l++) {
        p->unit++;
        if (gpt2)
            gpt2_block(p, w + 2 + 12 * l);
        else
            llama_block(p, w + 1 + 9 * l);
    }
    double *const *last = w + (gpt2 ? 2 + 12 * layers : 1 + 9 * layers);
    if (gpt2)
        layer_norm(T, d, p->h, last[0], last[1], p->a);
    else
        rms_norm(T, d, p->h, last[0], p->a);
    return p->c->tied_embeddings ? w[0] : last[gpt2 ? 2 : 1];
}

static double sequence_loss(plain *p, double *const *w, const int32_t *inputs, const int32_t *targets, double *losses) {
    int64_t T = p->T, d = p->d, V = p->c->vocab_size;
    const double *output = run_sequence(p, w, inputs);
    double *logits = calloc((size_t)V, sizeof *logits), sum = 0;
    for (int64_t t = 0; t < T; t++) {
        losses[t] = 0;
        if (targets[t] < 0) continue;
        affine(1, d, V, p->a + t * d, output, true, NULL, logits);
        double top = -INFINITY, total = 0;
        for (int64_t i = 0; i < V; i++) top = fmax(top, logits[i]);
        for (int64_t i = 0; i < V; i++) total += exp(logits[i] - top);
        sum += losses[t] = top + log(total) - logits[targets[t]];
    }
    free(logits);
    return sum;
}

enum { AREAS = 8 };

static plain open_plain(const shd_model_config *c, int64_t length) {
    bool gpt2 = c->family == SHD_MODEL_GPT2;
    plain p = {.c = c, .T = length, .d = c->d_model, .H = c->n_head, .K = gpt2 ? c->n_head : c->n_kv_head};
    p.hd = p.d / p.H;
    p.f = gpt2 ? 4 * p.d : c->d_ff;
    int64_t width = p.f > 3 * p.d ? p.f : 3 * p.d;
    double **areas[AREAS] = {&p.h, &p.a, &p.q, &p.k, &p.v, &p.o, &p.g, &p.u};
    for (int i = 0; i < AREAS; i++) *areas[i] = calloc((size_t)(p.T * width), sizeof(double));
    return p;
}

static void close_plain(plain *p) {
    double *areas[AREAS] = {p->h, p->a, p->q, p->k, p->v, p->o, p->g, p->u};
    for (int i = 0; i < AREAS; i++) free(areas[i]);
}

double plain_loss(const shd_model_config *c, double *const *parameters, int64_t first_sequence, const int32_t *inputs,
                  const int32_t *targets, double *losses) {
    plain p = open_plain(c, c->context);
    double sum = 0;
    for (int64_t b = 0; b < c->micro_batch; b++) {
        p.sequence = first_sequence + b;
        sum += sequence_loss(&p, parameters, inputs + b * p.T, targets + b * p.T, losses + b * p.T);
    }
    close_plain(&p);
    return sum;
}

void plain_logits(const shd_model_config *c, double *const *parameters, const int32_t *inputs, int64_t count,
                  double *logits) {
    shd_model_config without = *c;
    without.dropout = 0;
    plain p = open_plain(&without, count);
    const double *output = run_sequence(&p, parameters, inputs);
    affine(1, p.d, c->vocab_size, p.a + (count - 1) * p.d, output, true, NULL, logits);
    close_plain(&p);
}
