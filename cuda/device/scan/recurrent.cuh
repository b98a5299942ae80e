// First rung: the recurrence as it is written, row after row, in f32. It serves single tokens: chunks would do the work
// of a whole one for each.
//
// A block takes one head of one segment. A warp has every eighth of the P rows of the state in registers, its lanes the
// N columns; no thread waits for another warp.
#pragma once

#include "step.cuh"

constexpr uint32_t RECURRENT_THREADS = 256;

/// Up to four numbers of a lane: columns lane, lane + 32, …, zeros behind the last.
template <typename T> __device__ void load_columns(float (&x)[4], const T *from, uint32_t columns) {
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        const uint32_t column = lane() + j * WARP;
        x[j] = column < columns ? widen(from[column]) : 0.0f;
    }
}

template <typename T> __device__ void recurrent_forward(const ScanForward &args) {
    constexpr uint32_t WARPS = RECURRENT_THREADS / WARP, ROWS = 64 / WARPS; // of the state, in a warp
    const Scan &scan = args.scan;
    const uint32_t head = blockIdx.x, segment = blockIdx.y, p = scan.head_dim, n = scan.state;
    const Columns columns(scan, head);
    const HeadMask mask(scan.mask, head);
    const float rate = decay_rate(scan, head), skip = scan.d[head];
    const uint64_t of_head = (uint64_t(segment) * scan.heads + head) * p * n;

    float state[ROWS][4] = {};
    if (scan.initial) {
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++)
            if (warp() + r * WARPS < p) load_columns(state[r], scan.initial + of_head + (warp() + r * WARPS) * n, n);
    }
    for (uint32_t row = scan.offsets[segment]; row < scan.offsets[segment + 1]; row++) {
        const T *xbc = row_of<const T>(scan.xbc, row, columns.width);
        const float dt = time_step<T>(scan, head, row), decay = expf(dt * rate), keep = mask.at(row);
        float b[4], c[4];
        load_columns(b, xbc + columns.b, n);
        load_columns(c, xbc + columns.c, n);
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint32_t d = warp() + r * WARPS;
            if (d >= p) break;
            const float x = widen(xbc[columns.x + d]);
            float y = 0.0f;
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                state[r][j] = decay * state[r][j] + dt * x * b[j];
                y += c[j] * state[r][j];
            }
            y = warp_sum(y) + skip * x;
            if (lane() > 0) continue;
            const uint64_t at = (uint64_t(row) * scan.heads + head) * p + d;
            if (args.unmasked) static_cast<T *>(args.unmasked)[at] = narrow<T>(y);
            static_cast<T *>(args.y)[at] = narrow<T>(masked(y, keep));
        }
    }
    if (!args.final_state) return;
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t d = warp() + r * WARPS;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t column = lane() + j * WARP;
            if (d < p && column < n) args.final_state[of_head + d * n + column] = state[r][j];
        }
    }
}
