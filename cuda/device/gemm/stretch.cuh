// Which expert's rows a block works on, where one grid covers the rows of all experts.
#pragma once

#include "matrix.cuh"

/// A block's tile: of stretch s, whose rows are first .. first + rows.
struct Stretch {
    uint32_t expert, first, rows;
    TileIndex tile; // of the stretch
    bool owned;     // by an expert
};

/// False for a block behind the last tile.
template <typename Args> __device__ bool stretch_of_block(const Args &args, Stretch &stretch) {
    const TileIndex index = tile_of_block();
    if (index.m >= args.tiles[args.experts + 1]) return false;
    uint32_t low = 0, high = args.experts + 1; // tiles[low] ≤ index.m < tiles[high]
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (args.tiles[middle] <= index.m) low = middle;
        else high = middle;
    }
    const bool owned = low < args.experts;
    const uint32_t first = args.offsets[low], end = owned ? args.offsets[low + 1] : args.rows;
    stretch = {low, first, end - first, {index.m - args.tiles[low], index.n}, owned};
    return true;
}
