/* The kernels' arguments: one struct per kernel, passed by value. Rust sees them through ptx/abi.rs, which bindgen writes.
 *
 * Dimension letters are those of cuda/README.md. `void*` is the kernel's dtype (f32 or bf16), anything else is what it says.
 * Members are ordered so that no struct has padding: pointers, masks, 64-bit numbers, then 32-bit ones. A null pointer
 * stands for an absent optional input.
 */
#ifndef AUTOCOMPRESS_ABI_H
#define AUTOCOMPRESS_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* Pins a struct's layout; ptx/abi.rs asserts the same of every member. */
#define ABI_LAYOUT(type, bytes, last, offset) \
    static_assert(sizeof(type) == bytes, "size of " #type); \
    static_assert(offsetof(type, last) == offset, "offset of " #type "." #last)

// ---- shared parts ----

/// A mask over the sorted components of one axis (src/autograd/mask.rs). Component i of row r has the value
/// keep[draw of r, c] of the first c with ends[c] > i mod ends[C−1].
typedef struct {
    const uint32_t *ends; ///< [C], rising; the last is the period after which the mask repeats
    const float *keep;    ///< [draws, C]
    const uint32_t *draw; ///< row r belongs to draw[r / length]; null: to draw 0
    uint32_t length;      ///< rows of one entry of `draw`, at least 1
    uint32_t candidates;  ///< C; 0: no mask, every value is 1
} Mask;
ABI_LAYOUT(Mask, 32, candidates, 28);

/// What changes from step to step. It lives on the device, so that one captured graph serves every step.
typedef struct {
    uint64_t seed;
    uint64_t step;       ///< from 0
    uint64_t update;     ///< optimiser updates including this one, from 1
    float learning_rate;
    float kappa;         ///< scale of the router's logits against the noise
    float tau;           ///< temperature of the draws
    float max_norm;      ///< gradients are scaled down to this norm; infinity: never
} StepState;
ABI_LAYOUT(StepState, 40, max_norm, 36);

// ---- second passes of reductions ----

/// out[j] = Σ_p partials[p, j], p rising
typedef struct {
    const float *partials; ///< [P, width]
    float *out;            ///< [width]
    uint32_t rows;         ///< P
    uint32_t width;
    uint32_t accumulate;   ///< 1: out +=
    uint32_t unused;
} ColumnSum;
ABI_LAYOUT(ColumnSum, 32, unused, 28);

/// Sums of rows' mask gradients per draw, first over tiles of rows, then over the tiles.
typedef struct {
    const float *row_sums; ///< [R, C], from an op's backward kernel
    const uint32_t *draw;  ///< as in Mask
    float *partials;       ///< [⌈R / 1024⌉, draws, C]
    float *out;            ///< [draws, C]
    uint32_t length;
    uint32_t rows;         ///< R
    uint32_t draws;
    uint32_t candidates;   ///< C
    uint32_t accumulate;   ///< 1: out +=
    uint32_t unused;
} MaskGrad;
ABI_LAYOUT(MaskGrad, 56, unused, 52);

// ---- residual_add ----

/// out = h + m·g·x
typedef struct {
    const void *h; ///< [R, d]
    const void *x; ///< [R, d]
    void *out;     ///< [R, d]; may be h
    Mask hidden;   ///< m, over d
    Mask gate;     ///< g, one interval
    uint32_t rows; ///< R
    uint32_t width; ///< d
} ResidualAddForward;
ABI_LAYOUT(ResidualAddForward, 96, width, 92);

/// dx = m·g·dout; the gradient of h is dout itself
typedef struct {
    const void *x;     ///< [R, d]
    const void *dout;  ///< [R, d]
    void *dx;          ///< [R, d]; may be dout
    float *hidden_sums; ///< [R, C]: ⟨dout, g·x⟩ per interval of `hidden`; null without it
    float *gate_sums;  ///< [R]: ⟨dout, m·x⟩; null without a gate
    Mask hidden;
    Mask gate;
    uint32_t rows;
    uint32_t width;
} ResidualAddBackward;
ABI_LAYOUT(ResidualAddBackward, 112, width, 108);

// ---- relu2 ----

/// y = relu(x)²·m
typedef struct {
    const void *x; ///< [R, F]
    void *y;       ///< [R, F]; may be x
    Mask mask;     ///< over F
    uint32_t rows;
    uint32_t width; ///< F
} Relu2Forward;
ABI_LAYOUT(Relu2Forward, 56, width, 52);

/// dx = 2·relu(x)·m·dy
typedef struct {
    const void *x;   ///< [R, F]
    const void *dy;  ///< [R, F]
    void *dx;        ///< [R, F]; may be dy
    float *row_sums; ///< [R, C]: ⟨dy, relu(x)²⟩ per interval; null without a mask
    Mask mask;
    uint32_t rows;
    uint32_t width;
} Relu2Backward;
ABI_LAYOUT(Relu2Backward, 72, width, 68);

// ---- rms_norm ----

/// y = x·s·weight with s = 1 / √(Σx²/n + eps), n = d or Σ m; s = 0 where n = 0
typedef struct {
    const void *x;      ///< [R, d]
    const void *weight; ///< [d]
    void *y;            ///< [R, d]
    float *scales;      ///< [R]: s, for the backward kernel
    Mask mask;          ///< over d; enters through n alone, x is masked already
    uint32_t rows;
    uint32_t width;     ///< d
    uint32_t rows_per_block;
    float eps;
} RmsNormForward;
ABI_LAYOUT(RmsNormForward, 80, eps, 76);

typedef struct {
    const void *x;          ///< [R, d]
    const void *weight;     ///< [d]
    const void *dy;         ///< [R, d]
    const float *scales;    ///< [R]
    void *dx;               ///< [R, d]; may be dy
    float *weight_partials; ///< [⌈R / rows_per_block⌉, d], for column_sum
    float *row_sums;        ///< [R, C], for mask_grad; null without a mask
    Mask mask;
    uint32_t rows;
    uint32_t width;
    uint32_t rows_per_block;
    uint32_t unused;
} RmsNormBackward;
ABI_LAYOUT(RmsNormBackward, 104, unused, 100);

#endif
