// The gradients of attention on the tensor cores: each tile of probabilities is made again from the saved log-sum-exp,
// once per tile of queries for dq, and once per tile of keys for dk and dv, so that every sum has one owner.
#pragma once

#include "tensor_core.cuh"

template <int D> __device__ void tensor_core_query_gradient(const AttentionBackward &args) {
    const Attention &a = args.attention;
    uint32_t index, first;
    if (!query_tile<TENSOR_TILE>(a, blockIdx.x, index, first)) return;
    const Segment segment(a, index);
    const uint32_t head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    const uint32_t end = segment.first_query + segment.queries, keys_end = segment.first_key + segment.keys;
    const uint32_t last = segment.seen(min(first + TENSOR_TILE, end) - 1);
    bf16 *memory = dynamic_shared<bf16>();
    const HeadRows<D> q = {memory}, dout = {memory + TENSOR_TILE * D};
    const HeadRows<D> k = {memory + 2 * TENSOR_TILE * D}, v = {memory + 3 * TENSOR_TILE * D};
    q.fetch(a.q, first, end, a.heads, head);
    dout.fetch(args.dout, first, end, a.heads, head);
    copy_async_commit(); // so that the end waits for them even where the loop does not run

    const uint32_t mine = warp() * 16;
    uint32_t seen[2];
    float lse[2], delta[2];
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = first + mine + lane() / 4 + r * 8;
        const uint64_t at = uint64_t(row) * a.heads + head;
        seen[r] = row < end ? segment.seen(row) : 0;
        lse[r] = row < end ? args.lse[at] : 0.0f;
        delta[r] = row < end ? args.delta[at] : 0.0f;
    }
    float dq[D / 8][4] = {};
    for (uint32_t start = 0; start < last; start += TENSOR_TILE) {
        __syncthreads(); // the last tile has been read
        k.fetch(a.k, segment.first_key + start, keys_end, a.kv_heads, kv_head);
        v.fetch(a.v, segment.first_key + start, keys_end, a.kv_heads, kv_head);
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
        float s[8][4] = {}, dp[8][4] = {};
        add_row_products(s, q, mine, k);
        add_row_products(dp, dout, mine, v);
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint32_t key = start + j * 8 + lane() % 4 * 2 + e % 2, r = e / 2;
                const float p = key < seen[r] ? expf(s[j][e] * a.scale - lse[r]) : 0.0f;
                s[j][e] = p * (dp[j][e] - delta[r]) * a.scale;
            }
        }
        add_weighted_rows(dq, s, k);
    }
    copy_async_wait<0>();
    __syncthreads();
    const float one[2] = {1.0f, 1.0f};
    write_rows(args.dq, dq, one, q, mine, first, end, a.heads, head);
}

/// A block takes 64 keys of one key-value head, and all segments, query heads and queries that see them, in order.
template <int D> __device__ void tensor_core_key_gradient(const AttentionBackward &args) {
    __shared__ float lse[TENSOR_TILE], delta[TENSOR_TILE]; // of the tile's queries
    const Attention &a = args.attention;
    const uint32_t first = blockIdx.x * TENSOR_TILE, kv_head = blockIdx.y, group = a.heads / a.kv_heads;
    bf16 *memory = dynamic_shared<bf16>();
    const HeadRows<D> k = {memory}, v = {memory + TENSOR_TILE * D};
    const HeadRows<D> q = {memory + 2 * TENSOR_TILE * D}, dout = {memory + 3 * TENSOR_TILE * D};
    k.fetch(a.k, first, a.key_rows, a.kv_heads, kv_head);
    v.fetch(a.v, first, a.key_rows, a.kv_heads, kv_head);
    copy_async_commit(); // so that the end waits for them even where the loop does not run

    const uint32_t mine = warp() * 16;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    for (uint32_t index = 0; index < a.segments; index++) {
        const Segment segment(a, index);
        const uint32_t keys_end = segment.first_key + segment.keys, end = segment.first_query + segment.queries;
        if (first >= keys_end || first + TENSOR_TILE <= segment.first_key || segment.queries == 0) continue;
        const uint32_t from = segment.first_query_of(first);
        for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            for (uint32_t start = from; start < end; start += TENSOR_TILE) {
                __syncthreads(); // the last tile has been read
                q.fetch(a.q, start, end, a.heads, head);
                dout.fetch(args.dout, start, end, a.heads, head);
                copy_async_commit();
                if (threadIdx.x < TENSOR_TILE) {
                    const uint32_t row = start + threadIdx.x;
                    const uint64_t at = uint64_t(row) * a.heads + head;
                    lse[threadIdx.x] = row < end ? args.lse[at] : 0.0f;
                    delta[threadIdx.x] = row < end ? args.delta[at] : 0.0f;
                }
                copy_async_wait<0>();
                __syncthreads();
#pragma unroll 1 // 32 queries at a time: registers hold no more
                for (uint32_t half = 0; half < TENSOR_TILE; half += 32) {
                    float s[4][4] = {}, dp[4][4] = {}; // [keys, queries]
                    add_row_products(s, k, mine, q, half);
                    add_row_products(dp, v, mine, dout, half);
#pragma unroll
                    for (uint32_t j = 0; j < 4; j++) {
#pragma unroll
                        for (uint32_t e = 0; e < 4; e++) {
                            const uint32_t column = half + j * 8 + lane() % 4 * 2 + e % 2, row = start + column;
                            const uint32_t key = first + mine + lane() / 4 + e / 2 * 8;
                            const bool ours = key >= segment.first_key && key < keys_end && row < end;
                            const bool sees = ours && key - segment.first_key < segment.seen(row);
                            s[j][e] = sees ? expf(s[j][e] * a.scale - lse[column]) : 0.0f;
                            dp[j][e] = s[j][e] * (dp[j][e] - delta[column]) * a.scale;
                        }
                    }
                    add_weighted_rows(dv, s, dout, half);
                    add_weighted_rows(dk, dp, q, half);
                }
            }
        }
    }
    copy_async_wait<0>();
    __syncthreads();
    const float one[2] = {1.0f, 1.0f};
    write_rows(args.dk, dk, one, k, mine, first, a.key_rows, a.kv_heads, kv_head);
    write_rows(args.dv, dv, one, v, mine, first, a.key_rows, a.kv_heads, kv_head);
}
