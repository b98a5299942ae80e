// From f32 or bf16 to 8-bit and 4-bit floats with a scale per block. The bits are those of src/ops/quantize.
//
// FP8 (arXiv 2209.05433): code = round(x / scale), scale = largest / 448 (e4m3) or / 57344 (e5m2), one per 1×128, 128×1
// or 128×128 elements, as in DeepSeek-V3 (arXiv 2412.19437). NVFP4 (arXiv 2509.25149): e2m1 values, two in a byte, the
// first in its lower half; a scale in e4m3 per 1×16, 16×1 or 16×16, and one f32 scale for the tensor, so that
// x = code·scale·tensor scale. `amax` and `tensor_scale` find the latter.
//
// A block with a NaN or an infinity decodes to NaN throughout: what is broken shows.

#include "device/kernel.cuh"
#include "device/quantize/tile.cuh"
#include "device/vector.cuh"

constexpr uint32_t AMAX_ELEMENTS = 16384; // of a block

template <typename T> __device__ Matrix<const T> input(const Quantize &args) {
    return {static_cast<const T *>(args.x), args.rows, args.width, args.width};
}

/// Four codes of a row, a byte each.
__device__ inline void store_bytes(const Quantize &args, uint32_t row, uint32_t column, const uint8_t (&code)[QUAD]) {
    uint8_t *to = static_cast<uint8_t *>(args.codes) + uint64_t(row) * args.width + column;
    if (args.width % QUAD == 0) {
        *reinterpret_cast<uchar4 *>(to) = make_uchar4(code[0], code[1], code[2], code[3]);
    } else {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            if (column + j < args.width) to[j] = code[j];
        }
    }
}

/// Four codes of a row in two bytes. Behind the last column they are 0.
__device__ inline void store_nibbles(const Quantize &args, uint32_t row, uint32_t column, const uint8_t (&code)[QUAD]) {
    const uint32_t bytes = (args.width + 1) / 2;
    uint8_t *to = static_cast<uint8_t *>(args.codes) + uint64_t(row) * bytes + column / 2;
    const uint8_t low = uint8_t(code[0] | code[1] << 4), high = uint8_t(code[2] | code[3] << 4);
    if (bytes % 2 == 0) {
        *reinterpret_cast<uchar2 *>(to) = make_uchar2(low, high);
    } else {
        to[0] = low;
        if (column + 2 < args.width) to[1] = high;
    }
}

// ---- FP8 ----

__device__ inline void fp8_row(const Quantize &args, uint32_t row, const float (&x)[QUAD], const float (&scale)[QUAD]) {
    const uint32_t column = first_column();
    const Dice dice(args, row, column);
    uint8_t code[QUAD];
#pragma unroll
    for (int j = 0; j < QUAD; j++) code[j] = encode_fp8(x[j] / scale[j], args.format, dice[j]);
    if (row < args.rows && column < args.width) store_bytes(args, row, column, code);
}

/// A scale per row of the tile: a warp finds it without help.
template <typename T> __device__ void fp8_rows(const Quantize &args) {
    const Matrix<const T> x = input<T>(args);
    float *scales = static_cast<float *>(args.scales); // [R, ⌈W / 128⌉]
#pragma unroll 1
    for (uint32_t row = first_row(); row < min(first_row() + TILE_ROWS, args.rows); row++) {
        float v[QUAD];
        x.load(v, row, first_column());
        const float one = fp8_scale(__reduce_max_sync(ALL_LANES, quad_largest(v)), args.format);
        if (lane() == 0) scales[uint64_t(row) * gridDim.y + blockIdx.y] = one;
        const float scale[QUAD] = {one, one, one, one};
        fp8_row(args, row, v, scale);
    }
}

/// The largest of each of the thread's columns, or of all, over the warps of the block.
template <Blocks BLOCKS> __device__ void across_warps(uint32_t (&largest)[QUAD]) {
    constexpr uint32_t WARPS = QUANTIZE_THREADS / WARP;
    __shared__ __align__(16) uint32_t of_warp[WARPS][QUANTIZE_EDGE];
    if (BLOCKS == Blocks::SQUARES) {
        const uint32_t all = __reduce_max_sync(ALL_LANES, largest_of(largest));
        largest[0] = largest[1] = largest[2] = largest[3] = all;
    }
    store_words<Space::SHARED>(&of_warp[warp()][lane() * QUAD], largest);
    __syncthreads();
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++) {
        uint32_t other[QUAD];
        load_words(other, &of_warp[w][lane() * QUAD]);
#pragma unroll
        for (int j = 0; j < QUAD; j++) largest[j] = max(largest[j], other[j]);
    }
}

template <typename T, Blocks BLOCKS> __device__ void fp8_tile(const Quantize &args) {
    Kept kept(dynamic_shared<float>());
    uint32_t largest[QUAD];
    read_tile(input<T>(args), kept, largest);
    across_warps<BLOCKS>(largest);
    float scale[QUAD];
#pragma unroll
    for (int j = 0; j < QUAD; j++) scale[j] = fp8_scale(largest[j], args.format);
    float *scales = static_cast<float *>(args.scales);
    if (BLOCKS == Blocks::SQUARES) { // [⌈R / 128⌉, ⌈W / 128⌉]
        if (threadIdx.x == 0) scales[uint64_t(blockIdx.x) * gridDim.y + blockIdx.y] = scale[0];
    } else if (warp() == 0) { // [⌈R / 128⌉, W]
        Matrix<float>(scales, gridDim.x, args.width, args.width).store(blockIdx.x, first_column(), scale);
    }
#pragma unroll 1
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        float v[QUAD];
        kept.load(v, r);
        fp8_row(args, first_row() + r, v, scale);
    }
}

// launch: grid rows/128 width/128, block 256, shared 0
KERNEL(QUANTIZE_THREADS) quantize_fp8_rows_f32(const __grid_constant__ Quantize args) { fp8_rows<float>(args); }
KERNEL(QUANTIZE_THREADS) quantize_fp8_rows_bf16(const __grid_constant__ Quantize args) { fp8_rows<bf16>(args); }

// launch: grid rows/128 width/128, block 256, shared 65536
KERNEL(QUANTIZE_THREADS) quantize_fp8_columns_f32(const __grid_constant__ Quantize args) {
    fp8_tile<float, Blocks::COLUMNS>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_fp8_columns_bf16(const __grid_constant__ Quantize args) {
    fp8_tile<bf16, Blocks::COLUMNS>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_fp8_squares_f32(const __grid_constant__ Quantize args) {
    fp8_tile<float, Blocks::SQUARES>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_fp8_squares_bf16(const __grid_constant__ Quantize args) {
    fp8_tile<bf16, Blocks::SQUARES>(args);
}

// ---- NVFP4 ----

/// The largest magnitude of AMAX_ELEMENTS elements, as its bits.
template <typename T, int N> __device__ uint32_t largest_in(const QuantizeAmax &args) {
    const uint64_t first = uint64_t(blockIdx.x) * AMAX_ELEMENTS, end = min(first + AMAX_ELEMENTS, args.elements);
    uint32_t largest = 0;
    for (uint64_t i = first + threadIdx.x * N; i < end; i += QUANTIZE_THREADS * N) {
        float x[N];
        load(x, static_cast<const T *>(args.x) + i);
#pragma unroll
        for (int j = 0; j < N; j++) largest = max(largest, magnitude_bits(x[j]));
    }
    return largest;
}

/// The largest over a block of threads, in the first.
__device__ inline uint32_t block_largest(uint32_t x) {
    __shared__ uint32_t of_warp[QUANTIZE_THREADS / WARP];
    x = __reduce_max_sync(ALL_LANES, x);
    if (lane() == 0) of_warp[warp()] = x;
    __syncthreads();
    return __reduce_max_sync(ALL_LANES, of_warp[lane() % (QUANTIZE_THREADS / WARP)]);
}

template <typename T> __device__ void amax(const QuantizeAmax &args) {
    const bool wide = reinterpret_cast<uintptr_t>(args.x) % 16 == 0 && args.elements % WIDE<T> == 0;
    const uint32_t largest = block_largest(wide ? largest_in<T, WIDE<T>>(args) : largest_in<T, 1>(args));
    if (threadIdx.x == 0) args.partials[blockIdx.x] = largest;
}

// launch: grid elements/16384, block 256, shared 0
KERNEL(QUANTIZE_THREADS) quantize_amax_f32(const __grid_constant__ QuantizeAmax args) { amax<float>(args); }
KERNEL(QUANTIZE_THREADS) quantize_amax_bf16(const __grid_constant__ QuantizeAmax args) { amax<bf16>(args); }

// launch: grid 1, block 256, shared 0
KERNEL(QUANTIZE_THREADS) quantize_tensor_scale_f32(const __grid_constant__ QuantizeTensorScale args) {
    uint32_t largest = 0;
    for (uint32_t i = threadIdx.x; i < args.count; i += QUANTIZE_THREADS) largest = max(largest, args.partials[i]);
    largest = block_largest(largest);
    if (threadIdx.x == 0) *args.tensor_scale = fp4_tensor_scale(largest);
}

__device__ inline void
nvfp4_row(const Quantize &args, uint32_t row, const float (&x)[QUAD], const float (&unit)[QUAD]) {
    const uint32_t column = first_column();
    const Dice dice(args, row, column);
    uint8_t code[QUAD];
#pragma unroll
    for (int j = 0; j < QUAD; j++) code[j] = column + j < args.width ? encode_fp4(x[j], unit[j], dice[j]) : uint8_t(0);
    if (row < args.rows && column < args.width) store_nibbles(args, row, column, code);
}

template <typename T> __device__ void nvfp4_rows(const Quantize &args) {
    const Matrix<const T> x = input<T>(args);
    const float of_tensor = *args.tensor_scale;
    const uint32_t blocks = (args.width + FP4_BLOCK - 1) / FP4_BLOCK, block = first_column() / FP4_BLOCK;
    uint8_t *scales = static_cast<uint8_t *>(args.scales); // [R, ⌈W / 16⌉]
#pragma unroll 1
    for (uint32_t row = first_row(); row < min(first_row() + TILE_ROWS, args.rows); row++) {
        float v[QUAD];
        x.load(v, row, first_column());
        const uint8_t scale = fp4_scale(largest_of_four_lanes(quad_largest(v)), of_tensor);
        if (lane() % 4 == 0 && block < blocks) scales[uint64_t(row) * blocks + block] = scale;
        const float one = fp4_unit(scale, of_tensor), unit[QUAD] = {one, one, one, one};
        nvfp4_row(args, row, v, unit);
    }
}

/// A warp's sixteen rows are those of a block.
template <typename T, Blocks BLOCKS> __device__ void nvfp4_tile(const Quantize &args) {
    if (first_row() >= args.rows) return;
    Kept kept(dynamic_shared<float>());
    uint32_t largest[QUAD];
    read_tile(input<T>(args), kept, largest);
    const float of_tensor = *args.tensor_scale;
    const uint32_t block_row = first_row() / TILE_ROWS;
    uint8_t *scales = static_cast<uint8_t *>(args.scales);
    uint8_t scale[QUAD];
    if (BLOCKS == Blocks::SQUARES) { // [⌈R / 16⌉, ⌈W / 16⌉]
        const uint32_t blocks = (args.width + FP4_BLOCK - 1) / FP4_BLOCK, block = first_column() / FP4_BLOCK;
        scale[0] = scale[1] = scale[2] = scale[3] = fp4_scale(largest_of_four_lanes(largest_of(largest)), of_tensor);
        if (lane() % 4 == 0 && block < blocks) scales[uint64_t(block_row) * blocks + block] = scale[0];
    } else { // [⌈R / 16⌉, W]
#pragma unroll
        for (int j = 0; j < QUAD; j++) scale[j] = fp4_scale(largest[j], of_tensor);
        Quantize as_bytes = args;
        as_bytes.codes = args.scales;
        if (first_column() < args.width) store_bytes(as_bytes, block_row, first_column(), scale);
    }
    float unit[QUAD];
#pragma unroll
    for (int j = 0; j < QUAD; j++) unit[j] = fp4_unit(scale[j], of_tensor);
#pragma unroll 1
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        float v[QUAD];
        kept.load(v, r);
        nvfp4_row(args, first_row() + r, v, unit);
    }
}

// launch: grid rows/128 width/128, block 256, shared 0
KERNEL(QUANTIZE_THREADS) quantize_nvfp4_rows_f32(const __grid_constant__ Quantize args) { nvfp4_rows<float>(args); }
KERNEL(QUANTIZE_THREADS) quantize_nvfp4_rows_bf16(const __grid_constant__ Quantize args) { nvfp4_rows<bf16>(args); }

// launch: grid rows/128 width/128, block 256, shared 65536
KERNEL(QUANTIZE_THREADS) quantize_nvfp4_columns_f32(const __grid_constant__ Quantize args) {
    nvfp4_tile<float, Blocks::COLUMNS>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_nvfp4_columns_bf16(const __grid_constant__ Quantize args) {
    nvfp4_tile<bf16, Blocks::COLUMNS>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_nvfp4_squares_f32(const __grid_constant__ Quantize args) {
    nvfp4_tile<float, Blocks::SQUARES>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_nvfp4_squares_bf16(const __grid_constant__ Quantize args) {
    nvfp4_tile<bf16, Blocks::SQUARES>(args);
}

// ---- Hadamard ----

/// Signs that make the transform random, fixed for good: bit i belongs to row i of sixteen.
constexpr uint32_t HADAMARD_SIGNS = 0b1011001110001011;

/// Sixteen rows r of each column become Σ_r ±x[r]·sign[r] / 4, which spreads an outlier over its block. A product of
/// two matrices that are both transformed along its depth is that of the matrices.
__device__ inline void transform(float (&v)[FP4_BLOCK][QUAD]) {
#pragma unroll
    for (uint32_t r = 0; r < FP4_BLOCK; r++) {
#pragma unroll
        for (int j = 0; j < QUAD; j++) v[r][j] *= HADAMARD_SIGNS >> r & 1 ? -0.25f : 0.25f;
    }
#pragma unroll
    for (uint32_t distance = 1; distance < FP4_BLOCK; distance *= 2) {
#pragma unroll
        for (uint32_t r = 0; r < FP4_BLOCK; r++) {
            if (r & distance) continue;
#pragma unroll
            for (int j = 0; j < QUAD; j++) {
                const float a = v[r][j], b = v[r + distance][j];
                v[r][j] = a + b;
                v[r + distance][j] = a - b;
            }
        }
    }
}

/// Sixteen rows of x from `from` on, of which those behind its last count as zeros, to rows `to` … of y.
template <typename T, bool TRANSFORMED>
__device__ void sixteen_rows(const Matrix<const T> &x, uint32_t from, T *y, uint32_t to) {
    const uint32_t column = (blockIdx.y * QUANTIZE_THREADS + threadIdx.x) * QUAD;
    const Matrix<T> out(y, to + FP4_BLOCK, x.columns, x.columns);
    if (column >= x.columns) return;
    float v[FP4_BLOCK][QUAD];
#pragma unroll
    for (uint32_t r = 0; r < FP4_BLOCK; r++) x.load(v[r], from + r, column);
    if (TRANSFORMED) transform(v);
#pragma unroll
    for (uint32_t r = 0; r < FP4_BLOCK; r++) out.store(to + r, column, v[r]);
}

template <typename T> __device__ void hadamard(const QuantizeHadamard &args) {
    const Matrix<const T> x(static_cast<const T *>(args.x), args.rows, args.width, args.width);
    const uint32_t row = blockIdx.x * FP4_BLOCK;
    sixteen_rows<T, true>(x, row, static_cast<T *>(args.y), row);
}

// launch: grid rows/16 width/1024, block 256, shared 0
KERNEL(QUANTIZE_THREADS) quantize_hadamard_f32(const __grid_constant__ QuantizeHadamard args) { hadamard<float>(args); }
KERNEL(QUANTIZE_THREADS) quantize_hadamard_bf16(const __grid_constant__ QuantizeHadamard args) { hadamard<bf16>(args); }

// ---- Rows of several experts ----

/// The expert whose tile this is: tiles[expert] ≤ tile < tiles[expert + 1]; E behind the last.
__device__ inline uint32_t expert_of(const QuantizeStretches &args, uint32_t tile) {
    uint32_t low = 0, high = args.experts; // the answer lies in low … high
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (args.tiles[middle + 1] <= tile) low = middle + 1;
        else high = middle;
    }
    return low;
}

template <typename T, bool TRANSFORMED> __device__ void stretches(const QuantizeStretches &args) {
    const uint32_t to = blockIdx.x * FP4_BLOCK, expert = expert_of(args, to / args.edge);
    const bool owned = expert < args.experts;
    const uint32_t first = owned ? args.offsets[expert] : 0, rows = owned ? args.offsets[expert + 1] - first : 0;
    const uint32_t from = owned ? to - args.tiles[expert] * args.edge : 0;
    const T *x = static_cast<const T *>(args.x) + uint64_t(first) * args.width;
    sixteen_rows<T, TRANSFORMED>({x, rows, args.width, args.width}, from, static_cast<T *>(args.y), to);
}

// launch: grid rows/16 width/1024, block 256, shared 0
KERNEL(QUANTIZE_THREADS) quantize_stretches_f32(const __grid_constant__ QuantizeStretches args) {
    stretches<float, false>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_stretches_bf16(const __grid_constant__ QuantizeStretches args) {
    stretches<bf16, false>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_hadamard_stretches_f32(const __grid_constant__ QuantizeStretches args) {
    stretches<float, true>(args);
}
KERNEL(QUANTIZE_THREADS) quantize_hadamard_stretches_bf16(const __grid_constant__ QuantizeStretches args) {
    stretches<bf16, true>(args);
}
