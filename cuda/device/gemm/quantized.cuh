// Products of quantised operands on tensor cores that know no 8-bit or 4-bit floats: codes are widened to bf16,
// exactly, on their way to shared memory. FP8's scales multiply f32 sums of 128 steps of k; NVFP4's block scales (e4m3)
// fit into bf16 together with the value, and its tensor scales multiply the result.
#pragma once

#include "../../abi.h"
#include "../quantize/format.cuh"
#include "warp_tile.cuh"

enum class Encoding { FP8, NVFP4 };

constexpr uint32_t QUANTIZED_BYTES = 2 * 2 * GEMM_TILE * sizeof(bf16); // dynamic shared memory: two stages of A and B
static_assert(QUANTIZED_BYTES == 32 * 1024 && WarpTile::SCRATCH * sizeof(float) <= QUANTIZED_BYTES);

constexpr uint32_t CODES = 16; // that a thread brings of each operand's tile: neighbours in a stored row

/// 2^exponent.
__device__ inline float power(int exponent) { return float_of(uint32_t(exponent + 127) << 23); }

/// How an 8-bit code becomes an f32: its bits go to the place of an f32's, which makes a number that is too small by
/// the difference of the biases. What is `special` or above is infinite or NaN, as its last two bits say.
struct Widening {
    uint32_t shift, special;
    float factor;
};

__device__ inline Widening widening_of(uint32_t format) {
    if (format == FORMAT_E5M2) return {23 - E5M2::MANTISSA, E5M2::INFINITE, power(127 - E5M2::BIAS)};
    return {23 - E4M3::MANTISSA, E4M3::NOT_A_NUMBER, power(127 - E4M3::BIAS)};
}

/// Exact. Without branches: a thread has sixteen codes at a time.
__device__ inline float fp8_value(uint32_t code, const Widening &by) {
    const uint32_t magnitude = code & 0x7F, sign = (code & 0x80) << 24;
    const float finite = float_of(sign | magnitude << by.shift) * by.factor;
    const float special = float_of(sign | 0x7F800000 | (magnitude & 3) << 21);
    return magnitude >= by.special ? special : finite;
}

/// The same for 4 bits, times `scale`.
__device__ inline float fp4_value(uint32_t code, float scale) {
    return float_of((code & 8) << 28 | (code & 7) << 22) * power(127 - E2M1::BIAS) * scale;
}

/// One operand's sixteen codes on their way through a thread. EACH: every column has a scale of its own (NVFP4, tn).
template <bool ALONG_K, Encoding ENCODING, bool EACH> class QuantizedFetch {
  public:
    /// `edge`: the first row (ALONG_K) or column of the operand that the tile covers; `edges`, `depths`: the operand's.
    __device__ QuantizedFetch(const QuantizedOperand &operand, uint32_t edge, uint32_t edges, uint32_t depths)
        : operand_(operand), widening_(widening_of(operand.format)), rows_(ALONG_K ? edges : depths),
          columns_(ALONG_K ? depths : edges) {
        constexpr uint32_t IN_ROW = (ALONG_K ? GEMM_DEPTH : GEMM_EDGE) / CODES;
        tile_row_ = threadIdx.x / IN_ROW;
        tile_column_ = threadIdx.x % IN_ROW * CODES;
        row_ = tile_row_ + (ALONG_K ? edge : 0);
        column_ = tile_column_ + (ALONG_K ? 0 : edge);
        bytes_ = ENCODING == Encoding::FP8 ? columns_ : (columns_ + 1) / 2;
        wide_ = reinterpret_cast<uintptr_t>(operand.codes) % (WORDS * 4) == 0 && bytes_ % (WORDS * 4) == 0;
    }

    /// Reads the next tile's codes; those outside are 0.
    __device__ void read() {
#pragma unroll
        for (uint32_t i = 0; i < WORDS; i++) words_[i] = 0;
        if (row_ < rows_ && column_ < columns_) {
            const uint32_t in_row = ENCODING == Encoding::FP8 ? column_ : column_ / 2;
            const uint8_t *from = static_cast<const uint8_t *>(operand_.codes) + uint64_t(row_) * bytes_ + in_row;
            if (wide_) {
                load_words(words_, from);
            } else {
#pragma unroll
                for (uint32_t i = 0; i < WORDS * 4; i++) {
                    if (in_row + i < bytes_) words_[i / 4] |= uint32_t(from[i]) << i % 4 * 8;
                }
            }
            if (ENCODING == Encoding::NVFP4) read_scales();
        }
        if (ALONG_K) column_ += GEMM_DEPTH;
        else row_ += GEMM_DEPTH;
    }

    /// Writes what was read to `tile` as bf16. Half of the threads of a row of 256 bytes start with their second chunk,
    /// so that eight neighbours meet eight groups of banks.
    __device__ void write(bf16 *tile) const {
        uint32_t pair[CODES / 2];
#pragma unroll
        for (uint32_t i = 0; i < CODES / 2; i++) pair[i] = pair_of_bf16(value(2 * i), value(2 * i + 1));
        const uint32_t chunk = tile_column_ / CHUNK;
        const bool swap = !ALONG_K && tile_column_ >= GEMM_EDGE / 2;
        uint32_t first[4], second[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            first[i] = swap ? pair[i + 4] : pair[i];
            second[i] = swap ? pair[i] : pair[i + 4];
        }
        store_words<Space::SHARED>(tile + chunk_at<ALONG_K, true>(tile_row_, chunk + (swap ? 1 : 0)), first);
        store_words<Space::SHARED>(tile + chunk_at<ALONG_K, true>(tile_row_, chunk + (swap ? 0 : 1)), second);
    }

  private:
    static constexpr uint32_t WORDS = ENCODING == Encoding::FP8 ? 4 : 2;

    __device__ void read_scales() {
        const uint32_t in_row = (columns_ + operand_.block_columns - 1) / operand_.block_columns;
        const uint8_t *scales =
            static_cast<const uint8_t *>(operand_.scales) + uint64_t(row_ / operand_.block_rows) * in_row;
        if (EACH) {
#pragma unroll
            for (uint32_t j = 0; j < CODES; j++) scale_[j] = column_ + j < columns_ ? scales[column_ + j] : 0;
        } else {
            scale_[0] = scales[column_ / FP4_BLOCK];
        }
    }

    __device__ float value(uint32_t j) const {
        if (ENCODING == Encoding::FP8) return fp8_value(words_[j / 4] >> j % 4 * 8 & 0xFF, widening_);
        return fp4_value(words_[j / 8] >> j % 8 * 4 & 0xF, fp8_value(scale_[EACH ? j : 0], widening_of(FORMAT_E4M3)));
    }

    const QuantizedOperand &operand_;
    Widening widening_;               // FP8 alone
    uint32_t rows_, columns_, bytes_; // of the operand; bytes of a row
    uint32_t row_, column_;           // of the next tile's codes
    uint32_t tile_row_, tile_column_;
    bool wide_;
    uint32_t words_[WORDS];
    uint8_t scale_[EACH ? CODES : 1] = {}; // e4m3, NVFP4 alone
};

/// FP8's scale of an operand at (edge, k).
template <bool ALONG_K> class EdgeScales {
  public:
    __device__ EdgeScales(const QuantizedOperand &operand, uint32_t edges, uint32_t depths)
        : scales_(static_cast<const float *>(operand.scales)), edges_(edges),
          block_(ALONG_K ? operand.block_rows : operand.block_columns) {
        const uint32_t along = ((ALONG_K ? depths : edges) + stride_of(operand) - 1) / stride_of(operand);
        of_edge_ = ALONG_K ? along : 1;
        of_depth_ = ALONG_K ? 1 : along;
    }

    __device__ float at(uint32_t edge, uint32_t depth) const {
        if (edge >= edges_) return 0.0f;
        return scales_[uint64_t(edge / block_) * of_edge_ + uint64_t(depth / FP8_BLOCK) * of_depth_];
    }

  private:
    static __device__ uint32_t stride_of(const QuantizedOperand &operand) { return operand.block_columns; }

    const float *scales_;
    uint32_t edges_, block_, of_edge_, of_depth_;
};

/// An epilogue after a factor.
template <typename Inner> struct Scaled {
    Inner inner;
    float factor;

    template <int N> __device__ auto at(uint32_t column) const {
        return [factor = factor, write = inner.template at<N>(column)](uint32_t row, float(&x)[N]) {
#pragma unroll
            for (int j = 0; j < N; j++) x[j] *= factor;
            write(row, x);
        };
    }
};

template <Layout LAYOUT, Encoding ENCODING, typename Epilogue>
__device__ void gemm_quantized(const QuantizedLinear &p, TileIndex tile, const Epilogue &epilogue) {
    constexpr bool ALONG_A = A_ALONG_K<LAYOUT>, ALONG_B = B_ALONG_K<LAYOUT>;
    constexpr bool EACH = LAYOUT == Layout::TN; // blocks stand across the rows
    bf16 *stages = dynamic_shared<bf16>();      // [stage, A or B, GEMM_TILE]
    QuantizedFetch<ALONG_A, ENCODING, EACH> a(p.a, tile.m * GEMM_EDGE, p.m, p.k);
    QuantizedFetch<ALONG_B, ENCODING, EACH> b(p.b, tile.n * GEMM_EDGE, p.n, p.k);
    const EdgeScales<ALONG_A> of_a(p.a, p.m, p.k);
    const EdgeScales<ALONG_B> of_b(p.b, p.n, p.k);

    WarpTile sums, part;
    if (p.k > 0) a.read(), b.read();
    for (uint32_t depth = 0; depth < p.k; depth += GEMM_DEPTH) {
        bf16 *stage = stages + depth / GEMM_DEPTH % 2 * 2 * GEMM_TILE;
        a.write(stage);
        b.write(stage + GEMM_TILE);
        __syncthreads(); // the tiles are there for all, and the other stage's have been used
        if (depth + GEMM_DEPTH < p.k) a.read(), b.read();
        if (ENCODING == Encoding::NVFP4) {
            sums.multiply<LAYOUT, true>(stage, stage + GEMM_TILE);
        } else {
            part.multiply<LAYOUT, true>(stage, stage + GEMM_TILE);
            const bool last = depth + GEMM_DEPTH >= p.k || (depth + GEMM_DEPTH) % FP8_BLOCK == 0;
            if (last) sums.take(part, tile, depth, of_a, of_b);
        }
    }
    __syncthreads();
    const float factor = ENCODING == Encoding::NVFP4 ? *p.a.tensor_scale * *p.b.tensor_scale : 1.0f;
    if (ENCODING == Encoding::NVFP4) sums.finish(dynamic_shared<float>(), tile, Scaled<Epilogue>{epilogue, factor});
    else sums.finish(dynamic_shared<float>(), tile, epilogue);
}
