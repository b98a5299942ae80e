// Soft architecture masks: their values along a row, and their gradient as one sum per candidate interval.
#pragma once

#include "../abi.h"
#include "reduce.cuh"

/// x·m, where a mask of exactly 0 gives exactly 0 whatever x is.
__device__ inline float masked(float x, float m) { return m == 0.0f ? 0.0f : x * m; }

/// [C]: the kept probabilities of the draw that a row belongs to.
__device__ inline const float *keep_of(const Mask &mask, uint32_t row) {
    const uint32_t draw = mask.draw ? mask.draw[row / mask.length] : 0;
    return mask.keep + uint64_t(draw) * mask.candidates;
}

/// The value of a mask of one interval; 1 where there is none.
__device__ inline float gate_of(const Mask &mask, uint32_t row) { return mask.candidates ? *keep_of(mask, row) : 1.0f; }

/// The mask along one row. Columns must be asked for in rising order: a cursor over the intervals moves with them.
class MaskRow {
  public:
    __device__ MaskRow(const Mask &mask, uint32_t row) : mask_(mask) {
        if (mask.candidates == 0) return;
        keep_ = keep_of(mask, row);
        end_ = mask.ends[0];
        value_ = keep_[0];
    }

    __device__ float at(uint32_t column) {
        while (column >= end_) next();
        return value_;
    }

    /// The interval of the column that was asked for last.
    __device__ uint32_t interval() const { return interval_; }

  private:
    __device__ void next() {
        if (++interval_ == mask_.candidates) {
            interval_ = 0;
            group_ += mask_.ends[mask_.candidates - 1];
        }
        end_ = group_ + mask_.ends[interval_];
        value_ = keep_[interval_];
    }

    const Mask &mask_;
    const float *keep_ = nullptr;
    uint32_t interval_ = 0;
    uint32_t group_ = 0;        // first column of the present period
    uint32_t end_ = UINT32_MAX; // first column behind the present interval
    float value_ = 1.0f;
};

/// The interval that component i lies in: a search for columns in no order.
__device__ inline uint32_t interval_of(const Mask &mask, uint32_t i) {
    const uint32_t rank = i % mask.ends[mask.candidates - 1];
    uint32_t c = 0;
    while (mask.ends[c] <= rank) c++;
    return c;
}

/// The intervals of N neighbouring columns, for a thread that meets the same columns in many rows.
template <int N> class MaskColumns {
  public:
    /// Only what is `wanted` is looked up.
    __device__ MaskColumns(const Mask &mask, uint32_t column, bool wanted = true) {
        if (mask.candidates == 0 || !wanted) return;
        const uint32_t period = mask.ends[mask.candidates - 1];
        uint32_t c = 0;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const uint32_t rank = (column + j) % period;
            if (rank == 0) c = 0;
            while (mask.ends[c] <= rank) c++;
            interval_[j] = c;
        }
    }

    __device__ void values(float (&m)[N], const Mask &mask, uint32_t row) const {
        const float *keep = mask.candidates ? keep_of(mask, row) : nullptr;
        m[0] = keep ? keep[interval_[0]] : 1.0f;
#pragma unroll
        for (int j = 1; j < N; j++) m[j] = interval_[j] == interval_[j - 1] ? m[j - 1] : keep[interval_[j]];
    }

  private:
    uint32_t interval_[N] = {};
};

/// Columns of interval c among `width`.
__device__ inline float interval_width(const Mask &mask, uint32_t c, uint32_t width) {
    const uint32_t start = c == 0 ? 0 : mask.ends[c - 1];
    return float((mask.ends[c] - start) * (width / mask.ends[mask.candidates - 1]));
}

/// Lane c gets Σ x over the first `count` lanes whose interval is c, in the lanes' order. All lanes must come here.
__device__ inline float interval_sum(uint32_t interval, float x, uint32_t count) {
    float total = 0.0f;
    for (uint32_t from = 0; from < count; from++) {
        const uint32_t theirs = __shfl_sync(ALL_LANES, interval, from);
        const float other = __shfl_sync(ALL_LANES, x, from);
        if (theirs == lane()) total += other;
    }
    return total;
}

/// One row's sums per interval, by one warp. Each lane keeps its own in shared memory, [C, 32], so that no two threads
/// meet before the lanes' sums are added in a fixed order.
class IntervalSums {
  public:
    /// Shared memory that a warp needs.
    static __device__ uint32_t floats(uint32_t candidates) { return candidates * WARP; }

    __device__ IntervalSums(float *slots, uint32_t candidates) : slots_(slots), candidates_(candidates) {
        for (uint32_t c = 0; c < candidates; c++) slots_[c * WARP + lane()] = 0.0f;
    }

    /// Adds to interval c. The running one stays in a register: neighbouring columns mostly share it.
    __device__ void add(uint32_t c, float x) {
        if (c != interval_) {
            flush();
            interval_ = c;
        }
        sum_ += x;
    }

    /// Writes out[c] for every interval. All lanes must come here.
    __device__ void finish(float *out) {
        flush();
        __syncwarp();
        if (lane() < candidates_) {
            float total = 0.0f;
            // Each lane starts at another slot, so that the lanes read 32 banks.
            for (uint32_t i = 0; i < WARP; i++) total += slots_[lane() * WARP + (i + lane()) % WARP];
            out[lane()] = total;
        }
        __syncwarp();
    }

  private:
    __device__ void flush() {
        if (candidates_ == 0) return;
        slots_[interval_ * WARP + lane()] += sum_;
        sum_ = 0.0f;
    }

    float *slots_;
    uint32_t candidates_;
    uint32_t interval_ = 0;
    float sum_ = 0.0f;
};
