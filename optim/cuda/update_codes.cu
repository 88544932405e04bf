/* Updates of states in 8 bits: a block of threads takes a block of codes, an element each, so that what codes stand for
 * never leaves the registers. The arithmetic and the codes are the CPU's (codebook_kernels.h). */
#include "optim/cuda/span.cuh"

namespace {

constexpr int THREADS = SHD_CODE_BLOCK_COUNT, WARPS = THREADS / 32, STATES = 2;
constexpr unsigned ALL = 0xffffffffu, INFINITY_BITS = 0x7f800000u, NAN_BITS = 0x7fc00000u;

/* A state's codebook in shared memory. */
struct book {
    float shares[SHD_CODES], borders[SHD_CODES];
};

__device__ void load_book(const shd_span_codes &codes, bool root, book *to) {
    const int code = (int)threadIdx.x, magnitude = code % SHD_SPAN_MAGNITUDES;
    to->shares[code] = root ? codes.root_shares[code] : codes.shares[magnitude];
    to->borders[code] = root ? codes.root_borders[code] : codes.borders[magnitude];
}

__device__ float value_of(const book &from, bool root, int code, float scale) {
    if (root) {
        const float value = from.shares[code] * scale;
        return value * value;
    }
    if (code == SHD_SPAN_MAGNITUDES) return float_of(NAN_BITS); /* never written */
    const float share = code < SHD_SPAN_MAGNITUDES ? from.shares[code] : -from.shares[SHD_CODES - code];
    return share * scale;
}

__device__ float magnitude_of(bool root, float value) { return fabsf(root ? sqrtf(value) : value); }

/* The first code whose border is not below the share; the last border is infinite. */
__device__ int code_of(const book &in, bool root, float share) {
    int first = 0, last = root ? SHD_CODES - 1 : SHD_SPAN_MAGNITUDES - 1;
    while (first < last) {
        const int middle = (first + last) / 2;
        if (share <= in.borders[middle])
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

/* The bits of the largest of the block's magnitudes, on all threads; `peaks` is free again after the next barrier. */
__device__ unsigned largest_of(float magnitude, unsigned *peaks) {
    const int thread = (int)threadIdx.x;
    unsigned largest = bits_of(magnitude);
    for (int apart = 16; apart > 0; apart /= 2) {
        const unsigned other = __shfl_xor_sync(ALL, largest, apart);
        largest = other > largest ? other : largest;
    }
    if (thread % 32 == 0) peaks[thread / 32] = largest;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) largest = peaks[w] > largest ? peaks[w] : largest;
    return largest;
}

__device__ void write_code(const book &in, bool root, unsigned largest, float value, shd_code_block *block) {
    const bool whole = largest > 0 && largest < INFINITY_BITS;
    const float scale = whole ? float_of(largest) : largest ? float_of(NAN_BITS) : 0.0f;
    int code = 0;
    if (whole) {
        code = code_of(in, root, magnitude_of(root, value) / scale);
        if (!root && value < 0) code = -code;
    }
    block->codes[threadIdx.x] = (uint8_t)code;
    if (threadIdx.x == 0) block->scale = scale;
}

/* Element i, where there is one. */
template <class R> __device__ void update_element(const shd_span_update &u, int64_t i, float &s0, float &s1) {
    if (i >= u.count) return;
    const float parameter = R::apply(u.constants, u.parameters[i], u.gradients[i], s0, s1);
    u.parameters[i] = parameter;
    if (u.rounded) u.rounded[i] = rounded_to(u.rounded_dtype, parameter);
}

template <class R>
__global__ void __launch_bounds__(THREADS) update_codes(shd_span_update u, shd_span_codes codes, int64_t block_count) {
    SHD_SHARED book books[STATES];
    SHD_SHARED unsigned peaks[STATES][WARPS];
    const int thread = (int)threadIdx.x;
#pragma unroll
    for (int s = 0; s < R::STATES; s++) load_book(codes, codes.root[s], &books[s]);
    for (int64_t block = blockIdx.x; block < block_count; block += gridDim.x) {
        float values[STATES] = {};
        unsigned largest[STATES];
        __syncthreads(); /* books are loaded; scales and peaks of the block before are read */
#pragma unroll
        for (int s = 0; s < R::STATES; s++) {
            const shd_code_block &from = codes.blocks[s][block];
            values[s] = value_of(books[s], codes.root[s], from.codes[thread], from.scale);
        }
        update_element<R>(u, block * THREADS + thread, values[0], values[1]);
#pragma unroll
        for (int s = 0; s < R::STATES; s++) largest[s] = largest_of(magnitude_of(codes.root[s], values[s]), peaks[s]);
#pragma unroll
        for (int s = 0; s < R::STATES; s++)
            write_code(books[s], codes.root[s], largest[s], values[s], &codes.blocks[s][block]);
    }
}

} // namespace

cudaError_t shd_launch_update_codes(cudaStream_t stream, shd_span_rule rule, const shd_span_update *u,
                                    const shd_span_codes *codes) {
    static_assert(sizeof *u + sizeof *codes + sizeof(int64_t) <= 4096, "a kernel's arguments, with any toolkit");
    return with_rule(rule, [&](auto tag) {
        using R = decltype(tag);
        const int64_t blocks = (u->count + THREADS - 1) / THREADS;
        const int64_t b0 = R::STATES > 0 ? blocks : 0, b1 = R::STATES > 1 ? blocks : 0;
        return SHD_LAUNCH(update_codes<R>, span_blocks(blocks, 1), THREADS, 0, stream,
                          (SHD_READS(u->gradients, u->count), SHD_READS(u->parameters, u->count),
                           SHD_WRITES(u->parameters, u->count), SHD_READS(codes->blocks[0], b0),
                           SHD_WRITES(codes->blocks[0], b0), SHD_READS(codes->blocks[1], b1),
                           SHD_WRITES(codes->blocks[1], b1), SHD_WRITES(u->rounded, u->rounded ? u->count : 0)),
                          *u, *codes, blocks);
    });
}
