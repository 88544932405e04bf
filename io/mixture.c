#include "io/mixture.h"

#include <math.h>
#include <stdbool.h>

/* Shares of all sources together, before rounding. */
static const double whole = 0x1p31;

shd_mixture shd_mixture_make(const double *weights, int32_t source_count) {
    shd_mixture mixture = {.source_count = source_count};
    double sum = 0;
    for (int32_t i = 0; i < source_count; i++) sum += weights[i];
    for (int32_t i = 0; i < source_count; i++)
        mixture.below[i + 1] = mixture.below[i] + (uint64_t)fmax(1, round(weights[i] / sum * whole));
    return mixture;
}

/* A node: sources [low, high), those before `middle` on its left. */
typedef struct node {
    int32_t low, middle, high;
} node;

static node node_of(int32_t low, int32_t high) { return (node){low, low + (high - low) / 2, high}; }

/* How many of the first `count` sequences that reach the node go left. */
static int64_t count_left(const shd_mixture *mixture, node at, int64_t count) {
    __extension__ typedef unsigned __int128 wide;
    uint64_t left = mixture->below[at.middle] - mixture->below[at.low];
    uint64_t both = mixture->below[at.high] - mixture->below[at.low];
    return (int64_t)(((wide)(uint64_t)count * left + both / 2) / both);
}

shd_mixture_place shd_mixture_find(const shd_mixture *mixture, int64_t q) {
    node at = node_of(0, mixture->source_count);
    while (at.high - at.low > 1) {
        int64_t before = count_left(mixture, at, q);
        bool left = count_left(mixture, at, q + 1) > before;
        q = left ? before : q - before;
        at = left ? node_of(at.low, at.middle) : node_of(at.middle, at.high);
    }
    return (shd_mixture_place){.source = at.low, .number = q};
}

int64_t shd_mixture_count(const shd_mixture *mixture, int32_t source, int64_t q) {
    node at = node_of(0, mixture->source_count);
    while (at.high - at.low > 1) {
        int64_t left = count_left(mixture, at, q);
        bool is_left = source < at.middle;
        q = is_left ? left : q - left;
        at = is_left ? node_of(at.low, at.middle) : node_of(at.middle, at.high);
    }
    return q;
}
