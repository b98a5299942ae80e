// Fourth rung: while the tensor cores work on one tile, the next two are on their way, and swizzled tiles let ldmatrix
// read without bank conflicts.
#pragma once

#include "warp_tile.cuh"

constexpr uint32_t PIPELINE_STAGES = 3;
constexpr uint32_t PIPELINE_BYTES = PIPELINE_STAGES * 2 * GEMM_TILE * sizeof(bf16); // dynamic shared memory
static_assert(PIPELINE_BYTES == 48 * 1024 && WarpTile::SCRATCH * sizeof(float) <= PIPELINE_BYTES);

template <Layout LAYOUT, typename Epilogue>
__device__ void gemm_pipelined(const Operands<bf16> &p, TileIndex tile, const Epilogue &epilogue) {
    bf16 *stages = dynamic_shared<bf16>(); // [stage, A or B, GEMM_TILE]
    Fetch<A_ALONG_K<LAYOUT>, true> fetch_a(p.a, p.lda, tile.m * GEMM_EDGE, p.m, p.k);
    Fetch<B_ALONG_K<LAYOUT>, true> fetch_b(p.b, p.ldb, tile.n * GEMM_EDGE, p.n, p.k);
    const uint32_t steps = (p.k + GEMM_DEPTH - 1) / GEMM_DEPTH;

    uint32_t fetched = 0;
    const auto fetch = [&] {
        if (fetched < steps) {
            bf16 *stage = stages + fetched % PIPELINE_STAGES * 2 * GEMM_TILE;
            fetch_a.next(stage);
            fetch_b.next(stage + GEMM_TILE);
        }
        fetched++;
        copy_async_commit(); // an empty group behind the end keeps the count of groups right
    };

    WarpTile sums;
#pragma unroll 1
    for (uint32_t i = 0; i < PIPELINE_STAGES - 1; i++) fetch();
    for (uint32_t step = 0; step < steps; step++) {
        copy_async_wait<PIPELINE_STAGES - 2>();
        __syncthreads(); // this step's tiles are there for all, and the last step's memory is free
        fetch();
        const bf16 *stage = stages + step % PIPELINE_STAGES * 2 * GEMM_TILE;
        sums.multiply<LAYOUT, true>(stage, stage + GEMM_TILE);
    }
    copy_async_wait<0>();
    __syncthreads();
    sums.finish(dynamic_shared<float>(), tile, epilogue);
}
