// The gated norm of a Mamba layer: t = y·silu(z), root-mean-square normalised within each group of heads.
//
// A block takes one group of `rows_per_block` rows, a warp one row of it at a time, so sums need no barrier. Rows pass
// through global memory once; shared memory keeps them between the sum and its use. Each warp sums the weight's
// gradient over its own rows, and the warps' sums meet in order at the end.

#include "device/elementary.cuh"
#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / WARP;

/// The columns that a lane owns: N·lane, N·(lane + 32), …
template <int N, typename Body> __device__ void for_columns(uint32_t width, Body body) {
    for (uint32_t column = lane() * N; column < width; column += WARP * N) body(column);
}

/// The group's weight in shared memory: read once for all of the block's rows. All threads must come here.
template <typename T, int N> __device__ void keep_weight(T *kept, const T *weight, uint32_t columns) {
    for (uint32_t column = threadIdx.x * N; column < columns; column += THREADS * N) {
        float w[N];
        load(w, weight + column);
        store_shared(kept + column, w);
    }
    __syncthreads();
}

/// The group's columns that lie in interval c = lane, which is the same for all rows; without a mask, lane 0 has them
/// all.
__device__ inline float interval_columns(const Mask &mask, uint32_t group, uint32_t columns, uint32_t head_dim) {
    if (mask.candidates == 0) return lane() == 0 ? float(columns) : 0.0f;
    const uint32_t heads = columns / head_dim;
    uint32_t mine = 0;
    for (uint32_t head = group * heads; head < (group + 1) * heads; head++) mine += interval_of(mask, head) == lane();
    return float(mine * head_dim);
}

/// The denominator of a row's group: head_dim·Σ m over the group's heads.
__device__ inline float count(const Mask &mask, uint32_t row, float columns) {
    if (mask.candidates) columns = lane() < mask.candidates ? columns * keep_of(mask, row)[lane()] : 0.0f;
    return warp_sum(columns);
}

/// Writes what a row's group adds to the gradient of each interval's kept probability: every column of it moves n by
/// one.
__device__ inline void
store_row_sums(const GatedGroupNormBackward &args, uint32_t row, uint32_t group, float columns, float dn) {
    if (!args.row_sums || lane() >= args.mask.candidates) return;
    args.row_sums[(uint64_t(row) * args.groups + group) * args.mask.candidates + lane()] = dn * columns;
}

template <typename T, int N>
__device__ void forward_rows(const GatedGroupNormForward &args, uint32_t first, uint32_t end) {
    const uint32_t group = blockIdx.y, width = args.groups * args.columns;
    float *of_warps = dynamic_shared<float>();                          // [warp, columns]
    T *weight = reinterpret_cast<T *>(of_warps + WARPS * args.columns); // [columns]
    PlanarRow<N> kept(of_warps + warp() * args.columns, args.columns);  // t of the present row
    keep_weight<T, N>(weight, static_cast<const T *>(args.weight) + group * args.columns, args.columns);
    const float columns = interval_columns(args.mask, group, args.columns, args.head_dim);
    for (uint32_t row = first + warp(); row < end; row += WARPS) {
        const T *y = row_of<const T>(args.y, row, width) + group * args.columns;
        const T *z = row_of<const T>(args.z, row, width) + group * args.columns;
        T *out = row_of<T>(args.out, row, width) + group * args.columns;
        float squares = 0.0f;
        for_columns<N>(args.columns, [&](uint32_t column) {
            float t[N], gate[N];
            load(t, y + column);
            load(gate, z + column);
#pragma unroll
            for (int j = 0; j < N; j++) {
                t[j] *= silu(gate[j]);
                squares += t[j] * t[j];
            }
            kept.store(column, t);
        });
        squares = warp_sum(squares);
        const float n = count(args.mask, row, columns);
        const float scale = n > 0.0f ? 1.0f / sqrtf(squares / n + args.eps) : 0.0f;
        for_columns<N>(args.columns, [&](uint32_t column) {
            float t[N], w[N];
            kept.load(t, column);
            load(w, weight + column);
#pragma unroll
            for (int j = 0; j < N; j++) t[j] *= scale * w[j];
            store(out + column, t);
        });
    }
}

template <typename T> __device__ void forward(const GatedGroupNormForward &args) {
    const uint32_t first = blockIdx.x * args.rows_per_block;
    const uint32_t end = min(first + args.rows_per_block, args.rows);
    if (wide_rows<T>(args.columns, args.y, args.z, args.weight, args.out)) forward_rows<T, WIDE<T>>(args, first, end);
    else forward_rows<T, 1>(args, first, end);
}

template <typename T, int N>
__device__ void backward_row(
    const GatedGroupNormBackward &args, uint32_t row, float columns, const T *weight, T *kept, PlanarRow<N> &dweight) {
    const uint32_t group = blockIdx.y, width = args.groups * args.columns, start = group * args.columns;
    const T *y = row_of<const T>(args.y, row, width) + start;
    const T *z = row_of<const T>(args.z, row, width) + start;
    const T *dout = row_of<const T>(args.dout, row, width) + start;
    T *dy = row_of<T>(args.dy, row, width) + start;
    T *dz = row_of<T>(args.dz, row, width) + start;
    T *kept_y = kept, *kept_z = kept + args.columns, *kept_dout = kept + 2 * args.columns;

    float along = 0.0f, squares = 0.0f; // Σ dout·w·t, Σ t²
    for_columns<N>(args.columns, [&](uint32_t column) {
        float a[N], b[N], d[N], w[N];
        load(a, y + column);
        load(b, z + column);
        load(d, dout + column);
        load(w, weight + column);
        store_shared(kept_y + column, a);
        store_shared(kept_z + column, b);
        store_shared(kept_dout + column, d);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float t = a[j] * silu(b[j]);
            along += d[j] * w[j] * t;
            squares += t * t;
        }
    });
    along = warp_sum(along);
    squares = warp_sum(squares);

    const float n = count(args.mask, row, columns);
    if (!(n > 0.0f)) { // out is 0 whatever y and z are
        const float zeros[N] = {};
        for_columns<N>(args.columns, [&](uint32_t column) {
            store(dy + column, zeros);
            store(dz + column, zeros);
        });
        return store_row_sums(args, row, group, columns, 0.0f);
    }
    const float scale = 1.0f / sqrtf(squares / n + args.eps);
    const float cubed = scale * scale * scale * along;
    for_columns<N>(args.columns, [&](uint32_t column) {
        float a[N], b[N], d[N], w[N], dw[N];
        load(a, kept_y + column);
        load(b, kept_z + column);
        load(d, kept_dout + column);
        load(w, weight + column);
        dweight.load(dw, column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float s = sigmoid(b[j]), t = a[j] * b[j] * s;
            dw[j] += d[j] * (t * scale);
            const float dt = d[j] * w[j] * scale - t * (cubed / n);
            d[j] = dt * a[j] * silu_grad(b[j], s);
            a[j] = dt * b[j] * s;
        }
        dweight.store(column, dw);
        store(dy + column, a);
        store(dz + column, d);
    });
    store_row_sums(args, row, group, columns, 0.5f * cubed * squares / (n * n)); // ∂scale/∂n = ½·scale³·Σt²/n²
}

template <typename T, int N>
__device__ void backward_rows(const GatedGroupNormBackward &args, uint32_t first, uint32_t end) {
    float *sums = dynamic_shared<float>();                          // [warp, columns]
    T *weight = reinterpret_cast<T *>(sums + WARPS * args.columns); // [columns]
    T *kept = weight + args.columns;                                // [warp, 3, columns]
    keep_weight<T, N>(weight, static_cast<const T *>(args.weight) + blockIdx.y * args.columns, args.columns);
    PlanarRow<N> dweight(sums + warp() * args.columns, args.columns);
    const float columns = interval_columns(args.mask, blockIdx.y, args.columns, args.head_dim);
    const float zeros[N] = {};
    for_columns<N>(args.columns, [&](uint32_t column) { dweight.store(column, zeros); });
    for (uint32_t row = first + warp(); row < end; row += WARPS)
        backward_row<T, N>(args, row, columns, weight, kept + warp() * 3 * args.columns, dweight);
    __syncthreads();
    float *partials =
        row_of<float>(args.weight_partials, blockIdx.x, args.groups * args.columns) + blockIdx.y * args.columns;
    for (uint32_t column = threadIdx.x * N; column < args.columns; column += THREADS * N) {
        float total[N] = {};
        for (uint32_t w = 0; w < WARPS; w++) {
            float dw[N];
            PlanarRow<N>(sums + w * args.columns, args.columns).load(dw, column);
#pragma unroll
            for (int j = 0; j < N; j++) total[j] += dw[j];
        }
        store(partials + column, total);
    }
}

template <typename T> __device__ void backward(const GatedGroupNormBackward &args) {
    const uint32_t first = blockIdx.x * args.rows_per_block;
    const uint32_t end = min(first + args.rows_per_block, args.rows);
    if (wide_rows<T>(args.columns, args.y, args.z, args.weight, args.dout, args.dy, args.dz, args.weight_partials))
        backward_rows<T, WIDE<T>>(args, first, end);
    else backward_rows<T, 1>(args, first, end);
}

// launch: grid rows/rows_per_block groups, block 256, shared columns*32+columns*dtype
KERNEL(THREADS) gated_group_norm_forward_f32(const __grid_constant__ GatedGroupNormForward args) {
    forward<float>(args);
}
KERNEL(THREADS) gated_group_norm_forward_bf16(const __grid_constant__ GatedGroupNormForward args) {
    forward<bf16>(args);
}

// launch: grid rows/rows_per_block groups, block 256, shared columns*32+columns*dtype*25
KERNEL(THREADS) gated_group_norm_backward_f32(const __grid_constant__ GatedGroupNormBackward args) {
    backward<float>(args);
}
KERNEL(THREADS) gated_group_norm_backward_bf16(const __grid_constant__ GatedGroupNormBackward args) {
    backward<bf16>(args);
}
