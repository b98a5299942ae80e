// One product of quantised operands per expert over rows sorted by expert (grouped_gemm.cu, quantized_linear.cu): each
// block finds its expert, and takes its part of the operands as a product of its own.
//
// nt is y = x·W_eᵀ, nn is dx = dy·W_e, tn is dW_e = dyᵀ·x. Where the experts' rows lie is known on the device alone.
// Rows behind the last expert's have K = 0: they are not read, and their outputs are 0.

#include "device/gemm/epilogue.cuh"
#include "device/gemm/quantized.cuh"
#include "device/gemm/stretch.cuh"
#include "device/kernel.cuh"

/// The operand from this row on, the first of a block of scales.
template <Encoding ENCODING>
__device__ QuantizedOperand from_row(const QuantizedOperand &all, uint32_t row, uint32_t columns) {
    constexpr bool FP8 = ENCODING == Encoding::FP8;
    QuantizedOperand part = all;
    const uint32_t bytes = FP8 ? columns : (columns + 1) / 2;
    const uint32_t scales = (columns + all.block_columns - 1) / all.block_columns * (FP8 ? sizeof(float) : 1);
    part.codes = static_cast<const uint8_t *>(all.codes) + uint64_t(row) * bytes;
    part.scales = static_cast<const uint8_t *>(all.scales) + uint64_t(row / all.block_rows) * scales;
    return part;
}

template <Layout LAYOUT, Encoding ENCODING, typename T> __device__ void of_rows(const QuantizedGroupedGemm &args) {
    Stretch stretch;
    if (!stretch_of_block(args, stretch)) return;
    QuantizedLinear product;
    product.m = stretch.rows;
    product.n = args.n;
    product.k = stretch.owned ? args.k : 0;
    product.a = from_row<ENCODING>(args.a, stretch.first, args.k);
    const uint32_t row = stretch.owned ? stretch.expert * args.stride : 0;
    product.b = from_row<ENCODING>(args.b, row, LAYOUT == Layout::NT ? args.k : args.n);
    T *c = static_cast<T *>(args.c) + uint64_t(stretch.first) * args.n;
    const Store<T> epilogue = {{c, stretch.rows, args.n, args.n}, false};
    gemm_quantized<LAYOUT, ENCODING>(product, stretch.tile, epilogue);
}

/// Of expert blockIdx.z: its rows are what the product sums over.
template <Encoding ENCODING> __device__ void of_weights(const QuantizedGroupedWeights &args) {
    const uint32_t edge = ENCODING == Encoding::FP8 ? FP8_BLOCK : FP4_BLOCK;
    const uint32_t first = args.tiles[blockIdx.z] * edge;
    QuantizedLinear product;
    product.m = args.m;
    product.n = args.n;
    product.k = args.tiles[blockIdx.z + 1] * edge - first;
    product.a = from_row<ENCODING>(args.dy, first, args.m);
    product.b = from_row<ENCODING>(args.x, first, args.n);
    float *dw = args.dw + blockIdx.z * (uint64_t(args.m) * args.n);
    const Store<float> epilogue = {{dw, args.m, args.n, args.n}, args.accumulate != 0};
    gemm_quantized<Layout::TN, ENCODING>(product, tile_of_block(), epilogue);
}

// launch: grid rows/128+experts+1 n/128, block 256, shared 32768
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_fp8_nt_f32(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NT, Encoding::FP8, float>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_fp8_nt_bf16(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NT, Encoding::FP8, bf16>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_fp8_nn_f32(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NN, Encoding::FP8, float>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_fp8_nn_bf16(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NN, Encoding::FP8, bf16>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_nvfp4_nt_f32(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NT, Encoding::NVFP4, float>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_nvfp4_nt_bf16(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NT, Encoding::NVFP4, bf16>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_nvfp4_nn_f32(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NN, Encoding::NVFP4, float>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_nvfp4_nn_bf16(const __grid_constant__ QuantizedGroupedGemm args) {
    of_rows<Layout::NN, Encoding::NVFP4, bf16>(args);
}

// launch: grid m/128 n/128 experts, block 256, shared 32768
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_fp8_tn_f32(const __grid_constant__ QuantizedGroupedWeights args) {
    of_weights<Encoding::FP8>(args);
}
KERNEL(GEMM_THREADS, 1) quantized_grouped_gemm_nvfp4_tn_f32(const __grid_constant__ QuantizedGroupedWeights args) {
    of_weights<Encoding::NVFP4>(args);
}
