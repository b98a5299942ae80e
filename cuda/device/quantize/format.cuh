// The low-precision formats of quantised tensors, as one switch inside a kernel.
#pragma once

#include "../fp4.cuh"
#include "../fp8.cuh"

/// `format` of the kernels' arguments, for 8-bit values.
constexpr uint32_t FORMAT_E4M3 = 0, FORMAT_E5M2 = 1;

/// Values that share a scale: 128 (or 128×128) of FP8, 16 (or 16×16) of NVFP4.
constexpr uint32_t FP8_BLOCK = 128, FP4_BLOCK = 16;

constexpr float E4M3_LARGEST = 448.0f, E5M2_LARGEST = 57344.0f, E2M1_LARGEST = 6.0f;

/// |x| as a number whose order is that of the magnitudes, with infinity and NaN above all: the largest of them shows
/// that a block is broken.
ANYWHERE inline uint32_t magnitude_bits(float x) { return bits_of(x) & 0x7FFFFFFF; }

/// A quotient of the largest magnitude, or 1 where that is 0: no value is divided by 0.
ANYWHERE inline float scale_or_one(float quotient) { return quotient == 0.0f ? 1.0f : quotient; }

/// The scale of a block of 8-bit values.
ANYWHERE inline float fp8_scale(uint32_t largest, uint32_t format) {
    return scale_or_one(float_of(largest) / (format == FORMAT_E5M2 ? E5M2_LARGEST : E4M3_LARGEST));
}

template <typename Rounding> ANYWHERE uint8_t encode_fp8(float x, uint32_t format, Rounding rounding) {
    return format == FORMAT_E5M2 ? encode<E5M2>(x, rounding) : encode<E4M3>(x, rounding);
}

/// The scale of a tensor of 4-bit values, from the largest magnitude of its elements.
ANYWHERE inline float fp4_tensor_scale(uint32_t largest) {
    return scale_or_one(float_of(largest) / (E4M3_LARGEST * E2M1_LARGEST));
}

/// The code of a block's scale, in units of the tensor's.
ANYWHERE inline uint8_t fp4_scale(uint32_t largest, float of_tensor) {
    return encode<E4M3>(float_of(largest) / E2M1_LARGEST / of_tensor, Nearest{});
}

/// What a block's elements are divided by; where that is 0, all of its codes are 0.
ANYWHERE inline float fp4_unit(uint8_t scale, float of_tensor) { return decode<E4M3>(scale) * of_tensor; }

template <typename Rounding> ANYWHERE uint8_t encode_fp4(float x, float unit, Rounding rounding) {
    return unit == 0.0f ? uint8_t(0) : encode_e2m1(x / unit, rounding);
}
