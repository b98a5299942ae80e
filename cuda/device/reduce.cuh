// Sums in an order that depends on nothing but the shape.
#pragma once

#include <stdint.h>

constexpr uint32_t WARP = 32;
constexpr uint32_t ALL_LANES = 0xFFFFFFFF;

__device__ inline uint32_t lane() { return threadIdx.x % WARP; }
__device__ inline uint32_t warp() { return threadIdx.x / WARP; }

/// Σ over the lanes of a warp, in every lane: a butterfly, whose order of additions is the same each time.
template <typename F> __device__ F warp_sum(F x) {
#pragma unroll
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
    return x;
}

/// K sums over a block of THREADS threads at once, in every thread. All threads must come here.
template <int THREADS, int K, typename F> __device__ void block_sum(F (&x)[K]) {
    constexpr uint32_t WARPS = THREADS / WARP;
    __shared__ F of_warp[K][WARPS];
#pragma unroll
    for (int k = 0; k < K; k++) x[k] = warp_sum(x[k]);
    __syncthreads(); // the last call's sums have been read
    if (lane() == 0) {
#pragma unroll
        for (int k = 0; k < K; k++) of_warp[k][warp()] = x[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) {
        x[k] = of_warp[k][0];
#pragma unroll
        for (uint32_t w = 1; w < WARPS; w++) x[k] += of_warp[k][w];
    }
}
