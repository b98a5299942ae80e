// 4-bit floats in software: e2m1, the values of NVFP4 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives). Codes are the
// low four bits.
#pragma once

#include "rounding.cuh"

struct E2M1 {
    static constexpr int MANTISSA = 1, BIAS = 1;
    static constexpr uint32_t LARGEST = 7; // 6
};

/// The code of x; saturates at 6. There is no NaN in the format: it becomes 6.
template <typename Rounding> ANYWHERE uint8_t encode_e2m1(float x, Rounding rounding) {
    if (x != x) return uint8_t(E2M1::LARGEST);
    return uint8_t(bits_of(x) >> 31 << 3 | round_small<E2M1::MANTISSA, E2M1::BIAS, E2M1::LARGEST>(x, rounding));
}

/// Exact.
ANYWHERE inline float decode_e2m1(uint8_t code) {
    const float value = small_value<E2M1::MANTISSA, E2M1::BIAS>(code & 7);
    return code & 8 ? -value : value;
}
