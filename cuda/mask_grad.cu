// Second pass of mask gradients: rows' sums per interval, added up per draw.
//
// An op's backward kernel writes row_sums [R, C]. `tiles` adds 1024 rows for each draw that may occur among them,
// `total` adds the tiles in order. Rows of a draw need not lie together.

#include "device/kernel.cuh"
#include "device/reduce.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / WARP;
constexpr uint32_t TILE = 1024; // rows

/// Adds what the block's warps hold for interval c = lane, in the warps' order. Valid in warp 0.
__device__ inline float sum_of_warps(float x) {
    __shared__ float of_warp[WARPS][WARP];
    of_warp[warp()][lane()] = x;
    __syncthreads();
    if (warp() > 0) return 0.0f;
    for (uint32_t w = 1; w < WARPS; w++) x += of_warp[w][lane()];
    return x;
}

// launch: grid rows/1024 draws, block 256, shared 0
KERNEL(THREADS) mask_grad_tiles_f32(const __grid_constant__ MaskGrad args) {
    const uint32_t first = blockIdx.x * TILE, end = min(first + TILE, args.rows), draw = blockIdx.y, c = lane();
    float sum = 0.0f;
    for (uint32_t row = first + warp(); row < end; row += WARPS) {
        const uint32_t of_row = args.draw ? args.draw[row / args.length] : 0;
        if (of_row == draw && c < args.candidates) sum += args.row_sums[uint64_t(row) * args.candidates + c];
    }
    sum = sum_of_warps(sum);
    if (warp() > 0 || c >= args.candidates) return;
    args.partials[(uint64_t(blockIdx.x) * args.draws + draw) * args.candidates + c] = sum;
}

// launch: grid draws, block 256, shared 0
KERNEL(THREADS) mask_grad_total_f32(const __grid_constant__ MaskGrad args) {
    const uint32_t tiles = (args.rows + TILE - 1) / TILE, draw = blockIdx.x, c = lane();
    float sum = 0.0f;
    for (uint32_t tile = warp(); tile < tiles && c < args.candidates; tile += WARPS)
        sum += args.partials[(uint64_t(tile) * args.draws + draw) * args.candidates + c];
    sum = sum_of_warps(sum);
    if (warp() > 0 || c >= args.candidates) return;
    float *out = args.out + uint64_t(draw) * args.candidates + c;
    *out = args.accumulate ? *out + sum : sum;
}
