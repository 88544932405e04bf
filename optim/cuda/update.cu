/* Updates: four elements a thread, moved by 16 bytes where all arrays begin alike towards a border of 16; the first and last
 * few one by one. */
#include "optim/cuda/span.cuh"

namespace {

constexpr int THREADS = 256;

template <class R> __device__ void update_one(const shd_span_update &u, int64_t i) {
    float s0 = R::STATES > 0 ? u.states[0][i] : 0, s1 = R::STATES > 1 ? u.states[1][i] : 0;
    const float parameter = R::apply(u.constants, u.parameters[i], u.gradients[i], s0, s1);
    u.parameters[i] = parameter;
    if (R::STATES > 0) u.states[0][i] = s0;
    if (R::STATES > 1) u.states[1][i] = s1;
    if (u.rounded) u.rounded[i] = rounded_to(u.rounded_dtype, parameter);
}

template <class R> __device__ void update_four(const shd_span_update &u, int64_t i) {
    four parameters = *reinterpret_cast<const four *>(u.parameters + i), s0 = {}, s1 = {};
    const four gradients = *reinterpret_cast<const four *>(u.gradients + i);
    if (R::STATES > 0) s0 = *reinterpret_cast<const four *>(u.states[0] + i);
    if (R::STATES > 1) s1 = *reinterpret_cast<const four *>(u.states[1] + i);
#pragma unroll
    for (int k = 0; k < 4; k++)
        parameters.at[k] = R::apply(u.constants, parameters.at[k], gradients.at[k], s0.at[k], s1.at[k]);
    *reinterpret_cast<four *>(u.parameters + i) = parameters;
    if (R::STATES > 0) *reinterpret_cast<four *>(u.states[0] + i) = s0;
    if (R::STATES > 1) *reinterpret_cast<four *>(u.states[1] + i) = s1;
    if (!u.rounded) return;
#pragma unroll
    for (int k = 0; k < 4; k++) u.rounded[i + k] = rounded_to(u.rounded_dtype, parameters.at[k]);
}

/* Pack p holds elements [4p - shift, 4p - shift + 4), those of them that there are. */
template <class R> __global__ void __launch_bounds__(THREADS) update(shd_span_update u, int32_t shift, bool alike) {
    const int64_t packs = (u.count + shift + 3) / 4, stride = (int64_t)gridDim.x * THREADS;
    for (int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x; p < packs; p += stride) {
        const int64_t first = 4 * p - shift;
        if (alike && first >= 0 && first + 4 <= u.count)
            update_four<R>(u, first);
        else
            for (int64_t i = first < 0 ? 0 : first; i < first + 4 && i < u.count; i++) update_one<R>(u, i);
    }
}

} // namespace

cudaError_t shd_launch_update(cudaStream_t stream, shd_span_rule rule, const shd_span_update *u) {
    return with_rule(rule, [&](auto tag) {
        using R = decltype(tag);
        const int32_t shift = shift_of(u->parameters);
        bool alike = shift_of(u->gradients) == shift;
        for (int s = 0; s < R::STATES; s++) alike = alike && shift_of(u->states[s]) == shift;
        const int64_t s0 = R::STATES > 0 ? u->count : 0, s1 = R::STATES > 1 ? u->count : 0;
        return SHD_LAUNCH(update<R>, span_blocks((u->count + shift + 3) / 4, THREADS), THREADS, 0, stream,
                          (SHD_READS(u->gradients, u->count), SHD_READS(u->parameters, u->count),
                           SHD_WRITES(u->parameters, u->count), SHD_READS(u->states[0], s0), SHD_WRITES(u->states[0], s0),
                           SHD_READS(u->states[1], s1), SHD_WRITES(u->states[1], s1),
                           SHD_WRITES(u->rounded, u->rounded ? u->count : 0)),
                          *u, shift, alike);
    });
}
