// An operand's tile on its way to the tensor cores: from global to shared memory in 16-byte chunks, from there to registers by
// ldmatrix.
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

/// Where chunk `chunk` of a stored row lies, in elements. Along k a row is 4 chunks (64 bytes), otherwise 16 (256 bytes): eight
/// rows' chunks of one column, which ldmatrix reads together, would meet in two or one groups of four banks. SWIZZLED permutes the
/// chunks of each row so that the eight lie in eight groups.
template <bool ALONG_K, bool SWIZZLED> __device__ uint32_t chunk_at(uint32_t row, uint32_t chunk) {
    constexpr uint32_t CHUNKS = ALONG_K ? GEMM_DEPTH / CHUNK : GEMM_EDGE / CHUNK;
    const uint32_t permuted = ALONG_K ? chunk ^ (row / 2 % 4) : chunk ^ (row % 8);
    return (row * CHUNKS + (SWIZZLED ? permuted : chunk)) * CHUNK;
}

/// The chunks of an operand's tiles that one thread brings in: two of each tile, at fixed places.
template <bool ALONG_K, bool SWIZZLED> class Fetch {
  public:
    /// `edge`: the first row (ALONG_K) or column of the operand that the tile covers; `edges`: how many there are.
    __device__ Fetch(const bf16 *operand, uint32_t stride, uint32_t edge, uint32_t edges, uint32_t depths)
        : stride_(stride), depths_(depths), wide_(wide_rows<bf16>(stride, operand)) {
#pragma unroll
        for (uint32_t i = 0; i < PART; i++) {
            const uint32_t index = threadIdx.x + i * GEMM_THREADS, row = index / CHUNKS, chunk = index % CHUNKS;
            to_[i] = chunk_at<ALONG_K, SWIZZLED>(row, chunk);
            if (ALONG_K) {
                depth_[i] = chunk * CHUNK;
                edges_[i] = edge + row < edges ? CHUNK : 0;
                from_[i] = edges_[i] ? operand + uint64_t(edge + row) * stride + depth_[i] : operand;
            } else {
                depth_[i] = row;
                const uint32_t column = edge + chunk * CHUNK;
                edges_[i] = column < edges ? min(edges - column, CHUNK) : 0;
                from_[i] = edges_[i] ? operand + uint64_t(row) * stride + column : operand;
            }
        }
    }

    /// Starts to copy the next tile to `tile`, zeros where the operand ends. Tiles come in order of k.
    __device__ void next(bf16 *tile) {
#pragma unroll
        for (uint32_t i = 0; i < PART; i++) {
            const uint32_t left = depths_ > depth_[i] ? depths_ - depth_[i] : 0; // steps of k from here on
            const uint32_t valid = ALONG_K ? min(edges_[i], left) : (left > 0 ? edges_[i] : 0);
            if (wide_) copy_async_16(shared_address(tile + to_[i]), from_[i], valid * sizeof(bf16));
            else copy(tile + to_[i], from_[i], valid);
            depth_[i] += GEMM_DEPTH;
            if (left > GEMM_DEPTH) from_[i] += ALONG_K ? uint64_t(GEMM_DEPTH) : uint64_t(GEMM_DEPTH) * stride_;
        }
    }

  private:
    static constexpr uint32_t CHUNKS = ALONG_K ? GEMM_DEPTH / CHUNK : GEMM_EDGE / CHUNK; // of a stored row
    static constexpr uint32_t PART = GEMM_TILE / CHUNK / GEMM_THREADS;

    /// Rows that do not start on 16 bytes pass through registers, element by element.
    static __device__ void copy(bf16 *to, const bf16 *from, uint32_t valid) {
        Vector<bf16, CHUNK> v;
#pragma unroll
        for (uint32_t j = 0; j < CHUNK; j++) v.lane[j] = j < valid ? from[j] : narrow<bf16>(0.0f);
        *reinterpret_cast<Vector<bf16, CHUNK> *>(to) = v;
    }

    const bf16 *from_[PART];
    uint32_t to_[PART];    // in the tile
    uint32_t edges_[PART]; // elements of the chunk inside the operand's edge
    uint32_t depth_[PART]; // k of the chunk
    uint32_t stride_, depths_;
    bool wide_;
};

/// The 16×16 of an operand at (edge, k) of its tile, as mma takes A: register i holds the half i % 2 of the edge and i / 2 of k.
template <bool ALONG_K, bool SWIZZLED> __device__ void fragment_a(uint32_t (&x)[4], const bf16 *tile, uint32_t edge, uint32_t k) {
    const uint32_t matrix = lane() / 8, row = lane() % 8;
    const uint32_t e = edge + matrix % 2 * 8, d = k + matrix / 2 * 8;
    if (ALONG_K) ldmatrix_x4(x, shared_address(tile + chunk_at<true, SWIZZLED>(e + row, d / CHUNK)));
    else ldmatrix_x4_trans(x, shared_address(tile + chunk_at<false, SWIZZLED>(d + row, e / CHUNK)));
}

/// The 16×16 at (edge, k) as mma takes two B side by side: registers 0, 1 for the first eight of the edge, 2, 3 for the others.
template <bool ALONG_K, bool SWIZZLED> __device__ void fragment_b(uint32_t (&x)[4], const bf16 *tile, uint32_t edge, uint32_t k) {
    const uint32_t matrix = lane() / 8, row = lane() % 8;
    const uint32_t e = edge + matrix / 2 * 8, d = k + matrix % 2 * 8;
    if (ALONG_K) ldmatrix_x4(x, shared_address(tile + chunk_at<true, SWIZZLED>(e + row, d / CHUNK)));
    else ldmatrix_x4_trans(x, shared_address(tile + chunk_at<false, SWIZZLED>(d + row, e / CHUNK)));
}
