// For a few rows, as in decoding: the product is bound by reading B once, so there is nothing to tile. A warp takes one
// column of C and its row of B, and keeps a sum per row of A, which all warps find in the cache.
#pragma once

#include "../reduce.cuh"
#include "matrix.cuh"

constexpr uint32_t SKINNY_THREADS = 256;
constexpr uint32_t SKINNY_ROWS = 8; // most rows of A

/// NT alone: A [M, K], B [N, K].
template <int N, typename T, typename Epilogue>
__device__ void skinny_column(const Operands<T> &p, uint32_t column, const Epilogue &epilogue) {
    float sum[SKINNY_ROWS][1] = {};
    for (uint32_t k = lane() * N; k < p.k; k += WARP * N) {
        float b[N];
        load(b, p.b + uint64_t(column) * p.ldb + k);
#pragma unroll
        for (uint32_t row = 0; row < SKINNY_ROWS; row++) {
            if (row >= p.m) break;
            float a[N];
            load(a, p.a + uint64_t(row) * p.lda + k);
#pragma unroll
            for (int j = 0; j < N; j++) sum[row][0] += a[j] * b[j];
        }
    }
    const auto write = epilogue.template at<1>(column);
#pragma unroll
    for (uint32_t row = 0; row < SKINNY_ROWS; row++) {
        if (row >= p.m) break;
        sum[row][0] = warp_sum(sum[row][0]);
        if (lane() == 0) write(row, sum[row]);
    }
}

template <typename T, typename Epilogue> __device__ void gemm_skinny(const Operands<T> &p, const Epilogue &epilogue) {
    const uint32_t column = blockIdx.x * (SKINNY_THREADS / WARP) + warp();
    if (column >= p.n) return;
    const bool wide = wide_rows<T>(p.lda, p.a) && wide_rows<T>(p.ldb, p.b) && p.k % WIDE<T> == 0;
    if (wide) skinny_column<WIDE<T>>(p, column, epilogue);
    else skinny_column<1>(p, column, epilogue);
}
