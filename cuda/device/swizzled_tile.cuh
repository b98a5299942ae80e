// A tile of bf16 in shared memory as ldmatrix reads it without bank conflicts, and a warp's products with such tiles.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "reduce.cuh"
#include "vector.cuh"

/// Rows of D elements. The 16-byte chunks of a row are permuted so that ldmatrix, which reads one chunk of eight rows,
/// meets eight groups of four banks.
template <int D> struct SwizzledTile {
    static constexpr uint32_t CHUNKS = D / 8; // of a row
    bf16 *memory;

    __device__ bf16 *chunk(uint32_t row, uint32_t chunk) const {
        return memory + (row * CHUNKS + (chunk ^ row % 8)) * 8;
    }

    /// Rows row .. row + 16, columns d .. d + 16, as mma takes A.
    __device__ void rows_as_a(uint32_t (&x)[4], uint32_t row, uint32_t d) const {
        ldmatrix_x4(x, shared_address(chunk(row + lane() % 16, d / 8 + lane() / 16)));
    }

    /// The same transposed: A's rows are the columns.
    __device__ void columns_as_a(uint32_t (&x)[4], uint32_t row, uint32_t d) const {
        ldmatrix_x4_trans(x, shared_address(chunk(row + lane() % 8 + lane() / 16 * 8, d / 8 + lane() / 8 % 2)));
    }

    /// As two B side by side, whose columns are the rows.
    __device__ void rows_as_b(uint32_t (&x)[4], uint32_t row, uint32_t d) const {
        ldmatrix_x4(x, shared_address(chunk(row + lane() % 8 + lane() / 16 * 8, d / 8 + lane() / 8 % 2)));
    }

    /// As two B side by side, whose rows are the rows.
    __device__ void columns_as_b(uint32_t (&x)[4], uint32_t row, uint32_t d) const {
        ldmatrix_x4_trans(x, shared_address(chunk(row + lane() % 16, d / 8 + lane() / 16)));
    }

    /// The elements that piece j of mma's d [16, D] has in a lane: its pair in row `row` + lane / 4.
    __device__ uint32_t *pair(uint32_t row, uint32_t j) const {
        return reinterpret_cast<uint32_t *>(chunk(row + lane() / 4, j)) + lane() % 4;
    }
};

template <int D> __device__ void swap(SwizzledTile<D> &a, SwizzledTile<D> &b) {
    bf16 *const memory = a.memory;
    a.memory = b.memory;
    b.memory = memory;
}

/// s [16, 8·N] += the products of 16 rows of `a` with 8·N rows of `b` from `first` on, over all D columns.
template <int D, int N>
__device__ void add_row_products(
    float (&s)[N][4], const SwizzledTile<D> &a, uint32_t mine, const SwizzledTile<D> &b, uint32_t first = 0) {
#pragma unroll
    for (uint32_t d = 0; d < D; d += 16) {
        uint32_t x[4];
        a.rows_as_a(x, mine, d);
#pragma unroll
        for (uint32_t j = 0; j < N; j += 2) {
            uint32_t y[4];
            b.rows_as_b(y, first + j * 8, d);
            mma_m16n8k16(s[j], x, y[0], y[1]);
            mma_m16n8k16(s[j + 1], x, y[2], y[3]);
        }
    }
}

/// sum [16, D] += x [16, 16] times 16 rows of b from `row` on.
template <int D>
__device__ void add_rows(float (&sum)[D / 8][4], const uint32_t (&x)[4], const SwizzledTile<D> &b, uint32_t row) {
#pragma unroll
    for (uint32_t d = 0; d < D; d += 16) {
        uint32_t y[4];
        b.columns_as_b(y, row, d);
        mma_m16n8k16(sum[d / 8], x, y[0], y[1]);
        mma_m16n8k16(sum[d / 8 + 1], x, y[2], y[3]);
    }
}

/// sum [16, D] += weights [16, 8·N], rounded to bf16, times 8·N rows of b from `first` on. mma's d is laid out as two
/// halves of its a.
template <int D, int N>
__device__ void
add_weighted_rows(float (&sum)[D / 8][4], const float (&s)[N][4], const SwizzledTile<D> &b, uint32_t first = 0) {
#pragma unroll
    for (uint32_t i = 0; i < N; i += 2) {
        const uint32_t x[4] = {pair_of_bf16(s[i][0], s[i][1]), pair_of_bf16(s[i][2], s[i][3]),
            pair_of_bf16(s[i + 1][0], s[i + 1][1]), pair_of_bf16(s[i + 1][2], s[i + 1][3])};
        add_rows(sum, x, b, first + i * 8);
    }
}

/// Two numbers in two bf16 parts each, whose sum has 16 bits.
struct SplitPair {
    uint32_t high, low;

    __device__ SplitPair(float a, float b)
        : high(pair_of_bf16(a, b)), low(pair_of_bf16(a - low_bf16(high), b - high_bf16(high))) {}
};

/// Numbers as mma takes A [16, 16], each in two bf16 parts.
class SplitFragment {
  public:
    SplitFragment() = default;

    /// From mma's d [16, 16].
    __device__ explicit SplitFragment(const float (&x)[2][4]) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) set(i, x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
    }

    /// The pair of register i.
    __device__ void set(uint32_t i, float a, float b) {
        const SplitPair pair(a, b);
        high_[i] = pair.high, low_[i] = pair.low;
    }

    /// sum [16, D] += the numbers times 16 rows of b from `row` on.
    template <int D> __device__ void add_rows(float (&sum)[D / 8][4], const SwizzledTile<D> &b, uint32_t row) const {
#pragma unroll
        for (uint32_t d = 0; d < D; d += 16) {
            uint32_t y[4];
            b.columns_as_b(y, row, d);
            mma_m16n8k16(sum[d / 8], high_, y[0], y[1]);
            mma_m16n8k16(sum[d / 8 + 1], high_, y[2], y[3]);
            mma_m16n8k16(sum[d / 8], low_, y[0], y[1]);
            mma_m16n8k16(sum[d / 8 + 1], low_, y[2], y[3]);
        }
    }

  private:
    uint32_t high_[4], low_[4];
};

/// Over the four lanes that share a row of mma's d.
__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}
