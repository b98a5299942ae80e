// C[M, N] = A[M, K] · B[K, N], row-major f32: 64 × 64 tiles of C, 16 deep, 4 × 4 per thread, 16 × 16 threads.
struct GemmArgs { const float* a; const float* b; float* c; int m, n, k; };
extern "C" __global__ void __launch_bounds__(256) gemm_f32(const GemmArgs args) {
    __shared__ float tile_a[16][68];
    __shared__ float tile_b[16][64];
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * 16 + tx;
    const int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < args.k; k0 += 16) {
        for (int i = t; i < 64 * 16; i += 256) {
            int r = i / 16, k = i % 16;
            tile_a[k][r] = row0 + r < args.m && k0 + k < args.k ? args.a[(long long)(row0 + r) * args.k + k0 + k] : 0.0f;
        }
        for (int i = t; i < 64 * 16; i += 256) {
            int k = i / 64, c = i % 64;
            tile_b[k][c] = col0 + c < args.n && k0 + k < args.k ? args.b[(long long)(k0 + k) * args.n + col0 + c] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 16; k++) {
            float4 a = *(const float4*)&tile_a[k][ty * 4];
            float4 b = *(const float4*)&tile_b[k][tx * 4];
            float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) acc[i][j] += av[i] * bv[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int r = row0 + ty * 4 + i, c = col0 + tx * 4 + j;
            if (r < args.m && c < args.n) args.c[(long long)r * args.n + c] = acc[i][j];
        }
}
