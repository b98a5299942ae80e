// relu(x)²·m, the activation of every feed-forward network here, with the mask of its width (axes F and S).
//
// A warp walks one row, 16 bytes per lane where rows are aligned. Bound by memory.

#include "device/elementary.cuh"
#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t ROWS = THREADS / WARP; // of a block

template <typename T, int N> __device__ void forward_row(const Relu2Forward &args, uint32_t row) {
    const T *x = row_of<const T>(args.x, row, args.width);
    T *y = row_of<T>(args.y, row, args.width);
    MaskRow mask(args.mask, row);
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float a[N];
        load(a, x + column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float p = positive(a[j]);
            a[j] = masked(p * p, mask.at(column + j));
        }
        store(y + column, a);
    }
}

template <typename T> __device__ void forward(const Relu2Forward &args) {
    const uint32_t row = blockIdx.x * ROWS + warp();
    if (row >= args.rows) return;
    if (wide_rows<T>(args.width, args.x, args.y)) forward_row<T, WIDE<T>>(args, row);
    else forward_row<T, 1>(args, row);
}

template <typename T, int N> __device__ void backward_row(const Relu2Backward &args, uint32_t row, float *slots) {
    const T *x = row_of<const T>(args.x, row, args.width);
    const T *dy = row_of<const T>(args.dy, row, args.width);
    T *dx = row_of<T>(args.dx, row, args.width);
    MaskRow mask(args.mask, row);
    IntervalSums sums(slots, args.mask.candidates);
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float a[N], d[N];
        load(a, x + column);
        load(d, dy + column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float m = mask.at(column + j), p = positive(a[j]);
            sums.add(mask.interval(), d[j] * (p * p));
            d[j] = masked(2.0f * p * d[j], m);
        }
        store(dx + column, d);
    }
    if (args.row_sums) sums.finish(args.row_sums + uint64_t(row) * args.mask.candidates);
}

template <typename T> __device__ void backward(const Relu2Backward &args) {
    float *slots = dynamic_shared<float>(); // [warp, C, 32]
    const uint32_t row = blockIdx.x * ROWS + warp();
    if (row >= args.rows) return;
    float *mine = slots + warp() * IntervalSums::floats(args.mask.candidates);
    if (wide_rows<T>(args.width, args.x, args.dy, args.dx)) backward_row<T, WIDE<T>>(args, row, mine);
    else backward_row<T, 1>(args, row, mine);
}

// launch: grid rows/8, block 256, shared 0
KERNEL(THREADS) relu2_forward_f32(const __grid_constant__ Relu2Forward args) { forward<float>(args); }
KERNEL(THREADS) relu2_forward_bf16(const __grid_constant__ Relu2Forward args) { forward<bf16>(args); }

// launch: grid rows/8, block 256, shared mask.candidates*1024
KERNEL(THREADS, 5) relu2_backward_f32(const __grid_constant__ Relu2Backward args) { backward<float>(args); }
KERNEL(THREADS, 5) relu2_backward_bf16(const __grid_constant__ Relu2Backward args) { backward<bf16>(args); }
