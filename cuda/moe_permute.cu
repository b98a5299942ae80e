// Rows gathered expert by expert, so that each expert sees its tokens as one matrix; no count ever goes to the host.
//
// The sort gives every (token, slot) pair a row, dropped pairs the last ones: buffers have R·K rows, of which
// offsets[E] belong to experts. Rows behind those are zeros.

#include "device/counting_sort.cuh"
#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t ROWS = THREADS / WARP; // of a block, where a warp walks one row
constexpr uint32_t MOST_EXPERTS = 512;

/// The expert of a pair; dropped pairs come after all experts.
__device__ inline uint32_t key_of(const MoeDispatch &args, uint32_t pair) {
    return min(args.chosen[pair], args.experts);
}

// launch: grid pairs/2048, block 256, shared 0
KERNEL(SORT_THREADS) moe_permute_count_u32(const __grid_constant__ MoeDispatch args) {
    sort_count<MOST_EXPERTS + 1>(
        args.pairs, args.experts + 1, args.counts, [&](uint32_t pair) { return key_of(args, pair); });
}

// launch: grid 1, block 256, shared 0
KERNEL(SORT_THREADS) moe_permute_scan_u32(const __grid_constant__ MoeDispatch args) {
    sort_scan(args.experts + 1, (args.pairs + SORT_TILE - 1) / SORT_TILE, args.counts, args.offsets);
}

// launch: grid pairs/2048, block 256, shared 0
KERNEL(SORT_THREADS) moe_permute_place_u32(const __grid_constant__ MoeDispatch args) {
    sort_place<MOST_EXPERTS + 1>(
        args.pairs, args.experts + 1, args.counts, [&](uint32_t pair) { return key_of(args, pair); },
        [&](uint32_t pair, uint32_t row) {
            args.pair_of[row] = pair;
            args.row_of[pair] = row;
            if (args.draw_of) args.draw_of[row] = args.draw[pair / args.top_k / args.length];
        });
}

template <typename T, int N> __device__ void forward_row(const MoePermuteForward &args, uint32_t row) {
    const bool owned = row < *args.filled;
    const T *x = row_of<const T>(args.x, owned ? args.pair_of[row] / args.top_k : 0, args.width);
    T *y = row_of<T>(args.y, row, args.width);
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float a[N] = {};
        if (owned) load(a, x + column);
        store(y + column, a);
    }
}

template <typename T> __device__ void forward(const MoePermuteForward &args) {
    const uint32_t row = blockIdx.x * ROWS + warp();
    if (row >= args.pairs) return;
    if (wide_rows<T>(args.width, args.x, args.y)) forward_row<T, WIDE<T>>(args, row);
    else forward_row<T, 1>(args, row);
}

/// A token's gradient is the sum of its K rows', in slot order.
template <typename T, int N> __device__ void backward_row(const MoePermuteBackward &args, uint32_t token) {
    T *dx = row_of<T>(args.dx, token, args.width);
    const uint32_t *rows = args.row_of + uint64_t(token) * args.top_k;
    const uint32_t filled = *args.filled;
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float sum[N] = {};
        for (uint32_t k = 0; k < args.top_k; k++) {
            if (rows[k] >= filled) continue; // dropped
            float d[N];
            load(d, row_of<const T>(args.dy, rows[k], args.width) + column);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += d[j];
        }
        store(dx + column, sum);
    }
}

template <typename T> __device__ void backward(const MoePermuteBackward &args) {
    const uint32_t token = blockIdx.x * ROWS + warp();
    if (token >= args.tokens) return;
    if (wide_rows<T>(args.width, args.dy, args.dx)) backward_row<T, WIDE<T>>(args, token);
    else backward_row<T, 1>(args, token);
}

// launch: grid pairs/8, block 256, shared 0
KERNEL(THREADS) moe_permute_forward_f32(const __grid_constant__ MoePermuteForward args) { forward<float>(args); }
KERNEL(THREADS) moe_permute_forward_bf16(const __grid_constant__ MoePermuteForward args) { forward<bf16>(args); }

// launch: grid tokens/8, block 256, shared 0
KERNEL(THREADS) moe_permute_backward_f32(const __grid_constant__ MoePermuteBackward args) { backward<float>(args); }
KERNEL(THREADS) moe_permute_backward_bf16(const __grid_constant__ MoePermuteBackward args) { backward<bf16>(args); }
