/* The choice of a token from logits. Pure: what is drawn is decided by the numbers handed in, on every machine that has
 * the same logits. */
#ifndef SHD_TRAIN_DRAW_H
#define SHD_TRAIN_DRAW_H

#include <sherd/status.h>
#include <stdint.h>

/* p(i) = exp(logit_i / temperature) / Σ, over the tokens that top_k leaves, then over those that top_p leaves of them.
 * Of equal logits the lower token comes first. */
typedef struct shd_draw {
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* only the k likeliest; 0: all */
    double top_p;       /* only the fewest that have this share of the probability together; 1: all */
    uint64_t seed;
} shd_draw;

/* Draws by inversion, with the uniform number that seed, sample and position decide. logits: [count]; `candidates`:
 * work memory, [count].
 * Fails: NUMERIC (a logit is not finite). */
sherd_status shd_draw_token(const shd_draw *draw, int64_t sample, int64_t position, const float *logits, int32_t count,
                            int32_t *candidates, int32_t *out);

#endif
