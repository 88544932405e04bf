/* Losses and what is done to outputs row by row, and dropout.
 *
 * Gradients are written over their row in the math's type, from its start on. In 16 bits that reaches numbers that other
 * threads have yet to read: so a row goes in chunks, read by all before one of them writes; what a chunk writes ends
 * before the next one begins. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/losses.h"
#include "runtime/ops/cuda/mask.cuh"

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr unsigned ALL = 0xffffffffu;

/* f(a, b) over the block, in an order of its own that is always the same; every thread gets it. */
template <class T, class F> __device__ T fold_block(T own, T *shared, F f) {
    for (int apart = 16; apart; apart /= 2) own = f(own, __shfl_xor_sync(ALL, own, apart));
    __syncthreads(); /* `shared` may still be read */
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
    __syncthreads();
    T all = shared[0];
    for (int w = 1; w < WARPS; w++) all = f(all, shared[w]);
    return all;
}

template <class T>
__global__ void __launch_bounds__(THREADS) cross_entropy(int64_t vocabulary, float *all_logits, const int32_t *targets,
                                                         float scale, bool gradient, double *loss) {
    SHD_SHARED float largest_of[WARPS];
    SHD_SHARED double sum_of[WARPS];
    const int64_t row = blockIdx.x;
    float *logits = all_logits + row * vocabulary;
    T *gradients = reinterpret_cast<T *>(logits);
    const int32_t target = targets[row];
    const bool counts = target >= 0;
    float own = -INFINITY;
    for (int64_t j = threadIdx.x; j < vocabulary && counts; j += THREADS) own = fmaxf(own, logits[j]);
    const float largest = fold_block(own, largest_of, [](float a, float b) { return fmaxf(a, b); });
    double own_sum = 0;
    for (int64_t j = threadIdx.x; j < vocabulary && counts; j += THREADS) own_sum += (double)expf(logits[j] - largest);
    const double sum = fold_block(own_sum, sum_of, [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) loss[row] = counts ? log(sum) + ((double)largest - (double)logits[target]) : 0.0;
    __syncthreads();
    const float factor = (float)((double)scale / sum);
    for (int64_t first = 0; first < vocabulary && gradient; first += THREADS) {
        const int64_t j = first + threadIdx.x;
        float value = 0;
        if (j < vocabulary && counts) {
            const float e = expf(logits[j] - largest);
            value = j == target ? (float)(((double)e / sum - 1.0) * (double)scale) : factor * e;
        }
        __syncthreads();
        if (j < vocabulary) gradients[j] = rounded<T>(value);
    }
}

/* A warp a row. Comparisons are such that a NaN is never the largest, nor beside one. */
__global__ void __launch_bounds__(THREADS)
    correct_rows(int64_t rows, int64_t classes, const float *all_logits, const int32_t *targets, double *correct) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    const int32_t target = row < rows ? targets[row] : -1;
    const float *logits = all_logits + row * classes;
    bool good = target >= 0;
    for (int64_t j = lane; j < classes && target >= 0; j += 32)
        good = good && (j < target ? logits[j] < logits[target] : logits[j] <= logits[target]);
    good = __all_sync(ALL, good);
    if (lane == 0 && row < rows) correct[row] = good ? 1.0 : 0.0;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    square_error(int64_t columns, float *all_outputs, const float *targets, float scale, bool gradient, double *loss) {
    const int64_t row = blockIdx.x;
    float *outputs = all_outputs + row * columns;
    T *gradients = reinterpret_cast<T *>(outputs);
    for (int64_t first = 0; first < columns; first += THREADS) {
        const int64_t j = first + threadIdx.x;
        double error = 0;
        if (j < columns) {
            const double target = (double)targets[row * columns + j];
            error = isnan(target) ? 0.0 : (double)outputs[j] - target;
            loss[row * columns + j] = error * error;
        }
        __syncthreads();
        if (j < columns && gradient) gradients[j] = rounded<T>((float)(2 * error * (double)scale));
    }
}

/* One block, row after row, each to before where it was. */
__global__ void __launch_bounds__(THREADS) join_rows(int64_t rows, int64_t columns, uint16_t *x) {
    for (int64_t row = 1; row < rows; row++)
        for (int64_t first = 0; first < columns; first += THREADS) {
            const int64_t j = first + threadIdx.x;
            const uint16_t value = j < columns ? x[2 * row * columns + j] : 0;
            __syncthreads();
            if (j < columns) x[row * columns + j] = value;
            __syncthreads();
        }
}

/* Eight columns of a row a thread: one draw. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    dropout(mask_site site, int64_t rows, int64_t context, int64_t columns, const T *x, const T *residual, T *y) {
    const int64_t across = (columns + 7) / 8;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < rows * across;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / across, block = i % across;
        float factors[8];
        draw_factors(site, site.key, row / context, row % context, block, factors);
        for (int k = 0; k < 8 && 8 * block + k < columns; k++) {
            const int64_t at = row * columns + 8 * block + k;
            const float kept = widened(x[at]) * factors[k];
            y[at] = rounded<T>(residual ? widened(residual[at]) + kept : kept);
        }
    }
}

} // namespace

cudaError_t shd_launch_cross_entropy(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t vocabulary,
                                     float *logits, const int32_t *targets, float scale, bool gradient, double *loss) {
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return SHD_LAUNCH(cross_entropy<T>, rows, THREADS, 0, stream,
                          (SHD_READS(logits, rows * vocabulary), SHD_WRITES(logits, gradient ? rows * vocabulary : 0),
                           SHD_READS(targets, rows), SHD_WRITES(loss, rows)),
                          vocabulary, logits, targets, scale, gradient, loss);
    });
}

cudaError_t shd_launch_correct(cudaStream_t stream, int64_t rows, int64_t classes, const float *logits,
                               const int32_t *targets, double *correct) {
    return SHD_LAUNCH(correct_rows, (rows + WARPS - 1) / WARPS, THREADS, 0, stream,
                      (SHD_READS(logits, rows * classes), SHD_READS(targets, rows), SHD_WRITES(correct, rows)), rows,
                      classes, logits, targets, correct);
}

cudaError_t shd_launch_square_error(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns,
                                    float *outputs, const float *targets, float scale, bool gradient, double *loss) {
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return SHD_LAUNCH(square_error<T>, rows, THREADS, 0, stream,
                          (SHD_READS(outputs, rows * columns), SHD_WRITES(outputs, gradient ? rows * columns : 0),
                           SHD_READS(targets, rows * columns), SHD_WRITES(loss, rows * columns)),
                          columns, outputs, targets, scale, gradient, loss);
    });
}

cudaError_t shd_launch_join_rows(cudaStream_t stream, int64_t rows, int64_t columns, uint16_t *x) {
    const int64_t extent = (2 * rows - 1) * columns;
    return SHD_LAUNCH(join_rows, 1, THREADS, 0, stream, (SHD_READS(x, extent), SHD_WRITES(x, extent)), rows, columns,
                      x);
}

cudaError_t shd_launch_dropout(cudaStream_t stream, sherd_dtype dtype, const shd_dropout *mask, int64_t rows,
                               int64_t context, int64_t columns, const void *x, const void *residual, void *y) {
    const mask_site site = {mask->key, mask->first_sequence, mask->drop, mask->scale};
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T *from = static_cast<const T *>(x), *added = static_cast<const T *>(residual);
        T *to = static_cast<T *>(y);
        return SHD_LAUNCH(dropout<T>, blocks_for(rows * ((columns + 7) / 8), THREADS), THREADS, 0, stream,
                          (SHD_READS(from, rows * columns), SHD_READS(added, added ? rows * columns : 0),
                           SHD_WRITES(to, rows * columns)),
                          site, rows, context, columns, from, added, to);
    });
}
