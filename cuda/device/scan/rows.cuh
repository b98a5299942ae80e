// How rows come and go in the scan on tensor cores: between global memory, tiles in shared memory, and registers.
#pragma once

#include "../swizzled_tile.cuh"

constexpr uint32_t SCAN_THREADS = 128;
constexpr uint32_t SCAN_CHUNK = 64; // rows
constexpr uint32_t SCAN_DIMS = 64;  // most of P

/// The warp's first row, of the chunk and of the state.
__device__ inline uint32_t own_rows() { return warp() * 16; }

/// The tiles of a block, one behind the other.
class SharedTiles {
  public:
    __device__ SharedTiles() : free_(dynamic_shared<bf16>()) {}

    template <int D> __device__ SwizzledTile<D> next() {
        const SwizzledTile<D> tile = {free_};
        free_ += SCAN_CHUNK * D;
        return tile;
    }

  private:
    bf16 *free_;
};

/// Starts to copy `rows` rows of `columns` columns into a tile of 64 rows, zeros behind them and where a row is not
/// `wanted`. The matrix's rows are `width` elements apart.
template <int D, typename Wanted>
__device__ void fetch(const SwizzledTile<D> &to, const bf16 *from, uint32_t width, uint32_t columns, uint32_t rows,
    const Wanted &wanted) {
    // A thread has the same 8 columns of every STEP-th row, and, STEP being a multiple of 8, the same place among them.
    constexpr uint32_t STEP = SCAN_THREADS / (D / 8);
    const uint32_t first = threadIdx.x / (D / 8), column = threadIdx.x % (D / 8) * 8;
    const uint32_t valid = column < columns ? min(columns - column, 8) : 0;
    bf16 *target = to.chunk(first, column / 8);
    if (wide_rows<bf16>(width, from)) {
#pragma unroll
        for (uint32_t row = 0; row < SCAN_CHUNK; row += STEP) {
            const uint32_t count = first + row < rows && wanted(first + row) ? valid : 0;
            const bf16 *source = count > 0 ? from + uint64_t(first + row) * width + column : from;
            copy_async_16(shared_address(target + row * D), source, count * sizeof(bf16));
        }
        return;
    }
#pragma unroll 1
    for (uint32_t row = 0; row < SCAN_CHUNK; row += STEP) {
        const uint32_t count = first + row < rows && wanted(first + row) ? valid : 0;
        const bf16 *source = from + uint64_t(first + row) * width + column;
        float x[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) x[j] = j < count ? widen(source[j]) : 0.0f;
        store_shared(target + row * D, x);
    }
}

template <int D>
__device__ void fetch(const SwizzledTile<D> &to, const bf16 *from, uint32_t width, uint32_t columns, uint32_t rows) {
    fetch(to, from, width, columns, rows, [](uint32_t) { return true; });
}

/// Rounds 16 rows in registers into a tile, from row `row` on.
template <int D> __device__ void put(const SwizzledTile<D> &tile, uint32_t row, const float (&x)[D / 8][4]) {
#pragma unroll
    for (uint32_t j = 0; j < D / 8; j++) {
        *tile.pair(row, j) = pair_of_bf16(x[j][0], x[j][1]);
        *tile.pair(row + 8, j) = pair_of_bf16(x[j][2], x[j][3]);
    }
}

/// The same in two parts, whose sum has 16 bits.
template <int D>
__device__ void
put_split(const SwizzledTile<D> &high, const SwizzledTile<D> &low, uint32_t row, const float (&x)[D / 8][4]) {
#pragma unroll
    for (uint32_t j = 0; j < D / 8; j++) {
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const SplitPair pair(x[j][2 * r], x[j][2 * r + 1]);
            *high.pair(row + r * 8, j) = pair.high;
            *low.pair(row + r * 8, j) = pair.low;
        }
    }
}

/// The warp's 16 rows of a tile, as many as there are, to a matrix whose rows are `width` elements apart: in whole
/// sectors where they are aligned.
template <int D>
__device__ void
copy_out(bf16 *to, uint64_t width, uint32_t columns, uint32_t rows, const SwizzledTile<D> &tile, uint32_t mine) {
    const bool wide = columns % 8 == 0 && wide_rows<bf16>(uint32_t(width), to);
    __syncwarp();
#pragma unroll 1
    for (uint32_t i = lane(); i < 16 * D / 8; i += WARP) {
        const uint32_t row = i / (D / 8), column = i % (D / 8) * 8;
        if (row >= rows || column >= columns) continue;
        bf16 *target = to + row * width + column;
        const bf16 *source = tile.chunk(mine + row, column / 8);
        if (wide) {
            uint32_t word[4];
            load_words(word, source);
            store_words<Space::GLOBAL>(target, word);
        } else {
            for (uint32_t j = 0; j < min(columns - column, 8); j++) target[j] = source[j];
        }
    }
    __syncwarp();
}

/// 16 rows of an f32 matrix, as many as there are, to registers as mma's d; zeros behind them.
template <int N>
__device__ void load_rows(float (&x)[N][4], const float *from, uint64_t width, uint32_t columns, uint32_t rows) {
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = lane() / 4 + r * 8, first = lane() % 4 * 2, left = row < rows ? columns : 0;
        const float *source = from + row * width + first;
#pragma unroll
        for (uint32_t j = 0; j < N; j++) {
#pragma unroll
            for (uint32_t e = 0; e < 2; e++) x[j][2 * r + e] = first + j * 8 + e < left ? source[j * 8 + e] : 0.0f;
        }
    }
}

/// The other way round: four lanes' pairs are a whole sector where rows are aligned to it.
template <int N>
__device__ void store_rows(float *to, uint64_t width, uint32_t columns, uint32_t rows, const float (&x)[N][4]) {
    const bool in_pairs = (width | columns | reinterpret_cast<uintptr_t>(to) / sizeof(float)) % 2 == 0;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = lane() / 4 + r * 8, first = lane() % 4 * 2, left = row < rows ? columns : 0;
        float *target = to + row * width + first;
        if (in_pairs) {
#pragma unroll
            for (uint32_t j = 0; j < N; j++)
                if (first + j * 8 < left) store_n<Space::GLOBAL, 2>(target + j * 8, &x[j][2 * r]);
        } else {
#pragma unroll
            for (uint32_t j = 0; j < N; j++) {
                if (first + j * 8 < left) target[j * 8] = x[j][2 * r];
                if (first + j * 8 + 1 < left) target[j * 8 + 1] = x[j][2 * r + 1];
            }
        }
    }
}
