// Which queries see which keys.
#pragma once

#include "../kernel.cuh"
#include "../reduce.cuh"

/// A segment: its queries are the last of its keys' sequence.
struct Segment {
    uint32_t first_query, queries, first_key, keys;

    __device__ Segment(const Attention &a, uint32_t s)
        : first_query(a.offsets[s]), queries(a.offsets[s + 1] - a.offsets[s]), first_key(a.keys[2 * s]),
          keys(a.keys[2 * s + 1] - a.keys[2 * s]) {}

    /// How many keys the query with this row sees.
    __device__ uint32_t seen(uint32_t row) const {
        const int64_t count = int64_t(keys) - queries + (row - first_query) + 1;
        return count > 0 ? uint32_t(count) : 0;
    }

    /// The row of the first query that sees a key at or behind this row; its keys come first where they start later.
    __device__ uint32_t first_query_of(uint32_t key) const {
        const uint32_t place = key > first_key ? key - first_key : 0;
        const int64_t before = int64_t(place) - (int64_t(keys) - queries);
        return first_query + (before > 0 ? uint32_t(before) : 0);
    }
};

/// The segment and the first query of a tile of EDGE queries; false for a block behind the last tile.
template <uint32_t EDGE>
__device__ bool query_tile(const Attention &a, uint32_t tile, uint32_t &segment, uint32_t &first) {
    if (tile >= a.tiles[a.segments]) return false;
    uint32_t low = 0, high = a.segments; // tiles[low] ≤ tile < tiles[high]
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (a.tiles[middle] <= tile) low = middle;
        else high = middle;
    }
    segment = low;
    first = a.offsets[low] + (tile - a.tiles[low]) * EDGE;
    return true;
}
