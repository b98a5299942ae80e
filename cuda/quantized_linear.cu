// y = x·Wᵀ and its gradients with quantised operands (quantize.cu), f32 sums. This is the portable form, which widens
// to bf16; forms for tensor cores that take 8-bit and 4-bit floats are further variants of the same op.
//
// nt: A by rows, B by rows or squares; nn: A by rows, B by squares; tn: both by columns.

#include "device/gemm/epilogue.cuh"
#include "device/gemm/quantized.cuh"
#include "device/kernel.cuh"

template <typename T> __device__ Store<T> output(const QuantizedLinear &args) {
    return {{static_cast<T *>(args.c), args.m, args.n, args.ldc}, args.accumulate != 0};
}

// launch: grid m/128 n/128, block 256, shared 32768
KERNEL(GEMM_THREADS, 1) quantized_linear_fp8_nt_f32(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NT, Encoding::FP8>(args, tile_of_block(), output<float>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_fp8_nt_bf16(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NT, Encoding::FP8>(args, tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_fp8_nn_f32(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NN, Encoding::FP8>(args, tile_of_block(), output<float>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_fp8_nn_bf16(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NN, Encoding::FP8>(args, tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_fp8_tn_f32(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::TN, Encoding::FP8>(args, tile_of_block(), output<float>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_nvfp4_nt_f32(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NT, Encoding::NVFP4>(args, tile_of_block(), output<float>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_nvfp4_nt_bf16(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NT, Encoding::NVFP4>(args, tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_nvfp4_nn_f32(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NN, Encoding::NVFP4>(args, tile_of_block(), output<float>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_nvfp4_nn_bf16(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::NN, Encoding::NVFP4>(args, tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 1) quantized_linear_nvfp4_tn_f32(const __grid_constant__ QuantizedLinear args) {
    gemm_quantized<Layout::TN, Encoding::NVFP4>(args, tile_of_block(), output<float>(args));
}
