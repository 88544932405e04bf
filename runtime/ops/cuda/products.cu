/* What products need around them: first values of their outputs, sums of columns, biases, narrower copies. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/products.h"

namespace {

constexpr int THREADS = 256;

template <class C, class T>
__global__ void __launch_bounds__(THREADS) seed_rows(int64_t rows, int64_t columns, int64_t stride, C *c,
                                                     bool accumulate, const T *bias, const T *residual) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < rows * columns; i += (int64_t)gridDim.x * THREADS) {
        const int64_t at = i / columns * stride + i % columns;
        float value = accumulate ? widened(c[at]) : 0.0f;
        if (bias) value += widened(bias[i % columns]);
        if (residual) value += widened(residual[at]);
        c[at] = rounded<C>(value);
    }
}

template <class C, class T> cudaError_t launch_seed(cudaStream_t stream, const shd_seed *seed) {
    C *c = static_cast<C *>(seed->c);
    const T *bias = static_cast<const T *>(seed->bias), *residual = static_cast<const T *>(seed->residual);
    const int64_t extent = (seed->rows - 1) * seed->stride + seed->columns;
    return SHD_LAUNCH((seed_rows<C, T>), blocks_for(seed->rows * seed->columns, THREADS), THREADS, 0, stream,
                      (SHD_READS(c, seed->accumulate ? extent : 0), SHD_WRITES(c, extent),
                       SHD_READS(bias, bias ? seed->columns : 0), SHD_READS(residual, residual ? extent : 0)),
                      seed->rows, seed->columns, seed->stride, c, seed->accumulate, bias, residual);
}

/* --- sums of columns ---------------------------------------------------------------------------------------------- */

constexpr int ACROSS = 32, GROUPS = THREADS / ACROSS;

/* A block adds up a tile of columns over its rows: each group of threads every eighth row, then the groups in order. */
template <class T>
__global__ void __launch_bounds__(THREADS) sum_tile(int64_t rows, int64_t columns, int64_t chunk, const T *x, float *to) {
    SHD_SHARED float partial[GROUPS][ACROSS];
    const int across = (int)threadIdx.x % ACROSS, group = (int)threadIdx.x / ACROSS;
    const int64_t tiles = (columns + ACROSS - 1) / ACROSS;
    const int64_t column = (int64_t)(blockIdx.x % tiles) * ACROSS + across, part = blockIdx.x / tiles;
    const int64_t first = part * chunk, end = first + chunk < rows ? first + chunk : rows;
    float sum = 0;
    if (column < columns)
        for (int64_t row = first + group; row < end; row += GROUPS) sum += widened(x[row * columns + column]);
    partial[group][across] = sum;
    __syncthreads();
    if (group == 0 && column < columns) {
        for (int g = 1; g < GROUPS; g++) sum += partial[g][across];
        to[part * columns + column] = sum;
    }
}

template <class T>
cudaError_t launch_sum(cudaStream_t stream, int64_t rows, int64_t columns, int64_t chunk, const T *x, float *to) {
    const int64_t tiles = (columns + ACROSS - 1) / ACROSS, parts = (rows + chunk - 1) / chunk;
    return SHD_LAUNCH(sum_tile<T>, tiles * parts, THREADS, 0, stream,
                      (SHD_READS(x, rows * columns), SHD_WRITES(to, parts * columns)), rows, columns, chunk, x, to);
}

/* --- biases and narrower copies ----------------------------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(THREADS) add_bias(int64_t count, int64_t columns, const T *bias, float *y) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS)
        y[i] += widened(bias[i % columns]);
}

template <class T> __global__ void __launch_bounds__(THREADS) narrow(int64_t count, const float *x, T *y) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS)
        y[i] = rounded<T>(x[i]);
}

} // namespace

cudaError_t shd_launch_seed(cudaStream_t stream, const shd_seed *seed) {
    return with_type(seed->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return seed->c_dtype == SHERD_FP32 ? launch_seed<float, T>(stream, seed) : launch_seed<T, T>(stream, seed);
    });
}

cudaError_t shd_launch_column_sum(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns, const void *x,
                                  float *work, int64_t work_bytes, float *sum) {
    const int64_t room = work_bytes / (columns * (int64_t)sizeof *work);
    int64_t chunk = room > 0 ? (rows + room - 1) / room : rows;
    if (chunk < SHD_COLUMN_SUM_ROWS) chunk = SHD_COLUMN_SUM_ROWS;
    const int64_t parts = (rows + chunk - 1) / chunk;
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T *from = static_cast<const T *>(x);
        if (parts == 1) return launch_sum(stream, rows, columns, rows, from, sum);
        const cudaError_t error = launch_sum(stream, rows, columns, chunk, from, work);
        return error != cudaSuccess ? error : launch_sum<float>(stream, parts, columns, parts, work, sum);
    });
}

cudaError_t shd_launch_add_bias(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns, const void *bias,
                                float *y) {
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T *from = static_cast<const T *>(bias);
        return SHD_LAUNCH(add_bias<T>, blocks_for(rows * columns, THREADS), THREADS, 0, stream,
                          (SHD_READS(from, columns), SHD_READS(y, rows * columns), SHD_WRITES(y, rows * columns)),
                          rows * columns, columns, from, y);
    });
}

cudaError_t shd_launch_narrow(cudaStream_t stream, sherd_dtype dtype, int64_t count, const float *x, void *y) {
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T *to = static_cast<T *>(y);
        return SHD_LAUNCH(narrow<T>, blocks_for(count, THREADS), THREADS, 0, stream,
                          (SHD_READS(x, count), SHD_WRITES(to, count)), count, x, to);
    });
}
