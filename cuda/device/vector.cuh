// Loads and stores of N neighbouring elements at once, widened to f32.
#pragma once

#include <cuda_bf16.h>
#include <stdint.h>
#include <string.h>

#include "ptx/store.cuh"

using bf16 = __nv_bfloat16;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __bfloat162float(x); }

/// To the nearest, ties to even.
template <typename T> __device__ T narrow(float x);
template <> __device__ inline float narrow<float>(float x) { return x; }
template <> __device__ inline bf16 narrow<bf16>(float x) { return __float2bfloat16_rn(x); }

/// Two of them in a word, the first in its lower half.
__device__ inline uint32_t pair_of_bf16(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

/// Its elements; a bf16 is the upper half of an f32.
__device__ inline float low_bf16(uint32_t word) { return __uint_as_float(word << 16); }
__device__ inline float high_bf16(uint32_t word) { return __uint_as_float(word & 0xFFFF0000); }

/// Elements of T that one 16-byte access moves.
template <typename T> constexpr int WIDE = 16 / sizeof(T);

template <int WORDS> __device__ void load_words(uint32_t (&word)[WORDS], const void *from) {
    if constexpr (WORDS == 1) {
        word[0] = *static_cast<const uint32_t *>(from);
    } else if constexpr (WORDS == 2) {
        const uint2 v = *static_cast<const uint2 *>(from);
        word[0] = v.x, word[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < WORDS; i += 4) {
            const uint4 v = static_cast<const uint4 *>(from)[i / 4];
            word[i] = v.x, word[i + 1] = v.y, word[i + 2] = v.z, word[i + 3] = v.w;
        }
    }
}

template <Space SPACE, int WORDS> __device__ void store_words(void *to, const uint32_t (&word)[WORDS]) {
    if constexpr (WORDS == 1) {
        *static_cast<uint32_t *>(to) = word[0];
    } else if constexpr (WORDS == 2) {
        store_vector<SPACE>(to, word[0], word[1]);
    } else {
#pragma unroll
        for (int i = 0; i < WORDS; i += 4)
            store_vector<SPACE>(static_cast<uint4 *>(to) + i / 4, word[i], word[i + 1], word[i + 2], word[i + 3]);
    }
}

/// N elements, aligned to their size or to 16 bytes.
template <int N, typename T> __device__ void load_n(float *x, const T *from) {
    if constexpr (N == 1) {
        x[0] = widen(*from);
    } else {
        constexpr int PER_WORD = 4 / sizeof(T);
        uint32_t word[N / PER_WORD];
        load_words(word, from);
#pragma unroll
        for (int j = 0; j < N; j++) {
            // A bf16 is the upper half of an f32.
            const uint32_t half = j % 2 ? word[j / PER_WORD] & 0xFFFF0000 : word[j / PER_WORD] << 16;
            x[j] = __uint_as_float(PER_WORD == 1 ? word[j / PER_WORD] : half);
        }
    }
}

template <Space SPACE, int N, typename T> __device__ void store_n(T *to, const float *x) {
    if constexpr (N == 1) {
        *to = narrow<T>(x[0]);
    } else {
        constexpr int PER_WORD = 4 / sizeof(T);
        uint32_t word[N / PER_WORD];
#pragma unroll
        for (int i = 0; i < N / PER_WORD; i++) {
            if constexpr (PER_WORD == 1) word[i] = __float_as_uint(x[i]);
            else word[i] = pair_of_bf16(x[2 * i], x[2 * i + 1]);
        }
        store_words<SPACE>(to, word);
    }
}

template <int N, typename T> __device__ void load(float (&x)[N], const T *from) { load_n<N>(x, from); }

/// To global memory.
template <int N, typename T> __device__ void store(T *to, const float (&x)[N]) { store_n<Space::GLOBAL, N>(to, x); }

template <int N, typename T> __device__ void store_shared(T *to, const float (&x)[N]) {
    store_n<Space::SHARED, N>(to, x);
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

/// A row of floats in shared memory that is read and written in vectors of N. Every four floats of a vector lie in a
/// plane of their own, so that neighbouring threads touch neighbouring words: eight floats in a row would meet in the
/// same banks.
template <int N> class PlanarRow {
  public:
    __device__ PlanarRow(float *memory, uint32_t width) : memory_(memory), plane_(width / N * PART) {}

    __device__ void load(float (&x)[N], uint32_t column) const {
#pragma unroll
        for (int part = 0; part < N; part += PART) load_n<PART>(x + part, at(column, part));
    }

    __device__ void store(uint32_t column, const float (&x)[N]) {
#pragma unroll
        for (int part = 0; part < N; part += PART) store_n<Space::SHARED, PART>(at(column, part), x + part);
    }

  private:
    static constexpr int PART = N < 4 ? N : 4;

    __device__ float *at(uint32_t column, int part) const { return memory_ + part / PART * plane_ + column / N * PART; }

    float *memory_;
    uint32_t plane_; // floats
};
