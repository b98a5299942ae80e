// First rung: a thread computes one element of C straight from global memory. Every operand element is read M or N
// times.
#pragma once

#include "matrix.cuh"

constexpr uint32_t NAIVE_THREADS = 256;
constexpr uint32_t NAIVE_TILE = 16; // a block's edge

template <Layout LAYOUT, typename T, typename Epilogue>
__device__ void gemm_naive(const Operands<T> &p, const Epilogue &epilogue) {
    const uint32_t row = blockIdx.x * NAIVE_TILE + threadIdx.x / NAIVE_TILE;
    const uint32_t column = blockIdx.y * NAIVE_TILE + threadIdx.x % NAIVE_TILE;
    if (row >= p.m || column >= p.n) return;
    float sum[1] = {0.0f};
    for (uint32_t k = 0; k < p.k; k++) {
        const T a = A_ALONG_K<LAYOUT> ? p.a[uint64_t(row) * p.lda + k] : p.a[uint64_t(k) * p.lda + row];
        const T b = B_ALONG_K<LAYOUT> ? p.b[uint64_t(column) * p.ldb + k] : p.b[uint64_t(k) * p.ldb + column];
        sum[0] += widen(a) * widen(b);
    }
    epilogue.template at<1>(column)(row, sum);
}
