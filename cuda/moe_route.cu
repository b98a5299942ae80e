// The router of a mixture-of-experts layer: sigmoid scores, correction bias, group limit, top-k (DeepSeek-V3, arXiv
// 2412.19437 §2.1.2, as nemotron_h has it). A warp takes one token. Logits, scores and weights are f32 whatever the
// model's dtype; the dtype of the backward kernel is that of the logits' gradient, which goes into matrix products.

#include "device/best.cuh"
#include "device/elementary.cuh"
#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / WARP;

/// The best of choice[first .. end] but for `without`. NaN marks what has been taken.
__device__ inline Candidate best_of(const float *choice, uint32_t first, uint32_t end, uint32_t without) {
    Candidate best = {-INFINITY, NOWHERE};
    for (uint32_t e = first + lane(); e < end; e += WARP) {
        if (!isnan(choice[e]) && e != without) best = better(best, {choice[e], e});
    }
    return warp_best(best);
}

/// The score of one expert for one row without its mask, and the mask.
__device__ inline float score_of(const MoeRoute &route, uint32_t row, uint32_t expert) {
    return sigmoid(route.logits[uint64_t(row) * route.experts + expert]);
}
__device__ inline float mask_of(const MoeRoute &route, uint32_t row, uint32_t expert) {
    return route.mask.candidates ? keep_of(route.mask, row)[interval_of(route.mask, expert)] : 1.0f;
}

/// Sets the choices outside the topk_group best groups to −∞. A group's rank is the sum of its two best choices; the
/// lower group wins a tie.
__device__ inline void limit_groups(const MoeRoute &route, float *choice, float *ranks) {
    constexpr float INELIGIBLE = -1e30f; // not −∞ + x: a group with one eligible expert ranks above one with none
    const uint32_t size = route.experts / route.groups;
    for (uint32_t group = 0; group < route.groups; group++) {
        const uint32_t first = group * size, end = first + size;
        const Candidate best = best_of(choice, first, end, NOWHERE);
        const Candidate second = best_of(choice, first, end, best.at);
        const float rank = size == 1 ? best.score : fmaxf(best.score, INELIGIBLE) + fmaxf(second.score, INELIGIBLE);
        if (lane() == 0) ranks[group] = rank;
    }
    __syncwarp();
    for (uint32_t e = lane(); e < route.experts; e += WARP) {
        const uint32_t mine = e / size;
        uint32_t ahead = 0;
        for (uint32_t group = 0; group < route.groups; group++)
            ahead += ranks[group] > ranks[mine] || (ranks[group] == ranks[mine] && group < mine);
        if (ahead >= route.topk_group) choice[e] = -INFINITY;
    }
    __syncwarp();
}

// launch: grid route.rows/8, block 256, shared route.experts*32+route.groups*32
KERNEL(THREADS) moe_route_forward_f32(const __grid_constant__ MoeRouteForward args) {
    float *shared = dynamic_shared<float>();
    const MoeRoute &route = args.route;
    const uint32_t row = blockIdx.x * WARPS + warp();
    if (row >= route.rows) return;
    float *choice = shared + warp() * (route.experts + route.groups), *ranks = choice + route.experts;
    MaskRow mask(route.mask, row);
    for (uint32_t e = lane(); e < route.experts; e += WARP) {
        const float m = mask.at(e), corrected = m * score_of(route, row, e) + args.bias[e];
        choice[e] = m == 0.0f || isnan(corrected) ? -INFINITY : corrected;
    }
    __syncwarp();
    if (route.topk_group < route.groups) limit_groups(route, choice, ranks);

    uint32_t mine = 0; // lane k's expert
    for (uint32_t k = 0; k < route.top_k; k++) {
        const uint32_t best = best_of(choice, 0, route.experts, NOWHERE).at;
        __syncwarp();
        if (lane() == 0) choice[best] = NAN;
        __syncwarp();
        if (lane() == k) mine = best;
    }
    const bool chosen = lane() < route.top_k;
    const float weight = chosen ? mask_of(route, row, mine) * score_of(route, row, mine) : 0.0f;
    const float sum = route.normalise ? warp_sum(weight) + 1e-20f : 1.0f;
    if (!chosen) return;
    args.weights[uint64_t(row) * route.top_k + lane()] = weight * (route.scale / sum);
    args.chosen[uint64_t(row) * route.top_k + lane()] = mine;
}

template <typename T> __device__ void backward(const MoeRouteBackward &args) {
    float *shared = dynamic_shared<float>();
    const MoeRoute &route = args.route;
    const uint32_t row = blockIdx.x * WARPS + warp();
    if (row >= route.rows) return;
    float *dlogits = shared + warp() * route.experts;
    for (uint32_t e = lane(); e < route.experts; e += WARP) dlogits[e] = 0.0f;
    __syncwarp();

    const bool chosen = lane() < route.top_k;
    const uint64_t slot = uint64_t(row) * route.top_k + lane();
    const uint32_t e = chosen ? args.chosen[slot] : 0;
    const float s = chosen ? score_of(route, row, e) : 0.0f, m = chosen ? mask_of(route, row, e) : 0.0f;
    const float dw = chosen ? args.dweights[slot] : 0.0f;
    const float sum = warp_sum(s * m) + 1e-20f, along = warp_sum(dw * s * m) / sum;
    // d(m·s): with normalisation, the part along the weights themselves cancels.
    const float d = (route.normalise ? (dw - along) / sum : dw) * route.scale;
    if (chosen) dlogits[e] = d * m * s * (1.0f - s);
    __syncwarp();
    T *out = row_of<T>(args.dlogits, row, route.experts);
    for (uint32_t i = lane(); i < route.experts; i += WARP) out[i] = narrow<T>(dlogits[i]);

    if (!args.row_sums) return;
    const float total = interval_sum(chosen ? interval_of(route.mask, e) : NOWHERE, d * s, route.top_k);
    if (lane() < route.mask.candidates) args.row_sums[uint64_t(row) * route.mask.candidates + lane()] = total;
}

// launch: grid route.rows/8, block 256, shared route.experts*32
KERNEL(THREADS) moe_route_backward_f32(const __grid_constant__ MoeRouteBackward args) { backward<float>(args); }
KERNEL(THREADS) moe_route_backward_bf16(const __grid_constant__ MoeRouteBackward args) { backward<bf16>(args); }
