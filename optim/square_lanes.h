/* Sums of squares in 16 lanes of doubles, for update_kernels.c and whole_kernels.c: lane l has elements l, l + 16, … */
#ifndef SHD_OPTIM_SQUARE_LANES_H
#define SHD_OPTIM_SQUARE_LANES_H

#include <stdint.h>

enum { SQUARE_LANES = 16 };

/* Adds the squares of `rows` times 16 values. */
static inline void square_lanes_add(const float *values, int64_t rows, double lanes[SQUARE_LANES]) {
    for (int64_t row = 0; row < rows; row++, values += SQUARE_LANES)
        for (int lane = 0; lane < SQUARE_LANES; lane++) {
            double value = values[lane];
            lanes[lane] += value * value;
        }
}

/* Their sum, in lane order. */
static inline double square_lanes_fold(const double lanes[SQUARE_LANES]) {
    double sum = lanes[0];
    for (int lane = 1; lane < SQUARE_LANES; lane++) sum += lanes[lane];
    return sum;
}

#endif
