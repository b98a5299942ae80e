// h + m·g·x: a block's output joins the residual stream, with the hidden-size mask m and the layer's keep gate g.
//
// A warp walks one row, 16 bytes per lane where rows are aligned. Bound by memory: three matrices pass once.

#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t ROWS = THREADS / WARP; // of a block

template <typename T, int N> __device__ void forward_row(const ResidualAddForward &args, uint32_t row) {
    const T *h = row_of<const T>(args.h, row, args.width);
    const T *x = row_of<const T>(args.x, row, args.width);
    T *out = row_of<T>(args.out, row, args.width);
    MaskRow hidden(args.hidden, row);
    const float gate = gate_of(args.gate, row);
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float a[N], b[N];
        load(a, h + column);
        load(b, x + column);
#pragma unroll
        for (int j = 0; j < N; j++) a[j] += masked(b[j], hidden.at(column + j) * gate);
        store(out + column, a);
    }
}

template <typename T> __device__ void forward(const ResidualAddForward &args) {
    const uint32_t row = blockIdx.x * ROWS + warp();
    if (row >= args.rows) return;
    if (wide_rows<T>(args.width, args.h, args.x, args.out)) forward_row<T, WIDE<T>>(args, row);
    else forward_row<T, 1>(args, row);
}

template <typename T, int N> __device__ void backward_row(const ResidualAddBackward &args, uint32_t row, float *slots) {
    const T *x = row_of<const T>(args.x, row, args.width);
    const T *dout = row_of<const T>(args.dout, row, args.width);
    T *dx = row_of<T>(args.dx, row, args.width);
    MaskRow hidden(args.hidden, row);
    IntervalSums sums(slots, args.hidden.candidates);
    const float gate = gate_of(args.gate, row);
    float dgate = 0.0f;
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float d[N], b[N];
        load(d, dout + column);
        load(b, x + column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float m = hidden.at(column + j);
            sums.add(hidden.interval(), d[j] * masked(b[j], gate));
            dgate += d[j] * masked(b[j], m);
            d[j] = masked(d[j], m * gate);
        }
        store(dx + column, d);
    }
    if (args.hidden_sums) sums.finish(args.hidden_sums + uint64_t(row) * args.hidden.candidates);
    dgate = warp_sum(dgate);
    if (args.gate_sums && lane() == 0) args.gate_sums[row] = dgate;
}

template <typename T> __device__ void backward(const ResidualAddBackward &args) {
    float *slots = dynamic_shared<float>(); // [warp, C, 32]
    const uint32_t row = blockIdx.x * ROWS + warp();
    if (row >= args.rows) return;
    float *mine = slots + warp() * IntervalSums::floats(args.hidden.candidates);
    if (wide_rows<T>(args.width, args.x, args.dout, args.dx)) backward_row<T, WIDE<T>>(args, row, mine);
    else backward_row<T, 1>(args, row, mine);
}

// launch: grid rows/8, block 256, shared 0
KERNEL(THREADS) residual_add_forward_f32(const __grid_constant__ ResidualAddForward args) { forward<float>(args); }
KERNEL(THREADS) residual_add_forward_bf16(const __grid_constant__ ResidualAddForward args) { forward<bf16>(args); }

// launch: grid rows/8, block 256, shared hidden.candidates*1024
KERNEL(THREADS, 5) residual_add_backward_f32(const __grid_constant__ ResidualAddBackward args) {
    backward<float>(args);
}
KERNEL(THREADS, 5) residual_add_backward_bf16(const __grid_constant__ ResidualAddBackward args) {
    backward<bf16>(args);
}
