// How quantisers cut a matrix: a block takes 128×128, a warp 16 rows of it, a lane four neighbouring columns of each.
// So every block of values that shares a scale lies in one warp or in one column of warps.
#pragma once

#include "../gemm/matrix.cuh"
#include "../kernel.cuh"
#include "../reduce.cuh"
#include "format.cuh"

constexpr uint32_t QUANTIZE_THREADS = 256;
constexpr uint32_t QUANTIZE_EDGE = 128;
constexpr uint32_t TILE_ROWS = 16; // of a warp
constexpr int QUAD = 4;            // columns of a lane

/// Which elements share a scale.
enum class Blocks {
    ROWS,    ///< neighbours in a row: 1×128, 1×16
    COLUMNS, ///< neighbours in a column: 128×1, 16×1
    SQUARES, ///< 128×128, 16×16
};

/// Where the thread's elements lie: rows first_row() … + 15, columns first_column() … + 3.
__device__ inline uint32_t first_row() { return blockIdx.x * QUANTIZE_EDGE + warp() * TILE_ROWS; }
__device__ inline uint32_t first_column() { return blockIdx.y * QUANTIZE_EDGE + lane() * QUAD; }

/// The thread's elements in shared memory, which it alone touches: what is needed twice is not read twice from global
/// memory. `memory` holds 128×128 floats.
class Kept {
  public:
    __device__ explicit Kept(float *memory) : mine_(memory + warp() * TILE_ROWS * QUANTIZE_EDGE + lane() * QUAD) {}

    __device__ void store(uint32_t row, const float (&x)[QUAD]) { store_shared(mine_ + row * QUANTIZE_EDGE, x); }
    __device__ void load(float (&x)[QUAD], uint32_t row) const { ::load(x, mine_ + row * QUANTIZE_EDGE); }

  private:
    float *mine_;
};

__device__ inline uint32_t quad_largest(const float (&x)[QUAD]) {
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < QUAD; j++) largest = max(largest, magnitude_bits(x[j]));
    return largest;
}

/// The largest of four neighbouring lanes, which have sixteen columns between them.
__device__ inline uint32_t largest_of_four_lanes(uint32_t x) {
    x = max(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return max(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/// Reads the thread's elements once: keeps them, and the largest magnitude of each of its columns.
template <typename T> __device__ void read_tile(const Matrix<const T> &x, Kept &kept, uint32_t (&largest)[QUAD]) {
#pragma unroll
    for (int j = 0; j < QUAD; j++) largest[j] = 0;
#pragma unroll 4
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        float v[QUAD];
        x.load(v, first_row() + r, first_column());
        kept.store(r, v);
#pragma unroll
        for (int j = 0; j < QUAD; j++) largest[j] = max(largest[j], magnitude_bits(v[j]));
    }
}

__device__ inline uint32_t largest_of(const uint32_t (&x)[QUAD]) { return max(max(x[0], x[1]), max(x[2], x[3])); }

/// The rounding of a row's four elements: their random words belong to the row and the group of four columns, so that
/// no way of cutting the matrix changes them.
class Dice {
  public:
    __device__ Dice(const Quantize &args, uint32_t row, uint32_t column) : stochastic_(args.stochastic != 0) {
        if (!stochastic_) return;
        const uint64_t group = uint64_t(row) * ((args.width + QUAD - 1) / QUAD) + column / QUAD;
        words_ = philox_words(args.state->seed, QUANTIZE_STREAM + args.state->step, args.first_draw + group);
    }

    __device__ Chosen operator[](int j) const { return {stochastic_, words_.word[j]}; }

  private:
    /// Apart from the streams of other draws, which are the steps themselves.
    static constexpr uint64_t QUANTIZE_STREAM = uint64_t(1) << 63;

    bool stochastic_;
    Words words_ = {};
};
