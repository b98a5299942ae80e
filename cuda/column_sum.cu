// Second pass of sums over rows: the blocks' partial sums of each column, added in order.
//
// A warp reads 32 neighbouring columns of one row; the block's eight warps take every eighth row, and their sums meet
// in order.

#include "device/kernel.cuh"
#include "device/reduce.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / WARP;

// launch: grid width/32, block 256, shared 0
KERNEL(THREADS) column_sum_rows_f32(const __grid_constant__ ColumnSum args) {
    __shared__ float of_warp[WARPS][WARP];
    const uint32_t column = blockIdx.x * WARP + lane();
    float sum = 0.0f;
    if (column < args.width) {
        for (uint32_t row = warp(); row < args.rows; row += WARPS)
            sum += args.partials[uint64_t(row) * args.width + column];
    }
    of_warp[warp()][lane()] = sum;
    __syncthreads();
    if (warp() > 0 || column >= args.width) return;
    for (uint32_t w = 1; w < WARPS; w++) sum += of_warp[w][lane()];
    args.out[column] = args.accumulate ? args.out[column] + sum : sum;
}
