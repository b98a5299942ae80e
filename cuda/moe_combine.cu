// The experts' outputs, weighted, back in the tokens' order, with output masking of experts (axis E). A warp takes one
// token and reads each of its rows once; lane k looks after slot k.

#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / WARP;
constexpr uint32_t SLOTS = 32; // most experts per token

/// What a warp keeps of its token's slots.
struct Slots {
    uint32_t row[SLOTS]; // of y
    float mask[SLOTS];   // of the slot's expert; 0 where the slot is dropped
    float factor[SLOTS]; // weight·mask
};

/// Lane k fills slot k. All lanes must come here.
__device__ inline Slots &slots_of(const MoeCombine &combine, uint32_t token) {
    __shared__ Slots of_warp[WARPS];
    Slots &slots = of_warp[warp()];
    if (lane() < combine.top_k) {
        const uint64_t pair = uint64_t(token) * combine.top_k + lane();
        const uint32_t row = combine.row_of[pair];
        float m = row < *combine.filled ? 1.0f : 0.0f;
        if (m != 0.0f && combine.mask.candidates)
            m = keep_of(combine.mask, token)[interval_of(combine.mask, combine.chosen[pair])];
        slots.row[lane()] = row;
        slots.mask[lane()] = m;
        slots.factor[lane()] = masked(combine.weights[pair], m);
    }
    __syncwarp();
    return slots;
}

template <typename T, int N> __device__ void forward_token(const MoeCombineForward &args, uint32_t token) {
    const MoeCombine &combine = args.combine;
    const Slots &slots = slots_of(combine, token);
    T *out = row_of<T>(args.out, token, combine.width);
    for (uint32_t column = lane() * N; column < combine.width; column += WARP * N) {
        float sum[N] = {};
        for (uint32_t k = 0; k < combine.top_k; k++) {
            if (slots.mask[k] == 0.0f) continue; // exactly nothing, whatever y is
            float a[N];
            load(a, row_of<const T>(combine.y, slots.row[k], combine.width) + column);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += slots.factor[k] * a[j];
        }
        store(out + column, sum);
    }
}

template <typename T> __device__ void forward(const MoeCombineForward &args) {
    const uint32_t token = blockIdx.x * WARPS + warp();
    if (token >= args.combine.tokens) return;
    if (wide_rows<T>(args.combine.width, args.combine.y, args.out)) forward_token<T, WIDE<T>>(args, token);
    else forward_token<T, 1>(args, token);
}

/// The gradients of weights and mask, from dots[k] = ⟨dout, y of slot k⟩.
__device__ inline void
scalar_gradients(const MoeCombineBackward &args, uint32_t token, const Slots &slots, const float *dots) {
    const MoeCombine &combine = args.combine;
    const uint64_t pair = uint64_t(token) * combine.top_k + lane();
    float dmask = 0.0f;
    uint32_t mine = UINT32_MAX;
    if (lane() < combine.top_k) {
        const bool dropped = slots.row[lane()] >= *combine.filled;
        args.dweights[pair] = masked(dots[lane()], slots.mask[lane()]);
        if (!dropped) {
            dmask = combine.weights[pair] * dots[lane()];
            if (combine.mask.candidates) mine = interval_of(combine.mask, combine.chosen[pair]);
        }
    }
    if (!args.row_sums) return;
    const float total = interval_sum(mine, dmask, combine.top_k);
    if (lane() < combine.mask.candidates) args.row_sums[uint64_t(token) * combine.mask.candidates + lane()] = total;
}

template <typename T, int N>
__device__ void backward_token(const MoeCombineBackward &args, uint32_t token, float *mine) {
    const MoeCombine &combine = args.combine;
    const Slots &slots = slots_of(combine, token);
    const uint32_t filled = *combine.filled;
    const T *dout = row_of<const T>(args.dout, token, combine.width);
    float *dots = mine; // [K], behind it a slot of each lane per k
    IntervalSums sums(mine + SLOTS, combine.top_k);
    for (uint32_t column = lane() * N; column < combine.width; column += WARP * N) {
        float d[N];
        load(d, dout + column);
        for (uint32_t k = 0; k < combine.top_k; k++) {
            float dy[N] = {};
            if (slots.row[k] < filled) {
                float a[N], dot = 0.0f;
                load(a, row_of<const T>(combine.y, slots.row[k], combine.width) + column);
#pragma unroll
                for (int j = 0; j < N; j++) {
                    dot += d[j] * a[j];
                    dy[j] = masked(d[j], slots.factor[k]);
                }
                sums.add(k, dot);
            }
            store(row_of<T>(args.dy, slots.row[k], combine.width) + column, dy); // zeros for a dropped slot's row
        }
    }
    sums.finish(dots);
    scalar_gradients(args, token, slots, dots);
}

template <typename T> __device__ void backward(const MoeCombineBackward &args) {
    float *shared = dynamic_shared<float>(); // [warp, 32 + 32·K]
    const uint32_t token = blockIdx.x * WARPS + warp();
    if (token >= args.combine.tokens) return;
    float *mine = shared + warp() * (SLOTS + IntervalSums::floats(args.combine.top_k));
    if (wide_rows<T>(args.combine.width, args.combine.y, args.dout, args.dy))
        backward_token<T, WIDE<T>>(args, token, mine);
    else backward_token<T, 1>(args, token, mine);
}

// launch: grid combine.tokens/8, block 256, shared 0
KERNEL(THREADS) moe_combine_forward_f32(const __grid_constant__ MoeCombineForward args) { forward<float>(args); }
KERNEL(THREADS) moe_combine_forward_bf16(const __grid_constant__ MoeCombineForward args) { forward<bf16>(args); }

// launch: grid combine.tokens/8, block 256, shared combine.top_k*1024+1024
KERNEL(THREADS, 4) moe_combine_backward_f32(const __grid_constant__ MoeCombineBackward args) { backward<float>(args); }
KERNEL(THREADS, 4) moe_combine_backward_bf16(const __grid_constant__ MoeCombineBackward args) { backward<bf16>(args); }
