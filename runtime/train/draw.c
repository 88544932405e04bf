/* The likeliest tokens come from a heap, one after the other: what is left out is never sorted. */
#include "runtime/train/draw.h"

#include "runtime/base/arith.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

#include <math.h>

/* A draw under way. The heap is candidates[0, heap_count); behind it, from the end, stand those taken from it. */
typedef struct choice {
    const float *logits;
    double temperature, highest; /* highest: the largest logit */
    int32_t *candidates;
    int32_t count, heap_count;
} choice;

static double weight_of(const choice *c, int32_t token) {
    return exp(((double)c->logits[token] - c->highest) / c->temperature);
}

static bool is_before(const choice *c, int32_t a, int32_t b) {
    return c->logits[a] != c->logits[b] ? c->logits[a] > c->logits[b] : a < b;
}

static void sift_down(choice *c, int32_t at) {
    int32_t *heap = c->candidates, moved = heap[at];
    for (;;) {
        int64_t child = 2 * (int64_t)at + 1;
        if (child >= c->heap_count) break;
        if (child + 1 < c->heap_count && is_before(c, heap[child + 1], heap[child])) child++;
        if (!is_before(c, heap[child], moved)) break;
        heap[at] = heap[child];
        at = (int32_t)child;
    }
    heap[at] = moved;
}

static void build_heap(choice *c) {
    for (int32_t i = 0; i < c->count; i++) c->candidates[i] = i;
    c->heap_count = c->count;
    for (int32_t i = c->count / 2; i-- > 0;) sift_down(c, i);
}

/* The token of rank `rank`, 0 the likeliest; ranks are asked for in order, or again. */
static int32_t ranked(choice *c, int32_t rank) {
    if (rank < c->count - c->heap_count) return c->candidates[c->count - 1 - rank];
    int32_t token = c->candidates[0];
    c->heap_count--;
    c->candidates[0] = c->candidates[c->heap_count];
    sift_down(c, 0);
    c->candidates[c->heap_count] = token;
    return token;
}

/* How many of the likeliest tokens may be drawn; *total: their weight. */
static int32_t find_allowed(choice *c, int32_t top_k, double top_p, double *total) {
    double all = 0, sum = 0;
    if (top_k < c->count)
        for (int32_t rank = 0; rank < top_k; rank++) all += weight_of(c, ranked(c, rank));
    else
        for (int32_t token = 0; token < c->count; token++) all += weight_of(c, token);
    int32_t allowed = 0;
    while (allowed < top_k && (allowed == 0 || sum < top_p * all)) sum += weight_of(c, ranked(c, allowed++));
    *total = sum;
    return allowed;
}

static int32_t draw_ranked(choice *c, int32_t top_k, double top_p, double uniform) {
    build_heap(c);
    double left;
    int32_t allowed = find_allowed(c, top_k, top_p, &left);
    left *= uniform;
    for (int32_t rank = 0; rank < allowed; rank++) {
        left -= weight_of(c, ranked(c, rank));
        if (left < 0) return ranked(c, rank);
    }
    return ranked(c, 0);
}

static int32_t draw_any(const choice *c, int32_t likeliest, double uniform) {
    double left = 0;
    for (int32_t token = 0; token < c->count; token++) left += weight_of(c, token);
    left *= uniform;
    for (int32_t token = 0; token < c->count; token++) {
        left -= weight_of(c, token);
        if (left < 0) return token;
    }
    return likeliest;
}

/* In (0, 1). */
static double uniform_number(uint64_t seed, int64_t sample, int64_t position) {
    uint32_t words[4];
    shd_philox(shd_random_key(seed, "sample"), (uint64_t)position, (uint64_t)sample, words);
    return ((double)((uint64_t)words[1] << 20 | words[0] >> 12) + 0.5) * 0x1p-52;
}

sherd_status shd_draw_token(const shd_draw *draw, int64_t sample, int64_t position, const float *logits, int32_t count,
                            int32_t *candidates, int32_t *out) {
    int32_t likeliest = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!isfinite(logits[i])) return shd_fail(SHERD_NUMERIC, "the logit of token %d is %g", i, (double)logits[i]);
        if (logits[i] > logits[likeliest]) likeliest = i;
    }
    choice c = {.logits = logits,
                .temperature = draw->temperature,
                .highest = (double)logits[likeliest],
                .candidates = candidates,
                .count = count};
    int32_t top_k = draw->top_k > 0 ? (int32_t)shd_min(draw->top_k, count) : count;
    double uniform = uniform_number(draw->seed, sample, position);
    if (draw->temperature == 0)
        *out = likeliest;
    else if (top_k == count && draw->top_p >= 1)
        *out = draw_any(&c, likeliest, uniform);
    else
        *out = draw_ranked(&c, top_k, draw->top_p, uniform);
    return SHERD_OK;
}
