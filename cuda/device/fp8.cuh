// 8-bit floats in software, the same bits on every architecture: e4m3 for weights and activations, e5m2 for gradients
// (Micikevicius et al., "FP8 Formats for Deep Learning", arXiv 2209.05433).
#pragma once

#include "rounding.cuh"

/// e4m3: largest 448, no infinity, NaN 0x7F. e5m2: largest 57344, infinity 0x7C.
struct E4M3 {
    static constexpr int MANTISSA = 3, BIAS = 7;
    static constexpr uint32_t LARGEST = 0x7E, NOT_A_NUMBER = 0x7F, INFINITE = 0x80; // which no magnitude is
};
struct E5M2 {
    static constexpr int MANTISSA = 2, BIAS = 15;
    static constexpr uint32_t LARGEST = 0x7B, NOT_A_NUMBER = 0x7E, INFINITE = 0x7C;
};

/// The code of x: what is larger than the largest, infinity included, saturates at it. NaN stays
/// NaN, without its sign, which processors do not agree on.
template <typename Format, typename Rounding> ANYWHERE uint8_t encode(float x, Rounding rounding) {
    const uint32_t sign = bits_of(x) >> 31;
    if (x != x) return uint8_t(Format::NOT_A_NUMBER);
    return uint8_t(sign << 7 | round_small<Format::MANTISSA, Format::BIAS, Format::LARGEST>(x, rounding));
}

/// Exact.
template <typename Format> ANYWHERE float decode(uint8_t code) {
    const uint32_t magnitude = code & 0x7F;
    const float sign = code & 0x80 ? -1.0f : 1.0f;
    if (magnitude == Format::INFINITE) return sign * float_of(0x7F800000);
    if (magnitude > Format::LARGEST) return float_of(0x7FC00000 | uint32_t(code & 0x80) << 24);
    return sign * small_value<Format::MANTISSA, Format::BIAS>(magnitude);
}
