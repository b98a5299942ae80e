// A stable counting sort of items with few keys, in three kernels and without a host round trip: count per tile of
// items, scan, place. Within a key, items keep their order. Sorting by a wide key is this once per digit, lowest first.
#pragma once

#include "reduce.cuh"

constexpr uint32_t SORT_THREADS = 256;
constexpr uint32_t SORT_WARPS = SORT_THREADS / WARP;
constexpr uint32_t SORT_TILE = 2048; // items of a block

/// counts[key, tile]: how many items of the block's tile have the key. `key_of(item)` is below `keys`, and those at
/// most KEYS.
template <uint32_t KEYS, typename KeyOf>
__device__ void sort_count(uint32_t items, uint32_t keys, uint32_t *counts, KeyOf key_of) {
    __shared__ uint32_t of_key[KEYS];
    for (uint32_t key = threadIdx.x; key < keys; key += SORT_THREADS) of_key[key] = 0;
    __syncthreads();
    const uint32_t first = blockIdx.x * SORT_TILE, end = min(first + SORT_TILE, items);
    for (uint32_t item = first + threadIdx.x; item < end; item += SORT_THREADS)
        atomicAdd(&of_key[key_of(item)], 1); // integers: the order does not matter
    __syncthreads();
    for (uint32_t key = threadIdx.x; key < keys; key += SORT_THREADS)
        counts[key * gridDim.x + blockIdx.x] = of_key[key];
}

/// counts [keys, tiles] → in place, the number of items before each, in that order; offsets[key] is where the key's
/// items start, offsets[keys] how many there are. One block.
__device__ inline void sort_scan(uint32_t keys, uint32_t tiles, uint32_t *counts, uint32_t *offsets) {
    __shared__ uint32_t of_warp[SORT_WARPS];
    __shared__ uint32_t before; // items in front of the present stretch
    if (threadIdx.x == 0) before = 0;
    if (offsets && tiles == 0) { // no items: the loop below would write nothing
        for (uint32_t key = threadIdx.x; key < keys; key += SORT_THREADS) offsets[key] = 0;
    }
    __syncthreads();
    for (uint32_t start = 0; start < keys * tiles; start += SORT_THREADS) {
        const uint32_t at = start + threadIdx.x;
        const uint32_t count = at < keys * tiles ? counts[at] : 0;
        uint32_t sum = count; // of the lanes up to this one
#pragma unroll
        for (uint32_t distance = 1; distance < WARP; distance *= 2) {
            const uint32_t lower = __shfl_up_sync(ALL_LANES, sum, distance);
            if (lane() >= distance) sum += lower;
        }
        if (lane() == WARP - 1) of_warp[warp()] = sum;
        __syncthreads();
        uint32_t total = before;
        for (uint32_t w = 0; w < warp(); w++) total += of_warp[w];
        if (at < keys * tiles) {
            counts[at] = total + sum - count;
            if (offsets && at % tiles == 0) offsets[at / tiles] = total + sum - count;
        }
        __syncthreads();
        if (threadIdx.x == SORT_THREADS - 1) before = total + sum;
        __syncthreads();
    }
    if (offsets && threadIdx.x == 0) offsets[keys] = before;
}

/// Calls `place(item, position)` for each item of the block's tile; `starts` is what sort_scan made of the counts.
template <uint32_t KEYS, typename KeyOf, typename Place>
__device__ void sort_place(uint32_t items, uint32_t keys, const uint32_t *starts, KeyOf key_of, Place place) {
    __shared__ uint32_t next[SORT_WARPS][KEYS];        // where a warp's next item of a key goes
    constexpr uint32_t SHARE = SORT_TILE / SORT_WARPS; // items of a warp
    const uint32_t first = blockIdx.x * SORT_TILE + warp() * SHARE, end = min(first + SHARE, items);
    for (uint32_t key = lane(); key < keys; key += WARP) next[warp()][key] = 0;
    __syncwarp();
    for (uint32_t item = first + lane(); item < end; item += WARP) atomicAdd(&next[warp()][key_of(item)], 1);
    __syncthreads();
    for (uint32_t key = threadIdx.x; key < keys; key += SORT_THREADS) {
        uint32_t start = starts[key * gridDim.x + blockIdx.x];
        for (uint32_t w = 0; w < SORT_WARPS; w++) {
            const uint32_t count = next[w][key];
            next[w][key] = start;
            start += count;
        }
    }
    __syncthreads();
    for (uint32_t stretch = first; stretch < end; stretch += WARP) { // in order, 32 items at a time
        const uint32_t item = stretch + lane();
        const uint32_t key = item < end ? key_of(item) : keys; // one that no item has
        const uint32_t peers = __match_any_sync(ALL_LANES, key);
        const uint32_t rank = __popc(peers & ((1u << lane()) - 1));
        uint32_t position = 0;
        if (item < end) position = next[warp()][key] + rank;
        __syncwarp();
        if (item < end && rank == 0) next[warp()][key] += __popc(peers);
        __syncwarp();
        if (item < end) place(item, position);
    }
}
