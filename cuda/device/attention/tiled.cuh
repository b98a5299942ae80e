// First rung: f32 arithmetic. A block holds 32 queries (or keys) of a head and walks the others 32 at a time. Eight
// threads share a row: they split the scores' columns among them, and the head's dimensions of what the row sums up.
#pragma once

#include "../vector.cuh"
#include "segment.cuh"

constexpr uint32_t TILED_THREADS = 256;
constexpr uint32_t TILE = 32;                    // rows and columns of a tile of scores
constexpr uint32_t SHARE = TILED_THREADS / TILE; // threads of a row
constexpr uint32_t SCORES = TILE / SHARE;        // of a thread, in columns part, part + SHARE, …
constexpr uint32_t DIMS = 128 / SHARE;           // most dimensions of a thread, part, part + SHARE, …
constexpr uint32_t PITCH = TILE + 1;             // of a tile of scores in shared memory

__device__ inline uint32_t row_in_tile() { return threadIdx.x / SHARE; }
__device__ inline uint32_t part() { return threadIdx.x % SHARE; }

/// Σ and max over the threads of a row.
__device__ inline float row_sum(float x) {
#pragma unroll
    for (uint32_t distance = SHARE / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}
__device__ inline float row_max(float x) {
#pragma unroll
    for (uint32_t distance = SHARE / 2; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
    return x;
}

/// 32 rows of one head in shared memory, f32, at a pitch that spreads a column over the banks.
struct HeadTile {
    float *memory;
    uint32_t head_dim;

    __device__ float *row(uint32_t r) const { return memory + r * (head_dim | 1); }

    /// Rows first .. end of a matrix of `heads` heads, zeros behind them. All threads must come here.
    template <typename T>
    __device__ void fetch(const T *matrix, uint32_t first, uint32_t end, uint32_t heads, uint32_t head) {
        for (uint32_t i = threadIdx.x; i < TILE * head_dim; i += TILED_THREADS) {
            const uint32_t r = i / head_dim, d = i % head_dim;
            row(r)[d] = first + r < end ? widen(matrix[(uint64_t(first + r) * heads + head) * head_dim + d]) : 0.0f;
        }
    }
};

/// The thread's scores: ⟨own row of a, rows part, part + SHARE, … of b⟩.
__device__ inline void products(float (&s)[SCORES], const HeadTile &a, const HeadTile &b) {
    const float *mine = a.row(row_in_tile());
#pragma unroll
    for (uint32_t j = 0; j < SCORES; j++) s[j] = 0.0f;
    for (uint32_t d = 0; d < a.head_dim; d++) {
#pragma unroll
        for (uint32_t j = 0; j < SCORES; j++) s[j] += mine[d] * b.row(part() + j * SHARE)[d];
    }
}

/// sum += Σ over the columns of (weights of the own row)·(row of b), the thread's dimensions.
__device__ inline void accumulate(float (&sum)[DIMS], const float *weights, const HeadTile &b) {
    for (uint32_t c = 0; c < TILE; c++) {
        const float w = weights[row_in_tile() * PITCH + c];
#pragma unroll
        for (uint32_t i = 0; i < DIMS; i++) {
            const uint32_t d = part() + i * SHARE;
            if (d < b.head_dim) sum[i] += w * b.row(c)[d];
        }
    }
}

/// Writes a row's dimensions times `factor`.
template <typename T>
__device__ void write_row(T *matrix, uint64_t row, uint32_t head_dim, const float (&sum)[DIMS], float factor) {
#pragma unroll
    for (uint32_t i = 0; i < DIMS; i++) {
        const uint32_t d = part() + i * SHARE;
        if (d < head_dim) matrix[row * head_dim + d] = narrow<T>(sum[i] * factor);
    }
}

template <typename T> __device__ void tiled_forward(const AttentionForward &args) {
    const Attention &a = args.attention;
    uint32_t index, first;
    if (!query_tile<TILE>(a, blockIdx.x, index, first)) return;
    const Segment segment(a, index);
    const uint32_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads),
                   end = segment.first_query + segment.queries;
    const uint32_t row = first + row_in_tile(), seen = row < end ? segment.seen(row) : 0;
    const uint32_t last = segment.seen(min(first + TILE, end) - 1); // the tile's last query sees most

    float *memory = dynamic_shared<float>();
    const uint32_t tile_floats = TILE * (a.head_dim | 1);
    HeadTile q = {memory, a.head_dim}, kv = {memory + tile_floats, a.head_dim};
    float *weights = memory + 2 * tile_floats;
    q.fetch(static_cast<const T *>(a.q), first, end, a.heads, head);

    float largest = -INFINITY, total = 0.0f, sum[DIMS] = {};
    for (uint32_t start = 0; start < last; start += TILE) {
        const uint32_t key = segment.first_key + start, keys_end = segment.first_key + segment.keys;
        __syncthreads();
        kv.fetch(static_cast<const T *>(a.k), key, keys_end, a.kv_heads, kv_head);
        __syncthreads();
        float s[SCORES];
        products(s, q, kv);
        float best = largest;
#pragma unroll
        for (uint32_t j = 0; j < SCORES; j++) {
            s[j] = start + part() + j * SHARE < seen ? s[j] * a.scale : -INFINITY;
            best = fmaxf(best, s[j]);
        }
        best = row_max(best);
        const float moved = largest == -INFINITY ? 0.0f : expf(largest - best);
        largest = best;
        float added = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < SCORES; j++) {
            const float p = s[j] == -INFINITY ? 0.0f : expf(s[j] - best);
            weights[row_in_tile() * PITCH + part() + j * SHARE] = p;
            added += p;
        }
        total = total * moved + row_sum(added);
#pragma unroll
        for (uint32_t i = 0; i < DIMS; i++) sum[i] *= moved;
        __syncthreads();
        kv.fetch(static_cast<const T *>(a.v), key, keys_end, a.kv_heads, kv_head);
        __syncthreads();
        accumulate(sum, weights, kv);
    }
    if (row >= end) return;
    const uint64_t at = uint64_t(row) * a.heads + head;
    write_row(static_cast<T *>(args.out), at, a.head_dim, sum, total > 0.0f ? 1.0f / total : 0.0f);
    if (part() == 0) args.lse[at] = total > 0.0f ? largest + logf(total) : -INFINITY; // a query that sees no key
}

/// delta = ⟨dout, out⟩ per row and head, a warp each.
template <typename T> __device__ void attention_delta(const AttentionBackward &args) {
    const Attention &a = args.attention;
    const uint64_t at = uint64_t(blockIdx.x) * (TILED_THREADS / WARP) + warp();
    if (at >= uint64_t(a.rows) * a.heads) return;
    float sum = 0.0f;
    for (uint32_t d = lane(); d < a.head_dim; d += WARP)
        sum += widen(static_cast<const T *>(args.dout)[at * a.head_dim + d]) *
               widen(static_cast<const T *>(args.out)[at * a.head_dim + d]);
    sum = warp_sum(sum);
    if (lane() == 0) args.delta[at] = sum;
}

/// p and ds of one score s = ⟨q, k⟩ and dp = ⟨dout, v⟩; nothing where the query does not see the key.
__device__ inline void
softmax_gradient(bool sees, float s, float dp, float scale, float lse, float delta, float &p, float &ds) {
    p = sees ? expf(s * scale - lse) : 0.0f;
    ds = p * (dp - delta) * scale;
}

template <typename T> __device__ void tiled_query_gradient(const AttentionBackward &args) {
    const Attention &a = args.attention;
    uint32_t index, first;
    if (!query_tile<TILE>(a, blockIdx.x, index, first)) return;
    const Segment segment(a, index);
    const uint32_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads),
                   end = segment.first_query + segment.queries;
    const uint32_t row = first + row_in_tile(), seen = row < end ? segment.seen(row) : 0;
    const uint32_t last = segment.seen(min(first + TILE, end) - 1);
    const uint64_t at = uint64_t(row) * a.heads + head;
    const float lse = row < end ? args.lse[at] : 0.0f, delta = row < end ? args.delta[at] : 0.0f;

    float *memory = dynamic_shared<float>();
    const uint32_t tile_floats = TILE * (a.head_dim | 1);
    HeadTile q = {memory, a.head_dim}, dout = {memory + tile_floats, a.head_dim};
    HeadTile k = {memory + 2 * tile_floats, a.head_dim}, v = {memory + 3 * tile_floats, a.head_dim};
    float *weights = memory + 4 * tile_floats;
    q.fetch(static_cast<const T *>(a.q), first, end, a.heads, head);
    dout.fetch(static_cast<const T *>(args.dout), first, end, a.heads, head);

    float sum[DIMS] = {};
    for (uint32_t start = 0; start < last; start += TILE) {
        const uint32_t key = segment.first_key + start, keys_end = segment.first_key + segment.keys;
        __syncthreads();
        k.fetch(static_cast<const T *>(a.k), key, keys_end, a.kv_heads, kv_head);
        v.fetch(static_cast<const T *>(a.v), key, keys_end, a.kv_heads, kv_head);
        __syncthreads();
        float s[SCORES], dp[SCORES], p;
        products(s, q, k);
        products(dp, dout, v);
#pragma unroll
        for (uint32_t j = 0; j < SCORES; j++) {
            const uint32_t column = part() + j * SHARE;
            softmax_gradient(
                start + column < seen, s[j], dp[j], a.scale, lse, delta, p, weights[row_in_tile() * PITCH + column]);
        }
        __syncwarp(); // a row's threads are of one warp
        accumulate(sum, weights, k);
    }
    if (row < end) write_row(static_cast<T *>(args.dq), at, a.head_dim, sum, 1.0f);
}

/// A block takes 32 keys of one key-value head, and all segments, query heads and queries that see them, in order.
template <typename T> __device__ void tiled_key_gradient(const AttentionBackward &args) {
    const Attention &a = args.attention;
    const uint32_t first = blockIdx.x * TILE, kv_head = blockIdx.y, group = a.heads / a.kv_heads;
    float *memory = dynamic_shared<float>();
    const uint32_t tile_floats = TILE * (a.head_dim | 1);
    HeadTile q = {memory, a.head_dim}, dout = {memory + tile_floats, a.head_dim};
    HeadTile k = {memory + 2 * tile_floats, a.head_dim}, v = {memory + 3 * tile_floats, a.head_dim};
    float *of_p = memory + 4 * tile_floats, *of_ds = of_p + TILE * PITCH;
    k.fetch(static_cast<const T *>(a.k), first, a.key_rows, a.kv_heads, kv_head);
    v.fetch(static_cast<const T *>(a.v), first, a.key_rows, a.kv_heads, kv_head);

    const uint32_t key = first + row_in_tile();
    float dk[DIMS] = {}, dv[DIMS] = {};
    for (uint32_t index = 0; index < a.segments; index++) {
        const Segment segment(a, index);
        const uint32_t keys_end = segment.first_key + segment.keys, end = segment.first_query + segment.queries;
        if (first >= keys_end || first + TILE <= segment.first_key || segment.queries == 0) continue;
        const bool ours = key >= segment.first_key && key < keys_end;
        const uint32_t from = segment.first_query_of(first);
        for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            for (uint32_t start = from; start < end; start += TILE) {
                __syncthreads();
                q.fetch(static_cast<const T *>(a.q), start, end, a.heads, head);
                dout.fetch(static_cast<const T *>(args.dout), start, end, a.heads, head);
                __syncthreads();
                float s[SCORES], dp[SCORES];
                products(s, k, q);
                products(dp, v, dout);
#pragma unroll
                for (uint32_t j = 0; j < SCORES; j++) {
                    const uint32_t column = part() + j * SHARE, row = start + column;
                    const bool sees = ours && row < end && key - segment.first_key < segment.seen(row);
                    const uint64_t at = uint64_t(row) * a.heads + head;
                    const uint32_t to = row_in_tile() * PITCH + column;
                    softmax_gradient(sees, s[j], dp[j], a.scale, sees ? args.lse[at] : 0.0f,
                        sees ? args.delta[at] : 0.0f, of_p[to], of_ds[to]);
                }
                __syncwarp();
                accumulate(dv, of_p, dout);
                accumulate(dk, of_ds, q);
            }
        }
    }
    if (key >= a.key_rows) return;
    const uint64_t at = uint64_t(key) * a.kv_heads + kv_head;
    write_row(static_cast<T *>(args.dk), at, a.head_dim, dk, 1.0f);
    write_row(static_cast<T *>(args.dv), at, a.head_dim, dv, 1.0f);
}
