// From the probabilities of an axis's candidates to the probabilities that keep its components: suffix sums, and for
// the gradient prefix sums. A thread takes one draw; masks are f32 whatever the model's dtype, and small.

#include "device/kernel.cuh"

constexpr uint32_t THREADS = 32;

// launch: grid draws/32, block 32, shared 0
KERNEL(THREADS) mask_keep_forward_f32(const __grid_constant__ MaskKeep args) {
    const uint32_t draw = blockIdx.x * THREADS + threadIdx.x;
    if (draw >= args.draws) return;
    const uint64_t first = uint64_t(draw) * args.candidates;
    float sum = 0.0f;
    for (uint32_t c = args.candidates; c-- > 0;) args.out[first + c] = sum += args.in[first + c];
}

// launch: grid draws/32, block 32, shared 0
KERNEL(THREADS) mask_keep_backward_f32(const __grid_constant__ MaskKeep args) {
    const uint32_t draw = blockIdx.x * THREADS + threadIdx.x;
    if (draw >= args.draws) return;
    const uint64_t first = uint64_t(draw) * args.candidates;
    float sum = 0.0f;
    for (uint32_t c = 0; c < args.candidates; c++) args.out[first + c] = sum += args.in[first + c];
}
