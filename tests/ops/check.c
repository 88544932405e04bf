#include "check.h"

#include "runtime/base/dtype.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

shd_math check_maths[CHECK_TYPES][CHECK_POOLS];

enum { MEMORY_MAX = 4096 };
static void *memory[MEMORY_MAX];
static int memory_count;

void check_begin(void) {
    shd_ops_init();
    for (int32_t i = 0; i < CHECK_POOLS; i++) {
        shd_pool *pool;
        cr_assert_eq(shd_pool_create(i + 1, &pool), SHERD_OK);
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            const size_t bytes = (size_t)shd_op_matmul_scratch_bytes(dtype, i + 1);
            void *scratch = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
            check_maths[dtype][i] = (shd_math){.pool = pool, .dtype = dtype, .scratch = scratch};
        }
    }
}

void check_free(void) {
    while (memory_count) free(memory[--memory_count]);
}

void check_end(void) {
    for (int32_t i = 0; i < CHECK_POOLS; i++) {
        shd_pool_destroy(check_maths[SHERD_FP32][i].pool);
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) free(check_maths[dtype][i].scratch);
    }
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

float *check_random_of(sherd_dtype dtype, int64_t count, uint64_t seed, double scale) {
    return check_loaded(dtype, count, check_stored(dtype, count, check_random(count, seed, scale)));
}

void *check_stored(sherd_dtype dtype, int64_t count, const float *x) {
    if (!x) return NULL;
    void *stored = check_memory(count * shd_dtype_bytes(dtype));
    shd_round(dtype, count, x, stored);
    return stored;
}

float *check_loaded(sherd_dtype dtype, int64_t count, const void *stored) {
    if (!stored) return NULL;
    float *x = check_floats(count);
    shd_widen(dtype, count, stored, x);
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

static double largest(double so_far, double value) { return value > so_far || isnan(value) ? value : so_far; }

/* Half an ulp of the type at `scale`: its one rounding. fp16 has subnormal numbers where tests can see them. */
static double rounding_of(sherd_dtype dtype, double scale) {
    return dtype == SHERD_FP32 ? 0 : dtype == SHERD_BF16 ? 0x1p-8 * scale : 0x1p-11 * scale + (scale > 0) * 0x1p-25;
}

/* What check_error and check_error_f64 do, element by element. */
typedef struct errors {
    double fast, plain, scale;
} errors;

static void add_error(errors *e, double fast, double plain, double exact) {
    e->scale = largest(e->scale, fabs(exact));
    e->fast = largest(e->fast, fabs(fast - exact));
    e->plain = largest(e->plain, fabs(plain - exact));
}

static void compare(const char *what, sherd_dtype dtype, int roundings, const errors *e) {
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    cr_assert(isfinite(e->fast), "%s in %s: not finite", what, types[dtype]);
    cr_assert(e->fast <= 2 * e->plain + 0x1p-23 * e->scale + roundings * rounding_of(dtype, e->scale),
              "%s in %s: error %g, the plain reference's %g, at scale %g", what, types[dtype], e->fast, e->plain,
              e->scale);
}

void check_error_of(const char *what, sherd_dtype dtype, int roundings, int64_t count, const void *fast,
                    const float *plain, const double *exact) {
    errors e = {0};
    for (int64_t i = 0; i < count; i++) {
        float value;
        shd_widen(dtype, 1, shd_const_element(dtype, fast, i), &value);
        add_error(&e, (double)value, (double)plain[i], exact[i]);
    }
    compare(what, dtype, roundings, &e);
}

void check_error(const char *what, sherd_dtype dtype, int64_t count, const void *fast, const float *plain,
                 const double *exact) {
    check_error_of(what, dtype, 1, count, fast, plain, exact);
}

void check_error_f64(const char *what, int64_t count, const double *fast, const double *plain, const double *exact) {
    errors e = {0};
    for (int64_t i = 0; i < count; i++) add_error(&e, fast[i], plain[i], exact[i]);
    compare(what, SHERD_FP32, 1, &e);
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
