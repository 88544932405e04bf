/* Draws against a plain reading of their definition: sort, cut, normalise, add up. */
#include "runtime/base/random.h"
#include "runtime/train/draw.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300 };

static int32_t draw(const shd_draw *how, int64_t sample, int64_t position, const float *logits, int32_t count) {
    int32_t candidates[MOST], token = -1;
    cr_assert_eq(shd_draw_token(how, sample, position, logits, count, candidates, &token), SHERD_OK, "%s",
                 sherd_last_error());
    return token;
}

/* A text of fixed pseudo-random logits, with some that are equal. */
static void make_logits(float *logits, int32_t count, uint64_t seed) {
    shd_random_normal(seed, 0, count, 2, logits);
    for (int32_t i = 0; i + 5 < count; i += 5) logits[i + 4] = logits[i];
}

/* p(i) of each token, the slow way. */
static void expected(const shd_draw *how, const float *logits, int32_t count, double *p) {
    int32_t order[MOST];
    for (int32_t i = 0; i < count; i++) order[i] = i;
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = i + 1; j < count; j++)
            if (logits[order[j]] > logits[order[i]] || (logits[order[j]] == logits[order[i]] && order[j] < order[i])) {
                int32_t other = order[i];
                order[i] = order[j];
                order[j] = other;
            }
    int32_t kept = how->top_k > 0 && how->top_k < count ? (int32_t)how->top_k : count;
    double total = 0, sum = 0;
    memset(p, 0, (size_t)count * sizeof *p);
    for (int32_t i = 0; i < kept; i++) total += exp((double)logits[order[i]] / how->temperature);
    int32_t allowed = 0;
    while (allowed < kept && (allowed == 0 || sum < how->top_p * total * (1 - 1e-12)))
        sum += exp((double)logits[order[allowed++]] / how->temperature);
    for (int32_t i = 0; i < allowed; i++) p[order[i]] = exp((double)logits[order[i]] / how->temperature) / sum;
}

static const shd_draw draws[] = {
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.7, .top_p = 1, .top_k = 1},
    {.temperature = 1.3, .top_p = 1, .top_k = 7},
    {.temperature = 1, .top_p = 1, .top_k = 1000},
    {.temperature = 1, .top_p = 0.5},
    {.temperature = 1, .top_p = 0},
    {.temperature = 2, .top_p = 0.9, .top_k = 20},
    {.temperature = 0.5, .top_p = 0.999},
};
enum { DRAWS = sizeof draws / sizeof *draws };

/* 4000 draws of each: every count within five standard deviations, and never a token that is cut off. */
Test(draw, has_the_probabilities_it_says) {
    enum { TIMES = 4000 };
    static const int32_t counts[] = {1, 2, 17, 41};
    for (int d = 0; d < DRAWS; d++)
        for (int c = 0; c < 4; c++) {
            float logits[MOST];
            double p[MOST];
            int64_t seen[MOST] = {0};
            int32_t count = counts[c];
            make_logits(logits, count, (uint64_t)(d + 1));
            expected(&draws[d], logits, count, p);
            for (int64_t i = 0; i < TIMES; i++) {
                shd_draw how = draws[d];
                how.seed = (uint64_t)(i % 10);
                seen[draw(&how, i / 10 % 20, i / 200, logits, count)]++;
            }
            for (int32_t i = 0; i < count; i++) {
                double bound = 5 * sqrt(TIMES * p[i] * (1 - p[i])) + (p[i] > 0);
                cr_assert(fabs((double)seen[i] - TIMES * p[i]) <= bound, "draw %d of %d, token %d: %d times, p %g", d,
                          count, i, (int)seen[i], p[i]);
            }
        }
}

Test(draw, is_decided_by_seed_sample_and_position) {
    float logits[MOST];
    make_logits(logits, MOST, 3);
    shd_draw how = {.temperature = 3, .top_p = 1, .seed = 5};
    int same[3] = {0};
    for (int64_t i = 0; i < 50; i++) {
        int32_t token = draw(&how, 2, i, logits, MOST);
        cr_assert_eq(draw(&how, 2, i, logits, MOST), token);
        same[0] += draw(&how, 2, i + 1000, logits, MOST) == token;
        same[1] += draw(&how, 3, i, logits, MOST) == token;
        shd_draw other = how;
        other.seed++;
        same[2] += draw(&other, 2, i, logits, MOST) == token;
    }
    for (int i = 0; i < 3; i++) cr_assert_lt(same[i], 15, "%d of 50 are the same", same[i]);
}

Test(draw, takes_the_likeliest_and_of_equals_the_lowest_at_temperature_0) {
    const float logits[] = {-1, 4, 0, 4, 3.5f};
    for (int64_t i = 0; i < 20; i++) {
        cr_assert_eq(draw(&(shd_draw){.temperature = 0, .top_p = 1}, 0, i, logits, 5), 1);
        cr_assert_eq(draw(&(shd_draw){.temperature = 1, .top_p = 1, .top_k = 1}, 0, i, logits, 5), 1);
        cr_assert_eq(draw(&(shd_draw){.temperature = 1, .top_p = 0}, 0, i, logits, 5), 1);
        cr_assert_eq(draw(&(shd_draw){.temperature = 1e-300, .top_p = 1}, 0, i, logits + 2, 2), 1);
    }
}

Test(draw, refuses_logits_that_are_not_finite) {
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 3; at++) {
            float logits[] = {1, 2, 3};
            int32_t candidates[3], token = 7;
            logits[at] = bad[i];
            shd_draw how = {.temperature = i % 2, .top_p = 1};
            cr_assert_eq(shd_draw_token(&how, 0, 0, logits, 3, candidates, &token), SHERD_NUMERIC);
            cr_assert_eq(token, 7);
        }
}
