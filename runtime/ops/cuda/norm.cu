/* LayerNorm and RMSNorm, forward and backward to the input: a warp or a block a row, whose packs stay in registers
 * between the passes over it where they fit.
 *
 * Sums of a row: each thread's packs in order, then a tree over the warp, then warps in order. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/pointwise.h"

namespace {

constexpr int THREADS = 128;

/* How rows are laid on threads: WARPS a row, each thread holding up to HELD packs; 0: it reads them again each time. */
template <int WIDTH_, int WARPS_, int HELD_> struct layout {
    static constexpr int WIDTH = WIDTH_, WARPS = WARPS_, HELD = HELD_;
    static constexpr int ROW_THREADS = 32 * WARPS, ROWS = THREADS / ROW_THREADS;
};

/* f(k, p) for each pack p that this thread has of a row; k is its number among those, known when the loop is unrolled. */
template <class L, class F> __device__ void each_pack(int packs, F f) {
    const int thread = threadIdx.x % L::ROW_THREADS;
    if constexpr (L::HELD > 0) {
#pragma unroll
        for (int k = 0; k < L::HELD; k++)
            if (thread + k * L::ROW_THREADS < packs) f(k, thread + k * L::ROW_THREADS);
    } else {
        for (int p = thread; p < packs; p += L::ROW_THREADS) f(0, p);
    }
}

/* A row of what is stored, as each_pack walks it. */
template <class L, class T> struct row_packs {
    const T *row;
    pack<T, L::WIDTH> held[L::HELD > 0 ? L::HELD : 1];

    __device__ row_packs(const T *from, int packs) : row(from) {
        if constexpr (L::HELD > 0) each_pack<L>(packs, [&](int k, int p) { held[k] = load_pack<L::WIDTH>(row, p); });
    }
    __device__ void get(int k, int p, float (&values)[L::WIDTH]) const {
        if constexpr (L::HELD > 0)
            widen_pack(held[k], values);
        else
            load_widened(row, p, values);
    }
};

/* Sums over a row's threads. Consecutive ones use different parts of shared memory, so that a barrier a sum is enough. */
template <class L> struct row_sums {
    float (&parts)[2][L::WARPS];
    unsigned turn = 0;

    __device__ float operator()(float x) {
        x = warp_sum(x);
        if constexpr (L::WARPS > 1) {
            float(&part)[L::WARPS] = parts[turn++ % 2];
            if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
            __syncthreads();
            x = 0;
            for (int warp = 0; warp < L::WARPS; warp++) x += part[warp];
        }
        return x;
    }
};

template <class T> struct rows_of {
    int64_t rows, columns;
    const T *x, *weight, *bias;
    float eps;
    T *y;
    float *mean, *rstd;
    const T *dy, *residual;
    T *dx;
};

template <class L, class T, bool CENTRED> __global__ void __launch_bounds__(THREADS) norm_kernel(rows_of<T> n) {
    SHD_SHARED float parts[2][L::WARPS];
    row_sums<L> sum_over_row{parts};
    constexpr int WIDTH = L::WIDTH;
    const int packs = (int)(n.columns / WIDTH);
    for (int64_t i = (int64_t)blockIdx.x * L::ROWS + threadIdx.x / L::ROW_THREADS; i < n.rows;
         i += (int64_t)gridDim.x * L::ROWS) {
        const row_packs<L, T> row(n.x + i * n.columns, packs);
        float values[WIDTH], sum = 0, mean = 0, squares = 0;
        if constexpr (CENTRED) {
            each_pack<L>(packs, [&](int k, int p) {
                row.get(k, p, values);
                for (int w = 0; w < WIDTH; w++) sum += values[w];
            });
            mean = sum_over_row(sum) / (float)n.columns;
        }
        each_pack<L>(packs, [&](int k, int p) {
            row.get(k, p, values);
            for (int w = 0; w < WIDTH; w++) squares += (values[w] - mean) * (values[w] - mean);
        });
        const float rstd = 1.0f / sqrtf(sum_over_row(squares) / (float)n.columns + n.eps);
        each_pack<L>(packs, [&](int k, int p) {
            float weight[WIDTH], bias[WIDTH];
            row.get(k, p, values);
            load_widened(n.weight, p, weight);
            if constexpr (CENTRED) load_widened(n.bias, p, bias);
            for (int w = 0; w < WIDTH; w++) {
                values[w] = (values[w] - mean) * rstd * weight[w];
                if constexpr (CENTRED) values[w] += bias[w];
            }
            store_pack(n.y + i * n.columns, p, values);
        });
        if (threadIdx.x % L::ROW_THREADS == 0) {
            if constexpr (CENTRED) n.mean[i] = mean;
            n.rstd[i] = rstd;
        }
    }
}

/* dx = residual + rstd·(g - mean(g) - x̂·mean(g·x̂)), g = dy·weight, x̂ = (x - mean)·rstd; RMSNorm leaves mean(g) out. */
template <class L, class T, bool CENTRED>
__global__ void __launch_bounds__(THREADS) norm_backward_kernel(rows_of<T> n) {
    SHD_SHARED float parts[2][L::WARPS];
    row_sums<L> sum_over_row{parts};
    constexpr int WIDTH = L::WIDTH;
    const int packs = (int)(n.columns / WIDTH);
    for (int64_t i = (int64_t)blockIdx.x * L::ROWS + threadIdx.x / L::ROW_THREADS; i < n.rows;
         i += (int64_t)gridDim.x * L::ROWS) {
        const row_packs<L, T> row(n.x + i * n.columns, packs), dy(n.dy + i * n.columns, packs);
        const float mean = CENTRED ? n.mean[i] : 0, rstd = n.rstd[i];
        float x[WIDTH], g[WIDTH], sum_g = 0, sum_gx = 0;
        const auto get = [&](int k, int p) {
            float weight[WIDTH];
            row.get(k, p, x);
            dy.get(k, p, g);
            load_widened(n.weight, p, weight);
            for (int w = 0; w < WIDTH; w++) {
                x[w] = (x[w] - mean) * rstd;
                g[w] *= weight[w];
            }
        };
        each_pack<L>(packs, [&](int k, int p) {
            get(k, p);
            for (int w = 0; w < WIDTH; w++) {
                sum_g += g[w];
                sum_gx += g[w] * x[w];
            }
        });
        const float mean_g = CENTRED ? sum_over_row(sum_g) / (float)n.columns : 0;
        const float mean_gx = sum_over_row(sum_gx) / (float)n.columns;
        each_pack<L>(packs, [&](int k, int p) {
            float residual[WIDTH] = {};
            get(k, p);
            if (n.residual) load_widened(n.residual + i * n.columns, p, residual);
            for (int w = 0; w < WIDTH; w++) g[w] = residual[w] + rstd * (g[w] - mean_g - x[w] * mean_gx);
            store_pack(n.dx + i * n.columns, p, g);
        });
    }
}

template <class T> rows_of<T> typed(const shd_norm_rows *n) {
    const auto in = [](const void *x) { return static_cast<const T *>(x); };
    const auto out = [](void *x) { return static_cast<T *>(x); };
    return {n->rows,   n->columns, in(n->x), in(n->weight), in(n->bias),     n->eps,
            out(n->y), n->mean,    n->rstd,  in(n->dy),     in(n->residual), out(n->dx)};
}

/* f(type_tag<T>, layout) for the rows of `norm`. Rows of few packs get a warp, since most of a block would be idle, and
 * those of single elements too: they are no shape for speed. */
template <class F> cudaError_t with_layout(sherd_dtype dtype, const shd_norm_rows *n, F f) {
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width<T>(n->columns, n->columns, {n->x, n->weight, n->bias, n->y, n->dy, n->residual, n->dx},
                             [&](auto width) {
                                 constexpr int WIDTH = decltype(width)::value;
                                 if constexpr (WIDTH == 1) {
                                     return f(tag, layout<1, 1, 0>{});
                                 } else {
                                     const int64_t packs = n->columns / WIDTH;
                                     if (packs <= 4 * 32) return f(tag, layout<WIDTH, 1, 4>{});
                                     if (packs <= 8 * 128) return f(tag, layout<WIDTH, 4, 8>{});
                                     return f(tag, layout<WIDTH, 4, 0>{});
                                 }
                             });
    });
}

template <class L, class T, bool CENTRED> cudaError_t launch_norm(cudaStream_t stream, const shd_norm_rows *norm) {
    const rows_of<T> n = typed<T>(norm);
    return SHD_LAUNCH((norm_kernel<L, T, CENTRED>), blocks_for(n.rows, L::ROWS), THREADS, 0, stream,
                      (SHD_READS(n.x, n.rows * n.columns), SHD_READS(n.weight, n.columns),
                       SHD_READS(n.bias, n.bias ? n.columns : 0), SHD_WRITES(n.y, n.rows * n.columns),
                       SHD_WRITES(n.mean, n.mean ? n.rows : 0), SHD_WRITES(n.rstd, n.rows)),
                      n);
}

template <class L, class T, bool CENTRED> cudaError_t launch_backward(cudaStream_t stream, const shd_norm_rows *norm) {
    const rows_of<T> n = typed<T>(norm);
    return SHD_LAUNCH((norm_backward_kernel<L, T, CENTRED>), blocks_for(n.rows, L::ROWS), THREADS, 0, stream,
                      (SHD_READS(n.x, n.rows * n.columns), SHD_READS(n.weight, n.columns),
                       SHD_READS(n.mean, n.mean ? n.rows : 0), SHD_READS(n.rstd, n.rows),
                       SHD_READS(n.dy, n.rows * n.columns), SHD_READS(n.residual, n.residual ? n.rows * n.columns : 0),
                       SHD_WRITES(n.dx, n.rows * n.columns)),
                      n);
}

} // namespace

extern "C" {

cudaError_t shd_launch_norm(cudaStream_t stream, sherd_dtype dtype, const shd_norm_rows *norm) {
    if (norm->rows == 0) return cudaSuccess;
    return with_layout(dtype, norm, [&](auto tag, auto layout) {
        using T = typename decltype(tag)::type;
        using L = decltype(layout);
        return norm->bias ? launch_norm<L, T, true>(stream, norm) : launch_norm<L, T, false>(stream, norm);
    });
}

cudaError_t shd_launch_norm_backward(cudaStream_t stream, sherd_dtype dtype, const shd_norm_rows *norm) {
    if (norm->rows == 0) return cudaSuccess;
    return with_layout(dtype, norm, [&](auto tag, auto layout) {
        using T = typename decltype(tag)::type;
        using L = decltype(layout);
        return norm->mean ? launch_backward<L, T, true>(stream, norm) : launch_backward<L, T, false>(stream, norm);
    });
}
}
