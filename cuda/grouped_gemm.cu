// One matrix product per expert over rows sorted by expert. Where the experts' rows lie is known on the device alone,
// so the grid covers the worst case: `tiles` tells each block whose tile it has, and blocks without one leave.
//
// nt is y = x·W_eᵀ, nn is dx = dy·W_e, tn is dW_e = dyᵀ·x. Rows behind the last expert's are a stretch of their own
// with K = 0: they are not read, and their outputs are 0. An expert without rows has the weight gradient 0 in the same
// way.

#include "device/gemm/epilogue.cuh"
#include "device/gemm/pipelined.cuh"
#include "device/gemm/stretch.cuh"
#include "device/gemm/tiled.cuh"
#include "device/kernel.cuh"

/// tiles[s] = tiles in front of stretch s: one per expert, then the rows behind. One block.
// launch: grid 1, block 1024, shared 0
KERNEL(1024) grouped_gemm_tiles_u32(const __grid_constant__ GroupedTiles args) {
    const uint32_t s = threadIdx.x;
    if (s > args.experts + 1) return;
    uint32_t sum = 0;
    for (uint32_t t = 0; t < s; t++) {
        const uint32_t end = t < args.experts ? args.offsets[t + 1] : args.rows;
        sum += (end - args.offsets[t] + args.edge - 1) / args.edge;
    }
    args.tiles[s] = sum;
}

/// The stretch's product: x or dy times the expert's matrix, whose rows are `ldb` long.
template <typename T>
__device__ Operands<T> of_stretch(const GroupedGemm &args, const Stretch &stretch, uint64_t expert_size, uint32_t ldb) {
    const uint32_t k = stretch.owned ? args.k : 0;
    const T *b = static_cast<const T *>(args.b) + (stretch.owned ? stretch.expert * expert_size : 0);
    return {row_of<const T>(args.a, stretch.first, args.k), b, args.k, ldb, stretch.rows, args.n, k};
}

template <typename T>
__device__ Matrix<T> rows_of_stretch(void *memory, const GroupedGemm &args, const Stretch &stretch) {
    return {row_of<T>(memory, stretch.first, args.n), stretch.rows, args.n, args.n};
}

template <Layout LAYOUT, typename T>
__device__ Operands<T> rows_operands(const GroupedGemm &args, const Stretch &stretch) {
    return of_stretch<T>(args, stretch, uint64_t(args.n) * args.k, LAYOUT == Layout::NT ? args.k : args.n);
}

/// The weight gradient of expert blockIdx.z: its rows are what the product sums over.
template <typename T> __device__ Operands<T> weight_operands(const GroupedWeights &args) {
    const uint32_t first = args.offsets[blockIdx.z], rows = args.offsets[blockIdx.z + 1] - first;
    return {row_of<const T>(args.dy, first, args.m), row_of<const T>(args.x, first, args.n), args.m, args.n, args.m,
        args.n, rows};
}

__device__ inline Store<float> weight_output(const GroupedWeights &args) {
    float *dw = args.dw + blockIdx.z * (uint64_t(args.m) * args.n);
    return {Matrix<float>(dw, args.m, args.n, args.n), args.accumulate != 0};
}

// ---- tiled: f32 ----

template <Layout LAYOUT> __device__ void tiled_rows(const GroupedGemm &args) {
    Stretch stretch;
    if (!stretch_of_block(args, stretch)) return;
    const Store<float> epilogue = {rows_of_stretch<float>(args.c, args, stretch), false};
    gemm_tiled<LAYOUT>(rows_operands<LAYOUT, float>(args, stretch), stretch.tile, epilogue);
}

// launch: grid rows/64+experts+1 n/64, block 256, shared 0
KERNEL(TILED_THREADS) grouped_gemm_tiled_nt_f32(const __grid_constant__ GroupedGemm args) {
    tiled_rows<Layout::NT>(args);
}
KERNEL(TILED_THREADS) grouped_gemm_tiled_nn_f32(const __grid_constant__ GroupedGemm args) {
    tiled_rows<Layout::NN>(args);
}

// launch: grid m/64 n/64 experts, block 256, shared 0
KERNEL(TILED_THREADS) grouped_gemm_tiled_tn_f32(const __grid_constant__ GroupedWeights args) {
    gemm_tiled<Layout::TN>(weight_operands<float>(args), tile_of_block(), weight_output(args));
}

// ---- pipelined: bf16 on the tensor cores ----

template <Layout LAYOUT> __device__ void pipelined_rows(const GroupedGemm &args) {
    Stretch stretch;
    if (!stretch_of_block(args, stretch)) return;
    const Store<bf16> epilogue = {rows_of_stretch<bf16>(args.c, args, stretch), false};
    gemm_pipelined<LAYOUT>(rows_operands<LAYOUT, bf16>(args, stretch), stretch.tile, epilogue);
}

// launch: grid rows/128+experts+1 n/128, block 256, shared 49152
KERNEL(GEMM_THREADS, 2) grouped_gemm_pipelined_nt_bf16(const __grid_constant__ GroupedGemm args) {
    pipelined_rows<Layout::NT>(args);
}
KERNEL(GEMM_THREADS, 2) grouped_gemm_pipelined_nn_bf16(const __grid_constant__ GroupedGemm args) {
    pipelined_rows<Layout::NN>(args);
}

// launch: grid product.rows/128+product.experts+1 product.n/128, block 256, shared 49152
KERNEL(GEMM_THREADS, 2) grouped_gemm_pipelined_nt_relu2_bf16(const __grid_constant__ GroupedRelu2 args) {
    Stretch stretch;
    if (!stretch_of_block(args.product, stretch)) return;
    const Relu2<bf16> epilogue = {rows_of_stretch<bf16>(args.product.c, args.product, stretch),
        rows_of_stretch<bf16>(args.raw, args.product, stretch), args.raw != nullptr, args.mask, stretch.first};
    gemm_pipelined<Layout::NT>(rows_operands<Layout::NT, bf16>(args.product, stretch), stretch.tile, epilogue);
}

// launch: grid m/128 n/128 experts, block 256, shared 49152
KERNEL(GEMM_THREADS, 2) grouped_gemm_pipelined_tn_bf16(const __grid_constant__ GroupedWeights args) {
    gemm_pipelined<Layout::TN>(weight_operands<bf16>(args), tile_of_block(), weight_output(args));
}
