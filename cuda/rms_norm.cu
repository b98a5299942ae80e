// Root-mean-square normalisation over the residual stream (Zhang & Sennrich, 2019), with a mask-aware denominator.
//
// A block takes `rows_per_block` rows one after another. Thread t owns the same columns of each of them, so the weight
// is read once per block and its gradient sums up in shared memory without two threads meeting. A row passes through
// global memory once: shared memory keeps it between the sum and its use.

#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;

/// The columns that thread t owns: N·t, N·(t + THREADS), …
template <int N, typename Body> __device__ void for_columns(uint32_t width, Body body) {
    for (uint32_t column = threadIdx.x * N; column < width; column += THREADS * N) body(column);
}

/// What a thread adds to n, Σ of the row's mask or the width: thread c looks after interval c.
__device__ inline float total_share(const Mask &mask, uint32_t row, uint32_t width) {
    const uint32_t c = threadIdx.x;
    if (mask.candidates == 0) return c == 0 ? float(width) : 0.0f;
    return c < mask.candidates ? keep_of(mask, row)[c] * interval_width(mask, c, width) : 0.0f;
}

template <typename T, int N> __device__ void forward_rows(const RmsNormForward &args, uint32_t first, uint32_t end) {
    T *weight = dynamic_shared<T>(); // [d]
    T *kept = weight + args.width;   // [d], the present row
    for_columns<N>(args.width, [&](uint32_t column) {
        float w[N];
        load(w, static_cast<const T *>(args.weight) + column);
        store_shared(weight + column, w);
    });
    for (uint32_t row = first; row < end; row++) {
        const T *x = row_of<const T>(args.x, row, args.width);
        T *y = row_of<T>(args.y, row, args.width);
        float sums[2] = {0.0f, total_share(args.mask, row, args.width)}; // Σ x², n
        for_columns<N>(args.width, [&](uint32_t column) {
            float a[N];
            load(a, x + column);
            store_shared(kept + column, a);
#pragma unroll
            for (int j = 0; j < N; j++) sums[0] += a[j] * a[j];
        });
        block_sum<THREADS>(sums);
        const float n = sums[1];
        const float scale = n > 0.0f ? 1.0f / sqrtf(sums[0] / n + args.eps) : 0.0f;
        for_columns<N>(args.width, [&](uint32_t column) {
            float a[N], w[N];
            load(a, kept + column);
            load(w, weight + column);
#pragma unroll
            for (int j = 0; j < N; j++) a[j] = a[j] * scale * w[j];
            store(y + column, a);
        });
        if (threadIdx.x == 0) args.scales[row] = scale;
    }
}

template <typename T> __device__ void forward(const RmsNormForward &args) {
    const uint32_t first = blockIdx.x * args.rows_per_block;
    const uint32_t end = min(first + args.rows_per_block, args.rows);
    if (wide_rows<T>(args.width, args.x, args.weight, args.y)) forward_rows<T, WIDE<T>>(args, first, end);
    else forward_rows<T, 1>(args, first, end);
}

/// What one row adds to the gradient of each interval's kept probability: every component of the interval moves n by
/// one.
__device__ inline void store_row_sums(const RmsNormBackward &args, uint32_t row, float dn) {
    if (!args.row_sums) return;
    const uint32_t c = threadIdx.x;
    if (c < args.mask.candidates)
        args.row_sums[uint64_t(row) * args.mask.candidates + c] = dn * interval_width(args.mask, c, args.width);
}

template <typename T, int N> __device__ void backward_rows(const RmsNormBackward &args, uint32_t first, uint32_t end) {
    float *sums_of_rows = dynamic_shared<float>();                // [d]
    T *weight = reinterpret_cast<T *>(sums_of_rows + args.width); // [d]
    T *kept_x = weight + args.width;                              // [d]
    T *kept_dy = kept_x + args.width;                             // [d]
    PlanarRow<N> dweight(sums_of_rows, args.width);
    const float zeros[N] = {};
    for_columns<N>(args.width, [&](uint32_t column) {
        float w[N];
        load(w, static_cast<const T *>(args.weight) + column);
        store_shared(weight + column, w);
        dweight.store(column, zeros);
    });
    float scales = 0.0f; // of as many rows as a warp has lanes
    for (uint32_t row = first; row < end; row++) {
        const T *x = row_of<const T>(args.x, row, args.width);
        const T *dy = row_of<const T>(args.dy, row, args.width);
        T *dx = row_of<T>(args.dx, row, args.width);
        const uint32_t of_lane = (row - first) % WARP;
        if (of_lane == 0 && row + lane() < end) scales = args.scales[row + lane()];
        const float scale = __shfl_sync(ALL_LANES, scales, of_lane);
        float sums[3] = {0.0f, 0.0f, total_share(args.mask, row, args.width)}; // Σ dy·w·x, Σ x², n
        for_columns<N>(args.width, [&](uint32_t column) {
            float a[N], d[N], w[N];
            load(a, x + column);
            load(d, dy + column);
            load(w, weight + column);
            store_shared(kept_x + column, a);
            store_shared(kept_dy + column, d);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sums[0] += d[j] * w[j] * a[j];
                sums[1] += a[j] * a[j];
            }
        });
        block_sum<THREADS>(sums);
        const float n = sums[2];
        if (!(n > 0.0f)) { // y is 0 whatever x is
            for_columns<N>(args.width, [&](uint32_t column) { store(dx + column, zeros); });
            store_row_sums(args, row, 0.0f);
            continue;
        }
        const float cubed = scale * scale * scale * sums[0];
        for_columns<N>(args.width, [&](uint32_t column) {
            float a[N], d[N], w[N], dw[N];
            load(a, kept_x + column);
            load(d, kept_dy + column);
            load(w, weight + column);
            dweight.load(dw, column);
#pragma unroll
            for (int j = 0; j < N; j++) {
                dw[j] += d[j] * (a[j] * scale);
                d[j] = d[j] * w[j] * scale - a[j] * (cubed / n);
            }
            dweight.store(column, dw);
            store(dx + column, d);
        });
        store_row_sums(args, row, 0.5f * cubed * sums[1] / (n * n)); // ∂s/∂n = ½·s³·Σx²/n²
    }
    float *partials = row_of<float>(args.weight_partials, blockIdx.x, args.width);
    for_columns<N>(args.width, [&](uint32_t column) {
        float dw[N];
        dweight.load(dw, column);
        store(partials + column, dw);
    });
}

template <typename T> __device__ void backward(const RmsNormBackward &args) {
    const uint32_t first = blockIdx.x * args.rows_per_block;
    const uint32_t end = min(first + args.rows_per_block, args.rows);
    if (wide_rows<T>(args.width, args.x, args.weight, args.dy, args.dx, args.weight_partials))
        backward_rows<T, WIDE<T>>(args, first, end);
    else backward_rows<T, 1>(args, first, end);
}

// launch: grid rows/rows_per_block, block 256, shared width*dtype*2
KERNEL(THREADS) rms_norm_forward_f32(const __grid_constant__ RmsNormForward args) { forward<float>(args); }
KERNEL(THREADS) rms_norm_forward_bf16(const __grid_constant__ RmsNormForward args) { forward<bf16>(args); }

// launch: grid rows/rows_per_block, block 256, shared width*dtype*3+width*4
KERNEL(THREADS, 4) rms_norm_backward_f32(const __grid_constant__ RmsNormBackward args) { backward<float>(args); }
KERNEL(THREADS, 4) rms_norm_backward_bf16(const __grid_constant__ RmsNormBackward args) { backward<bf16>(args); }
