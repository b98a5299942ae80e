// y = x·Wᵀ and its gradients, as a ladder: each rung is the one before plus one idea, and all are held against the same
// reference.
//
//   naive        a thread per element                                          device/gemm/naive.cuh
//   tiled        shared memory, 4×4 sums per thread                            device/gemm/tiled.cuh
//   tensor_core  mma.sync and ldmatrix                                         device/gemm/tensor_core.cuh
//   pipelined    cp.async in three stages, swizzled shared memory, epilogues   device/gemm/pipelined.cuh
// and beside it, for up to eight rows:
//   skinny       a warp per column of C, bound by reading B                    device/gemm/skinny.cuh
//
// Layouts: nt is y = x·Wᵀ, nn is dx = dy·W, tn is dW = dyᵀ·x. Sums are f32. tn writes f32, because gradients of weights
// are kept so; nt_wide does for logits. Any M, N, K; rows that do not start on 16 bytes take a slower way in.

#include "device/gemm/epilogue.cuh"
#include "device/gemm/naive.cuh"
#include "device/gemm/pipelined.cuh"
#include "device/gemm/skinny.cuh"
#include "device/gemm/tensor_core.cuh"
#include "device/gemm/tiled.cuh"
#include "device/kernel.cuh"

template <typename T> __device__ Operands<T> operands(const Linear &args) {
    return {static_cast<const T *>(args.a), static_cast<const T *>(args.b), args.lda, args.ldb, args.m, args.n, args.k};
}

template <typename T> __device__ Matrix<T> of_c(void *memory, const Linear &args) {
    return {static_cast<T *>(memory), args.m, args.n, args.ldc};
}

template <typename T> __device__ Store<T> output(const Linear &args) {
    return {of_c<T>(args.c, args), args.accumulate != 0};
}

// ---- naive ----

// launch: grid m/16 n/16, block 256, shared 0
KERNEL(NAIVE_THREADS) linear_naive_nt_f32(const __grid_constant__ Linear args) {
    gemm_naive<Layout::NT>(operands<float>(args), output<float>(args));
}
KERNEL(NAIVE_THREADS) linear_naive_nn_f32(const __grid_constant__ Linear args) {
    gemm_naive<Layout::NN>(operands<float>(args), output<float>(args));
}
KERNEL(NAIVE_THREADS) linear_naive_tn_f32(const __grid_constant__ Linear args) {
    gemm_naive<Layout::TN>(operands<float>(args), output<float>(args));
}
KERNEL(NAIVE_THREADS) linear_naive_nt_bf16(const __grid_constant__ Linear args) {
    gemm_naive<Layout::NT>(operands<bf16>(args), output<bf16>(args));
}
KERNEL(NAIVE_THREADS) linear_naive_nn_bf16(const __grid_constant__ Linear args) {
    gemm_naive<Layout::NN>(operands<bf16>(args), output<bf16>(args));
}
KERNEL(NAIVE_THREADS) linear_naive_tn_bf16(const __grid_constant__ Linear args) {
    gemm_naive<Layout::TN>(operands<bf16>(args), output<float>(args));
}

// ---- tiled ----

// launch: grid m/64 n/64, block 256, shared 0
KERNEL(TILED_THREADS) linear_tiled_nt_f32(const __grid_constant__ Linear args) {
    gemm_tiled<Layout::NT>(operands<float>(args), tile_of_block(), output<float>(args));
}
KERNEL(TILED_THREADS) linear_tiled_nn_f32(const __grid_constant__ Linear args) {
    gemm_tiled<Layout::NN>(operands<float>(args), tile_of_block(), output<float>(args));
}
KERNEL(TILED_THREADS) linear_tiled_tn_f32(const __grid_constant__ Linear args) {
    gemm_tiled<Layout::TN>(operands<float>(args), tile_of_block(), output<float>(args));
}
KERNEL(TILED_THREADS) linear_tiled_nt_bf16(const __grid_constant__ Linear args) {
    gemm_tiled<Layout::NT>(operands<bf16>(args), tile_of_block(), output<bf16>(args));
}
KERNEL(TILED_THREADS) linear_tiled_nn_bf16(const __grid_constant__ Linear args) {
    gemm_tiled<Layout::NN>(operands<bf16>(args), tile_of_block(), output<bf16>(args));
}
KERNEL(TILED_THREADS) linear_tiled_tn_bf16(const __grid_constant__ Linear args) {
    gemm_tiled<Layout::TN>(operands<bf16>(args), tile_of_block(), output<float>(args));
}

// ---- tensor_core ----

// launch: grid m/128 n/128, block 256, shared 0
KERNEL(GEMM_THREADS, 2) linear_tensor_core_nt_bf16(const __grid_constant__ Linear args) {
    gemm_tensor_core<Layout::NT>(operands<bf16>(args), tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 2) linear_tensor_core_nn_bf16(const __grid_constant__ Linear args) {
    gemm_tensor_core<Layout::NN>(operands<bf16>(args), tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 2) linear_tensor_core_tn_bf16(const __grid_constant__ Linear args) {
    gemm_tensor_core<Layout::TN>(operands<bf16>(args), tile_of_block(), output<float>(args));
}

// ---- skinny ----

// launch: grid n/8, block 256, shared 0
KERNEL(SKINNY_THREADS) linear_skinny_nt_f32(const __grid_constant__ Linear args) {
    gemm_skinny(operands<float>(args), output<float>(args));
}
KERNEL(SKINNY_THREADS) linear_skinny_nt_bf16(const __grid_constant__ Linear args) {
    gemm_skinny(operands<bf16>(args), output<bf16>(args));
}

// ---- pipelined ----

// launch: grid m/128 n/128, block 256, shared 49152
KERNEL(GEMM_THREADS, 2) linear_pipelined_nt_bf16(const __grid_constant__ Linear args) {
    gemm_pipelined<Layout::NT>(operands<bf16>(args), tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 2) linear_pipelined_nt_wide_bf16(const __grid_constant__ Linear args) {
    gemm_pipelined<Layout::NT>(operands<bf16>(args), tile_of_block(), output<float>(args));
}
KERNEL(GEMM_THREADS, 2) linear_pipelined_nn_bf16(const __grid_constant__ Linear args) {
    gemm_pipelined<Layout::NN>(operands<bf16>(args), tile_of_block(), output<bf16>(args));
}
KERNEL(GEMM_THREADS, 2) linear_pipelined_tn_bf16(const __grid_constant__ Linear args) {
    gemm_pipelined<Layout::TN>(operands<bf16>(args), tile_of_block(), output<float>(args));
}

// launch: grid product.m/128 product.n/128, block 256, shared 49152
KERNEL(GEMM_THREADS, 2) linear_pipelined_nt_relu2_bf16(const __grid_constant__ LinearRelu2 args) {
    const Linear &p = args.product;
    const Relu2<bf16> epilogue = {of_c<bf16>(p.c, p), of_c<bf16>(args.raw, p), args.raw != nullptr, args.mask, 0};
    gemm_pipelined<Layout::NT>(operands<bf16>(p), tile_of_block(), epilogue);
}
KERNEL(GEMM_THREADS, 2) linear_pipelined_nt_residual_bf16(const __grid_constant__ LinearResidual args) {
    const Linear &p = args.product;
    const Matrix<const bf16> h(static_cast<const bf16 *>(args.h), p.m, p.n, p.ldc);
    const ResidualAdd<bf16> epilogue = {
        of_c<bf16>(p.c, p), of_c<bf16>(args.raw, p), args.raw != nullptr, h, args.hidden, args.gate};
    gemm_pipelined<Layout::NT>(operands<bf16>(p), tile_of_block(), epilogue);
}
