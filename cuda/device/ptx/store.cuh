// Stores of two and four words. C++ has no way to insist on them: the compiler takes a uint4 apart when it loses sight
// of its alignment, and four stores a vector's width apart cost four times the sectors, or the banks.
#pragma once

#include <stdint.h>

enum class Space { GLOBAL, SHARED };

/// `to` is aligned to the words' size.
template <Space SPACE> __device__ void store_vector(void *to, uint32_t a, uint32_t b) {
    if constexpr (SPACE == Space::GLOBAL)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(a), "r"(b) : "memory");
    else
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "r"(a), "r"(b)
                     : "memory");
}

template <Space SPACE> __device__ void store_vector(void *to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    if constexpr (SPACE == Space::GLOBAL)
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(a), "r"(b),
                     "r"(c), "r"(d)
                     : "memory");
    else
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "r"(a),
                     "r"(b), "r"(c), "r"(d)
                     : "memory");
}
