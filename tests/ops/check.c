#include "check.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

shd_math check_maths[CHECK_POOLS];

enum { MEMORY_MAX = 4096 };
static void *memory[MEMORY_MAX];
static int memory_count;

void check_begin(void) {
    shd_ops_init();
    for (int32_t i = 0; i < CHECK_POOLS; i++) cr_assert_eq(shd_pool_create(i + 1, &check_maths[i].pool), SHERD_OK);
}

void check_free(void) {
    while (memory_count) free(memory[--memory_count]);
}

void check_end(void) {
    for (int i = 0; i < CHECK_POOLS; i++) shd_pool_destroy(check_maths[i].pool);
    check_free();
}

void *check_memory(int64_t bytes) {
    size_t rounded = ((size_t)bytes + 127) / 64 * 64;
    void *pointer = aligned_alloc(64, rounded);
    cr_assert(pointer && memory_count < MEMORY_MAX);
    memory[memory_count++] = pointer;
    return memset(pointer, 0x7f, rounded);
}

float *check_floats(int64_t count) { return check_memory(count * (int64_t)sizeof(float)); }
double *check_doubles(int64_t count) { return check_memory(count * (int64_t)sizeof(double)); }

/* SplitMix64. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double next_uniform(uint64_t *state) { return ((double)(next_random(state) >> 11) + 0.5) * 0x1p-53; }

float *check_random(int64_t count, uint64_t seed, double scale) {
    float *x = check_floats(count);
    for (int64_t i = 0; i < count; i++) {
        double radius = sqrt(-2 * log(next_uniform(&seed)));
        x[i] = (float)(scale * radius * cos(2 * M_PI * next_uniform(&seed)));
    }
    return x;
}

int32_t *check_random_ids(int64_t count, uint64_t seed, int32_t below) {
    int32_t *ids = check_memory(count * (int64_t)sizeof *ids);
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)(next_random(&seed) % (uint64_t)below);
    return ids;
}

float *check_copy(int64_t count, const float *x) {
    float *copy = check_floats(count);
    memcpy(copy, x, sizeof *x * (size_t)count);
    return copy;
}

double *check_widen(int64_t count, const float *x) {
    double *wide = check_doubles(count);
    for (int64_t i = 0; i < count; i++) wide[i] = (double)x[i];
    return wide;
}

static void compare(const char *what, double fast, double plain, double scale, double ulp) {
    cr_assert(isfinite(fast), "%s: not finite", what);
    cr_assert(fast <= 2 * plain + ulp * scale, "%s: error %g, the plain reference's %g, at scale %g", what, fast, plain,
              scale);
}

static double largest(double so_far, double value) { return value > so_far || isnan(value) ? value : so_far; }

void check_error(const char *what, int64_t count, const float *fast, const float *plain, const double *exact) {
    double fast_error = 0, plain_error = 0, scale = 0;
    for (int64_t i = 0; i < count; i++) {
        scale = largest(scale, fabs(exact[i]));
        fast_error = largest(fast_error, fabs((double)fast[i] - exact[i]));
        plain_error = largest(plain_error, fabs((double)plain[i] - exact[i]));
    }
    compare(what, fast_error, plain_error, scale, 0x1p-23);
}

void check_error_f64(const char *what, int64_t count, const double *fast, const double *plain, const double *exact) {
    double fast_error = 0, plain_error = 0, scale = 0;
    for (int64_t i = 0; i < count; i++) {
        scale = largest(scale, fabs(exact[i]));
        fast_error = largest(fast_error, fabs(fast[i] - exact[i]));
        plain_error = largest(plain_error, fabs(plain[i] - exact[i]));
    }
    compare(what, fast_error, plain_error, scale, 0x1p-23);
}

void check_same_bits(const char *what, int64_t bytes, const void *a, const void *b) {
    cr_assert(memcmp(a, b, (size_t)bytes) == 0, "%s: bits differ", what);
}

double check_dot(int64_t count, const double *weight, const double *y) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += weight[i] * y[i];
    return sum;
}

void check_gradient(const char *what, int64_t count, double *input, const double *gradient, double (*loss)(void *),
                    void *context) {
    double scale = 1e-3;
    for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(gradient[i]));
    for (int64_t i = 0; i < count; i += 1 + count / 200) {
        const double kept = input[i], step = 1e-5 * fmax(1, fabs(kept));
        input[i] = kept + step;
        const double above = loss(context);
        input[i] = kept - step;
        const double below = loss(context);
        input[i] = kept;
        const double slope = (above - below) / (2 * step);
        cr_assert(fabs(slope - gradient[i]) <= 1e-6 * scale, "%s: element %d: gradient %.9g, differences say %.9g",
                  what, (int)i, gradient[i], slope);
    }
}
