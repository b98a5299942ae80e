// Third rung: chunks of 64 rows whose products are all on the tensor cores, in bf16 with f32 sums. A block takes one
// head of one segment. A warp has 16 rows of the chunk, and 16 of the state's P rows, in f32 in registers; products
// read copies of the state in shared memory. With cb = C·Bᵀ, e the running sum of dt·A in the chunk, S the state before
// it:
//
//   y_i = Σ_{j ≤ i} cb_ij·exp(e_i − e_j)·dt_j·x_j + exp(e_i)·S·c_i + D·x_i
//   S  ← exp(e_last)·S + Σ_j exp(e_last − e_j)·dt_j·x_j ⊗ b_j
//
// What is not bf16 as it is stored, the weights of x in either sum and S, goes into its product in two bf16 parts: sums
// are often far smaller than what they sum, so that rounding it would show, and S outlives the chunk. The gradients do
// the same, but for S itself, which they find stored in one part.
//
// Fixed tiles of 64 columns of x and STATE (64 or 128) of B, C and S; behind P and N they are zeros.
#pragma once

#include "rows.cuh"
#include "step.cuh"

/// What a chunk's rows have of their own, for one head.
///
/// e is a sum of up to 64 steps' dt·A, and decays are exponentials of differences of two such sums. A step below −80 is
/// taken as −80, so that no −∞ − −∞ arises: a decay that contains it is below 1e−34 either way, and flushed to 0. What
/// the differences lose: e is as exact as f32 of its size, so a decay's relative error is that size times 2⁻²⁴ per
/// addition, 1e−5 where a chunk decays by e⁻¹⁰⁰. Only behind steps that have forgotten all, with e towards −5120, is it
/// 5e−4, a quarter of what rounding to bf16 does.
struct ChunkRows {
    float dt[SCAN_CHUNK];
    float exponent[SCAN_CHUNK];   // e
    float from_start[SCAN_CHUNK]; // the decay from before the chunk to after the row, exp(e)
    float into_end[SCAN_CHUNK];   // dt times the decay to the end of the chunk: the row's weight in the state
    float whole;                  // the chunk's decay

    /// From after row `from` to after row `to`; 0 backwards in time.
    __device__ float decay(uint32_t to, uint32_t from) const {
        return to < from ? 0.0f : flush(expf(exponent[to] - exponent[from]));
    }

    /// From after a row to the end of the chunk.
    __device__ float to_end(uint32_t from) const { return decay(SCAN_CHUNK - 1, from); }

    /// Warp 0 fills them, two rows per lane. Rows behind the last are steps of length 0, which change nothing.
    __device__ void fill(const Scan &scan, uint32_t head, uint32_t first, uint32_t count) {
        if (warp() > 0) return;
        const float rate = decay_rate(scan, head);
        float e[2], end = 0.0f; // of the half before
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t row = half * WARP + lane();
            dt[row] = row < count ? time_step<bf16>(scan, head, first + row) : 0.0f;
            e[half] = end + sum_from_start(fmaxf(dt[row] * rate, -80.0f));
            end = __shfl_sync(ALL_LANES, e[half], WARP - 1);
        }
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t row = half * WARP + lane();
            exponent[row] = e[half];
            from_start[row] = flush(expf(e[half]));
            into_end[row] = dt[row] * flush(expf(end - e[half]));
        }
        if (lane() == 0) whole = flush(expf(end));
    }
};

/// The two of 64 numbers in shared memory that belong to a lane's rows of mma's d.
struct OwnPair {
    float above, below;
};

__device__ inline OwnPair own_pair(const float *of_rows) {
    const float *own = of_rows + own_rows() + lane() / 4;
    return {own[0], own[8]};
}

/// x times a factor per row.
template <int N> __device__ void scale_rows(float (&x)[N][4], OwnPair factor) {
#pragma unroll
    for (uint32_t j = 0; j < N; j++) {
        x[j][0] *= factor.above, x[j][1] *= factor.above;
        x[j][2] *= factor.below, x[j][3] *= factor.below;
    }
}

/// state [16, STATE] ← decay·state + Σ over the chunk's rows of weight(row)·(the warp's 16 columns of u) ⊗ v. The
/// weighted columns are split: the state stays f32.
template <int STATE, typename Weight>
__device__ void advance_state(float (&state)[STATE / 8][4], float decay, const SwizzledTile<SCAN_DIMS> &u,
    const Weight &weight, const SwizzledTile<STATE> &v, uint32_t rows) {
    scale_rows(state, {decay, decay});
#pragma unroll 1
    for (uint32_t row = 0; row < rows; row += 16) {
        uint32_t x[4];
        u.columns_as_a(x, row, own_rows());
        SplitFragment weighted;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t of = row + i / 2 * 8 + lane() % 4 * 2;
            weighted.set(i, low_bf16(x[i]) * weight(of), high_bf16(x[i]) * weight(of + 1));
        }
        weighted.add_rows(state, v, row);
    }
}

/// y [16, P] += factor·(16 rows of x).
__device__ inline void
add_scaled(float (&y)[SCAN_DIMS / 8][4], float factor, const SwizzledTile<SCAN_DIMS> &x, uint32_t row) {
#pragma unroll
    for (uint32_t j = 0; j < SCAN_DIMS / 8; j++) {
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            float pair[2];
            load(pair, reinterpret_cast<const bf16 *>(x.pair(row + r * 8, j)));
            y[j][2 * r] += factor * pair[0];
            y[j][2 * r + 1] += factor * pair[1];
        }
    }
}

/// The mask of a head on 16 rows from `first` on, of those before `end`.
__device__ inline void mask_rows(float (&y)[SCAN_DIMS / 8][4], const HeadMask &mask, uint32_t first, uint32_t end) {
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = first + lane() / 4 + r * 8;
        const float keep = row < end ? mask.at(row) : 1.0f;
#pragma unroll
        for (uint32_t j = 0; j < SCAN_DIMS / 8; j++) {
            y[j][2 * r] = masked(y[j][2 * r], keep);
            y[j][2 * r + 1] = masked(y[j][2 * r + 1], keep);
        }
    }
}

/// Whose rows a row's sum is over, its own among them.
enum class Over { EARLIER, LATER };

/// sum [16, D] += Σ over rows r of ⟨own row of a, row r of b⟩·(decay between the two)·weight[r]·(row r of v), for the
/// warp's rows and those of the chunk's `rows` that are earlier or later.
template <Over OVER, int A, int D>
__device__ void add_decayed_rows(float (&sum)[D / 8][4], const ChunkRows &chunk, const float *weight,
    const SwizzledTile<A> &a, const SwizzledTile<A> &b, const SwizzledTile<D> &v, uint32_t rows) {
    const uint32_t mine = own_rows(), begin = OVER == Over::EARLIER ? 0 : mine;
    const uint32_t end = OVER == Over::EARLIER ? mine + 16 : rows;
#pragma unroll 1 // the other side of the diagonal is not computed
    for (uint32_t first = begin; first < end; first += 16) {
        float w[2][4] = {};
        add_row_products(w, a, mine, b, first);
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint32_t own = mine + lane() / 4 + e / 2 * 8, other = first + j * 8 + lane() % 4 * 2 + e % 2;
                w[j][e] *= (OVER == Over::EARLIER ? chunk.decay(own, other) : chunk.decay(other, own)) * weight[other];
            }
        }
        SplitFragment(w).add_rows(sum, v, first);
    }
}

/// Whether a chunk's rows of x and C come while the chunk before is computed.
enum class Prefetch { NO, YES };

/// `chunk` is shared. With PREFETCH its rows of B, which the state's update needs to the last, come while the state's
/// share of y is computed, and the next chunk's x and C during the whole of this one.
template <int STATE, Prefetch PREFETCH> __device__ void tensor_core_forward(const ScanForward &args, ChunkRows &chunk) {
    constexpr bool AHEAD = PREFETCH == Prefetch::YES;
    const Scan &scan = args.scan;
    const uint32_t head = blockIdx.x, segment = blockIdx.y, p = scan.head_dim, n = scan.state, mine = own_rows();
    const uint32_t begin = scan.offsets[segment], end = scan.offsets[segment + 1];
    const uint32_t state_rows = p > mine ? p - mine : 0; // of the warp
    const uint64_t size = uint64_t(p) * n, of_warp = (uint64_t(segment) * scan.heads + head) * size + mine * n;
    const Columns columns(scan, head);
    const HeadMask mask(scan.mask, head);
    SharedTiles tiles;
    auto x = tiles.next<SCAN_DIMS>();
    auto c = tiles.next<STATE>();
    const auto b = tiles.next<STATE>();
    const auto before = tiles.next<STATE>(), before_low = tiles.next<STATE>(); // the state in two parts
    auto next_x = AHEAD ? tiles.next<SCAN_DIMS>() : x;
    auto next_c = AHEAD ? tiles.next<STATE>() : c;
    const auto fetch_chunk = [&](const auto &tile, uint32_t first, uint32_t column, uint32_t count) {
        const bf16 *from = row_of<const bf16>(scan.xbc, first, columns.width) + column;
        fetch(tile, from, columns.width, count, min(end - first, SCAN_CHUNK));
    };
    // A group of copies, empty behind the last chunk: there are as many groups in every round.
    const auto fetch_x_and_c = [&](uint32_t first) {
        if (first < end) {
            fetch_chunk(next_x, first, columns.x, p);
            fetch_chunk(next_c, first, columns.c, n);
        }
        copy_async_commit();
    };

    float state[STATE / 8][4] = {};
    if (scan.initial) load_rows(state, scan.initial + of_warp, n, n, state_rows);
    if (AHEAD) fetch_x_and_c(begin);
    for (uint32_t first = begin; first < end; first += SCAN_CHUNK) {
        const uint32_t rows = min(end - first, SCAN_CHUNK);
        __syncthreads(); // the last chunk has been read
        if (AHEAD) {
            swap(x, next_x);
            swap(c, next_c);
        }
        fetch_chunk(b, first, columns.b, n);
        copy_async_commit();
        fetch_x_and_c(first + (AHEAD ? SCAN_CHUNK : 0));
        chunk.fill(scan, head, first, rows);
        put_split(before, before_low, mine, state);
        if (args.starts) {
            const uint64_t place = scan.chunks[segment] + (first - begin) / SCAN_CHUNK;
            bf16 *start = static_cast<bf16 *>(args.starts) + (place * scan.heads + head) * size;
            copy_out(start + mine * n, n, n, state_rows, before, mine);
        }
        copy_async_wait<AHEAD ? 2 : 0>();
        __syncthreads();

        float y[SCAN_DIMS / 8][4] = {};
        if (mine < rows) {
            add_row_products(y, c, mine, before);
            add_row_products(y, c, mine, before_low);
            scale_rows(y, own_pair(chunk.from_start));
        }
        if (AHEAD) {
            copy_async_wait<1>();
            __syncthreads();
        }
        if (mine < rows) {
            const SwizzledTile<SCAN_DIMS> scratch = {c.chunk(mine, 0)}; // the warp's rows of C, once it has read them
            add_decayed_rows<Over::EARLIER>(y, chunk, chunk.dt, c, b, x, rows);
            add_scaled(y, scan.d[head], x, mine);
            const uint64_t width = uint64_t(scan.heads) * p, at = (first + mine) * width + head * p;
            __syncwarp(); // C has been read
            if (args.unmasked) {
                put(scratch, 0, y);
                copy_out(static_cast<bf16 *>(args.unmasked) + at, width, p, rows - mine, scratch, 0);
            }
            mask_rows(y, mask, first + mine, end);
            put(scratch, 0, y);
            copy_out(static_cast<bf16 *>(args.y) + at, width, p, rows - mine, scratch, 0);
        }
        advance_state(state, chunk.whole, x, [&](uint32_t row) { return chunk.into_end[row]; }, b, rows);
    }
    if (args.final_state) store_rows(args.final_state + of_warp, n, n, state_rows, state);
}
