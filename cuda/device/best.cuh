// The largest of many numbers and where it is; the lower place wins among equals.
#pragma once

#include "reduce.cuh"

/// A score and its place; no place: nothing was there to choose from.
struct Candidate {
    float score;
    uint32_t at;
};

constexpr uint32_t NOWHERE = UINT32_MAX;

__device__ inline Candidate better(Candidate a, Candidate b) {
    return b.score > a.score || (b.score == a.score && b.at < a.at) ? b : a;
}

/// The best of the lanes, in every lane.
__device__ inline Candidate warp_best(Candidate x) {
#pragma unroll
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2) {
        const float score = __shfl_xor_sync(ALL_LANES, x.score, distance);
        x = better(x, {score, __shfl_xor_sync(ALL_LANES, x.at, distance)});
    }
    return x;
}

/// The best of a block's threads, in every thread. All threads must come here.
template <int THREADS> __device__ Candidate block_best(Candidate x) {
    constexpr uint32_t WARPS = THREADS / WARP;
    __shared__ Candidate of_warp[WARPS];
    x = warp_best(x);
    __syncthreads(); // the last call's candidates have been read
    if (lane() == 0) of_warp[warp()] = x;
    __syncthreads();
    x = of_warp[0];
    for (uint32_t w = 1; w < WARPS; w++) x = better(x, of_warp[w]);
    return x;
}
