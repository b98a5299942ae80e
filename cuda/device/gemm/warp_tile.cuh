// A warp's 64×32 part of C: sums in registers, products on the tensor cores, and the way out through shared memory.
#pragma once

#include "../ptx/mma.cuh"
#include "operand.cuh"

class WarpTile {
  public:
    /// Adds the product of the tiles of A and B, all GEMM_DEPTH steps.
    template <Layout LAYOUT, bool SWIZZLED> __device__ void multiply(const bf16 *a, const bf16 *b) {
#pragma unroll
        for (uint32_t k = 0; k < GEMM_DEPTH; k += 16) {
            uint32_t x[ROWS][4], y[COLUMNS / 2][4];
#pragma unroll
            for (uint32_t i = 0; i < ROWS; i++) fragment_a<A_ALONG_K<LAYOUT>, SWIZZLED>(x[i], a, row() + i * 16, k);
#pragma unroll
            for (uint32_t j = 0; j < COLUMNS / 2; j++)
                fragment_b<B_ALONG_K<LAYOUT>, SWIZZLED>(y[j], b, column() + j * 16, k);
#pragma unroll
            for (uint32_t i = 0; i < ROWS; i++) {
#pragma unroll
                for (uint32_t j = 0; j < COLUMNS; j++)
                    mma_m16n8k16(sum_[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
            }
        }
    }

    /// Adds the sums of `part`, each times the scales of its row and column at `depth`; `part` starts again from 0.
    template <typename RowScales, typename ColumnScales>
    __device__ void
    take(WarpTile &part, TileIndex tile, uint32_t depth, const RowScales &of_row, const ColumnScales &of_column) {
        const uint32_t g = lane() / 4, t = lane() % 4;
        float columns[COLUMNS][2];
#pragma unroll
        for (uint32_t j = 0; j < COLUMNS; j++) {
#pragma unroll
            for (uint32_t i = 0; i < 2; i++)
                columns[j][i] = of_column.at(tile.n * GEMM_EDGE + column() + j * 8 + t * 2 + i, depth);
        }
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const float row_scale = of_row.at(tile.m * GEMM_EDGE + row() + i * 16 + half * 8 + g, depth);
#pragma unroll
                for (uint32_t j = 0; j < COLUMNS; j++) {
#pragma unroll
                    for (uint32_t k = 0; k < 2; k++) {
                        float &sum = part.sum_[i][j][half * 2 + k];
                        sum_[i][j][half * 2 + k] += sum * (row_scale * columns[j][k]);
                        sum = 0.0f;
                    }
                }
            }
        }
    }

    /// Hands the sums to the epilogue, four neighbours of a row per lane: eight lanes then cover 32 columns, whole
    /// sectors of C. `memory` is shared, SCRATCH floats for the block; nobody else may use it meanwhile.
    template <typename Epilogue> __device__ void finish(float *memory, TileIndex tile, const Epilogue &epilogue) {
        float *mine = memory + warp() * 16 * PITCH;
        const uint32_t g = lane() / 4, t = lane() % 4;
        const auto write = epilogue.template at<4>(tile.n * GEMM_EDGE + column() + lane() % 8 * 4);
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
            __syncwarp();
#pragma unroll
            for (uint32_t j = 0; j < COLUMNS; j++) {
                store_n<Space::SHARED, 2>(mine + g * PITCH + j * 8 + t * 2, &sum_[i][j][0]);
                store_n<Space::SHARED, 2>(mine + (g + 8) * PITCH + j * 8 + t * 2, &sum_[i][j][2]);
            }
            __syncwarp();
#pragma unroll 1 // sixteen copies of the epilogue would gain nothing
            for (uint32_t r = lane() / 8; r < 16; r += 4) {
                float x[4];
                load(x, mine + r * PITCH + lane() % 8 * 4);
                write(tile.m * GEMM_EDGE + row() + i * 16 + r, x);
            }
        }
    }

  private:
    static constexpr uint32_t ROWS = 4, COLUMNS = 4; // of 16×8 pieces
    static constexpr uint32_t PITCH = 32 + 8;        // eight rows' pairs then lie in different banks

    static __device__ uint32_t row() { return warp() / 4 * ROWS * 16; }
    static __device__ uint32_t column() { return warp() % 4 * COLUMNS * 8; }

    float sum_[ROWS][COLUMNS][4] = {};

  public:
    static constexpr uint32_t SCRATCH = GEMM_THREADS / WARP * 16 * PITCH;
};
