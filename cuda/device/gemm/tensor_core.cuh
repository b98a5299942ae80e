// Third rung: the tensor cores. Tiles still come one at a time, with everybody waiting for them, and lie in shared
// memory as they come: ldmatrix meets bank conflicts.
#pragma once

#include "warp_tile.cuh"

template <Layout LAYOUT, typename Epilogue>
__device__ void gemm_tensor_core(const Operands<bf16> &p, TileIndex tile, const Epilogue &epilogue) {
    __shared__ __align__(16) char memory[WarpTile::SCRATCH * sizeof(float)];
    bf16 *a = reinterpret_cast<bf16 *>(memory), *b = a + GEMM_TILE;
    static_assert(2 * GEMM_TILE * sizeof(bf16) <= sizeof(memory));
    Fetch<A_ALONG_K<LAYOUT>, false> fetch_a(p.a, p.lda, tile.m * GEMM_EDGE, p.m, p.k);
    Fetch<B_ALONG_K<LAYOUT>, false> fetch_b(p.b, p.ldb, tile.n * GEMM_EDGE, p.n, p.k);
    WarpTile sums;
    for (uint32_t depth = 0; depth < p.k; depth += GEMM_DEPTH) {
        fetch_a.next(a);
        fetch_b.next(b);
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
        sums.multiply<LAYOUT, false>(a, b);
        __syncthreads();
    }
    sums.finish(reinterpret_cast<float *>(memory), tile, epilogue);
}
