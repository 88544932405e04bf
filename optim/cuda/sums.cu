/* Sums of squares, rounding, and the fold of contributions. */
#include "optim/cuda/span.cuh"

namespace {

constexpr int THREADS = 256, LANES = 16, BLOCK_COUNT = 256, ROWS = BLOCK_COUNT / LANES;
constexpr int DIGITS = SHD_EXACT_SUM_DIGITS, COUNTERS = 4; /* pending, NaN, infinities */
constexpr unsigned ALL = 0xffffffffu;

__device__ void add_to(unsigned long long *digit, int64_t value) {
    if (value) atomicAdd(digit, (unsigned long long)value);
}

/* As shd_exact_sum_add, of a value that is not negative, to digits followed by counters: sums of integers, which come out
 * the same in any order. */
__device__ void add_exactly(unsigned long long *sum, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7FF);
    uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == 0x7FF) {
        add_to(&sum[DIGITS + (mantissa ? 1 : 2)], 1);
        return;
    }
    if (exponent)
        mantissa |= (uint64_t)1 << 52;
    else
        exponent = 1;
    const int position = exponent - 1;
    const uint64_t mask = 0xffffffffu;
    const uint64_t lower = (mantissa & mask) << position % 32, upper = (mantissa >> 32) << position % 32;
    unsigned long long *digits = sum + position / 32;
    add_to(&digits[0], (int64_t)(lower & mask));
    add_to(&digits[1], (int64_t)(lower >> 32 | (upper & mask)));
    add_to(&digits[2], (int64_t)(upper >> 32));
    add_to(&sum[DIGITS], 1);
}

/* Half a warp takes a block of 256: lane l the elements l, l + 16, …; lane 0 adds the lanes up in their order. */
__global__ void __launch_bounds__(THREADS) square_sum(const float *values, int64_t block_count,
                                                      unsigned long long *sum) {
    SHD_SHARED unsigned long long shared[DIGITS + COUNTERS];
    const int thread = (int)threadIdx.x, lane = thread % LANES, group = thread / LANES;
    constexpr int GROUPS = THREADS / LANES;
    for (int i = thread; i < DIGITS + COUNTERS; i += THREADS) shared[i] = 0;
    __syncthreads();
    for (int64_t first = (int64_t)blockIdx.x * GROUPS; first < block_count; first += (int64_t)gridDim.x * GROUPS) {
        const int64_t block = first + group;
        double own = 0;
        if (block < block_count)
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                const double value = values[block * BLOCK_COUNT + row * LANES + lane];
                own += value * value;
            }
        double total = own;
        for (int from = 1; from < LANES; from++) {
            const double other = __shfl_sync(ALL, own, thread % 32 / LANES * LANES + from);
            total += other;
        }
        if (lane == 0 && block < block_count) add_exactly(shared, total);
    }
    __syncthreads();
    for (int i = thread; i < DIGITS + COUNTERS; i += THREADS) add_to(&sum[i], (int64_t)shared[i]);
}

__global__ void __launch_bounds__(THREADS) round_span(sherd_dtype dtype, int64_t count, const float *from, uint16_t *to) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS)
        to[i] = rounded_to(dtype, from[i]);
}

__device__ float widened(float value) { return value; }
__device__ float widened(uint16_t value) { return float_of((uint32_t)value << 16); }

template <class T, int WIDTH> struct alignas(WIDTH * sizeof(T)) pack { T at[WIDTH]; };

/* WIDTH elements from i on; bit k of what is returned: part k had a number that is not finite. */
template <class T, int WIDTH>
__device__ uint64_t fold_some(float *accumulator, const shd_fold_parts &parts, int64_t i, bool first) {
    float sum[WIDTH];
    uint64_t nonfinite = 0;
#pragma unroll
    for (int k = 0; k < WIDTH; k++) sum[k] = first ? 0.0f : accumulator[i + k];
    for (int p = 0; p < parts.count; p++) {
        const T *part = static_cast<const T *>(parts.at[p]) + i;
        const pack<T, WIDTH> loaded = *reinterpret_cast<const pack<T, WIDTH> *>(part);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            const float value = widened(loaded.at[k]);
            sum[k] = first && p == 0 ? value : sum[k] + value;
            if ((bits_of(value) & 0x7f800000u) == 0x7f800000u) nonfinite |= (uint64_t)1 << p;
        }
    }
#pragma unroll
    for (int k = 0; k < WIDTH; k++) accumulator[i + k] = sum[k];
    return nonfinite;
}

template <class T, int WIDTH>
__global__ void __launch_bounds__(THREADS) fold(float *accumulator, shd_fold_parts parts, int64_t count, bool first,
                                                unsigned long long *nonfinite) {
    uint64_t found = 0;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * WIDTH; i < count;
         i += (int64_t)gridDim.x * THREADS * WIDTH)
        found |= fold_some<T, WIDTH>(accumulator, parts, i, first);
    if (found && nonfinite) atomicOr(nonfinite, (unsigned long long)found);
}

template <class T, int WIDTH>
cudaError_t launch_fold(cudaStream_t stream, float *accumulator, const shd_fold_parts *parts, int64_t count, bool first,
                        unsigned long long *nonfinite) {
    const T *lowest = static_cast<const T *>(parts->at[0]);
    const int64_t extent = static_cast<const T *>(parts->at[parts->count - 1]) - lowest + count;
    return SHD_LAUNCH((fold<T, WIDTH>), span_blocks(count, (int64_t)THREADS * WIDTH), THREADS, 0, stream,
                      (SHD_READS(lowest, extent), SHD_READS(accumulator, first ? 0 : count),
                       SHD_WRITES(accumulator, count), SHD_READS(nonfinite, nonfinite ? 1 : 0),
                       SHD_WRITES(nonfinite, nonfinite ? 1 : 0)),
                      accumulator, *parts, count, first, nonfinite);
}

template <class T>
cudaError_t fold_of(cudaStream_t stream, float *accumulator, const shd_fold_parts *parts, int64_t count, bool first,
                    unsigned long long *nonfinite) {
    bool full = count % 4 == 0 && reinterpret_cast<uintptr_t>(accumulator) % 16 == 0;
    for (int p = 0; p < parts->count; p++)
        full = full && reinterpret_cast<uintptr_t>(parts->at[p]) % (4 * sizeof(T)) == 0;
    return full ? launch_fold<T, 4>(stream, accumulator, parts, count, first, nonfinite)
                : launch_fold<T, 1>(stream, accumulator, parts, count, first, nonfinite);
}

} // namespace

cudaError_t shd_launch_square_sum(cudaStream_t stream, const float *values, int64_t block_count, shd_exact_sum *sum) {
    static_assert(sizeof(shd_exact_sum) == (DIGITS + COUNTERS) * sizeof(int64_t), "digits, then counters");
    unsigned long long *words = reinterpret_cast<unsigned long long *>(sum);
    return SHD_LAUNCH(square_sum, span_blocks(block_count, THREADS / LANES), THREADS, 0, stream,
                      (SHD_READS(values, block_count * BLOCK_COUNT), SHD_READS(words, DIGITS + COUNTERS),
                       SHD_WRITES(words, DIGITS + COUNTERS)),
                      values, block_count, words);
}

cudaError_t shd_launch_round(cudaStream_t stream, sherd_dtype dtype, int64_t count, const float *from, void *to) {
    uint16_t *rounded = static_cast<uint16_t *>(to);
    return SHD_LAUNCH(round_span, span_blocks(count, THREADS), THREADS, 0, stream,
                      (SHD_READS(from, count), SHD_WRITES(rounded, count)), dtype, count, from, rounded);
}

cudaError_t shd_launch_fold(cudaStream_t stream, float *accumulator, const shd_fold_parts *parts, sherd_dtype dtype,
                            int64_t count, bool first, uint64_t *nonfinite) {
    unsigned long long *word = reinterpret_cast<unsigned long long *>(nonfinite);
    return dtype == SHERD_FP32 ? fold_of<float>(stream, accumulator, parts, count, first, word)
                               : fold_of<uint16_t>(stream, accumulator, parts, count, first, word);
}
