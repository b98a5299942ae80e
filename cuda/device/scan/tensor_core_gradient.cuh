// The gradients of the scan on the tensor cores: the chunks in reverse, the gradient of the state after a chunk in
// registers, as the state is on the way forward. With cb = C·Bᵀ, g = dY·Xᵀ (dY masked), L_ij the decay from row j to
// row i, u_j that from j to the end, v_i that from before the chunk to i, S the state before the chunk, dS the gradient
// of the one after it:
//
//   dx_j = dt_j·(Σ_{i ≥ j} cb_ij·L_ij·dy_i + u_j·dS·b_j) + D·dy_j
//   db_j = dt_j·(Σ_{i ≥ j} g_ij·L_ij·c_i + u_j·dSᵀ·x_j)
//   dc_i = Σ_{j ≤ i} g_ij·L_ij·dt_j·b_j + v_i·Sᵀ·dy_i
//   dS  ← (whole decay)·dS + Σ_i v_i·dy_i ⊗ c_i
//
// The exponent of a decay gets the decay's gradient times the decay. Summed over all decays that lead to row i, that is
// ⟨c_i, dc_i⟩; over those that start behind row j, ⟨b_j, db_j⟩; and what is in db's brackets, times b, is dt's own
// gradient.
#pragma once

#include "tensor_core.cuh"

/// What the mask makes of a chunk's rows, and what their decays get of gradients.
struct ChunkGradients {
    float keep[SCAN_CHUNK];            // the mask
    float exponent[SCAN_CHUNK];        // ⟨c, dc⟩ − ⟨b, db⟩
    float direct[SCAN_CHUNK];          // ⟨b, db⟩ / dt
    float at_end[SCAN_THREADS / WARP]; // of the decays to the end of the chunk, a warp's share

    /// Threads 64 and on fill the mask's part.
    __device__ void fill(const HeadMask &mask, uint32_t first, uint32_t rows) {
        if (threadIdx.x < SCAN_CHUNK) return;
        const uint32_t row = threadIdx.x - SCAN_CHUNK;
        keep[row] = row < rows ? mask.at(first + row) : 0.0f;
    }
};

/// sum [16, D] += the warp's rows of a, times the first `depth` rows of b.
template <int D, int E>
__device__ void
add_products(float (&sum)[D / 8][4], const SwizzledTile<E> &a, const SwizzledTile<D> &b, uint32_t depth) {
#pragma unroll 1
    for (uint32_t row = 0; row < depth; row += 16) {
        uint32_t x[4];
        a.rows_as_a(x, own_rows(), row);
        add_rows(sum, x, b, row);
    }
}

/// ⟨row of x, the same row of a tile⟩ for the lane's two rows, in all lanes that share them.
template <int D> __device__ OwnPair row_dots(const float (&x)[D / 8][4], const SwizzledTile<D> &tile) {
    OwnPair dot = {0.0f, 0.0f};
#pragma unroll
    for (uint32_t j = 0; j < D / 8; j++) {
        const uint32_t above = *tile.pair(own_rows(), j), below = *tile.pair(own_rows() + 8, j);
        dot.above += x[j][0] * low_bf16(above) + x[j][1] * high_bf16(above);
        dot.below += x[j][2] * low_bf16(below) + x[j][3] * high_bf16(below);
    }
    return {quad_sum(dot.above), quad_sum(dot.below)};
}

/// The decays from the lane's two rows to the end of the chunk.
__device__ inline OwnPair to_end(const ChunkRows &chunk) {
    const uint32_t above = own_rows() + lane() / 4;
    return {chunk.to_end(above), chunk.to_end(above + 8)};
}

/// dx += D·keep·dy; returns the lane's share of the gradient of D, ⟨keep·dy, x⟩.
__device__ inline float add_skip(float (&dx)[SCAN_DIMS / 8][4], float skip, OwnPair keep,
    const SwizzledTile<SCAN_DIMS> &dy, const SwizzledTile<SCAN_DIMS> &x) {
    float product = 0.0f;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const float m = r == 0 ? keep.above : keep.below;
#pragma unroll
        for (uint32_t j = 0; j < SCAN_DIMS / 8; j++) {
            const uint32_t d = *dy.pair(own_rows() + r * 8, j), own = *x.pair(own_rows() + r * 8, j);
            const float low = m * low_bf16(d), high = m * high_bf16(d);
            dx[j][2 * r] += skip * low;
            dx[j][2 * r + 1] += skip * high;
            product += low * low_bf16(own) + high * high_bf16(own);
        }
    }
    return product;
}

/// The lane's share of ⟨S, dS⟩, over the warp's rows of both.
template <int STATE> __device__ float state_dot(const float (&dstate)[STATE / 8][4], const SwizzledTile<STATE> &state) {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < STATE / 8; j++) {
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t word = *state.pair(own_rows() + r * 8, j);
            sum += dstate[j][2 * r] * low_bf16(word) + dstate[j][2 * r + 1] * high_bf16(word);
        }
    }
    return sum;
}

/// The gradients of the rows' dt, once all sums are there: warp 0, two rows per lane. Returns the sums over its rows.
__device__ inline StepGradient
step_gradients(const ScanBackward &args, const ChunkGradients &sums, uint32_t head, uint32_t first, uint32_t rows) {
    StepGradient total = {};
    if (warp() > 0) return total;
    // A step is in the decays to the end of the chunk, and in the exponents of its own row and of all behind it.
    float behind = 0.0f;
    for (uint32_t w = 0; w < SCAN_THREADS / WARP; w++) behind += sums.at_end[w];
#pragma unroll
    for (uint32_t half = 2; half-- > 0;) {
        const uint32_t row = half * WARP + lane();
        const float exponent = behind + sum_to_end(row < rows ? sums.exponent[row] : 0.0f);
        behind = __shfl_sync(ALL_LANES, exponent, 0);
        if (row >= rows) continue;
        const StepGradient step = StepGradient::of<bf16>(args.scan, head, first + row, exponent, sums.direct[row]);
        static_cast<bf16 *>(args.ddt)[uint64_t(first + row) * args.scan.heads + head] = narrow<bf16>(step.raw);
        total.a_log += step.a_log;
        total.raw += step.raw;
    }
    return total;
}

template <int STATE> struct GradientTiles {
    SwizzledTile<SCAN_DIMS> x, dy; // dy before the mask, but 0 where that is
    SwizzledTile<STATE> b, c;
    SwizzledTile<STATE> before;           // S
    SwizzledTile<STATE> after, after_low; // dS in two parts
};

/// The warp's rows of dc, and what they are to their exponents.
template <int STATE>
__device__ void gradient_of_c(float (&dc)[STATE / 8][4], ChunkGradients &sums, const ChunkRows &chunk,
    const GradientTiles<STATE> &tiles, uint32_t p, uint32_t rows) {
    add_products(dc, tiles.dy, tiles.before, p);
    scale_rows(dc, own_pair(chunk.from_start));
    add_decayed_rows<Over::EARLIER>(dc, chunk, chunk.dt, tiles.dy, tiles.x, tiles.b, rows);
    scale_rows(dc, own_pair(sums.keep));
    const OwnPair exponent = row_dots(dc, tiles.c);
    if (lane() % 4 > 0) return;
    const uint32_t above = own_rows() + lane() / 4;
    sums.exponent[above] = exponent.above, sums.exponent[above + 8] = exponent.below;
}

/// The warp's rows of db, and what they are to their dt and exponents, after gradient_of_c. Returns the lane's share of
/// what the decays to the end of the chunk get.
template <int STATE>
__device__ float gradient_of_b(float (&db)[STATE / 8][4], ChunkGradients &sums, const ChunkRows &chunk,
    const GradientTiles<STATE> &tiles, uint32_t p, uint32_t rows) {
    add_products(db, tiles.x, tiles.after, p);
    add_products(db, tiles.x, tiles.after_low, p);
    scale_rows(db, to_end(chunk));
    const OwnPair dt = own_pair(chunk.dt), at_end = row_dots(db, tiles.b);
    add_decayed_rows<Over::LATER>(db, chunk, sums.keep, tiles.x, tiles.dy, tiles.c, rows);
    const OwnPair direct = row_dots(db, tiles.b);
    scale_rows(db, dt);
    if (lane() % 4 > 0) return 0.0f;
    const uint32_t above = own_rows() + lane() / 4;
    sums.direct[above] = direct.above, sums.direct[above + 8] = direct.below;
    sums.exponent[above] -= dt.above * direct.above, sums.exponent[above + 8] -= dt.below * direct.below;
    return dt.above * at_end.above + dt.below * at_end.below;
}

/// The warp's rows of dx but for what D adds.
template <int STATE>
__device__ void gradient_of_x(float (&dx)[SCAN_DIMS / 8][4], const ChunkGradients &sums, const ChunkRows &chunk,
    const GradientTiles<STATE> &tiles, uint32_t rows) {
    add_row_products(dx, tiles.b, own_rows(), tiles.after);
    add_row_products(dx, tiles.b, own_rows(), tiles.after_low);
    scale_rows(dx, to_end(chunk));
    add_decayed_rows<Over::LATER>(dx, chunk, sums.keep, tiles.b, tiles.c, tiles.dy, rows);
    scale_rows(dx, own_pair(chunk.dt));
}

/// Starts to bring a chunk's rows and the state before it into the tiles.
template <int STATE>
__device__ void fetch_chunk(const GradientTiles<STATE> &tiles, const ScanBackward &args, const HeadMask &mask,
    uint32_t head, uint64_t chunk, uint32_t first, uint32_t rows) {
    const Scan &scan = args.scan;
    const uint32_t p = scan.head_dim, n = scan.state;
    const Columns columns(scan, head);
    const bf16 *xbc = row_of<const bf16>(scan.xbc, first, columns.width);
    fetch(tiles.x, xbc + columns.x, columns.width, p, rows);
    fetch(tiles.b, xbc + columns.b, columns.width, n, rows);
    fetch(tiles.c, xbc + columns.c, columns.width, n, rows);
    fetch(tiles.before, static_cast<const bf16 *>(args.starts) + (chunk * scan.heads + head) * p * n, n, n, p);
    const bf16 *dy = row_of<const bf16>(args.dy, first, scan.heads * p) + head * p;
    fetch(tiles.dy, dy, scan.heads * p, p, rows, [&](uint32_t row) { return mask.at(first + row) != 0.0f; });
    copy_async_commit();
}

/// `chunk` and `sums` are shared.
template <int STATE>
__device__ void tensor_core_backward(const ScanBackward &args, ChunkRows &chunk, ChunkGradients &sums) {
    const Scan &scan = args.scan;
    const uint32_t head = blockIdx.x, segment = blockIdx.y, p = scan.head_dim, n = scan.state, mine = own_rows();
    const uint32_t begin = scan.offsets[segment], end = scan.offsets[segment + 1];
    const uint32_t state_rows = p > mine ? p - mine : 0;
    const uint64_t of_warp = ((uint64_t(segment) * scan.heads + head) * p + mine) * n;
    const Columns columns(scan, head);
    const HeadMask mask(scan.mask, head);
    SharedTiles memory;
    const auto x = memory.next<SCAN_DIMS>(), dy = memory.next<SCAN_DIMS>();
    const auto b = memory.next<STATE>(), c = memory.next<STATE>();
    const auto before = memory.next<STATE>(), after = memory.next<STATE>(), after_low = memory.next<STATE>();
    const GradientTiles<STATE> tiles = {x, dy, b, c, before, after, after_low};

    float dstate[STATE / 8][4] = {}, per_head[3] = {}; // gradients of a_log, d, dt_bias
    if (args.dfinal) load_rows(dstate, args.dfinal + of_warp, n, n, state_rows);
    for (uint32_t index = (end - begin + SCAN_CHUNK - 1) / SCAN_CHUNK; index-- > 0;) {
        const uint32_t first = begin + index * SCAN_CHUNK, rows = min(end - first, SCAN_CHUNK);
        __syncthreads(); // the last chunk has been read
        fetch_chunk(tiles, args, mask, head, scan.chunks[segment] + index, first, rows);
        chunk.fill(scan, head, first, rows);
        sums.fill(mask, first, rows);
        put_split(after, after_low, mine, dstate);
        copy_async_wait<0>();
        __syncthreads();

        float at_end = chunk.whole * state_dot(dstate, before);
        if (mine < rows) {
            const uint64_t stride = uint64_t(scan.heads) * n, share = (first + mine) * stride + head * n;
            {
                float dc[STATE / 8][4] = {};
                gradient_of_c(dc, sums, chunk, tiles, p, rows);
                store_rows(args.dc + share, stride, n, rows - mine, dc);
            }
            float db[STATE / 8][4] = {};
            at_end += gradient_of_b(db, sums, chunk, tiles, p, rows);
            store_rows(args.db + share, stride, n, rows - mine, db);
        }
        float dx[SCAN_DIMS / 8][4] = {};
        if (mine < rows) {
            gradient_of_x(dx, sums, chunk, tiles, rows);
            per_head[1] += add_skip(dx, scan.d[head], own_pair(sums.keep), dy, x);
        }
        at_end = warp_sum(at_end);
        if (lane() == 0) sums.at_end[warp()] = at_end;
        const auto masked_decay = [&](uint32_t row) { return chunk.from_start[row] * sums.keep[row]; };
        advance_state(dstate, chunk.whole, dy, masked_decay, c, rows);
        __syncthreads(); // x has been read, and all sums are there
        if (mine < rows) {
            put(x, mine, dx);
            bf16 *out = row_of<bf16>(args.dxbc, first + mine, columns.width) + columns.x;
            copy_out(out, columns.width, p, rows - mine, x, mine);
        }
        const StepGradient steps = step_gradients(args, sums, head, first, rows);
        per_head[0] += steps.a_log;
        per_head[2] += steps.raw;
    }
    if (args.dinitial) store_rows(args.dinitial + of_warp, n, n, state_rows, dstate);
    block_sum<SCAN_THREADS>(per_head);
    if (threadIdx.x > 0) return;
#pragma unroll
    for (uint32_t k = 0; k < 3; k++) args.partials[(uint64_t(segment) * 3 + k) * scan.heads + head] = per_head[k];
}
