/* Rotary positions, in place: a thread turns a pack of pairs (j, j + half) of one head; blocks take neighbouring rows. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/pointwise.h"

namespace {

constexpr int THREADS = 256;

struct shape {
    int64_t rows, stride;
    int context, heads;
    int half;       /* half a head's size */
    int block_rows; /* that a block takes at a time */
    float sign;     /* of the angle */
};

template <class T, int WIDTH>
__global__ void __launch_bounds__(THREADS) rope_kernel(shape s, const float *table, T *x) {
    const int half_packs = s.half / WIDTH, row_packs = s.heads * half_packs;
    for (int64_t first = (int64_t)blockIdx.x * s.block_rows; first < s.rows;
         first += (int64_t)gridDim.x * s.block_rows) {
        const int first_position = (int)(first % s.context);
        for (int item = threadIdx.x; item < s.block_rows * row_packs; item += THREADS) {
            const int64_t row = first + item / row_packs;
            if (row >= s.rows) break;
            const int position = (first_position + item / row_packs) % s.context;
            const int head = item % row_packs / half_packs, index = item % half_packs;
            T *low = x + row * s.stride + (int64_t)head * 2 * s.half, *high = low + s.half;
            const float *turn = table + (int64_t)position * 2 * s.half + index * WIDTH;
            float a[WIDTH], b[WIDTH], cosine[WIDTH], sine[WIDTH];
            load_widened(low, index, a);
            load_widened(high, index, b);
            load_floats(turn, cosine);
            load_floats(turn + s.half, sine);
#pragma unroll
            for (int w = 0; w < WIDTH; w++) {
                const float before = a[w], signed_sine = s.sign * sine[w];
                a[w] = before * cosine[w] - b[w] * signed_sine;
                b[w] = b[w] * cosine[w] + before * signed_sine;
            }
            store_pack(low, index, a);
            store_pack(high, index, b);
        }
    }
}

} // namespace

extern "C" cudaError_t shd_launch_rope(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t context,
                                       int64_t heads, int64_t head_size, int64_t stride, const float *table,
                                       bool inverse, void *x) {
    if (rows == 0) return cudaSuccess;
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width<T>(head_size / 2, stride, {x, table}, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            T *elements = static_cast<T *>(x);
            const int64_t row_packs = heads * (head_size / 2 / WIDTH);
            const int block_rows = row_packs < THREADS ? (int)(THREADS / row_packs) : 1;
            const shape s = {
                rows, stride, (int)context, (int)heads, (int)(head_size / 2), block_rows, inverse ? -1.0f : 1.0f};
            return SHD_LAUNCH((rope_kernel<T, WIDTH>), blocks_for(rows, block_rows), THREADS, 0, stream,
                              (SHD_READS(table, context * head_size),
                               SHD_READS(elements, (rows - 1) * stride + heads * head_size),
                               SHD_WRITES(elements, (rows - 1) * stride + heads * head_size)),
                              s, table, elements);
        });
    });
}
