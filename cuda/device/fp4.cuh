// 4-bit floats in software: e2m1, the values of NVFP4 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives). Codes are the
// low four bits.
#pragma once

#include "rounding.cuh"

struct E2M1 {
    static constexpr int MANTISSA = 1, BIAS = 1;
    static constexpr uint32_t LARGEST = 7; // 6
};

/// The nearest value, ties to even; saturates at 6. There is no NaN in the format: it becomes 6.
ANYWHERE inline uint8_t encode_e2m1(float x) {
    const uint32_t magnitude =
        x != x ? E2M1::LARGEST : round_small<E2M1::MANTISSA, E2M1::BIAS, E2M1::LARGEST>(x, Nearest{});
    return uint8_t(bits_of(x) >> 31 << 3 | magnitude);
}

/// As above, but up or down at random, so that the mean is x: `random` are 32 uniform bits.
ANYWHERE inline uint8_t encode_e2m1_stochastic(float x, uint32_t random) {
    const uint32_t magnitude =
        x != x ? E2M1::LARGEST : round_small<E2M1::MANTISSA, E2M1::BIAS, E2M1::LARGEST>(x, Stochastic{random});
    return uint8_t(bits_of(x) >> 31 << 3 | magnitude);
}

/// Exact.
ANYWHERE inline float decode_e2m1(uint8_t code) {
    const float value = small_value<E2M1::MANTISSA, E2M1::BIAS>(code & 7);
    return code & 8 ? -value : value;
}
