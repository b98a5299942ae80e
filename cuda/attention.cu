// Causal grouped-query attention (Ainslie et al., 2023), tile by tile with an online softmax (Dao et al., 2022): no
// score matrix is ever stored, and the backward pass makes each tile again from the saved log-sum-exp.
//
//   tiled        f32 arithmetic, any head_dim up to 128     device/attention/tiled.cuh
//   tensor_core  mma.sync in bf16, head_dim 64 or 128       device/attention/tensor_core.cuh

#include "device/attention/tensor_core.cuh"
#include "device/attention/tensor_core_gradient.cuh"
#include "device/attention/tiled.cuh"

// launch: grid attention.rows/32+attention.segments attention.heads, block 256, shared attention.head_dim*256+4480
KERNEL(TILED_THREADS) attention_tiled_forward_f32(const __grid_constant__ AttentionForward args) {
    tiled_forward<float>(args);
}
KERNEL(TILED_THREADS) attention_tiled_forward_bf16(const __grid_constant__ AttentionForward args) {
    tiled_forward<bf16>(args);
}

// launch: grid attention.rows*attention.heads/8, block 256, shared 0
KERNEL(TILED_THREADS) attention_delta_f32(const __grid_constant__ AttentionBackward args) {
    attention_delta<float>(args);
}
KERNEL(TILED_THREADS) attention_delta_bf16(const __grid_constant__ AttentionBackward args) {
    attention_delta<bf16>(args);
}

// launch: grid attention.rows/32+attention.segments attention.heads, block 256, shared attention.head_dim*512+4736
KERNEL(TILED_THREADS, 2) attention_tiled_query_grad_f32(const __grid_constant__ AttentionBackward args) {
    tiled_query_gradient<float>(args);
}
KERNEL(TILED_THREADS, 2) attention_tiled_query_grad_bf16(const __grid_constant__ AttentionBackward args) {
    tiled_query_gradient<bf16>(args);
}

// launch: grid attention.key_rows/32 attention.kv_heads, block 256, shared attention.head_dim*512+8960
KERNEL(TILED_THREADS, 2) attention_tiled_key_grad_f32(const __grid_constant__ AttentionBackward args) {
    tiled_key_gradient<float>(args);
}
KERNEL(TILED_THREADS, 2) attention_tiled_key_grad_bf16(const __grid_constant__ AttentionBackward args) {
    tiled_key_gradient<bf16>(args);
}

// launch: grid attention.rows/64+attention.segments attention.heads, block 128, shared attention.head_dim*384
KERNEL(TENSOR_THREADS, 2) attention_tensor_core_forward_bf16(const __grid_constant__ AttentionForward args) {
    if (args.attention.head_dim == 128) tensor_core_forward<128>(args);
    else tensor_core_forward<64>(args);
}

// launch: grid attention.rows/64+attention.segments attention.heads, block 128, shared attention.head_dim*512
KERNEL(TENSOR_THREADS, 2) attention_tensor_core_query_grad_bf16(const __grid_constant__ AttentionBackward args) {
    if (args.attention.head_dim == 128) tensor_core_query_gradient<128>(args);
    else tensor_core_query_gradient<64>(args);
}

// launch: grid attention.key_rows/64 attention.kv_heads, block 128, shared attention.head_dim*512
KERNEL(TENSOR_THREADS, 2) attention_tensor_core_key_grad_bf16(const __grid_constant__ AttentionBackward args) {
    if (args.attention.head_dim == 128) tensor_core_key_gradient<128>(args);
    else tensor_core_key_gradient<64>(args);
}
