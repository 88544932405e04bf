/* One element under each optimizer in float64, as textbooks have it: written apart from the code under test, from the
 * README of the reference runs. */
#ifndef SHD_TESTS_SUPPORT_TEXTBOOK_H
#define SHD_TESTS_SUPPORT_TEXTBOOK_H

#include <math.h>
#include <sherd/options.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct textbook {
    double p, s0, s1;
    bool ambiguous; /* Lion: a direction so near zero that float32 may take the other sign */
} textbook;

static inline void textbook_step(const sherd_optimizer *o, textbook *e, double g, int64_t step, double lr, double wd) {
    if (o->kind == SHERD_ADAMW || o->kind == SHERD_ADAM) {
        if (o->kind == SHERD_ADAMW)
            e->p *= 1 - lr * wd;
        else
            g += wd * e->p;
        e->s0 = o->beta1 * e->s0 + (1 - o->beta1) * g;
        e->s1 = o->beta2 * e->s1 + (1 - o->beta2) * g * g;
        double m_hat = e->s0 / (1 - pow(o->beta1, (double)step + 1)),
               v_hat = e->s1 / (1 - pow(o->beta2, (double)step + 1));
        e->p -= lr * m_hat / (sqrt(v_hat) + o->eps);
    } else if (o->kind == SHERD_LION) {
        double u = o->beta1 * e->s0 + (1 - o->beta1) * g;
        if (u != 0 && fabs(u) < 1e-6) e->ambiguous = true;
        e->s0 = o->beta2 * e->s0 + (1 - o->beta2) * g;
        e->p *= 1 - lr * wd;
        e->p -= lr * (u > 0 ? 1 : u < 0 ? -1 : 0);
    } else {
        g += wd * e->p;
        e->s0 = step == 0 ? g : o->momentum * e->s0 + g;
        e->p -= lr * (o->nesterov ? g + o->momentum * e->s0 : e->s0);
    }
}

#endif
