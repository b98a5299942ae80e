// An operand's tile on its way to the tensor cores: from global to shared memory in 16-byte chunks, from there to
// registers by ldmatrix.
#pragma once

#include "../ptx/cp_async.cuh"
#include "../ptx/ldmatrix.cuh"
#include "../reduce.cuh"
#include "matrix.cuh"

// A block's tile of C is 128×128; eight warps, 2 (M) by 4 (N), compute 64×32 each, 32 steps of k at a time.
constexpr uint32_t GEMM_THREADS = 256;
constexpr uint32_t GEMM_EDGE = 128;
constexpr uint32_t GEMM_DEPTH = 32;
constexpr uint32_t GEMM_TILE = GEMM_EDGE * GEMM_DEPTH; // elements of an operand's tile

constexpr uint32_t CHUNK = 8; // bf16 elements in 16 bytes, what one access moves

/// Where chunk `chunk` of a stored row lies, in elements. Along k a row is 4 chunks (64 bytes), otherwise 16 (256
/// bytes): eight rows' chunks of one column, which ldmatrix reads together, would meet in two or one groups of four
/// banks. SWIZZLED permutes the chunks of each row so that the eight lie in eight groups.
template <bool ALONG_K, bool SWIZZLED> __device__ uint32_t chunk_at(uint32_t row, uint32_t chunk) {
    constexpr uint32_t CHUNKS = ALONG_K ? GEMM_DEPTH / CHUNK : GEMM_EDGE / CHUNK;
    const uint32_t permuted = ALONG_K ? chunk ^ (row / 2 % 4) : chunk ^ (row % 8);
    return (row * CHUNKS + (SWIZZLED ? permuted : chunk)) * CHUNK;
}

/// The chunks of an operand's tiles that one thread brings in: at the same place of each tile, in every ROW_STEP-th
/// stored row.
template <bool ALONG_K, bool SWIZZLED> class Fetch {
  public:
    /// `edge`: the first row (ALONG_K) or column of the operand that the tile covers; `edges`: how many there are.
    __device__ Fetch(const bf16 *operand, uint32_t stride, uint32_t edge, uint32_t edges, uint32_t depths)
        : stride_(stride), wide_(wide_rows<bf16>(stride, operand)) {
        const uint32_t row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const uint32_t e = edge + (ALONG_K ? row : chunk * CHUNK), k = ALONG_K ? chunk * CHUNK : row;
        from_ = operand + (ALONG_K ? uint64_t(e) * stride + k : uint64_t(k) * stride + e);
        to_ = chunk_at<ALONG_K, SWIZZLED>(row, chunk);
        edges_left_ = edges > e ? edges - e : 0;
        depths_left_ = depths > k ? depths - k : 0;
    }

    /// Starts to copy the next tile to `tile`, zeros where the operand ends. Tiles come in order of k.
    __device__ void next(bf16 *tile) {
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row += ROW_STEP) {
            const bool inside = row < (ALONG_K ? edges_left_ : depths_left_);
            const uint32_t valid = inside ? min(ALONG_K ? depths_left_ : edges_left_, CHUNK) : 0;
            const bf16 *from = from_ + uint64_t(row) * stride_;
            bf16 *to = tile + to_ + row * CHUNKS * CHUNK; // ROW_STEP rows on, chunks are permuted alike
            if (wide_) copy_async_16(shared_address(to), from, valid * sizeof(bf16));
            else copy(to, from, valid);
        }
        from_ += ALONG_K ? uint64_t(GEMM_DEPTH) : uint64_t(GEMM_DEPTH) * stride_;
        depths_left_ -= min(depths_left_, GEMM_DEPTH);
    }

  private:
    static constexpr uint32_t CHUNKS = (ALONG_K ? GEMM_DEPTH : GEMM_EDGE) / CHUNK; // of a stored row
    static constexpr uint32_t ROWS = ALONG_K ? GEMM_EDGE : GEMM_DEPTH;
    static constexpr uint32_t ROW_STEP = GEMM_THREADS / CHUNKS;
    static_assert(ROW_STEP % 8 == 0);

    /// Rows that do not start on 16 bytes pass through registers, element by element.
    static __device__ void copy(bf16 *to, const bf16 *from, uint32_t valid) {
        float x[CHUNK];
#pragma unroll
        for (uint32_t j = 0; j < CHUNK; j++) x[j] = j < valid ? widen(from[j]) : 0.0f;
        store_shared(to, x);
    }

    const bf16 *from_;
    uint32_t to_; // in the tile
    uint32_t stride_;
    uint32_t edges_left_, depths_left_; // of the operand, from the chunk on
    bool wide_;
};

/// The 16×16 of an operand at (edge, k) of its tile, as mma takes A: register i holds the half i % 2 of the edge and i
/// / 2 of k.
template <bool ALONG_K, bool SWIZZLED>
__device__ void fragment_a(uint32_t (&x)[4], const bf16 *tile, uint32_t edge, uint32_t k) {
    const uint32_t matrix = lane() / 8, row = lane() % 8;
    const uint32_t e = edge + matrix % 2 * 8, d = k + matrix / 2 * 8;
    if (ALONG_K) ldmatrix_x4(x, shared_address(tile + chunk_at<true, SWIZZLED>(e + row, d / CHUNK)));
    else ldmatrix_x4_trans(x, shared_address(tile + chunk_at<false, SWIZZLED>(d + row, e / CHUNK)));
}

/// The 16×16 at (edge, k) as mma takes two B side by side: registers 0, 1 for the first eight of the edge, 2, 3 for the
/// others.
template <bool ALONG_K, bool SWIZZLED>
__device__ void fragment_b(uint32_t (&x)[4], const bf16 *tile, uint32_t edge, uint32_t k) {
    const uint32_t matrix = lane() / 8, row = lane() % 8;
    const uint32_t e = edge + matrix / 2 * 8, d = k + matrix % 2 * 8;
    if (ALONG_K) ldmatrix_x4(x, shared_address(tile + chunk_at<true, SWIZZLED>(e + row, d / CHUNK)));
    else ldmatrix_x4_trans(x, shared_address(tile + chunk_at<false, SWIZZLED>(d + row, e / CHUNK)));
}
