// What all matrix products share: how operands lie, and guarded access to a matrix.
#pragma once

#include "../vector.cuh"

/// How the operands of C [M, N] = A·B lie in memory, rows contiguous. The letters are the usual ones: T is transposed.
///   NT  A [M, K], B [N, K]   y = x·Wᵀ
///   NN  A [M, K], B [K, N]   dx = dy·W
///   TN  A [K, M], B [K, N]   dW = dyᵀ·x
enum class Layout { NT, NN, TN };

/// Whether an operand's rows run along k.
template <Layout LAYOUT> constexpr bool A_ALONG_K = LAYOUT != Layout::TN;
template <Layout LAYOUT> constexpr bool B_ALONG_K = LAYOUT == Layout::NT;

/// A matrix in global memory, of which only [rows, columns] may be touched.
template <typename T> struct Matrix {
    T *memory;
    uint32_t rows, columns;
    uint32_t stride; // elements from row to row
    bool wide;       // whether 4 elements at a multiple of 4 are aligned

    __device__ Matrix(T *memory, uint32_t rows, uint32_t columns, uint32_t stride)
        : memory(memory), rows(rows), columns(columns), stride(stride),
          wide(reinterpret_cast<uintptr_t>(memory) % (4 * sizeof(T)) == 0 && stride % 4 == 0) {}

    __device__ T *at(uint32_t row, uint32_t column) const { return memory + uint64_t(row) * stride + column; }

    /// N elements of a row from a multiple of N on; 0 outside.
    template <int N> __device__ void load(float (&x)[N], uint32_t row, uint32_t column) const {
        if (N > 1 && wide && row < rows && column + N <= columns) return ::load(x, at(row, column));
#pragma unroll
        for (int j = 0; j < N; j++) x[j] = row < rows && column + j < columns ? widen(*at(row, column + j)) : 0.0f;
    }

    /// Nothing is written outside.
    template <int N> __device__ void store(uint32_t row, uint32_t column, const float (&x)[N]) const {
        if (N > 1 && wide && row < rows && column + N <= columns) return ::store(at(row, column), x);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (row < rows && column + j < columns) *at(row, column + j) = narrow<T>(x[j]);
        }
    }
};

/// The operands of one product, and its size.
template <typename T> struct Operands {
    const T *a, *b;
    uint32_t lda, ldb; // elements from row to row
    uint32_t m, n, k;
};

/// A tile of C, in units of tiles.
struct TileIndex {
    uint32_t m, n;
};

/// The tile of a block in a grid over (tiles of M, tiles of N). Blocks that run at the same time form a patch eight
/// tiles of M high, so that they share rows of A and of B in the L2.
__device__ inline TileIndex tile_of_block() {
    constexpr uint32_t HEIGHT = 8;
    const uint32_t index = blockIdx.y * gridDim.x + blockIdx.x;
    const uint32_t patch = index / (HEIGHT * gridDim.y), inside = index % (HEIGHT * gridDim.y);
    const uint32_t height = min(gridDim.x - patch * HEIGHT, HEIGHT);
    return {patch * HEIGHT + inside % height, inside / height};
}
