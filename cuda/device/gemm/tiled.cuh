// Second rung: a block brings 64×16 tiles of A and B into shared memory and uses each element 64 times; a thread keeps
// 4×4 sums. Plain f32 arithmetic: this is also the f32 product that others are checked against.
#pragma once

#include "matrix.cuh"

constexpr uint32_t TILED_THREADS = 256;
constexpr uint32_t TILED_EDGE = 64;
constexpr uint32_t TILED_DEPTH = 16;
constexpr uint32_t TILED_PITCH = TILED_EDGE + 4; // spreads a column over the banks, keeps 16-byte alignment

/// tile[k, e] = element (edge + e, depth + k) of an operand; 0 outside. Neighbouring threads read neighbouring
/// elements.
template <bool ALONG_K, typename T>
__device__ void tiled_fetch(float (&tile)[TILED_DEPTH][TILED_PITCH], const T *from, uint32_t stride, uint32_t edge,
    uint32_t edges, uint32_t depth, uint32_t depths) {
#pragma unroll
    for (uint32_t first = 0; first < TILED_EDGE * TILED_DEPTH; first += TILED_THREADS) {
        const uint32_t i = first + threadIdx.x;
        const uint32_t e = ALONG_K ? i / TILED_DEPTH : i % TILED_EDGE;
        const uint32_t k = ALONG_K ? i % TILED_DEPTH : i / TILED_EDGE;
        const bool inside = edge + e < edges && depth + k < depths;
        const uint64_t at = ALONG_K ? uint64_t(edge + e) * stride + depth + k : uint64_t(depth + k) * stride + edge + e;
        tile[k][e] = inside ? widen(from[at]) : 0.0f;
    }
}

template <Layout LAYOUT, typename T, typename Epilogue>
__device__ void gemm_tiled(const Operands<T> &p, TileIndex tile, const Epilogue &epilogue) {
    __shared__ __align__(16) float a[TILED_DEPTH][TILED_PITCH];
    __shared__ __align__(16) float b[TILED_DEPTH][TILED_PITCH];
    const uint32_t row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4; // of the thread's 4×4, inside the tile
    float sum[4][4] = {};
    for (uint32_t depth = 0; depth < p.k; depth += TILED_DEPTH) {
        tiled_fetch<A_ALONG_K<LAYOUT>>(a, p.a, p.lda, tile.m * TILED_EDGE, p.m, depth, p.k);
        tiled_fetch<B_ALONG_K<LAYOUT>>(b, p.b, p.ldb, tile.n * TILED_EDGE, p.n, depth, p.k);
        __syncthreads();
#pragma unroll 4
        for (uint32_t k = 0; k < TILED_DEPTH; k++) {
            float x[4], y[4];
            load(x, &a[k][row]);
            load(y, &b[k][column]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += x[i] * y[j];
            }
        }
        __syncthreads();
    }
    const auto write = epilogue.template at<4>(tile.n * TILED_EDGE + column);
#pragma unroll
    for (int i = 0; i < 4; i++) write(tile.m * TILED_EDGE + row + i, sum[i]);
}
