// Relaxed draws of one candidate per gate: y = softmax((κ·z + g) / τ) (Jang et al., arXiv 1611.01144; Maddison et al.,
// arXiv 1611.00712). κ and τ come from the step's state on the device. Router logits are f32 and small: speed is no
// matter here.

#include "device/kernel.cuh"
#include "device/philox.cuh"
#include "device/reduce.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / WARP;

/// Standard Gumbel noise of a gate at a step, the bits of src/ops/gumbel_softmax: in f64, because −ln of a number close
/// to 1 would lose its digits.
// launch: grid draws*candidates/256, block 256, shared 0
KERNEL(THREADS) gumbel_softmax_noise_f32(const __grid_constant__ GumbelNoise args) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= args.draws * args.candidates) return;
    const double u = philox_uniform(args.state->seed, args.state->step, (uint64_t(args.gate) << 32) + i);
    args.noise[i] = float(-log(-log(u)));
}

/// A warp takes one draw; the largest entry is subtracted first.
// launch: grid draws/8, block 256, shared 0
KERNEL(THREADS) gumbel_softmax_forward_f32(const __grid_constant__ GumbelForward args) {
    const uint32_t draw = blockIdx.x * WARPS + warp();
    if (draw >= args.draws) return;
    const float kappa = args.state->kappa, tau = args.state->tau;
    const float *noise = args.noise + uint64_t(draw) * args.candidates;
    float *y = args.y + uint64_t(draw) * args.candidates;
    const auto exponent = [&](uint32_t c) { return (kappa * args.logits[c] + noise[c]) / tau; };
    float largest = -INFINITY;
    for (uint32_t c = lane(); c < args.candidates; c += WARP) largest = fmaxf(largest, exponent(c));
    largest = warp_max(largest);
    float sum = 0.0f;
    for (uint32_t c = lane(); c < args.candidates; c += WARP) {
        y[c] = expf(exponent(c) - largest);
        sum += y[c];
    }
    sum = warp_sum(sum);
    for (uint32_t c = lane(); c < args.candidates; c += WARP) y[c] /= sum;
}

/// dz_c = κ/τ·Σ over the draws, in order, of y_c·(dy_c − Σ_j y_j·dy_j). One block.
// launch: grid 1, block 256, shared draws*4
KERNEL(THREADS) gumbel_softmax_backward_f32(const __grid_constant__ GumbelBackward args) {
    float *along = dynamic_shared<float>(); // [draws]: Σ_j y_j·dy_j
    for (uint32_t draw = warp(); draw < args.draws; draw += WARPS) {
        float sum = 0.0f;
        for (uint32_t c = lane(); c < args.candidates; c += WARP) {
            const uint64_t at = uint64_t(draw) * args.candidates + c;
            sum += args.y[at] * args.dy[at];
        }
        sum = warp_sum(sum);
        if (lane() == 0) along[draw] = sum;
    }
    __syncthreads();
    const float scale = args.state->kappa / args.state->tau;
    for (uint32_t c = threadIdx.x; c < args.candidates; c += THREADS) {
        float sum = 0.0f;
        for (uint32_t draw = 0; draw < args.draws; draw++) {
            const uint64_t at = uint64_t(draw) * args.candidates + c;
            sum += scale * args.y[at] * (args.dy[at] - along[draw]);
        }
        args.dlogits[c] = args.accumulate ? args.dlogits[c] + sum : sum;
    }
}
