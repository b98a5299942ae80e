// The selective state-space recurrence of Mamba-2 (Dao & Gu, "Transformers are SSMs", arXiv 2405.21060 §6):
// S_t = exp(dt·A)·S_{t−1} + dt·x_t ⊗ B_t, y_t = C_t·S_t + D·x_t per head; heads of a group share B and C. A ladder:
//
//   recurrent    row after row, no gradients; for single tokens   device/scan/recurrent.cuh
//   chunked      f32 arithmetic on chunks of 32 rows              device/scan/chunked.cuh
//   tensor_core  mma.sync in bf16 on chunks of 64 rows            device/scan/tensor_core.cuh, tensor_core_gradient.cuh
//   pipelined    the same, the next chunk on its way (forward)    device/scan/tensor_core.cuh
//
// The gradients of B, C and the mask have second passes, device/scan/sums.cuh.

#include "device/kernel.cuh"
#include "device/scan/chunked.cuh"
#include "device/scan/recurrent.cuh"
#include "device/scan/sums.cuh"
#include "device/scan/tensor_core_gradient.cuh"

// launch: grid scan.heads scan.segments, block 256, shared 0
KERNEL(RECURRENT_THREADS) ssd_scan_recurrent_forward_f32(const __grid_constant__ ScanForward args) {
    recurrent_forward<float>(args);
}
KERNEL(RECURRENT_THREADS) ssd_scan_recurrent_forward_bf16(const __grid_constant__ ScanForward args) {
    recurrent_forward<bf16>(args);
}

// launch: grid scan.heads scan.segments, block 256, shared
// scan.head_dim*scan.state*4+scan.head_dim*132+scan.state*256+4608
KERNEL(CHUNKED_THREADS, 1) ssd_scan_chunked_forward_f32(const __grid_constant__ ScanForward args) {
    chunked_forward<float>(args);
}
KERNEL(CHUNKED_THREADS, 1) ssd_scan_chunked_forward_bf16(const __grid_constant__ ScanForward args) {
    chunked_forward<bf16>(args);
}

// launch: grid scan.heads scan.segments, block 256, shared
// scan.head_dim*scan.state*4+scan.head_dim*260+scan.state*256+8960
KERNEL(CHUNKED_THREADS, 1) ssd_scan_chunked_backward_f32(const __grid_constant__ ScanBackward args) {
    chunked_backward<float>(args);
}
KERNEL(CHUNKED_THREADS, 1) ssd_scan_chunked_backward_bf16(const __grid_constant__ ScanBackward args) {
    chunked_backward<bf16>(args);
}

// launch: grid scan.heads scan.segments, block 128, shared scan.state/64*32768+8192
KERNEL(SCAN_THREADS, 2) ssd_scan_tensor_core_forward_bf16(const __grid_constant__ ScanForward args) {
    __shared__ ChunkRows chunk;
    if (args.scan.state <= 64) tensor_core_forward<64, Prefetch::NO>(args, chunk);
    else tensor_core_forward<128, Prefetch::NO>(args, chunk);
}

// launch: grid scan.heads scan.segments, block 128, shared scan.state/64*40960+16384
KERNEL(SCAN_THREADS, 2) ssd_scan_pipelined_forward_bf16(const __grid_constant__ ScanForward args) {
    __shared__ ChunkRows chunk;
    if (args.scan.state <= 64) tensor_core_forward<64, Prefetch::YES>(args, chunk);
    else tensor_core_forward<128, Prefetch::YES>(args, chunk);
}

// launch: grid scan.heads scan.segments, block 128, shared scan.state/64*40960+16384
KERNEL(SCAN_THREADS, 2) ssd_scan_tensor_core_backward_bf16(const __grid_constant__ ScanBackward args) {
    __shared__ ChunkRows chunk;
    __shared__ ChunkGradients sums;
    if (args.scan.state <= 64) tensor_core_backward<64>(args, chunk, sums);
    else tensor_core_backward<128>(args, chunk, sums);
}

// launch: grid scan.rows*scan.groups*scan.state/256, block 256, shared 0
KERNEL(SUM_THREADS) ssd_scan_group_sum_f32(const __grid_constant__ ScanBackward args) { group_sum<float>(args); }
KERNEL(SUM_THREADS) ssd_scan_group_sum_bf16(const __grid_constant__ ScanBackward args) { group_sum<bf16>(args); }

// launch: grid rows/8, block 256, shared mask.candidates*1024
KERNEL(SUM_THREADS) ssd_scan_mask_grad_f32(const __grid_constant__ ScanMaskGrad args) { mask_grad<float>(args); }
KERNEL(SUM_THREADS) ssd_scan_mask_grad_bf16(const __grid_constant__ ScanMaskGrad args) { mask_grad<bf16>(args); }
