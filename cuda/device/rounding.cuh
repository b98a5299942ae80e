// Rounding of f32 to formats with a few bits. A format is its mantissa's bits, its exponent's bias and its largest
// finite code; codes count up with the values, subnormals first, so that rounding up is adding one.
#pragma once

#include <stdint.h>
#include <string.h>

#include "philox.cuh"

ANYWHERE inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ANYWHERE inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/// Whether to go up, from the dropped bits (the leftmost of 32 first) and whether the kept code is odd.
struct Nearest {
    ANYWHERE bool up(uint32_t dropped, bool odd) const {
        return dropped > 0x80000000 || (dropped == 0x80000000 && odd);
    }
};

/// Up with probability dropped / 2³².
struct Stochastic {
    uint32_t random;
    ANYWHERE bool up(uint32_t dropped, bool) const { return random < dropped; }
};

/// Either of them, chosen when the kernel runs: up where the dropped bits are above a threshold.
struct Chosen {
    bool stochastic;
    uint32_t random;
    ANYWHERE bool up(uint32_t dropped, bool odd) const {
        return (stochastic ? random : 0x80000000u - uint32_t(odd)) < dropped;
    }
};

/// The code of |x|, saturating at LARGEST. Not for NaN.
template <int MANTISSA, int BIAS, uint32_t LARGEST, typename Rounding>
ANYWHERE uint32_t round_small(float x, Rounding rounding) {
    const uint32_t bits = bits_of(x) & 0x7FFFFFFF;
    const int exponent = int(bits >> 23) - 127;
    const uint64_t significand = (bits & 0x7FFFFF) | (bits >> 23 ? 0x800000 : 0); // 1.m, 24 bits
    // Below the smallest normal number the step stays that of the subnormals.
    const int subnormal = exponent < 1 - BIAS ? 1 - BIAS - exponent : 0;
    const int shift = 23 - MANTISSA + subnormal; // bits to drop
    if (bits >= 0x7F800000) return LARGEST;
    if (shift >= 24 + 32) return 0; // less than any random number resolves
    const uint32_t kept = uint32_t(significand >> shift), dropped = uint32_t((significand << 32) >> shift);
    uint32_t code = subnormal ? kept : (uint32_t(exponent + BIAS) << MANTISSA) + (kept - (1u << MANTISSA));
    if (exponent + BIAS <= int(LARGEST >> MANTISSA) && rounding.up(dropped, code & 1)) code++;
    return exponent + BIAS > int(LARGEST >> MANTISSA) || code > LARGEST ? LARGEST : code;
}

/// The value of a code without its sign.
template <int MANTISSA, int BIAS> ANYWHERE float small_value(uint32_t code) {
    const uint32_t exponent = code >> MANTISSA, mantissa = code & ((1u << MANTISSA) - 1);
    const float step =
        float_of(uint32_t(127 - MANTISSA + 1 - BIAS) << 23); // of the subnormals: 2^(1 − BIAS − MANTISSA)
    if (exponent == 0) return float(mantissa) * step;
    return float_of(uint32_t(int(exponent) - BIAS + 127) << 23 | mantissa << (23 - MANTISSA));
}

/// bf16 up or down at random: the bits of the nearest below or above in magnitude. NaN and infinity stay.
ANYWHERE inline uint16_t encode_bf16_stochastic(float x, uint32_t random) {
    const uint32_t bits = bits_of(x);
    if ((bits & 0x7F800000) == 0x7F800000) return uint16_t(bits >> 16 | (x != x ? 0x40 : 0));
    return uint16_t((bits + (random >> 16)) >> 16);
}
