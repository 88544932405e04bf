/* Attention for any head size, in float: tiles of queries against tiles of keys, in shared memory.
 *
 * Forward: a block has a tile of queries of one head, walks the tiles of keys that they see, and keeps for each query the
 * largest score so far and the sum of exponentials beside it (FlashAttention-2, Dao 2023). Backward: probabilities are
 * made again from log_sum; one kernel walks the keys of a tile of queries for dq, another one the queries of a tile of
 * keys, head after head of its group, for dk and dv: every sum has one order, and nothing is added by two blocks.
 *
 * Formulas, dropout among them, are those of ops/attention.c: D = dout·out, dS = P∘(M∘dP − D)/√size. */
#include "runtime/ops/cuda/elements.cuh"
#include "runtime/ops/cuda/losses.h"
#include "runtime/ops/cuda/mask.cuh"

#include <math.h>

namespace {

constexpr int THREADS = 128, HELD = 16; /* elements of a tile of rows that a thread keeps: TILE · size / THREADS */

/* Shapes, strides in elements, and what does not change between tiles. */
struct shape {
    int64_t sequences, context, heads, kv_heads, size, q_stride, kv_stride, out_stride;
    const int32_t *starts;
    mask_site mask;
    float scale;
};

/* Which tile of which head of which sequence a block has. */
struct place {
    int64_t sequence, head, first; /* first: row of the tile */
};

template <int TILE> __device__ place place_of(const shape &s, int64_t heads) {
    const int64_t tiles = (s.context + TILE - 1) / TILE;
    const int64_t pair = blockIdx.x / tiles;
    return {pair / heads, pair % heads, (int64_t)(blockIdx.x % tiles) * TILE};
}

/* Rows [first, first + TILE) of one head, widened; rows behind the context are zero. */
template <int TILE, class T>
__device__ void load_tile(const shape &s, const T *array, int64_t stride, int64_t sequence, int64_t head, int64_t first,
                          float *tile) {
    for (int64_t i = threadIdx.x; i < TILE * s.size; i += THREADS) {
        const int64_t row = first + i / s.size;
        tile[i] =
            row < s.context ? widened(array[(sequence * s.context + row) * stride + head * s.size + i % s.size]) : 0.0f;
    }
}

/* Whether query `row` sees key `key`. */
__device__ bool sees(const shape &s, int64_t sequence, int64_t row, int64_t key) {
    if (row >= s.context || key > row) return false;
    return !s.starts || key >= s.starts[sequence * s.context + row];
}

__device__ float dot(int64_t size, const float *a, const float *b) {
    float sum = 0;
    for (int64_t c = 0; c < size; c++) sum = fmaf(a[c], b[c], sum);
    return sum;
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS)
    attention_tile(shape s, const T *q, const T *k, const T *v, T *out, float *log_sum) {
    SHD_DYNAMIC_SHARED(float, shared);
    SHD_SHARED float scores[TILE][TILE + 1], largest[TILE], sums[TILE], shrink[TILE];
    float *q_tile = shared, *k_tile = q_tile + TILE * s.size, *v_tile = k_tile + TILE * s.size;
    const place at = place_of<TILE>(s, s.heads);
    const int64_t kv_head = at.head / (s.heads / s.kv_heads);
    const uint64_t key = s.mask.drop ? random_subkey(s.mask.key, (uint64_t)at.head) : 0;
    float held[HELD] = {0};
    load_tile<TILE>(s, q, s.q_stride, at.sequence, at.head, at.first, q_tile);
    if (threadIdx.x < TILE) largest[threadIdx.x] = -INFINITY, sums[threadIdx.x] = 0;
    for (int64_t keys = 0; keys < at.first + TILE && keys < s.context; keys += TILE) {
        __syncthreads();
        load_tile<TILE>(s, k, s.kv_stride, at.sequence, kv_head, keys, k_tile);
        load_tile<TILE>(s, v, s.kv_stride, at.sequence, kv_head, keys, v_tile);
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            const int a = i / TILE, b = i % TILE;
            scores[a][b] = sees(s, at.sequence, at.first + a, keys + b)
                               ? s.scale * dot(s.size, q_tile + a * s.size, k_tile + b * s.size)
                               : -INFINITY;
        }
        __syncthreads();
        if (threadIdx.x < TILE) {
            const int a = threadIdx.x;
            float most = largest[a], sum = 0;
            for (int b = 0; b < TILE; b++) most = fmaxf(most, scores[a][b]);
            for (int b = 0; b < TILE; b++) {
                /* Not by `most`, which passes over NaN: that has to reach the sum also where it is all there is. */
                float p = scores[a][b] == -INFINITY ? 0.0f : expf(scores[a][b] - most);
                sum += p;
                if (key && p != 0) p *= draw_factor(s.mask, key, at.sequence, at.first + a, keys + b);
                scores[a][b] = p;
            }
            shrink[a] = most == -INFINITY ? 1.0f : expf(largest[a] - most);
            sums[a] = sums[a] * shrink[a] + sum;
            largest[a] = most;
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            const int64_t i = threadIdx.x + (int64_t)h * THREADS, a = i / s.size, c = i % s.size;
            if (a >= TILE) break;
            float sum = held[h] * shrink[a];
            for (int b = 0; b < TILE; b++) sum = fmaf(scores[a][b], v_tile[b * s.size + c], sum);
            held[h] = sum;
        }
    }
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        const int64_t i = threadIdx.x + (int64_t)h * THREADS, a = i / s.size, c = i % s.size, row = at.first + a;
        if (a >= TILE || row >= s.context) break;
        out[(at.sequence * s.context + row) * s.out_stride + at.head * s.size + c] = rounded<T>(held[h] / sums[a]);
    }
    if (threadIdx.x < TILE && at.first + threadIdx.x < s.context)
        log_sum[(at.sequence * s.heads + at.head) * s.context + at.first + threadIdx.x] =
            largest[threadIdx.x] + logf(sums[threadIdx.x]);
}

/* D: a warp a query of a head. */
template <class T>
__global__ void __launch_bounds__(THREADS) row_means(shape s, const T *out, const T *dout, float *means) {
    const int64_t index = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const bool there = index < s.sequences * s.heads * s.context;
    const int64_t row = index % s.context, pair = index / s.context, head = pair % s.heads, sequence = pair / s.heads;
    const int64_t at = (sequence * s.context + row) * s.out_stride + head * s.size;
    float sum = 0;
    for (int64_t c = threadIdx.x % 32; c < s.size && there; c += 32)
        sum = fmaf(widened(out[at + c]), widened(dout[at + c]), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0 && there) means[index] = sum;
}

/* p and ds of a tile of queries against one of keys: what v's and what q's and k's gradients are made of. */
template <int TILE>
__device__ void make_gradients(const shape &s, int64_t sequence, int64_t head, int64_t queries, int64_t keys,
                               const float *q_tile, const float *k_tile, const float *v_tile, const float *dout_tile,
                               const float *log_sum, const float *means, float (*p)[TILE + 1], float (*ds)[TILE + 1]) {
    const uint64_t key = s.mask.drop ? random_subkey(s.mask.key, (uint64_t)head) : 0;
    const int64_t rows = (sequence * s.heads + head) * s.context;
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const int a = i / TILE, b = i % TILE;
        float chance = 0, slope = 0;
        if (sees(s, sequence, queries + a, keys + b)) {
            const float score = s.scale * dot(s.size, q_tile + a * s.size, k_tile + b * s.size);
            const float whole = expf(score - log_sum[rows + queries + a]);
            const float kept = key ? draw_factor(s.mask, key, sequence, queries + a, keys + b) : 1.0f;
            const float dp = kept * dot(s.size, dout_tile + a * s.size, v_tile + b * s.size);
            chance = whole * kept;
            slope = whole * (dp - means[rows + queries + a]) * s.scale;
        }
        p[a][b] = chance;
        ds[a][b] = slope;
    }
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) query_gradients(shape s, const T *q, const T *k, const T *v, const T *dout,
                                                           const float *log_sum, const float *means, T *dq) {
    SHD_DYNAMIC_SHARED(float, shared);
    SHD_SHARED float p[TILE][TILE + 1], ds[TILE][TILE + 1];
    float *q_tile = shared, *k_tile = q_tile + TILE * s.size, *v_tile = k_tile + TILE * s.size,
          *dout_tile = v_tile + TILE * s.size;
    const place at = place_of<TILE>(s, s.heads);
    const int64_t kv_head = at.head / (s.heads / s.kv_heads);
    float held[HELD] = {0};
    load_tile<TILE>(s, q, s.q_stride, at.sequence, at.head, at.first, q_tile);
    load_tile<TILE>(s, dout, s.out_stride, at.sequence, at.head, at.first, dout_tile);
    for (int64_t keys = 0; keys < at.first + TILE && keys < s.context; keys += TILE) {
        __syncthreads();
        load_tile<TILE>(s, k, s.kv_stride, at.sequence, kv_head, keys, k_tile);
        load_tile<TILE>(s, v, s.kv_stride, at.sequence, kv_head, keys, v_tile);
        __syncthreads();
        make_gradients<TILE>(s, at.sequence, at.head, at.first, keys, q_tile, k_tile, v_tile, dout_tile, log_sum, means,
                             p, ds);
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            const int64_t i = threadIdx.x + (int64_t)h * THREADS, a = i / s.size, c = i % s.size;
            if (a >= TILE) break;
            for (int b = 0; b < TILE; b++) held[h] = fmaf(ds[a][b], k_tile[b * s.size + c], held[h]);
        }
    }
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        const int64_t i = threadIdx.x + (int64_t)h * THREADS, a = i / s.size, c = i % s.size, row = at.first + a;
        if (a >= TILE || row >= s.context) break;
        dq[(at.sequence * s.context + row) * s.q_stride + at.head * s.size + c] = rounded<T>(held[h]);
    }
}

template <int TILE, class T>
__global__ void __launch_bounds__(THREADS) key_gradients(shape s, const T *q, const T *k, const T *v, const T *dout,
                                                         const float *log_sum, const float *means, T *dk, T *dv) {
    SHD_DYNAMIC_SHARED(float, shared);
    SHD_SHARED float p[TILE][TILE + 1], ds[TILE][TILE + 1];
    float *q_tile = shared, *k_tile = q_tile + TILE * s.size, *v_tile = k_tile + TILE * s.size,
          *dout_tile = v_tile + TILE * s.size;
    const place at = place_of<TILE>(s, s.kv_heads);
    const int64_t group = s.heads / s.kv_heads;
    float held_k[HELD] = {0}, held_v[HELD] = {0};
    load_tile<TILE>(s, k, s.kv_stride, at.sequence, at.head, at.first, k_tile);
    load_tile<TILE>(s, v, s.kv_stride, at.sequence, at.head, at.first, v_tile);
    for (int64_t head = at.head * group; head < (at.head + 1) * group; head++)
        for (int64_t queries = at.first; queries < s.context; queries += TILE) {
            __syncthreads();
            load_tile<TILE>(s, q, s.q_stride, at.sequence, head, queries, q_tile);
            load_tile<TILE>(s, dout, s.out_stride, at.sequence, head, queries, dout_tile);
            __syncthreads();
            make_gradients<TILE>(s, at.sequence, head, queries, at.first, q_tile, k_tile, v_tile, dout_tile, log_sum,
                                 means, p, ds);
            __syncthreads();
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                const int64_t i = threadIdx.x + (int64_t)h * THREADS, b = i / s.size, c = i % s.size;
                if (b >= TILE) break;
                for (int a = 0; a < TILE; a++) {
                    held_v[h] = fmaf(p[a][b], dout_tile[a * s.size + c], held_v[h]);
                    held_k[h] = fmaf(ds[a][b], q_tile[a * s.size + c], held_k[h]);
                }
            }
        }
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        const int64_t i = threadIdx.x + (int64_t)h * THREADS, b = i / s.size, c = i % s.size, row = at.first + b;
        if (b >= TILE || row >= s.context) break;
        const int64_t to = (at.sequence * s.context + row) * s.kv_stride + at.head * s.size + c;
        dk[to] = rounded<T>(held_k[h]);
        dv[to] = rounded<T>(held_v[h]);
    }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

shape shape_of(const shd_attention *a) {
    shape s = {a->sequences,
               a->context,
               a->heads,
               a->kv_heads,
               a->head_size,
               a->q_stride,
               a->kv_stride,
               a->out_stride,
               a->starts,
               {0, 0, 0, 1.0f},
               (float)(1.0 / sqrt((double)a->head_size))};
    if (a->dropout) s.mask = {a->dropout->key, a->dropout->first_sequence, a->dropout->drop, a->dropout->scale};
    return s;
}

int64_t extent(const shape &s, int64_t stride, int64_t heads) {
    return (s.sequences * s.context - 1) * stride + heads * s.size;
}

/* f(constant<TILE>): as large as shared memory has room for. */
template <class F> cudaError_t with_tile(int64_t size, F f) {
    return size <= 128 ? f(constant<16>{}) : f(constant<8>{});
}

int64_t tiles_of(const shape &s, int64_t heads, int64_t tile) {
    return s.sequences * heads * ((s.context + tile - 1) / tile);
}

} // namespace

cudaError_t shd_launch_attention(cudaStream_t stream, sherd_dtype dtype, const shd_attention *a) {
    const shape s = shape_of(a);
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_tile(s.size, [&](auto width) {
            constexpr int TILE = decltype(width)::value;
            const T *q = static_cast<const T *>(a->q), *k = static_cast<const T *>(a->k),
                    *v = static_cast<const T *>(a->v);
            T *out = static_cast<T *>(a->out);
            return SHD_LAUNCH((attention_tile<TILE, T>), tiles_of(s, s.heads, TILE), THREADS,
                              3 * TILE * s.size * (int64_t)sizeof(float), stream,
                              (SHD_READS(q, extent(s, s.q_stride, s.heads)),
                               SHD_READS(k, extent(s, s.kv_stride, s.kv_heads)),
                               SHD_READS(v, extent(s, s.kv_stride, s.kv_heads)),
                               SHD_READS(s.starts, s.starts ? s.sequences * s.context : 0),
                               SHD_WRITES(out, extent(s, s.out_stride, s.heads)),
                               SHD_WRITES(a->log_sum, s.sequences * s.heads * s.context)),
                              s, q, k, v, out, a->log_sum);
        });
    });
}

template <int TILE, class T>
static cudaError_t launch_gradients(cudaStream_t stream, const shd_attention *a, const shape &s, const T *dout, T *dq,
                                    T *dk, T *dv, const float *means) {
    const T *q = static_cast<const T *>(a->q), *k = static_cast<const T *>(a->k), *v = static_cast<const T *>(a->v);
    const float *log_sum = a->log_sum;
    const int64_t shared_bytes = 4 * TILE * s.size * (int64_t)sizeof(float), rows = s.sequences * s.heads * s.context;
    const int64_t q_extent = extent(s, s.q_stride, s.heads), kv_extent = extent(s, s.kv_stride, s.kv_heads);
    const int64_t out_extent = extent(s, s.out_stride, s.heads), start_count = s.starts ? s.sequences * s.context : 0;
    (void)rows, (void)q_extent, (void)kv_extent, (void)out_extent, (void)start_count;
    const cudaError_t error = SHD_LAUNCH(
        (query_gradients<TILE, T>), tiles_of(s, s.heads, TILE), THREADS, shared_bytes, stream,
        (SHD_READS(q, q_extent), SHD_READS(k, kv_extent), SHD_READS(v, kv_extent), SHD_READS(dout, out_extent),
         SHD_READS(log_sum, rows), SHD_READS(means, rows), SHD_READS(s.starts, start_count), SHD_WRITES(dq, q_extent)),
        s, q, k, v, dout, log_sum, means, dq);
    if (error != cudaSuccess) return error;
    return SHD_LAUNCH((key_gradients<TILE, T>), tiles_of(s, s.kv_heads, TILE), THREADS, shared_bytes, stream,
                      (SHD_READS(q, q_extent), SHD_READS(k, kv_extent), SHD_READS(v, kv_extent),
                       SHD_READS(dout, out_extent), SHD_READS(log_sum, rows), SHD_READS(means, rows),
                       SHD_READS(s.starts, start_count), SHD_WRITES(dk, kv_extent), SHD_WRITES(dv, kv_extent)),
                      s, q, k, v, dout, log_sum, means, dk, dv);
}

cudaError_t shd_launch_attention_backward(cudaStream_t stream, sherd_dtype dtype, const shd_attention *a,
                                          const void *dout, void *dq, void *dk, void *dv, float *means) {
    const shape s = shape_of(a);
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T *out = static_cast<const T *>(a->out), *from = static_cast<const T *>(dout);
        const int64_t rows = s.sequences * s.heads * s.context;
        const cudaError_t error =
            SHD_LAUNCH(row_means<T>, (rows + THREADS / 32 - 1) / (THREADS / 32), THREADS, 0, stream,
                       (SHD_READS(out, extent(s, s.out_stride, s.heads)),
                        SHD_READS(from, extent(s, s.out_stride, s.heads)), SHD_WRITES(means, rows)),
                       s, out, from, means);
        if (error != cudaSuccess) return error;
        return with_tile(s.size, [&](auto width) {
            return launch_gradients<decltype(width)::value, T>(stream, a, s, from, static_cast<T *>(dq),
                                                               static_cast<T *>(dk), static_cast<T *>(dv), means);
        });
    });
}
