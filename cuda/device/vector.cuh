// Loads and stores of N neighbouring elements at once, widened to f32.
#pragma once

#include <cuda_bf16.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __bfloat162float(x); }

/// To the nearest, ties to even.
template <typename T> __device__ T narrow(float x);
template <> __device__ inline float narrow<float>(float x) { return x; }
template <> __device__ inline bf16 narrow<bf16>(float x) { return __float2bfloat16_rn(x); }

/// Elements of T that one 16-byte access moves.
template <typename T> constexpr int WIDE = 16 / sizeof(T);

template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vector {
    T lane[N];
};

template <int N, typename T> __device__ void load(float (&x)[N], const T *from) {
    const Vector<T, N> v = *reinterpret_cast<const Vector<T, N> *>(from);
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = widen(v.lane[j]);
}

template <int N, typename T> __device__ void store(T *to, const float (&x)[N]) {
    Vector<T, N> v;
#pragma unroll
    for (int j = 0; j < N; j++) v.lane[j] = narrow<T>(x[j]);
    *reinterpret_cast<Vector<T, N> *>(to) = v;
}

/// Whether every row of these matrices of `width` columns starts on a 16-byte boundary. The same for all threads.
template <typename T, typename... Pointer> __device__ bool wide_rows(uint32_t width, const Pointer *...matrix) {
    return ((reinterpret_cast<uintptr_t>(matrix) | ...) | width * uint32_t(sizeof(T))) % 16 == 0;
}

/// The row of a matrix, whose offset does not fit into 32 bits.
template <typename T, typename Row> __device__ T *row_of(Row *matrix, uint32_t row, uint32_t width) {
    return static_cast<T *>(matrix) + uint64_t(row) * width;
}

/// The shared memory that the launch asked for, aligned to 16 bytes.
template <typename T> __device__ T *dynamic_shared() {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<T *>(memory);
}

/// A row of floats in shared memory that is read and written in vectors of N. Quarters of a vector lie in planes of their own,
/// so that neighbouring threads touch neighbouring words: eight floats in a row would meet in the same banks.
template <int N> class PlanarRow {
  public:
    __device__ PlanarRow(float *memory, uint32_t width) : memory_(memory), plane_(width / N * PART) {}

    __device__ void load(float (&x)[N], uint32_t column) const {
#pragma unroll
        for (int part = 0; part < N / PART; part++) {
            const Vector<float, PART> v = *at(column, part);
#pragma unroll
            for (int j = 0; j < PART; j++) x[part * PART + j] = v.lane[j];
        }
    }

    __device__ void store(uint32_t column, const float (&x)[N]) {
#pragma unroll
        for (int part = 0; part < N / PART; part++) {
            Vector<float, PART> v;
#pragma unroll
            for (int j = 0; j < PART; j++) v.lane[j] = x[part * PART + j];
            *at(column, part) = v;
        }
    }

  private:
    static constexpr int PART = N < 4 ? N : 4;

    __device__ Vector<float, PART> *at(uint32_t column, int part) const {
        return reinterpret_cast<Vector<float, PART> *>(memory_ + part * plane_ + column / N * PART);
    }

    float *memory_;
    uint32_t plane_; // floats
};
