// What all variants of the scan make of their inputs: where a head's columns lie, its mask, its time steps.
#pragma once

#include "../elementary.cuh"
#include "../mask.cuh"
#include "../vector.cuh"

/// The columns of a head's x, B and C in a row of xbc, and the row's length.
struct Columns {
    uint32_t x, b, c, width;

    __device__ Columns(const Scan &scan, uint32_t head) {
        const uint32_t group = head / (scan.heads / scan.groups), of_b = scan.heads * scan.head_dim;
        x = head * scan.head_dim;
        b = of_b + group * scan.state;
        c = of_b + (scan.groups + group) * scan.state;
        width = of_b + 2 * scan.groups * scan.state;
    }
};

/// The mask of one head, which differs between rows.
struct HeadMask {
    const Mask &mask;
    uint32_t interval;

    __device__ HeadMask(const Mask &mask, uint32_t head)
        : mask(mask), interval(mask.candidates ? interval_of(mask, head) : 0) {}

    __device__ float at(uint32_t row) const { return mask.candidates ? keep_of(mask, row)[interval] : 1.0f; }
};

/// Products of decays below 1e−30 are 0: they change no sum.
__device__ inline float flush(float decay) { return decay < 1e-30f ? 0.0f : decay; }

/// ln(1 + eˣ) without overflow.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

/// Σ over the lanes before this one and itself.
__device__ inline float sum_from_start(float x) {
#pragma unroll
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const float before = __shfl_up_sync(ALL_LANES, x, distance);
        if (lane() >= distance) x += before;
    }
    return x;
}

/// Σ over this lane and those behind it.
__device__ inline float sum_to_end(float x) {
#pragma unroll
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const float after = __shfl_down_sync(ALL_LANES, x, distance);
        if (lane() + distance < WARP) x += after;
    }
    return x;
}

/// dt of a row before softplus.
template <typename T> __device__ float raw_time_step(const Scan &scan, uint32_t head, uint32_t row) {
    return widen(static_cast<const T *>(scan.dt)[uint64_t(row) * scan.heads + head]) + scan.dt_bias[head];
}

/// dt of a row, after softplus and clamp.
template <typename T> __device__ float time_step(const Scan &scan, uint32_t head, uint32_t row) {
    return fminf(fmaxf(softplus(raw_time_step<T>(scan, head, row)), scan.dt_low), scan.dt_high);
}

/// A, the rate at which a head's state decays; below 0.
__device__ inline float decay_rate(const Scan &scan, uint32_t head) { return -expf(scan.a_log[head]); }

/// A row's gradient of dt before its bias and softplus, and what it adds to the gradients of a_log and dt_bias.
struct StepGradient {
    float raw, a_log;

    /// `exponent`: the gradient of dt·A; `direct`: that of dt beside it.
    template <typename T>
    static __device__ StepGradient of(const Scan &scan, uint32_t head, uint32_t row, float exponent, float direct) {
        const float dt = time_step<T>(scan, head, row), raw = raw_time_step<T>(scan, head, row);
        const float slope = dt > scan.dt_low && dt < scan.dt_high ? sigmoid(raw) : 0.0f;
        // A step that forgets everything has no gradient by its decay, however little of one is a multiple of the rate.
        const float rate = decay_rate(scan, head), by_rate = flush(expf(dt * rate)) > 0.0f ? exponent * rate : 0.0f;
        return {(by_rate + direct) * slope, by_rate * dt};
    }
};
