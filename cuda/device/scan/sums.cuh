// Second passes: over the heads of a group for the gradients of B and C, over a head's columns for that of its mask.
#pragma once

#include "step.cuh"

constexpr uint32_t SUM_THREADS = 256;

/// The gradients of B and C: the sum over the heads of a group, in order.
template <typename T> __device__ void group_sum(const ScanBackward &args) {
    const Scan &scan = args.scan;
    const uint64_t index = uint64_t(blockIdx.x) * SUM_THREADS + threadIdx.x;
    if (index >= uint64_t(scan.rows) * scan.groups * scan.state) return;
    const uint32_t k = index % scan.state, group = index / scan.state % scan.groups;
    const uint32_t row = index / scan.state / scan.groups, heads = scan.heads / scan.groups;
    const Columns columns(scan, group * heads);
    float db = 0.0f, dc = 0.0f;
    for (uint32_t head = group * heads; head < (group + 1) * heads; head++) {
        const uint64_t at = (uint64_t(row) * scan.heads + head) * scan.state + k;
        db += args.db[at];
        dc += args.dc[at];
    }
    T *out = row_of<T>(args.dxbc, row, columns.width);
    out[columns.b + k] = narrow<T>(db);
    out[columns.c + k] = narrow<T>(dc);
}

/// ⟨dy, unmasked y⟩ per interval of heads: a warp walks one row.
template <typename T, int N> __device__ void mask_row(const ScanMaskGrad &args, uint32_t row, float *slots) {
    const uint32_t width = args.heads * args.head_dim;
    const T *y = row_of<const T>(args.unmasked, row, width);
    const T *dy = row_of<const T>(args.dy, row, width);
    MaskRow mask(args.mask, row);
    IntervalSums sums(slots, args.mask.candidates);
    for (uint32_t column = lane() * N; column < width; column += WARP * N) {
        float a[N], d[N], product = 0.0f;
        load(a, y + column);
        load(d, dy + column);
#pragma unroll
        for (int j = 0; j < N; j++) product += a[j] * d[j];
        mask.at(column / args.head_dim); // N divides head_dim: all of one head
        sums.add(mask.interval(), product);
    }
    sums.finish(args.row_sums + uint64_t(row) * args.mask.candidates);
}

template <typename T> __device__ void mask_grad(const ScanMaskGrad &args) {
    float *slots = dynamic_shared<float>(); // [warp, C, 32]
    const uint32_t row = blockIdx.x * (SUM_THREADS / WARP) + warp();
    if (row >= args.rows) return;
    float *mine = slots + warp() * IntervalSums::floats(args.mask.candidates);
    if (wide_rows<T>(args.head_dim, args.unmasked, args.dy)) mask_row<T, WIDE<T>>(args, row, mine);
    else mask_row<T, 1>(args, row, mine);
}
