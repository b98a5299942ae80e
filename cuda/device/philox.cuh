// Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the
// same bits as src/numerics/philox.rs for the same (seed, stream, index).
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define ANYWHERE __host__ __device__
#else
#define ANYWHERE
#endif

struct Words {
    uint32_t word[4];
};

/// The block function: ten rounds of two 32×32 → 64-bit products, the key bumped between rounds.
ANYWHERE inline Words philox4x32_10(Words counter, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t(0xD2511F53) * counter.word[0];
        const uint64_t b = uint64_t(0xCD9E8D57) * counter.word[2];
        counter = {{uint32_t(b >> 32) ^ counter.word[1] ^ key0, uint32_t(b), uint32_t(a >> 32) ^ counter.word[3] ^ key1,
            uint32_t(a)}};
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    return counter;
}

/// Four independent words for `index` of a stream; a stream is one use of the seed: a tensor, a gate, a step.
ANYWHERE inline Words philox_words(uint64_t seed, uint64_t stream, uint64_t index) {
    const Words counter = {{uint32_t(index), uint32_t(index >> 32), uint32_t(stream), uint32_t(stream >> 32)}};
    return philox4x32_10(counter, uint32_t(seed), uint32_t(seed >> 32));
}

/// Uniform in (0, 1): never 0 or 1, so that logarithms of it are finite.
ANYWHERE inline double philox_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    const Words w = philox_words(seed, stream, index);
    const uint64_t bits = (uint64_t(w.word[0]) << 21) ^ (uint64_t(w.word[1]) >> 11);
    return (double(bits) + 0.5) / double(uint64_t(1) << 53);
}
