// C[M, N] = A[M, K] · B[N, K]ᵀ, bf16 in, f32 out, on tensor cores: 64 × 64 tiles, 32 deep, two stages filled by cp.async,
// fragments by ldmatrix from rows padded to 40 elements, 4 warps of 32 × 32 each. M and N multiples of 64, K of 32.
#include <cuda_bf16.h>
#include <stdint.h>

static __device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

static __device__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

static __device__ void ldmatrix4(uint32_t (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}

static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

constexpr int DEEP = 32, PITCH = 40;

extern "C" __global__ void __launch_bounds__(128)
gemm_bf16_mma(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, float* __restrict__ c, int n, int k) {
    extern __shared__ __align__(16) __nv_bfloat16 smem[];  // [2 stages][A then B][64][PITCH]
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / 2 * 32, warp_col = warp % 2 * 32;
    const long long row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
    auto tile = [&](int stage, int which) { return smem + (stage * 2 + which) * 64 * PITCH; };
    auto load = [&](int stage, int k0) {
        for (int i = threadIdx.x; i < 64 * DEEP / 8; i += 128) {
            int row = i / 4, part = i % 4 * 8;
            copy16(tile(stage, 0) + row * PITCH + part, a + (row0 + row) * k + k0 + part);
            copy16(tile(stage, 1) + row * PITCH + part, b + (col0 + row) * k + k0 + part);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float acc[2][4][4] = {};
    load(0, 0);
    const int steps = k / DEEP;
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            load((step + 1) % 2, (step + 1) * DEEP);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        const __nv_bfloat16 *ta = tile(step % 2, 0), *tb = tile(step % 2, 1);
        for (int kk = 0; kk < DEEP; kk += 16) {
            uint32_t fa[2][4], fb[2][4];
            for (int i = 0; i < 2; i++) ldmatrix4(fa[i], ta + (warp_row + i * 16 + lane % 16) * PITCH + kk + lane / 16 * 8);
            for (int j = 0; j < 2; j++) ldmatrix4(fb[j], tb + (warp_col + j * 16 + lane % 8 + lane / 16 * 8) * PITCH + kk + lane / 8 % 2 * 8);
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) mma(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int half = 0; half < 2; half++) {
                long long row = row0 + warp_row + i * 16 + half * 8 + lane / 4, col = col0 + warp_col + j * 8 + lane % 4 * 2;
                *(float2*)(c + row * n + col) = make_float2(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
            }
}
