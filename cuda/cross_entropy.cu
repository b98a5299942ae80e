// Next-token cross-entropy of rows of logits, and their gradient. The logits are a block's that a matrix product has
// just made (linear_pipelined_nt_wide) and the gradient goes into two more, so a block of them exists only while it is
// worked on.
//
// A block takes one row and reads it twice, for the sum and for the gradient: it does not fit into shared memory.

#include "device/best.cuh"
#include "device/kernel.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 512;
constexpr uint32_t NOT_COUNTED = UINT32_MAX;

/// The largest number so far, its place, and Σ e^(x − largest).
struct Sum {
    Candidate best = {-INFINITY, NOWHERE};
    float total = 0.0f;

    __device__ void add(float x, uint32_t at) {
        if (x > best.score) {
            total = total * expf(best.score - x) + 1.0f;
            best = {x, at};
        } else if (x != -INFINITY) { // which adds nothing, and has no difference to itself
            total += expf(x - best.score);
        }
    }
};

template <typename T, int N> __device__ void row_of_logits(const CrossEntropy &args, uint32_t row) {
    const float *logits = row_of<const float>(args.logits, row, args.vocab);
    T *dlogits = args.dlogits ? row_of<T>(args.dlogits, row, args.vocab) : nullptr;
    const uint32_t target = args.targets[row];
    const bool counted = target != NOT_COUNTED;
    Sum mine;
    for (uint32_t v = threadIdx.x * N; counted && v < args.vocab; v += THREADS * N) {
        float x[N];
        load(x, logits + v);
#pragma unroll
        for (int j = 0; j < N; j++) mine.add(x[j], v + j);
    }
    const Candidate best = block_best<THREADS>(mine.best);
    double totals[1] = {
        mine.total == 0.0f ? 0.0 : double(mine.total) * exp(double(mine.best.score) - double(best.score))};
    block_sum<THREADS>(totals);
    if (threadIdx.x == 0) {
        args.losses[row] = counted ? float(log(totals[0]) + (double(best.score) - double(logits[target]))) : 0.0f;
        args.tops[row] = best.at; // nowhere where the row does not count, or is NaN throughout
    }
    if (!dlogits) return;
    const float inverse = counted ? float(1.0 / totals[0]) : 0.0f;
    for (uint32_t v = threadIdx.x * N; v < args.vocab; v += THREADS * N) {
        float x[N] = {};
        if (counted) {
            load(x, logits + v);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float p = expf(x[j] - best.score) * inverse;
                x[j] = args.scale * (v + j == target ? p - 1.0f : p);
            }
        }
        store(dlogits + v, x);
    }
}

template <typename T> __device__ void rows(const CrossEntropy &args) {
    if (wide_rows<float>(args.vocab, args.logits, args.dlogits)) row_of_logits<T, 4>(args, blockIdx.x);
    else row_of_logits<T, 1>(args, blockIdx.x);
}

// launch: grid rows, block 512, shared 0
KERNEL(THREADS) cross_entropy_rows_f32(const __grid_constant__ CrossEntropy args) { rows<float>(args); }
KERNEL(THREADS) cross_entropy_rows_bf16(const __grid_constant__ CrossEntropy args) { rows<bf16>(args); }

/// The mean over the counted rows, in f64; 0 if none counts. One block.
// launch: grid 1, block 512, shared 0
KERNEL(THREADS) cross_entropy_mean_f32(const __grid_constant__ CrossEntropyMean args) {
    double sums[2] = {0.0, 0.0}; // losses, rows
    for (uint32_t row = threadIdx.x; row < args.rows; row += THREADS) {
        if (args.targets[row] == NOT_COUNTED) continue;
        sums[0] += double(args.losses[row]);
        sums[1] += 1.0;
    }
    block_sum<THREADS>(sums);
    if (threadIdx.x == 0) *args.loss = sums[1] > 0.0 ? float(sums[0] / sums[1]) : 0.0f;
}
