// Second rung: f32 arithmetic on chunks of 32 rows. A block takes one head of one segment, the state in shared memory;
// eight threads share a row. Decays over several steps are products of the steps' own, which lie in [0, 1]: nothing
// overflows, and no difference of large sums is ever exponentiated. Rows behind a segment's end are steps of length 0,
// which change nothing.
#pragma once

#include "step.cuh"

constexpr uint32_t CHUNKED_THREADS = 256;
constexpr uint32_t CHUNK = 32;                      // rows
constexpr uint32_t SHARE = CHUNKED_THREADS / CHUNK; // threads of a row
constexpr uint32_t DIMS = 64 / SHARE;               // most of the P dimensions of a thread: part, part + SHARE, …
constexpr uint32_t PITCH = CHUNK + 1;               // of a chunk's [32, 32] in shared memory

__device__ inline uint32_t row_in_chunk() { return threadIdx.x / SHARE; }
__device__ inline uint32_t part() { return threadIdx.x % SHARE; }

/// Σ over the threads of a row.
__device__ inline float row_sum(float x) {
#pragma unroll
    for (uint32_t distance = SHARE / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

/// A matrix in shared memory, at a pitch that spreads a column over the banks.
struct Shared {
    float *memory;
    uint32_t pitch;

    __device__ Shared(float *&free, uint32_t rows, uint32_t columns) : memory(free), pitch(columns | 1) {
        free += rows * pitch;
    }
    __device__ float *operator[](uint32_t row) const { return memory + row * pitch; }
};

/// Brings rows first .. end of a matrix's columns into shared memory, zeros behind them.
template <typename T>
__device__ void fetch(
    const Shared &to, const T *from, uint32_t width, uint32_t column, uint32_t columns, uint32_t first, uint32_t end) {
    for (uint32_t i = threadIdx.x; i < CHUNK * columns; i += CHUNKED_THREADS) {
        const uint32_t row = i / columns, j = i % columns;
        to[row][j] = first + row < end ? widen(from[uint64_t(first + row) * width + column + j]) : 0.0f;
    }
}

/// A chunk's time steps and decays for one head.
struct Decays {
    float dt[CHUNK];         // after softplus and clamp
    float step[CHUNK];       // the step's own factor, exp(dt·A)
    float from_start[CHUNK]; // from before the chunk to after the row
    float to_end[CHUNK];     // from after the row to the end of the chunk
};

/// Warp 0 fills them, a lane per row.
template <typename T>
__device__ void fill(Decays &decays, const Scan &scan, uint32_t head, uint32_t first, uint32_t end) {
    if (warp() > 0) return;
    const uint32_t row = first + lane();
    const float dt = row < end ? time_step<T>(scan, head, row) : 0.0f;
    const float step = row < end ? expf(dt * decay_rate(scan, head)) : 1.0f;
    float from_start = step, to_end = step;
#pragma unroll
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const float before = __shfl_up_sync(ALL_LANES, from_start, distance);
        const float after = __shfl_down_sync(ALL_LANES, to_end, distance);
        if (lane() >= distance) from_start = flush(from_start * before);
        if (lane() + distance < WARP) to_end = flush(to_end * after);
    }
    to_end = __shfl_down_sync(ALL_LANES, to_end, 1);
    decays.dt[lane()] = dt;
    decays.step[lane()] = step;
    decays.from_start[lane()] = from_start;
    decays.to_end[lane()] = lane() == WARP - 1 ? 1.0f : to_end;
}

/// out[i, j] = ⟨row i of a, row j of b⟩ over `length` columns.
__device__ inline void products(float *out, const Shared &a, const Shared &b, uint32_t length) {
    float sum[CHUNK / SHARE] = {};
    for (uint32_t k = 0; k < length; k++) {
#pragma unroll
        for (uint32_t j = 0; j < CHUNK / SHARE; j++) sum[j] += a[row_in_chunk()][k] * b[part() + j * SHARE][k];
    }
#pragma unroll
    for (uint32_t j = 0; j < CHUNK / SHARE; j++) out[row_in_chunk() * PITCH + part() + j * SHARE] = sum[j];
}

/// Moves the decay from after row j to before row i on to after row i; 0 above the diagonal.
__device__ inline float advance(float decay, uint32_t i, uint32_t j, float step) {
    return i < j ? 0.0f : i == j ? 1.0f : flush(decay * step);
}

template <typename T> __device__ void chunked_forward(const ScanForward &args) {
    __shared__ Decays decays;
    const Scan &scan = args.scan;
    const uint32_t head = blockIdx.x, segment = blockIdx.y, p = scan.head_dim, n = scan.state;
    const uint32_t begin = scan.offsets[segment], end = scan.offsets[segment + 1];
    const Columns columns(scan, head);
    const HeadMask mask(scan.mask, head);
    const T *xbc = static_cast<const T *>(scan.xbc);
    float *free = dynamic_shared<float>();
    const Shared state(free, p, n), b(free, CHUNK, n), c(free, CHUNK, n), x(free, CHUNK, p);
    float *m = free; // [32, 32]: C·Bᵀ, then times decay and dt

    const uint64_t size = uint64_t(p) * n, of_segment = (uint64_t(segment) * scan.heads + head) * size;
    for (uint32_t i = threadIdx.x; i < size; i += CHUNKED_THREADS)
        state[i / n][i % n] = scan.initial ? scan.initial[of_segment + i] : 0.0f;
    for (uint32_t first = begin; first < end; first += CHUNK) {
        __syncthreads();
        if (args.starts) {
            const uint64_t chunk = scan.chunks[segment] + (first - begin) / CHUNK;
            float *start = static_cast<float *>(args.starts) + (chunk * scan.heads + head) * size;
            for (uint32_t i = threadIdx.x; i < size; i += CHUNKED_THREADS) start[i] = state[i / n][i % n];
        }
        fetch(x, xbc, columns.width, columns.x, p, first, end);
        fetch(b, xbc, columns.width, columns.b, n, first, end);
        fetch(c, xbc, columns.width, columns.c, n, first, end);
        fill<T>(decays, scan, head, first, end);
        __syncthreads();
        products(m, c, b, n);
        __syncthreads();
        if (warp() == 0) { // lane j walks down column j
            float decay = 0.0f;
            for (uint32_t i = 0; i < CHUNK; i++) {
                decay = advance(decay, i, lane(), decays.step[i]);
                m[i * PITCH + lane()] *= decay * decays.dt[lane()];
            }
        }
        __syncthreads();

        const uint32_t i = row_in_chunk(), row = first + i;
        float y[DIMS] = {};
        for (uint32_t k = 0; k < n; k++) {
#pragma unroll
            for (uint32_t a = 0; a < DIMS; a++)
                if (part() + a * SHARE < p) y[a] += c[i][k] * state[part() + a * SHARE][k];
        }
#pragma unroll
        for (uint32_t a = 0; a < DIMS; a++) y[a] *= decays.from_start[i];
        for (uint32_t j = 0; j <= i; j++) {
#pragma unroll
            for (uint32_t a = 0; a < DIMS; a++)
                if (part() + a * SHARE < p) y[a] += m[i * PITCH + j] * x[j][part() + a * SHARE];
        }
        const float keep = row < end ? mask.at(row) : 1.0f;
#pragma unroll
        for (uint32_t a = 0; a < DIMS; a++) {
            const uint32_t d = part() + a * SHARE;
            if (row >= end || d >= p) continue;
            const float value = y[a] + scan.d[head] * x[i][d];
            const uint64_t at = (uint64_t(row) * scan.heads + head) * p + d;
            if (args.unmasked) static_cast<T *>(args.unmasked)[at] = narrow<T>(value);
            static_cast<T *>(args.y)[at] = narrow<T>(masked(value, keep));
        }
        __syncthreads(); // the state has been read
        for (uint32_t at = threadIdx.x; at < size; at += CHUNKED_THREADS) {
            float sum = state[at / n][at % n] * decays.from_start[CHUNK - 1];
            for (uint32_t j = 0; j < CHUNK; j++) sum += decays.to_end[j] * decays.dt[j] * x[j][at / n] * b[j][at % n];
            state[at / n][at % n] = sum;
        }
    }
    if (!args.final_state) return;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < size; i += CHUNKED_THREADS)
        args.final_state[of_segment + i] = state[i / n][i % n];
}

/// Warp 0 walks down the columns of m = C·Bᵀ and g = dY·Xᵀ, a lane per column: m gets the weights with which rows reach
/// later ones, g the gradient of C·Bᵀ. The lane's row gets the gradients of its decays' running exponent and of its dt.
__device__ inline void within_chunk(float *m, float *g, const Decays &decays, float *dsum, float *ddt) {
    const uint32_t j = lane();
    const float dt = decays.dt[j];
    float decay = 0.0f, column = 0.0f, row = 0.0f;
    for (uint32_t i = 0; i < CHUNK; i++) {
        decay = advance(decay, i, j, decays.step[i]);
        const float ge = g[i * PITCH + j] * decay, cb = m[i * PITCH + j];
        m[i * PITCH + j] = cb * decay * dt;
        g[i * PITCH + j] = ge * dt;
        column += ge * cb;
        const float sum = warp_sum(ge * cb * dt); // row i's decays all contain its own step
        if (i == j) row = sum;
    }
    dsum[j] = row - column * dt;
    ddt[j] = column;
}

/// The chunks in reverse: `dstate` is the gradient of a chunk's last state and becomes that of its first.
template <typename T> __device__ void chunked_backward(const ScanBackward &args) {
    __shared__ Decays decays;
    __shared__ float dsum[CHUNK], ddt[CHUNK], into_end[CHUNK];
    const Scan &scan = args.scan;
    const uint32_t head = blockIdx.x, segment = blockIdx.y, p = scan.head_dim, n = scan.state;
    const uint32_t begin = scan.offsets[segment], end = scan.offsets[segment + 1];
    const Columns columns(scan, head);
    const T *xbc = static_cast<const T *>(scan.xbc);
    float *free = dynamic_shared<float>();
    const Shared dstate(free, p, n), b(free, CHUNK, n), c(free, CHUNK, n), x(free, CHUNK, p), dy(free, CHUNK, p);
    float *m = free, *g = free + CHUNK * PITCH;
    const uint64_t size = uint64_t(p) * n, of_segment = (uint64_t(segment) * scan.heads + head) * size;
    for (uint32_t i = threadIdx.x; i < size; i += CHUNKED_THREADS)
        dstate[i / n][i % n] = args.dfinal ? args.dfinal[of_segment + i] : 0.0f;
    const HeadMask mask(scan.mask, head);
    const float skip = scan.d[head];
    float per_head[3] = {}; // gradients of a_log, d, dt_bias

    for (uint32_t chunk = scan.chunks[segment + 1] - scan.chunks[segment]; chunk-- > 0;) {
        const uint32_t first = begin + chunk * CHUNK;
        const uint64_t place = (scan.chunks[segment] + chunk) * uint64_t(scan.heads) + head;
        const float *state = static_cast<const float *>(args.starts) + place * size;
        __syncthreads();
        fetch(x, xbc, columns.width, columns.x, p, first, end);
        fetch(b, xbc, columns.width, columns.b, n, first, end);
        fetch(c, xbc, columns.width, columns.c, n, first, end);
        fetch(dy, static_cast<const T *>(args.dy), scan.heads * p, head * p, p, first, end);
        fill<T>(decays, scan, head, first, end);
        __syncthreads();
        const uint32_t i = row_in_chunk(), row = first + i;
        if (scan.mask.candidates && row < end) { // a row's threads are of one warp
            const float keep = mask.at(row);
            for (uint32_t d = part(); d < p; d += SHARE) dy[i][d] = masked(dy[i][d], keep);
        }
        __syncthreads();
        products(m, c, b, n);
        products(g, dy, x, p);
        __syncthreads();
        if (warp() == 0) within_chunk(m, g, decays, dsum, ddt);
        __syncthreads();

        // x, and what the row's decays and dt get through the state.
        const float weight = decays.to_end[i] * decays.dt[i];
        float along = 0.0f, across = 0.0f;
        for (uint32_t d = part(); d < p; d += SHARE) {
            float dx = skip * dy[i][d], from_state = 0.0f, into_state = 0.0f;
            for (uint32_t later = i; later < CHUNK; later++) dx += m[later * PITCH + i] * dy[later][d];
            for (uint32_t k = 0; k < n; k++) {
                from_state += c[i][k] * state[d * n + k];
                into_state += b[i][k] * dstate[d][k];
            }
            along += x[i][d] * into_state;
            across += decays.from_start[i] * dy[i][d] * from_state;
            per_head[1] += dy[i][d] * x[i][d];
            if (row < end)
                row_of<T>(args.dxbc, row, columns.width)[columns.x + d] = narrow<T>(dx + weight * into_state);
        }
        along = row_sum(along);
        across = row_sum(across);
        if (part() == 0) {
            dsum[i] += across - along * weight;
            ddt[i] += along * decays.to_end[i];
            into_end[i] = along * weight;
        }

        // B and C, the head's share.
        for (uint32_t k = part(); k < n; k += SHARE) {
            float db = 0.0f, dc = 0.0f;
            for (uint32_t d = 0; d < p; d++) {
                db += x[i][d] * dstate[d][k];
                dc += dy[i][d] * state[d * n + k];
            }
            db *= weight;
            dc *= decays.from_start[i];
            for (uint32_t later = i; later < CHUNK; later++) db += g[later * PITCH + i] * c[later][k];
            for (uint32_t j = 0; j <= i; j++) dc += g[i * PITCH + j] * b[j][k];
            if (row >= end) continue;
            const uint64_t at = (uint64_t(row) * scan.heads + head) * n + k;
            args.db[at] = db;
            args.dc[at] = dc;
        }

        const float whole = decays.from_start[CHUNK - 1];
        float through[1] = {0.0f}; // ⟨state, dstate⟩
        for (uint32_t at = threadIdx.x; at < size; at += CHUNKED_THREADS)
            through[0] += state[at] * dstate[at / n][at % n];
        block_sum<CHUNKED_THREADS>(through); // its barriers end all reading of dstate
        if (warp() == 0) {
            const uint32_t mine = first + lane();
            const float at_end = warp_sum(into_end[lane()]) + whole * through[0];
            const float exponent = sum_to_end(dsum[lane()] + (lane() == WARP - 1 ? at_end : 0.0f));
            if (mine < end) {
                const StepGradient step = StepGradient::of<T>(scan, head, mine, exponent, ddt[lane()]);
                static_cast<T *>(args.ddt)[uint64_t(mine) * scan.heads + head] = narrow<T>(step.raw);
                per_head[0] += step.a_log;
                per_head[2] += step.raw;
            }
        }
        for (uint32_t at = threadIdx.x; at < size; at += CHUNKED_THREADS) {
            float sum = whole * dstate[at / n][at % n];
            for (uint32_t j = 0; j < CHUNK; j++) sum += decays.from_start[j] * dy[j][at / n] * c[j][at % n];
            dstate[at / n][at % n] = sum;
        }
    }
    __syncthreads();
    if (args.dinitial) {
        for (uint32_t i = threadIdx.x; i < size; i += CHUNKED_THREADS)
            args.dinitial[of_segment + i] = dstate[i / n][i % n];
    }
    block_sum<CHUNKED_THREADS>(per_head);
    if (threadIdx.x < 3)
        args.partials[(uint64_t(segment) * 3 + threadIdx.x) * scan.heads + head] = per_head[threadIdx.x];
}
