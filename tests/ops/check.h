/* What the tests of operations share: numbers, memory, and the two questions asked of every operation, for every type of
 * what is stored.
 *
 * - Is its error against the float64 reference at most twice that of the plain float reference? Both get what the
 *   operation gets: numbers that the type holds exactly. Errors are the largest over all elements, relative to the
 *   natural scale of the output: its largest magnitude. One ulp of that scale is granted on top, since the plain
 *   reference is often exact by luck (one addend, one column) and then twice its error is nothing; and to an output that
 *   is stored in 16 bits half an ulp of its type at that scale, the one rounding it has. An output that is zero
 *   throughout must be exactly zero.
 * - Are its bits the same with 1, 2 and 3 threads? */
#ifndef SHD_TESTS_OPS_CHECK_H
#define SHD_TESTS_OPS_CHECK_H

#include "runtime/ops/ops.h"

#include <stdbool.h>
#include <stdint.h>

enum { CHECK_POOLS = 3, CHECK_TYPES = 3 };

/* By type, on pools of 1, 2, 3 threads; ready between check_begin and check_end. */
extern shd_math check_maths[CHECK_TYPES][CHECK_POOLS];
void check_begin(void);
/* Frees everything that came from the functions below; check_free leaves the pools. */
void check_end(void);
void check_free(void);

/* 64-byte aligned, each byte 0x7f: floats and doubles that read as huge numbers. */
void *check_memory(int64_t bytes);
float *check_floats(int64_t count);
double *check_doubles(int64_t count);

/* Numbers of a normal distribution, the same for the same seed. */
float *check_random(int64_t count, uint64_t seed, double scale);
/* The same, rounded to `dtype`. */
float *check_random_of(sherd_dtype dtype, int64_t count, uint64_t seed, double scale);
/* x as an operation has it: stored in `dtype`; and what is so stored. NULL stays NULL. */
void *check_stored(sherd_dtype dtype, int64_t count, const float *x);
float *check_loaded(sherd_dtype dtype, int64_t count, const void *stored);
int32_t *check_random_ids(int64_t count, uint64_t seed, int32_t below);
float *check_copy(int64_t count, const float *x);
double *check_widen(int64_t count, const float *x);

/* Asserts what is written on top of this file. `what` names the case, `dtype` is that of the output. */
void check_error(const char *what, sherd_dtype dtype, int64_t count, const void *fast, const float *plain,
                 const double *exact);
/* The same for an operation that rounds to `dtype` so many times on the way from input to output. */
void check_error_of(const char *what, sherd_dtype dtype, int roundings, int64_t count, const void *fast,
                    const float *plain, const double *exact);
/* The same for outputs in double (losses). */
void check_error_f64(const char *what, int64_t count, const double *fast, const double *plain, const double *exact);
void check_same_bits(const char *what, int64_t bytes, const void *a, const void *b);

/* Asserts that gradient[i] is the derivative of loss(context) by input[i], by central differences, for up to 200
 * elements spread over the input. `input` is restored. */
void check_gradient(const char *what, int64_t count, double *input, const double *gradient, double (*loss)(void *),
                    void *context);
/* Σ weight·y: the loss whose gradient by y is `weight`. */
double check_dot(int64_t count, const double *weight, const double *y);

#endif
