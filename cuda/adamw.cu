// AdamW (Loshchilov & Hutter, arXiv 1711.05101): f32 masters, decoupled weight decay, global-norm clipping. Learning
// rate, update and largest norm are read on the device. Bound by memory: a parameter's master and moments pass once.

#include "device/kernel.cuh"
#include "device/reduce.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr int N = 4;                        // 16 bytes of f32
constexpr uint32_t TILE = THREADS * N * 16; // elements whose squares a block adds

/// 1 − betaᵗ, without the cancellation that betaᵗ close to 1 would bring.
__device__ inline float correction(float beta, uint64_t t) { return -expm1f(float(t) * logf(beta)); }

struct Step {
    float keep, rate, inverse, scale;
};

/// The step's numbers, the same for every element.
__device__ inline Step step_of(const AdamWUpdate &args) {
    const StepState &state = *args.state;
    const float rate = state.learning_rate * args.rate;
    const float norm = args.norm ? *args.norm : 0.0f;
    return {
        1.0f - rate * args.weight_decay,
        rate / correction(args.beta1, state.update),
        1.0f / correction(args.beta2, state.update),
        norm > state.max_norm ? state.max_norm / norm : 1.0f,
    };
}

template <typename T, int M> __device__ void update_at(const AdamWUpdate &args, const Step &step, uint64_t i) {
    float value[M], g[M], first[M], second[M];
    load(value, args.value + i);
    load(g, static_cast<const T *>(args.grad) + i);
    load(first, args.first + i);
    load(second, args.second + i);
#pragma unroll
    for (int j = 0; j < M; j++) {
        const float scaled = g[j] * step.scale;
        first[j] = args.beta1 * first[j] + (1.0f - args.beta1) * scaled;
        second[j] = args.beta2 * second[j] + (1.0f - args.beta2) * scaled * scaled;
        value[j] = value[j] * step.keep - step.rate * first[j] / (sqrtf(second[j] * step.inverse) + args.eps);
    }
    store(args.value + i, value);
    store(args.first + i, first);
    store(args.second + i, second);
    if (args.weight) store(static_cast<bf16 *>(args.weight) + i, value);
}

template <typename T> __device__ void update(const AdamWUpdate &args) {
    const Step step = step_of(args);
    const uint64_t first = (uint64_t(blockIdx.x) * THREADS + threadIdx.x) * N;
    const bool wide = wide_rows<float>(0, args.value, args.grad, args.first, args.second, args.weight);
    if (wide && first + N <= args.elements) return update_at<T, N>(args, step, first);
    for (uint64_t i = first; i < min(first + N, args.elements); i++) update_at<T, 1>(args, step, i);
}

/// Σ g² of the block's elements: a thread's few in f32, everything above in f64.
template <typename T> __device__ void squares(const AdamWSquares &args) {
    const T *grad = static_cast<const T *>(args.grad);
    const uint64_t first = uint64_t(blockIdx.x) * TILE;
    const bool wide = wide_rows<float>(0, args.grad);
    float sum = 0.0f;
#pragma unroll 4
    for (uint32_t step = 0; step < TILE; step += THREADS * N) {
        const uint64_t at = first + step + threadIdx.x * N;
        float g[N] = {};
        if (wide && at + N <= args.elements) load(g, grad + at);
        else
            for (int j = 0; j < N; j++) g[j] = at + j < args.elements ? widen(grad[at + j]) : 0.0f;
#pragma unroll
        for (int j = 0; j < N; j++) sum += g[j] * g[j];
    }
    double sums[1] = {sum};
    block_sum<THREADS>(sums);
    if (threadIdx.x == 0) args.partials[blockIdx.x] = sums[0];
}

// launch: grid elements/16384, block 256, shared 0
KERNEL(THREADS) adamw_squares_f32(const __grid_constant__ AdamWSquares args) { squares<float>(args); }
KERNEL(THREADS) adamw_squares_bf16(const __grid_constant__ AdamWSquares args) { squares<bf16>(args); }

/// √ of the sum of all tensors' partial sums. One block.
// launch: grid 1, block 256, shared 0
KERNEL(THREADS) adamw_norm_f64(const __grid_constant__ AdamWNorm args) {
    double sums[1] = {0.0};
    for (uint64_t i = threadIdx.x; i < args.count; i += THREADS) sums[0] += args.partials[i];
    block_sum<THREADS>(sums);
    if (threadIdx.x == 0) *args.norm = float(sqrt(sums[0]));
}

// launch: grid elements/1024, block 256, shared 0
KERNEL(THREADS) adamw_update_f32(const __grid_constant__ AdamWUpdate args) { update<float>(args); }
KERNEL(THREADS) adamw_update_bf16(const __grid_constant__ AdamWUpdate args) { update<bf16>(args); }
