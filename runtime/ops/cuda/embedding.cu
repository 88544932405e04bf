/* Embedding: rows of a table by token, and the gradient's scatter, in which a token's rows must be added in order. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/pointwise.h"

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;

/* A warp a row. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    embedding_kernel(int64_t rows, int64_t context, int64_t columns, const int32_t *ids, const T *token,
                     const T *position, T *y) {
    const int lane = threadIdx.x % 32;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; i < rows; i += (int64_t)gridDim.x * WARPS) {
        const T *from = token + ids[i] * columns, *place = position ? position + i % context * columns : nullptr;
        for (int64_t p = lane; p < columns / WIDTH; p += 32) {
            float values[WIDTH], more[WIDTH];
            load_widened(from, p, values);
            if (place) {
                load_widened(place, p, more);
                for (int w = 0; w < WIDTH; w++) values[w] += more[w];
            }
            store_pack(y + i * columns, p, values);
        }
    }
}

/* The rows among the 32 from `base` on, before `end`, that have `id`: bit l is row base + l. All lanes of a warp. */
__device__ unsigned rows_with(int32_t id, const int32_t *ids, int64_t base, int64_t end) {
    const int64_t row = base + threadIdx.x % 32;
    return __ballot_sync(0xffffffffu, row < end && ids[row] == id);
}

/* A warp takes a row and a tile of 32 packs of columns. It is idle unless the row is the first with its token; then it
 * walks those that follow, which keeps their order without atomics or sorting. Looking for them is a comparison of every
 * row with every other, 32 at once, from a cache that holds all ids: little beside the rest of a step. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    scatter_kernel(int64_t rows, int64_t columns, int64_t tiles, const int32_t *ids, const T *dy, float *dtoken) {
    constexpr int AHEAD = 4; /* rows that are loaded before the first of them is added */
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t row = item / tiles, pack_index = item % tiles * 32 + threadIdx.x % 32;
    if (row >= rows) return;
    const int32_t id = ids[row];
    for (int64_t base = 0; base < row; base += 32)
        if (rows_with(id, ids, base, row)) return;
    const bool mine = pack_index < columns / WIDTH;
    float *to = dtoken + id * columns + pack_index * WIDTH;
    float sum[WIDTH] = {};
    if (mine) load_floats(to, sum);
    for (int64_t base = row; base < rows; base += 32) {
        unsigned found = rows_with(id, ids, base, rows);
        while (found) {
            pack<T, WIDTH> ahead[AHEAD];
            bool has[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                has[k] = mine && found;
                if (has[k]) ahead[k] = load_pack<WIDTH>(dy + (base + __ffs((int)found) - 1) * columns, pack_index);
                found &= found - 1;
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                float values[WIDTH];
                if (has[k]) {
                    widen_pack(ahead[k], values);
                    for (int w = 0; w < WIDTH; w++) sum[w] += values[w];
                }
            }
        }
    }
    if (mine) store_floats(to, sum);
}

/* A thread a pack of a position's columns. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    position_kernel(int64_t rows, int64_t context, int64_t columns, const T *dy, float *dposition) {
    const int64_t packs = context * columns / WIDTH;
    for (int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x; p < packs; p += (int64_t)gridDim.x * THREADS) {
        float sum[WIDTH] = {};
        for (int64_t i = 0; i < rows / context; i++) {
            float values[WIDTH];
            load_widened(dy + i * context * columns, p, values);
            for (int w = 0; w < WIDTH; w++) sum[w] += values[w];
        }
        store_floats(dposition + p * WIDTH, sum);
    }
}

} // namespace

extern "C" {

cudaError_t shd_launch_embedding(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t context, int64_t columns,
                                 int64_t vocabulary, const int32_t *ids, const void *token, const void *position,
                                 void *y) {
    if (rows == 0) return cudaSuccess;
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width<T>(columns, columns, {token, position, y}, [&](auto width) {
            const T *tokens = static_cast<const T *>(token), *positions = static_cast<const T *>(position);
            T *to = static_cast<T *>(y);
            return SHD_LAUNCH((embedding_kernel<T, decltype(width)::value>), blocks_for(rows, WARPS), THREADS, 0,
                              stream,
                              (SHD_READS(ids, rows), SHD_READS(tokens, vocabulary * columns),
                               SHD_READS(positions, positions ? context * columns : 0), SHD_WRITES(to, rows * columns)),
                              rows, context, columns, ids, tokens, positions, to);
        });
    });
}

cudaError_t shd_launch_embedding_scatter(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns,
                                         int64_t vocabulary, const int32_t *ids, const void *dy, float *dtoken) {
    if (rows == 0) return cudaSuccess;
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width<T>(columns, columns, {dy, dtoken}, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            const T *gradients = static_cast<const T *>(dy);
            const int64_t tiles = (columns / WIDTH + 31) / 32;
            return SHD_LAUNCH(
                (scatter_kernel<T, WIDTH>), (rows * tiles + WARPS - 1) / WARPS, THREADS, 0, stream,
                (SHD_READS(ids, rows), SHD_READS(gradients, rows * columns), SHD_WRITES(dtoken, vocabulary * columns)),
                rows, columns, tiles, ids, gradients, dtoken);
        });
    });
}

cudaError_t shd_launch_position_sum(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t context,
                                    int64_t columns, const void *dy, float *dposition) {
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width<T>(columns, columns, {dy, dposition}, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            const T *gradients = static_cast<const T *>(dy);
            return SHD_LAUNCH((position_kernel<T, WIDTH>), blocks_for(context * columns / WIDTH, THREADS), THREADS, 0,
                              stream, (SHD_READS(gradients, rows * columns), SHD_WRITES(dposition, context * columns)),
                              rows, context, columns, gradients, dposition);
        });
    });
}
}
