/* The kernels' arguments: one struct per kernel, passed by value. Rust sees them through ptx/abi.rs, which bindgen
 * writes.
 *
 * Dimension letters are those of cuda/README.md. `void*` is the kernel's dtype (f32 or bf16), anything else is what it
 * says. Members are ordered so that no struct has padding: pointers, masks, 64-bit numbers, then 32-bit ones. A null
 * pointer stands for an absent optional input.
 */
#ifndef AUTOCOMPRESS_ABI_H
#define AUTOCOMPRESS_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* Pins a struct's layout; ptx/abi.rs asserts the same of every member. */
#define ABI_LAYOUT(type, bytes, last, offset)                                                                          \
    static_assert(sizeof(type) == bytes, "size of " #type);                                                            \
    static_assert(offsetof(type, last) == offset, "offset of " #type "." #last)

// ---- shared parts ----

/// A mask over the sorted components of one axis (src/autograd/mask.rs). Component i of row r has the value
/// keep[draw of r, c] of the first c with ends[c] > i mod ends[C−1]. C is at most 32, so that a lane can look after
/// each.
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
    uint64_t step;   ///< from 0
    uint64_t update; ///< optimiser updates including this one, from 1
    float learning_rate;
    float kappa;    ///< scale of the router's logits against the noise
    float tau;      ///< temperature of the draws
    float max_norm; ///< gradients are scaled down to this norm; infinity: never
} StepState;
ABI_LAYOUT(StepState, 40, max_norm, 36);

// ---- second passes of reductions ----

/// out[j] = Σ_p partials[p, j], p rising
typedef struct {
    const float *partials; ///< [P, width]
    float *out;            ///< [width]
    uint32_t rows;         ///< P
    uint32_t width;
    uint32_t accumulate; ///< 1: out +=
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
    uint32_t rows; ///< R
    uint32_t draws;
    uint32_t candidates; ///< C
    uint32_t accumulate; ///< 1: out +=
    uint32_t unused;
} MaskGrad;
ABI_LAYOUT(MaskGrad, 56, unused, 52);

// ---- residual_add ----

/// out = h + m·g·x
typedef struct {
    const void *h;  ///< [R, d]
    const void *x;  ///< [R, d]
    void *out;      ///< [R, d]; may be h
    Mask hidden;    ///< m, over d
    Mask gate;      ///< g, one interval
    uint32_t rows;  ///< R
    uint32_t width; ///< d
} ResidualAddForward;
ABI_LAYOUT(ResidualAddForward, 96, width, 92);

/// dx = m·g·dout; the gradient of h is dout itself
typedef struct {
    const void *x;      ///< [R, d]
    const void *dout;   ///< [R, d]
    void *dx;           ///< [R, d]; may be dout
    float *hidden_sums; ///< [R, C]: ⟨dout, g·x⟩ per interval of `hidden`; null without it
    float *gate_sums;   ///< [R]: ⟨dout, m·x⟩; null without a gate
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
    uint32_t width; ///< d
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

// ---- embedding ----

/// y = table[ids]·m
typedef struct {
    const uint32_t *ids; ///< [R], below V
    const void *table;   ///< [V, d]
    void *y;             ///< [R, d]
    Mask mask;           ///< over d
    uint32_t rows;
    uint32_t width; ///< d
} EmbeddingForward;
ABI_LAYOUT(EmbeddingForward, 64, width, 60);

/// Only with a mask.
typedef struct {
    const uint32_t *ids; ///< [R]
    const void *table;   ///< [V, d]
    const void *dy;      ///< [R, d]
    float *row_sums;     ///< [R, C]: ⟨dy, table[id]⟩ per interval, for mask_grad
    Mask mask;
    uint32_t rows;
    uint32_t width;
} EmbeddingMaskGrad;
ABI_LAYOUT(EmbeddingMaskGrad, 72, width, 68);

/// One digit of a stable sort of rows by id: count, scan, place with shift 0, then again with shift 9 (and with 18
/// where V is above 2¹⁸).
typedef struct {
    const uint32_t *ids;      ///< [R]
    const uint32_t *order_in; ///< [R], the previous digit's order; null: rows in order
    uint32_t *order_out;      ///< [R]
    uint32_t *counts;         ///< [512, ⌈R / 2048⌉], scratch
    uint32_t rows;
    uint32_t shift;
} EmbeddingSort;
ABI_LAYOUT(EmbeddingSort, 40, shift, 36);

/// offsets[id] = where the sorted rows of `id` start
typedef struct {
    const uint32_t *ids;   ///< [R]
    const uint32_t *order; ///< [R], rows sorted by id
    uint32_t *offsets;     ///< [V + 1]
    uint32_t rows;
    uint32_t vocab; ///< V
} EmbeddingOffsets;
ABI_LAYOUT(EmbeddingOffsets, 32, vocab, 28);

/// dtable[id] = Σ over the rows of that id, in order, of dy·m
typedef struct {
    const uint32_t *order;   ///< [R]
    const uint32_t *offsets; ///< [V + 1]
    const void *dy;          ///< [R, d]
    float *dtable;           ///< [V, d]
    Mask mask;
    uint32_t vocab; ///< V
    uint32_t width;
    uint32_t accumulate; ///< 1: dtable +=
    uint32_t unused;
} EmbeddingBackward;
ABI_LAYOUT(EmbeddingBackward, 80, unused, 76);

// ---- gated_group_norm ----

/// out = t·s·weight with t = y·silu(z), s = 1 / √(Σt²/n + eps) per group, n = columns or head_dim·Σ m over the group's
/// heads
typedef struct {
    const void *y;      ///< [R, W], W = groups·columns
    const void *z;      ///< [R, W]
    const void *weight; ///< [W]
    void *out;          ///< [R, W]
    Mask mask;          ///< over the W / head_dim heads
    uint32_t rows;
    uint32_t groups;   ///< G
    uint32_t columns;  ///< of a group
    uint32_t head_dim; ///< P, a divisor of columns; read with a mask alone
    uint32_t rows_per_block;
    float eps;
} GatedGroupNormForward;
ABI_LAYOUT(GatedGroupNormForward, 88, eps, 84);

typedef struct {
    const void *y;
    const void *z;
    const void *weight;
    const void *dout;       ///< [R, W]
    void *dy;               ///< [R, W]
    void *dz;               ///< [R, W]
    float *weight_partials; ///< [⌈R / rows_per_block⌉, W], for column_sum
    float *row_sums;        ///< [R·G, C], for mask_grad (row r·G + g has the draw of r); null without a mask
    Mask mask;
    uint32_t rows;
    uint32_t groups;
    uint32_t columns;
    uint32_t head_dim;
    uint32_t rows_per_block;
    float eps;
} GatedGroupNormBackward;
ABI_LAYOUT(GatedGroupNormBackward, 120, eps, 116);

// ---- adamw ----

/// partials[block] = Σ g² of 16384 elements
typedef struct {
    const void *grad; ///< [elements]
    double *partials; ///< [⌈elements / 16384⌉]: a tensor's stretch of what adamw_norm adds
    uint64_t elements;
} AdamWSquares;
ABI_LAYOUT(AdamWSquares, 24, elements, 16);

/// norm = √Σ partials
typedef struct {
    const double *partials; ///< [count], of all tensors
    float *norm;            ///< [1]
    uint64_t count;
} AdamWNorm;
ABI_LAYOUT(AdamWNorm, 24, count, 16);

typedef struct {
    const StepState *state;
    const float *norm; ///< [1], of all gradients; null: no clipping
    const void *grad;  ///< [elements]
    float *value;      ///< [elements], the master
    float *first;      ///< [elements], moments
    float *second;     ///< [elements]
    void *weight;      ///< [elements] bf16, the copy that the model computes with; null: none
    uint64_t elements;
    float rate;         ///< times the state's learning rate
    float weight_decay; ///< 0 for parameters that do not decay
    float beta1;
    float beta2;
    float eps;
    uint32_t unused;
} AdamWUpdate;
ABI_LAYOUT(AdamWUpdate, 88, unused, 84);

// ---- gumbel_softmax ----

typedef struct {
    const StepState *state; ///< seed, step
    float *noise;           ///< [draws, C]
    uint32_t gate;          ///< which gate's numbers
    uint32_t draws;
    uint32_t candidates; ///< C; draws·C < 2³²
    uint32_t unused;
} GumbelNoise;
ABI_LAYOUT(GumbelNoise, 32, unused, 28);

/// y = softmax((κ·z + g) / τ) per draw
typedef struct {
    const StepState *state; ///< κ, τ
    const float *logits;    ///< [C]
    const float *noise;     ///< [draws, C]
    float *y;               ///< [draws, C]
    uint32_t draws;
    uint32_t candidates;
} GumbelForward;
ABI_LAYOUT(GumbelForward, 40, candidates, 36);

typedef struct {
    const StepState *state; ///< κ, τ
    const float *y;         ///< [draws, C], from the forward kernel
    const float *dy;        ///< [draws, C]
    float *dlogits;         ///< [C]
    uint32_t draws;
    uint32_t candidates;
    uint32_t accumulate; ///< 1: dlogits +=
    uint32_t unused;
} GumbelBackward;
ABI_LAYOUT(GumbelBackward, 48, unused, 44);

// ---- mask_keep ----

/// forward: out[n, c] = Σ_{i ≥ c} in[n, i]; backward: Σ_{i ≤ c}
typedef struct {
    const float *in; ///< [draws, C]
    float *out;      ///< [draws, C]; may be in
    uint32_t draws;
    uint32_t candidates;
} MaskKeep;
ABI_LAYOUT(MaskKeep, 24, candidates, 20);

// ---- linear ----

/// C = A·B or C += A·B. The layout is in the kernel's name: nt A [M, K], B [N, K]; nn A [M, K], B [K, N]; tn A [K, M],
/// B [K, N].
typedef struct {
    const void *a;
    const void *b;
    void *c; ///< [M, N]; f32 in tn kernels
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t lda; ///< elements from row to row
    uint32_t ldb;
    uint32_t ldc;
    uint32_t accumulate; ///< 1: C +=
    uint32_t unused;
} Linear;
ABI_LAYOUT(Linear, 56, unused, 52);

/// C = relu(A·B)²·m
typedef struct {
    Linear product; ///< `accumulate` is not read
    void *raw;      ///< [M, N], A·B itself, stride ldc; null: not kept
    Mask mask;      ///< over N
} LinearRelu2;
ABI_LAYOUT(LinearRelu2, 96, mask, 64);

/// C = h + m·g·A·B
typedef struct {
    Linear product; ///< `accumulate` is not read
    void *raw;      ///< as above
    const void *h;  ///< [M, N], stride ldc; may be c
    Mask hidden;    ///< m, over N
    Mask gate;      ///< g, one interval
} LinearResidual;
ABI_LAYOUT(LinearResidual, 136, gate, 104);

// ---- causal_conv1d ----

/// What the convolution's kernels share. Row t of a segment sees rows t − K + 1 … t of it, and before its start
/// `initial`.
typedef struct {
    const void *x;           ///< [R, C]
    const void *weight;      ///< [C, K]
    const void *bias;        ///< [C]; null: none
    const void *initial;     ///< [S, K − 1, C], oldest first; null: zeros
    const uint32_t *offsets; ///< [S + 1]: segment s is rows offsets[s] .. offsets[s + 1]
    uint32_t rows;           ///< R
    uint32_t channels;       ///< C
    uint32_t kernel;         ///< K, 1 to 4
    uint32_t segments;       ///< S
    uint32_t stretch;        ///< rows that a warp walks
    uint32_t unused;
} Conv;
ABI_LAYOUT(Conv, 64, unused, 60);

typedef struct {
    Conv conv;
    void *y; ///< [R, C]
} ConvForward;
ABI_LAYOUT(ConvForward, 72, y, 64);

typedef struct {
    Conv conv;
    const void *dy; ///< [R, C]
    void *dx;       ///< [R, C]; not dy
    float *partials; ///< [⌈R / stretch⌉, C·K + C], for column_sum: the gradients of the weight [C, K], then of the bias
                     ///< [C]
} ConvBackward;
ABI_LAYOUT(ConvBackward, 88, partials, 80);

/// state = the last K − 1 inputs of each segment, `initial` in front of them
typedef struct {
    const void *x;           ///< [R, C]
    const void *initial;     ///< [S, K − 1, C]; null: zeros
    const uint32_t *offsets; ///< [S + 1]
    void *state;             ///< [S, K − 1, C]; not initial
    uint32_t channels;
    uint32_t kernel;
    uint32_t segments;
    uint32_t unused;
} ConvState;
ABI_LAYOUT(ConvState, 48, unused, 44);

// ---- moe_route ----

/// What the router's kernels share.
typedef struct {
    const float *logits; ///< [R, E]
    Mask mask;           ///< over E, score masking
    uint32_t rows;       ///< R
    uint32_t experts;    ///< E
    uint32_t top_k;      ///< K, at most 32
    uint32_t groups;     ///< routing groups, of E / groups experts
    uint32_t topk_group; ///< groups that may be chosen from
    uint32_t normalise;  ///< 1: weights are divided by their sum + 1e-20
    float scale;         ///< times the weights
    uint32_t unused;
} MoeRoute;
ABI_LAYOUT(MoeRoute, 72, unused, 68);

typedef struct {
    MoeRoute route;
    const float *bias; ///< [E], correction of the choice
    float *weights;    ///< [R, K]
    uint32_t *chosen;  ///< [R, K], experts, best first
} MoeRouteForward;
ABI_LAYOUT(MoeRouteForward, 96, chosen, 88);

typedef struct {
    MoeRoute route;
    const uint32_t *chosen; ///< [R, K]
    const float *dweights;  ///< [R, K]
    void *dlogits;          ///< [R, E]
    float *row_sums;        ///< [R, C], for mask_grad; null without a mask
} MoeRouteBackward;
ABI_LAYOUT(MoeRouteBackward, 104, row_sums, 96);

// ---- moe_permute ----

/// Sorts the (token, slot) pairs by expert: count, scan, place. Tokens keep their order within an expert.
typedef struct {
    const uint32_t *chosen; ///< [R·K], the expert of each pair; E or above: dropped
    uint32_t *counts;       ///< [E + 1, ⌈R·K / 2048⌉], scratch
    uint32_t *offsets;      ///< [E + 2]: expert e's rows are offsets[e] .. offsets[e + 1]; rows from offsets[E] on are
                            ///< dropped pairs'
    uint32_t *pair_of;      ///< [R·K]: the pair of each row
    uint32_t *row_of;       ///< [R·K]: the row of each pair
    const uint32_t *draw;   ///< as in Mask, over tokens; not null where draw_of is not
    uint32_t *draw_of;      ///< [R·K]: the draw of each row, for masks of the experts' width; null: not wanted
    uint32_t pairs;         ///< R·K
    uint32_t top_k;         ///< K
    uint32_t experts;       ///< E, at most 512
    uint32_t length;        ///< as in Mask
} MoeDispatch;
ABI_LAYOUT(MoeDispatch, 72, length, 68);

/// y = x's rows in the order of the dispatch; zeros for dropped pairs
typedef struct {
    const void *x;           ///< [R, L]
    const uint32_t *pair_of; ///< [R·K]
    const uint32_t *filled;  ///< [1]: &offsets[E]
    void *y;                 ///< [R·K, L]
    uint32_t pairs;
    uint32_t top_k;
    uint32_t width; ///< L
    uint32_t unused;
} MoePermuteForward;
ABI_LAYOUT(MoePermuteForward, 48, unused, 44);

typedef struct {
    const void *dy;         ///< [R·K, L]
    const uint32_t *row_of; ///< [R·K]
    const uint32_t *filled; ///< [1]
    void *dx;               ///< [R, L]
    uint32_t tokens;        ///< R
    uint32_t top_k;
    uint32_t width;
    uint32_t unused;
} MoePermuteBackward;
ABI_LAYOUT(MoePermuteBackward, 48, unused, 44);

// ---- grouped_gemm ----

/// tiles[s] = tiles of `edge` rows in front of stretch s; stretch E is the rows behind the last expert's
typedef struct {
    const uint32_t *offsets; ///< [E + 1]
    uint32_t *tiles;         ///< [E + 2]
    uint32_t experts;        ///< E, at most 1022
    uint32_t rows;           ///< of the buffer
    uint32_t edge;           ///< 64 for tiled kernels, 128 for pipelined ones
    uint32_t unused;
} GroupedTiles;
ABI_LAYOUT(GroupedTiles, 32, unused, 28);

/// nt: C = A·B_eᵀ, B [E, N, K]; nn: C = A·B_e, B [E, K, N]
typedef struct {
    const void *a;           ///< [rows, K]
    const void *b;           ///< [E, …]
    void *c;                 ///< [rows, N]
    const uint32_t *offsets; ///< [E + 1]
    const uint32_t *tiles;   ///< [E + 2], for the kernel's edge
    uint32_t rows;
    uint32_t n;
    uint32_t k;
    uint32_t experts;
} GroupedGemm;
ABI_LAYOUT(GroupedGemm, 56, experts, 52);

/// C = relu(A·B_eᵀ)²·m
typedef struct {
    GroupedGemm product;
    void *raw; ///< [rows, N], A·B_eᵀ itself; null: not kept
    Mask mask; ///< over N; its rows are the sorted ones
} GroupedRelu2;
ABI_LAYOUT(GroupedRelu2, 96, mask, 64);

/// dW_e = dyᵀ·x over the expert's rows
typedef struct {
    const void *dy;          ///< [rows, M]
    const void *x;           ///< [rows, N]
    float *dw;               ///< [E, M, N]
    const uint32_t *offsets; ///< [E + 1]
    uint32_t m;
    uint32_t n;
    uint32_t experts;
    uint32_t accumulate; ///< 1: dW +=
} GroupedWeights;
ABI_LAYOUT(GroupedWeights, 48, accumulate, 44);

// ---- moe_combine ----

/// What both directions share.
typedef struct {
    const void *y;          ///< [R·K, L], rows in the order of the dispatch
    const float *weights;   ///< [R, K]
    const uint32_t *chosen; ///< [R, K]
    const uint32_t *row_of; ///< [R·K]
    const uint32_t *filled; ///< [1]: &offsets[E]
    Mask mask;              ///< over E; its rows are the tokens
    uint32_t tokens;        ///< R
    uint32_t top_k;         ///< K, at most 32
    uint32_t width;         ///< L
    uint32_t unused;
} MoeCombine;
ABI_LAYOUT(MoeCombine, 88, unused, 84);

/// out[r] = Σ_k weights[r, k]·m·y[row of (r, k)]
typedef struct {
    MoeCombine combine;
    void *out; ///< [R, L]
} MoeCombineForward;
ABI_LAYOUT(MoeCombineForward, 96, out, 88);

typedef struct {
    MoeCombine combine;
    const void *dout; ///< [R, L]
    void *dy;         ///< [R·K, L]
    float *dweights;  ///< [R, K]
    float *row_sums;  ///< [R, C], for mask_grad; null without a mask
} MoeCombineBackward;
ABI_LAYOUT(MoeCombineBackward, 120, row_sums, 112);

// ---- cross_entropy ----

/// Each row's −ln softmax(logits)[target], its most likely token, and scale·(p − onehot).
typedef struct {
    const float *logits;     ///< [R, V]
    const uint32_t *targets; ///< [R]; 2³² − 1: not counted
    void *dlogits;           ///< [R, V]; null: not wanted
    float *losses;           ///< [R]; 0 of a row that does not count
    uint32_t *tops;          ///< [R]; 2³² − 1 of a row that does not count, or is NaN throughout
    uint32_t rows;
    uint32_t vocab; ///< V
    float scale;    ///< 1 / counted rows
    uint32_t unused;
} CrossEntropy;
ABI_LAYOUT(CrossEntropy, 56, unused, 52);

typedef struct {
    const float *losses;     ///< [R]
    const uint32_t *targets; ///< [R]
    float *loss;             ///< [1]
    uint32_t rows;
    uint32_t unused;
} CrossEntropyMean;
ABI_LAYOUT(CrossEntropyMean, 32, unused, 28);

// ---- distill_loss ----

/// A row's sums over the vocabulary so far (cuda/distill_loss.cu).
typedef struct {
    double teacher_shift;
    double teacher_sum;
    double student_shift;
    double student_sum;
    double cross;
} DistillStatistics;
ABI_LAYOUT(DistillStatistics, 40, cross, 32);

/// Adds a chunk of the vocabulary to the statistics.
typedef struct {
    const float *teacher;          ///< [R, V'], a chunk's logits
    const float *student;          ///< [R, V']
    const uint32_t *valid;         ///< [R], 0 or 1; null: all rows are
    DistillStatistics *statistics; ///< [R]
    uint32_t rows;
    uint32_t vocab; ///< V', of the chunk
    float scale;    ///< 1 / temperature
    uint32_t first; ///< 1: nothing has been added before
} DistillSums;
ABI_LAYOUT(DistillSums, 48, first, 44);

typedef struct {
    const DistillStatistics *statistics; ///< [R]
    const uint32_t *valid;               ///< [R]
    float *loss;                         ///< [1]
    uint32_t rows;
    uint32_t unused;
} DistillMean;
ABI_LAYOUT(DistillMean, 32, unused, 28);

/// dstudent = factor / temperature·(p_student − p_teacher) of a chunk
typedef struct {
    const float *teacher;                ///< [R, V']
    const float *student;                ///< [R, V']
    const uint32_t *valid;               ///< [R]
    const DistillStatistics *statistics; ///< [R], of the whole vocabulary
    void *dstudent;                      ///< [R, V']
    uint32_t rows;
    uint32_t vocab;
    float scale;
    float factor; ///< the loss's gradient / valid rows
} DistillGrad;
ABI_LAYOUT(DistillGrad, 56, factor, 52);

// ---- attention ----

/// What attention's kernels share. The queries of segment s attend to its range of keys, as the last ones of that
/// sequence.
typedef struct {
    const void *q;           ///< [R, Hq, D]
    const void *k;           ///< [Rk, Hkv, D]
    const void *v;           ///< [Rk, Hkv, D]
    const uint32_t *offsets; ///< [S + 1]: the queries of segment s are rows offsets[s] .. offsets[s + 1]
    const uint32_t *keys;    ///< [S, 2]: its keys are rows keys[s, 0] .. keys[s, 1]
    const uint32_t *tiles; ///< [S + 1]: Σ over the segments before of ⌈queries / 32⌉, / 64 for tensor_core kernels
    uint32_t rows;         ///< R
    uint32_t key_rows;     ///< Rk
    uint32_t heads;        ///< Hq, a multiple of Hkv
    uint32_t kv_heads;     ///< Hkv
    uint32_t head_dim;     ///< D, at most 128
    uint32_t segments;     ///< S
    float scale;           ///< D^−½
    uint32_t unused;
} Attention;
ABI_LAYOUT(Attention, 80, unused, 76);

typedef struct {
    Attention attention;
    void *out;  ///< [R, Hq, D]
    float *lse; ///< [R, Hq], log-sum-exp of the scaled scores; −∞ where a query sees no key
} AttentionForward;
ABI_LAYOUT(AttentionForward, 96, lse, 88);

/// delta first, then the gradients of the queries and of keys and values, in either order.
typedef struct {
    Attention attention;
    const void *out;  ///< [R, Hq, D]
    const void *dout; ///< [R, Hq, D]
    const float *lse; ///< [R, Hq]
    float *delta;     ///< [R, Hq]: ⟨dout, out⟩
    void *dq;         ///< [R, Hq, D]
    void *dk;         ///< [Rk, Hkv, D]
    void *dv;         ///< [Rk, Hkv, D]
} AttentionBackward;
ABI_LAYOUT(AttentionBackward, 136, dv, 128);

// ---- ssd_scan ----

/// What the scan's kernels share.
typedef struct {
    const void *xbc;         ///< [R, H·P + 2·G·N]: x, B, C
    const void *dt;          ///< [R, H], before its bias and softplus
    const float *a_log;      ///< [H]
    const float *d;          ///< [H]
    const float *dt_bias;    ///< [H]
    const float *initial;    ///< [S, H, P, N], the state before each segment; null: zeros
    const uint32_t *offsets; ///< [S + 1]: segment s is rows offsets[s] .. offsets[s + 1]
    const uint32_t *chunks;  ///< [S + 1]: Σ over the segments before of ⌈rows / 32⌉; tensor_core: / 64
    Mask mask;               ///< over H; multiplies each head's output
    uint32_t rows;           ///< R
    uint32_t heads;          ///< H
    uint32_t head_dim;       ///< P, at most 64
    uint32_t groups;         ///< G, divides H
    uint32_t state;          ///< N, at most 128
    uint32_t segments;       ///< S
    float dt_low;            ///< dt is clamped to dt_low .. dt_high after softplus
    float dt_high;
} Scan;
ABI_LAYOUT(Scan, 128, dt_high, 124);

typedef struct {
    Scan scan;
    void *y;            ///< [R, H, P]
    void *unmasked;     ///< [R, H, P], before the mask; null: not wanted
    float *final_state; ///< [S, H, P, N]; null: not wanted
    /// [chunks, H, P, N], the state before each chunk, for the backward pass: f32 from chunked, bf16 from tensor_core,
    /// nothing from recurrent; null: not wanted
    void *starts;
} ScanForward;
ABI_LAYOUT(ScanForward, 160, starts, 152);

/// The scan's gradients; group_sum after it for those of B and C.
typedef struct {
    Scan scan;
    const void *dy;      ///< [R, H, P], of the masked output
    const float *dfinal; ///< [S, H, P, N]; null: zeros
    const void *starts;  ///< [chunks, H, P, N], from the forward kernel of the same variant
    void *dxbc;          ///< [R, H·P + 2·G·N]
    void *ddt;           ///< [R, H], of dt before its bias and softplus
    float *dinitial;     ///< [S, H, P, N]; null: not wanted
    float *db;           ///< [R, H, N], scratch: each head's share
    float *dc;           ///< [R, H, N], scratch
    float *partials;     ///< [S, 3·H], for column_sum: the gradients of a_log, d, dt_bias
} ScanBackward;
ABI_LAYOUT(ScanBackward, 200, partials, 192);

/// Only with a mask.
typedef struct {
    const void *unmasked; ///< [R, H, P]
    const void *dy;       ///< [R, H, P]
    float *row_sums;      ///< [R, C], for mask_grad
    Mask mask;            ///< over H
    uint32_t rows;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t unused;
} ScanMaskGrad;
ABI_LAYOUT(ScanMaskGrad, 72, unused, 68);

// ---- quantize ----

/// The largest magnitude of 16384 elements at a time, as its bits.
typedef struct {
    const void *x;
    uint32_t *partials; ///< [⌈elements / 16384⌉]
    uint64_t elements;
} QuantizeAmax;
ABI_LAYOUT(QuantizeAmax, 24, elements, 16);

/// The scale of an NVFP4 tensor: the largest magnitude / (448·6), 1 where that is 0
typedef struct {
    const uint32_t *partials; ///< [count], from amax
    float *tensor_scale;      ///< [1]
    uint32_t count;
    uint32_t unused;
} QuantizeTensorScale;
ABI_LAYOUT(QuantizeTensorScale, 24, unused, 20);

/// Codes and scales of a matrix. The last block of a row or column may be shorter.
typedef struct {
    const void *x; ///< [R, W]
    void *codes;   ///< FP8 [R, W], a byte each; NVFP4 [R, ⌈W / 2⌉], the first of two in the lower half
    void *scales; ///< FP8 f32: rows [R, ⌈W / 128⌉], columns [⌈R / 128⌉, W], squares [⌈R / 128⌉, ⌈W / 128⌉]
                  ///< NVFP4 e4m3: as above, with 16
    const float *tensor_scale; ///< [1], NVFP4 alone
    const StepState *state;    ///< its seed and step, where rounding is stochastic
    uint64_t first_draw;       ///< of this tensor's ⌈W / 4⌉·R draws within the step
    uint32_t rows;             ///< R
    uint32_t width;            ///< W
    uint32_t format;           ///< FP8 alone: 0 e4m3, 1 e5m2
    uint32_t stochastic;       ///< 0: to nearest, ties to even
} Quantize;
ABI_LAYOUT(Quantize, 64, stochastic, 60);

/// Each sixteen rows transformed by a random Hadamard matrix
typedef struct {
    const void *x; ///< [R, W]
    void *y;       ///< [R rounded up to 16, W]
    uint32_t rows; ///< R
    uint32_t width;
} QuantizeHadamard;
ABI_LAYOUT(QuantizeHadamard, 24, width, 20);

/// Each expert's rows from a multiple of `edge` on, with zeros behind them, so that no block of scales belongs to two
/// experts; `hadamard_stretches` transforms each sixteen rows as well
typedef struct {
    const void *x;           ///< [rows of all experts, W]
    void *y;                 ///< [rows, W]
    const uint32_t *offsets; ///< [E + 1], of x
    const uint32_t *tiles;   ///< [E + 2], as grouped_gemm counts them for `edge`
    uint32_t rows;           ///< at least tiles[E]·edge, a multiple of 16; those behind are zeros
    uint32_t width;          ///< W
    uint32_t experts;        ///< E
    uint32_t edge;           ///< 16 or 128
} QuantizeStretches;
ABI_LAYOUT(QuantizeStretches, 48, edge, 44);

// ---- quantized_linear ----

/// A matrix as quantize leaves it.
typedef struct {
    const void *codes;
    const void *scales;
    const float *tensor_scale; ///< [1], NVFP4 alone
    uint32_t format;           ///< FP8 alone
    uint32_t block_rows;       ///< rows that share a scale: 1, 16, 128
    uint32_t block_columns;
    uint32_t unused;
} QuantizedOperand;
ABI_LAYOUT(QuantizedOperand, 40, unused, 36);

/// C [M, N] = A·B as in Linear, with dense operands. Along the depth of the product, blocks are 128 (FP8) or 16
/// (NVFP4).
typedef struct {
    QuantizedOperand a; ///< nt, nn: [M, K]; tn: [K, M]
    QuantizedOperand b; ///< nt: [N, K]; nn, tn: [K, N]
    void *c;            ///< [M, N]
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t ldc;
    uint32_t accumulate; ///< 1: C +=
    uint32_t unused;
} QuantizedLinear;
ABI_LAYOUT(QuantizedLinear, 112, unused, 108);

// ---- quantized_grouped_gemm ----

/// nt: C = A·B_eᵀ, nn: C = A·B_e; expert e's rows of A are offsets[e] … offsets[e + 1], its rows of B begin at e·stride
typedef struct {
    QuantizedOperand a;      ///< [rows, K] by rows
    QuantizedOperand b;      ///< nt: [E·stride, K], N of each; nn: [E·stride, N], K of each; by squares
    void *c;                 ///< [rows, N]
    const uint32_t *offsets; ///< [E + 1]
    const uint32_t *tiles;   ///< [E + 2], for 128
    uint32_t rows;
    uint32_t n;
    uint32_t k;
    uint32_t experts;
    uint32_t stride; ///< a multiple of the squares' edge
    uint32_t unused;
} QuantizedGroupedGemm;
ABI_LAYOUT(QuantizedGroupedGemm, 128, unused, 124);

/// dW_e = dyᵀ·x over the expert's rows, as QuantizeStretches lays them
typedef struct {
    QuantizedOperand dy;   ///< [rows, M] by columns
    QuantizedOperand x;    ///< [rows, N] by columns
    float *dw;             ///< [E, M, N]
    const uint32_t *tiles; ///< [E + 2], for the blocks of scales
    uint32_t m;
    uint32_t n;
    uint32_t experts;
    uint32_t accumulate; ///< 1: dW +=
} QuantizedGroupedWeights;
ABI_LAYOUT(QuantizedGroupedWeights, 112, accumulate, 108);

#endif
