// partial[blockIdx.x] = the sum of one block's grid-strided part of x: shuffles in a warp, shared memory between warps.
extern "C" __global__ void __launch_bounds__(256) reduce(const float* __restrict__ x, float* __restrict__ partial, long long n) {
    __shared__ float warp_sums[8];
    float sum = 0.0f;
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < n; i += (long long)gridDim.x * 256) sum += x[i];
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < 8 ? warp_sums[threadIdx.x] : 0.0f;
        for (int offset = 4; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    }
}
