/* The gradients of a norm's weight and bias, sums over all rows: a block takes a tile of columns and a chunk of the rows,
 * and leaves its sums in work memory, where a second kernel adds up the chunks in order. How rows are cut depends on the
 * shape alone. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/pointwise.h"

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;

/* Sums over a block's warps in order; `sums` has a row of COLUMNS for each. out[j] for the tile's columns, `left` of which
 * the matrix has. */
template <int COLUMNS> __device__ void fold_warps(const float (&sums)[WARPS][COLUMNS], int64_t left, float *out) {
    for (int j = threadIdx.x; j < COLUMNS && j < left; j += THREADS) {
        float sum = 0;
        for (int warp = 0; warp < WARPS; warp++) sum += sums[warp][j];
        out[j] = sum;
    }
}

struct chunks {
    int64_t rows, columns;
    int64_t tiles, rows_per_chunk, count; /* tiles × count blocks */
};

/* weight_sums[chunk, j] = Σ dy·x̂ and bias_sums[chunk, j] = Σ dy over the chunk's rows: a warp adds up every WARPS-th row,
 * a lane a pack of columns. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(THREADS) weight_kernel(chunks c, const T *x, const float *mean, const float *rstd,
                                                         const T *dy, float *weight_sums, float *bias_sums) {
    constexpr int COLUMNS = 32 * WIDTH;
    SHD_SHARED float weight_parts[WARPS][COLUMNS], bias_parts[WARPS][COLUMNS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t tile = blockIdx.x % c.tiles, chunk = blockIdx.x / c.tiles, index = tile * 32 + lane;
    const int64_t first = chunk * c.rows_per_chunk, after = first + c.rows_per_chunk;
    const int64_t end = after < c.rows ? after : c.rows;
    float weight[WIDTH] = {}, bias[WIDTH] = {};
    if (index < c.columns / WIDTH) {
#pragma unroll 4
        for (int64_t i = first + warp; i < end; i += WARPS) {
            float values[WIDTH], gradient[WIDTH];
            load_widened(x + i * c.columns, index, values);
            load_widened(dy + i * c.columns, index, gradient);
            const float m = mean ? mean[i] : 0, r = rstd[i];
            for (int w = 0; w < WIDTH; w++) {
                weight[w] += gradient[w] * ((values[w] - m) * r);
                bias[w] += gradient[w];
            }
        }
    }
    for (int w = 0; w < WIDTH; w++) {
        weight_parts[warp][lane * WIDTH + w] = weight[w];
        bias_parts[warp][lane * WIDTH + w] = bias[w];
    }
    __syncthreads();
    const int64_t at = tile * COLUMNS;
    fold_warps(weight_parts, c.columns - at, weight_sums + chunk * c.columns + at);
    fold_warps(bias_parts, c.columns - at, bias_sums + chunk * c.columns + at);
}

/* out[j] = Σ sums[chunk, j]: a warp adds up every WARPS-th chunk, a lane a column. */
__global__ void __launch_bounds__(THREADS) fold_kernel(int64_t count, int64_t columns, const float *sums, float *out) {
    SHD_SHARED float parts[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t at = (int64_t)blockIdx.x * 32, column = at + lane;
    float sum = 0;
    if (column < columns) {
#pragma unroll 4
        for (int64_t chunk = warp; chunk < count; chunk += WARPS) sum += sums[chunk * columns + column];
    }
    parts[warp][lane] = sum;
    __syncthreads();
    fold_warps(parts, columns - at, out + at);
}

cudaError_t fold(cudaStream_t stream, const chunks &c, const float *sums, float *out) {
    if (!out) return cudaSuccess;
    return SHD_LAUNCH(fold_kernel, (c.columns + 31) / 32, THREADS, 0, stream,
                      (SHD_READS(sums, c.count * c.columns), SHD_WRITES(out, c.columns)), c.count, c.columns, sums,
                      out);
}

/* Some blocks for each multiprocessor, but chunks long enough that their sums are little beside what they sum up. */
chunks cut(int64_t rows, int64_t columns, int width) {
    constexpr int64_t BLOCKS = 512, CHUNK_ROWS = 2 * WARPS;
    const int64_t tiles = (columns + 32 * width - 1) / (32 * width);
    const int64_t room = SHD_NORM_WORK_BYTES / (2 * columns * (int64_t)sizeof(float));
    int64_t count = (BLOCKS + tiles - 1) / tiles;
    if (count > room) count = room;
    int64_t per_chunk = (rows + count - 1) / count;
    if (per_chunk < CHUNK_ROWS) per_chunk = CHUNK_ROWS;
    count = (rows + per_chunk - 1) / per_chunk;
    return {rows, columns, tiles, per_chunk, count > 0 ? count : 1};
}

template <class T, int WIDTH>
cudaError_t launch(cudaStream_t stream, const shd_norm_rows *n, float *work, float *dweight, float *dbias) {
    const chunks c = cut(n->rows, n->columns, WIDTH);
    const T *x = static_cast<const T *>(n->x), *dy = static_cast<const T *>(n->dy);
    const float *mean = n->mean, *rstd = n->rstd;
    float *weight_sums = work, *bias_sums = work + c.count * c.columns;
    cudaError_t error =
        SHD_LAUNCH((weight_kernel<T, WIDTH>), c.tiles * c.count, THREADS, 0, stream,
                   (SHD_READS(x, c.rows * c.columns), SHD_READS(mean, mean ? c.rows : 0), SHD_READS(rstd, c.rows),
                    SHD_READS(dy, c.rows * c.columns), SHD_WRITES(work, 2 * c.count * c.columns)),
                   c, x, mean, rstd, dy, weight_sums, bias_sums);
    if (!error) error = fold(stream, c, weight_sums, dweight);
    if (!error) error = fold(stream, c, bias_sums, dbias);
    return error;
}

} // namespace

extern "C" cudaError_t shd_launch_norm_weight(cudaStream_t stream, sherd_dtype dtype, const shd_norm_rows *norm,
                                              void *work, float *dweight, float *dbias) {
    if (!dweight && !dbias) return cudaSuccess;
    /* Columns beyond a million are no norm's. */
    if (SHD_NORM_WORK_BYTES / (2 * norm->columns * (int64_t)sizeof(float)) == 0) return cudaErrorInvalidValue;
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width<T>(norm->columns, norm->columns, {norm->x, norm->dy}, [&](auto width) {
            return launch<T, decltype(width)::value>(stream, norm, static_cast<float *>(work), dweight, dbias);
        });
    });
}
