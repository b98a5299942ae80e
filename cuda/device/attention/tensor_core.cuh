// Second rung: both products on the tensor cores, in bf16 with f32 sums. A block holds 64 queries of a head, a warp 16
// of them with their sums in registers; keys and values come 64 at a time, each under way while the other is used (Dao,
// "FlashAttention-2", arXiv 2307.08691).
#pragma once

#include "../ptx/cp_async.cuh"
#include "../swizzled_tile.cuh"
#include "segment.cuh"

constexpr uint32_t TENSOR_THREADS = 128;
constexpr uint32_t TENSOR_TILE = 64; // queries, and keys at a time

/// 64 rows of one head in shared memory.
template <int D> struct HeadRows : SwizzledTile<D> {
    using SwizzledTile<D>::CHUNKS;

    /// Starts to copy rows first .. end of a matrix of `heads` heads, zeros behind them.
    __device__ void fetch(const void *matrix, uint32_t first, uint32_t end, uint32_t heads, uint32_t head) const {
#pragma unroll
        for (uint32_t i = threadIdx.x; i < TENSOR_TILE * CHUNKS; i += TENSOR_THREADS) {
            const uint32_t row = i / CHUNKS, part = i % CHUNKS;
            const bool inside = first + row < end;
            const uint64_t at = (uint64_t(inside ? first + row : first) * heads + head) * D + part * 8;
            copy_async_16(
                shared_address(this->chunk(row, part)), static_cast<const bf16 *>(matrix) + at, inside ? 16 : 0);
        }
    }
};

/// Writes the warp's 16 rows times two factors through shared memory, which the warp has to itself, in whole sectors.
template <int D>
__device__ void write_rows(void *matrix, const float (&sum)[D / 8][4], const float (&factor)[2],
    const SwizzledTile<D> &scratch, uint32_t mine, uint32_t first, uint32_t end, uint32_t heads, uint32_t head) {
    __syncwarp();
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
#pragma unroll
        for (uint32_t j = 0; j < D / 8; j++) {
            uint32_t *pair = reinterpret_cast<uint32_t *>(scratch.chunk(mine + lane() / 4 + r * 8, j)) + lane() % 4;
            *pair = pair_of_bf16(sum[j][2 * r] * factor[r], sum[j][2 * r + 1] * factor[r]);
        }
    }
    __syncwarp();
    constexpr uint32_t CHUNKS = SwizzledTile<D>::CHUNKS;
    for (uint32_t i = lane(); i < 16 * CHUNKS; i += WARP) {
        const uint32_t row = mine + i / CHUNKS, part = i % CHUNKS;
        if (first + row >= end) continue;
        uint32_t word[4];
        load_words(word, scratch.chunk(row, part));
        const uint64_t at = (uint64_t(first + row) * heads + head) * D + part * 8;
        store_words<Space::GLOBAL>(static_cast<bf16 *>(matrix) + at, word);
    }
}

/// Over the four lanes that share a row of mma's d.
__device__ inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/// The two rows of a warp's 16 that a lane has in registers, and how many keys each sees.
struct OwnRows {
    uint32_t seen[2];
    float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};
};

/// A tile of scores [16, 64] to probabilities against the largest so far; `moved` is what the sums so far shrink by.
__device__ inline void
online_softmax(float (&s)[8][4], OwnRows &own, float (&moved)[2], uint32_t first_key, float scale) {
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        float best = own.largest[r], added = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
#pragma unroll
            for (uint32_t e = 2 * r; e < 2 * r + 2; e++) {
                const uint32_t key = first_key + j * 8 + lane() % 4 * 2 + e % 2;
                s[j][e] = key < own.seen[r] ? s[j][e] * scale : -INFINITY;
                best = fmaxf(best, s[j][e]);
            }
        }
        best = quad_max(best);
        moved[r] = own.largest[r] == -INFINITY ? 0.0f : expf(own.largest[r] - best);
        own.largest[r] = best;
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
#pragma unroll
            for (uint32_t e = 2 * r; e < 2 * r + 2; e++) {
                s[j][e] = s[j][e] == -INFINITY ? 0.0f : expf(s[j][e] - best);
                added += s[j][e];
            }
        }
        own.total[r] = own.total[r] * moved[r] + quad_sum(added);
    }
}

template <int D> __device__ void tensor_core_forward(const AttentionForward &args) {
    const Attention &a = args.attention;
    uint32_t index, first;
    if (!query_tile<TENSOR_TILE>(a, blockIdx.x, index, first)) return;
    const Segment segment(a, index);
    const uint32_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    const uint32_t end = segment.first_query + segment.queries, keys_end = segment.first_key + segment.keys;
    const uint32_t last = segment.seen(min(first + TENSOR_TILE, end) - 1);
    bf16 *memory = dynamic_shared<bf16>();
    const HeadRows<D> q = {memory}, k = {memory + TENSOR_TILE * D}, v = {memory + 2 * TENSOR_TILE * D};
    q.fetch(a.q, first, end, a.heads, head);
    k.fetch(a.k, segment.first_key, keys_end, a.kv_heads, kv_head);
    copy_async_commit();

    const uint32_t mine = warp() * 16; // first row of the warp's 16
    OwnRows own;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = first + mine + lane() / 4 + r * 8;
        own.seen[r] = row < end ? segment.seen(row) : 0;
    }
    float out[D / 8][4] = {};
    for (uint32_t start = 0; start < last; start += TENSOR_TILE) {
        const uint32_t key = segment.first_key + start;
        v.fetch(a.v, key, keys_end, a.kv_heads, kv_head);
        copy_async_commit();
        copy_async_wait<1>();
        __syncthreads(); // the queries and this tile's keys are there
        float s[8][4] = {};
        add_row_products(s, q, mine, k);
        __syncthreads(); // the keys have been read
        if (start + TENSOR_TILE < last) k.fetch(a.k, key + TENSOR_TILE, keys_end, a.kv_heads, kv_head);
        copy_async_commit();

        float moved[2];
        online_softmax(s, own, moved, start, a.scale);
#pragma unroll
        for (uint32_t j = 0; j < D / 8; j++) {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) out[j][e] *= moved[e / 2];
        }
        copy_async_wait<1>();
        __syncthreads(); // this tile's values are there
        add_weighted_rows(out, s, v);
        __syncthreads(); // the values have been read
    }
    copy_async_wait<0>();
    __syncthreads(); // the queries' memory is free

    float inverse[2];
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        inverse[r] = own.total[r] > 0.0f ? 1.0f / own.total[r] : 0.0f; // a query that sees no key gives 0
        const uint32_t row = first + mine + lane() / 4 + r * 8;
        if (lane() % 4 > 0 || row >= end) continue;
        args.lse[uint64_t(row) * a.heads + head] =
            own.total[r] > 0.0f ? own.largest[r] + logf(own.total[r]) : -INFINITY;
    }
    write_rows(args.out, out, inverse, q, mine, first, end, a.heads, head);
}
