/* GELU, ReLU and SwiGLU, forward and backward: a pack of elements a thread, all of its inputs read before an output is
 * written, so that outputs may be inputs. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/pointwise.h"

namespace {

constexpr int THREADS = 256;

/* 1 / (1 + e^-x), with e = e^-x in *e for those who need 1 - sigmoid = e·sigmoid; 0 below -87, where e would overflow. */
__device__ float sigmoid_of(float x, float *e) {
    *e = expf(x < -87.0f ? 87.0f : -x);
    return x < -87.0f ? 0.0f : 1.0f / (1.0f + *e);
}

/* ½(1 + tanh u) = sigmoid(2u): 2u = 2√(2/π)(x + 0.044715x³), and its derivative. */
constexpr float GELU_LINEAR = 1.5957691216f, GELU_CUBIC = 0.0713548163f, GELU_CUBIC_3 = 0.2140644488f;

struct gelu {
    static constexpr int INPUTS = 1, OUTPUTS = 1;
    static __device__ void apply(const float (&in)[1], float (&out)[1]) {
        float e;
        const float x = in[0];
        out[0] = x * sigmoid_of(x * fmaf(GELU_CUBIC, x * x, GELU_LINEAR), &e);
    }
};

/* (x·s)' = s + x·s(1 - s)·(2u)', with 1 - s = e·s. */
struct gelu_backward {
    static constexpr int INPUTS = 2, OUTPUTS = 1;
    static __device__ void apply(const float (&in)[2], float (&out)[1]) {
        float e;
        const float x = in[0], dy = in[1];
        const float s = sigmoid_of(x * fmaf(GELU_CUBIC, x * x, GELU_LINEAR), &e);
        const float slope = e * s * s * fmaf(GELU_CUBIC_3, x * x, GELU_LINEAR);
        out[0] = dy * fmaf(x, slope, s);
    }
};

/* Comparisons are such that NaN stays. */
struct relu {
    static constexpr int INPUTS = 1, OUTPUTS = 1;
    static __device__ void apply(const float (&in)[1], float (&out)[1]) { out[0] = in[0] < 0 ? 0 : in[0]; }
};

struct relu_backward {
    static constexpr int INPUTS = 2, OUTPUTS = 1;
    static __device__ void apply(const float (&in)[2], float (&out)[1]) { out[0] = in[0] <= 0 ? 0 : in[1]; }
};

struct swiglu {
    static constexpr int INPUTS = 2, OUTPUTS = 1;
    static __device__ void apply(const float (&in)[2], float (&out)[1]) {
        float e;
        const float gate = in[0], up = in[1];
        out[0] = gate * sigmoid_of(gate, &e) * up;
    }
};

struct swiglu_backward {
    static constexpr int INPUTS = 3, OUTPUTS = 2;
    static __device__ void apply(const float (&in)[3], float (&out)[2]) {
        float e;
        const float gate = in[0], up = in[1], dy = in[2];
        const float s = sigmoid_of(gate, &e);
        out[0] = dy * up * fmaf(gate, e * s * s, s);
        out[1] = dy * (gate * s);
    }
};

struct operands {
    const void *in[3];
    void *out[2];
};

template <class T, int WIDTH, class F> __device__ void apply_to_pack(const operands &o, int64_t index) {
    float in[F::INPUTS][WIDTH], out[F::OUTPUTS][WIDTH];
#pragma unroll
    for (int i = 0; i < F::INPUTS; i++) load_widened(static_cast<const T *>(o.in[i]), index, in[i]);
#pragma unroll
    for (int w = 0; w < WIDTH; w++) {
        float from[F::INPUTS], to[F::OUTPUTS];
#pragma unroll
        for (int i = 0; i < F::INPUTS; i++) from[i] = in[i][w];
        F::apply(from, to);
#pragma unroll
        for (int i = 0; i < F::OUTPUTS; i++) out[i][w] = to[i];
    }
#pragma unroll
    for (int i = 0; i < F::OUTPUTS; i++) store_pack(static_cast<T *>(o.out[i]), index, out[i]);
}

/* What the packs leave over is done element by element. */
template <class T, int WIDTH, class F>
__global__ void __launch_bounds__(THREADS) map_kernel(int64_t count, operands o) {
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS;
    const int64_t packs = count / WIDTH;
    for (int64_t i = first; i < packs; i += step) apply_to_pack<T, WIDTH, F>(o, i);
    for (int64_t i = packs * WIDTH + first; i < count; i += step) apply_to_pack<T, 1, F>(o, i);
}

template <class F> cudaError_t launch(cudaStream_t stream, sherd_dtype dtype, int64_t count, const operands &o) {
    if (count == 0) return cudaSuccess;
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width<T>(0, 0, {o.in[0], o.in[1], o.in[2], o.out[0], o.out[1]}, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            return SHD_LAUNCH((map_kernel<T, WIDTH, F>), blocks_for(count, THREADS * WIDTH), THREADS, 0, stream,
                              (SHD_READS_BYTES(o.in[0], bytes_of<T>(o.in[0], count)),
                               SHD_READS_BYTES(o.in[1], bytes_of<T>(o.in[1], count)),
                               SHD_READS_BYTES(o.in[2], bytes_of<T>(o.in[2], count)),
                               SHD_WRITES_BYTES(o.out[0], bytes_of<T>(o.out[0], count)),
                               SHD_WRITES_BYTES(o.out[1], bytes_of<T>(o.out[1], count))),
                              count, o);
        });
    });
}

} // namespace

extern "C" {

cudaError_t shd_launch_gelu(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *x, void *y) {
    return launch<gelu>(stream, dtype, count, {{x}, {y}});
}

cudaError_t shd_launch_gelu_backward(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *x,
                                     const void *dy, void *dx) {
    return launch<gelu_backward>(stream, dtype, count, {{x, dy}, {dx}});
}

cudaError_t shd_launch_relu(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *x, void *y) {
    return launch<relu>(stream, dtype, count, {{x}, {y}});
}

cudaError_t shd_launch_relu_backward(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *y,
                                     const void *dy, void *dx) {
    return launch<relu_backward>(stream, dtype, count, {{y, dy}, {dx}});
}

cudaError_t shd_launch_swiglu(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *gate, const void *up,
                              void *y) {
    return launch<swiglu>(stream, dtype, count, {{gate, up}, {y}});
}

cudaError_t shd_launch_swiglu_backward(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *gate,
                                       const void *up, const void *dy, void *dgate, void *dup) {
    return launch<swiglu_backward>(stream, dtype, count, {{gate, up, dy}, {dgate, dup}});
}
}
