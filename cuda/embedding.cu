// Token embedding: rows of a table, times the mask of the hidden size (axis d).
//
// The table's gradient adds the rows of one id in their order, without atomics: ids are sorted first (two digits of
// nine bits, `sort_*` once per digit), `offsets` finds each id's stretch, and a block of `backward` owns eight rows of
// the table.

#include "device/counting_sort.cuh"
#include "device/kernel.cuh"
#include "device/mask.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t ROWS = THREADS / WARP; // of a block, where a warp walks one row
constexpr uint32_t DIGIT = 512;           // values of a digit
constexpr uint32_t IDS = 8;               // rows of the table whose gradient a block makes

template <typename T, int N> __device__ void forward_row(const EmbeddingForward &args, uint32_t row) {
    const T *entry = row_of<const T>(args.table, args.ids[row], args.width);
    T *y = row_of<T>(args.y, row, args.width);
    MaskRow mask(args.mask, row);
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float a[N];
        load(a, entry + column);
#pragma unroll
        for (int j = 0; j < N; j++) a[j] = masked(a[j], mask.at(column + j));
        store(y + column, a);
    }
}

template <typename T> __device__ void forward(const EmbeddingForward &args) {
    const uint32_t row = blockIdx.x * ROWS + warp();
    if (row >= args.rows) return;
    if (wide_rows<T>(args.width, args.table, args.y)) forward_row<T, WIDE<T>>(args, row);
    else forward_row<T, 1>(args, row);
}

/// ⟨dy, table[id]⟩ per interval.
template <typename T, int N> __device__ void mask_row(const EmbeddingMaskGrad &args, uint32_t row, float *slots) {
    const T *entry = row_of<const T>(args.table, args.ids[row], args.width);
    const T *dy = row_of<const T>(args.dy, row, args.width);
    MaskRow mask(args.mask, row);
    IntervalSums sums(slots, args.mask.candidates);
    for (uint32_t column = lane() * N; column < args.width; column += WARP * N) {
        float a[N], d[N];
        load(a, entry + column);
        load(d, dy + column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            mask.at(column + j);
            sums.add(mask.interval(), d[j] * a[j]);
        }
    }
    sums.finish(args.row_sums + uint64_t(row) * args.mask.candidates);
}

template <typename T> __device__ void mask_grad(const EmbeddingMaskGrad &args) {
    float *slots = dynamic_shared<float>(); // [warp, C, 32]
    const uint32_t row = blockIdx.x * ROWS + warp();
    if (row >= args.rows) return;
    float *mine = slots + warp() * IntervalSums::floats(args.mask.candidates);
    if (wide_rows<T>(args.width, args.table, args.dy)) mask_row<T, WIDE<T>>(args, row, mine);
    else mask_row<T, 1>(args, row, mine);
}

/// IDS rows of the table: thread t owns the same columns of each, and finds their intervals of the mask once.
template <typename T, int N> __device__ void table_rows(const EmbeddingBackward &args, uint32_t first) {
    __shared__ uint32_t bounds[IDS + 1]; // where each id's rows start in the order
    const uint32_t ids = min(args.vocab - first, IDS);
    if (threadIdx.x <= ids) bounds[threadIdx.x] = args.offsets[first + threadIdx.x];
    __syncthreads();
    const bool occur = bounds[0] < bounds[ids]; // most ids of a large vocabulary do not
    for (uint32_t column = threadIdx.x * N; column < args.width; column += THREADS * N) {
        const MaskColumns<N> mask(args.mask, column, occur);
        for (uint32_t id = 0; id < ids; id++) {
            float *dtable = row_of<float>(args.dtable, first + id, args.width) + column;
            if (args.accumulate && bounds[id] == bounds[id + 1]) continue;
            float sum[N] = {};
            if (args.accumulate) load(sum, dtable);
#pragma unroll 4
            for (uint32_t i = bounds[id]; i < bounds[id + 1]; i++) {
                const uint32_t row = args.order[i];
                float d[N], m[N];
                load(d, row_of<const T>(args.dy, row, args.width) + column);
                mask.values(m, args.mask, row);
#pragma unroll
                for (int j = 0; j < N; j++) sum[j] += masked(d[j], m[j]);
            }
            store(dtable, sum);
        }
    }
}

template <typename T> __device__ void backward(const EmbeddingBackward &args) {
    // 16 bytes of the gradient and as many elements of dy.
    const bool wide = wide_rows<float>(args.width, args.dtable) && wide_rows<T>(args.width, args.dy);
    if (wide) table_rows<T, 4>(args, blockIdx.x * IDS);
    else table_rows<T, 1>(args, blockIdx.x * IDS);
}

// launch: grid rows/8, block 256, shared 0
KERNEL(THREADS) embedding_forward_f32(const __grid_constant__ EmbeddingForward args) { forward<float>(args); }
KERNEL(THREADS) embedding_forward_bf16(const __grid_constant__ EmbeddingForward args) { forward<bf16>(args); }

// launch: grid rows/8, block 256, shared mask.candidates*1024
KERNEL(THREADS, 5) embedding_mask_grad_f32(const __grid_constant__ EmbeddingMaskGrad args) { mask_grad<float>(args); }
KERNEL(THREADS, 5) embedding_mask_grad_bf16(const __grid_constant__ EmbeddingMaskGrad args) { mask_grad<bf16>(args); }

// launch: grid rows/2048, block 256, shared 0
KERNEL(SORT_THREADS) embedding_sort_count_u32(const __grid_constant__ EmbeddingSort args) {
    sort_count<DIGIT>(args.rows, DIGIT, args.counts,
        [&](uint32_t i) { return (args.ids[args.order_in ? args.order_in[i] : i] >> args.shift) % DIGIT; });
}

// launch: grid 1, block 256, shared 0
KERNEL(SORT_THREADS) embedding_sort_scan_u32(const __grid_constant__ EmbeddingSort args) {
    sort_scan(DIGIT, (args.rows + SORT_TILE - 1) / SORT_TILE, args.counts, nullptr);
}

// launch: grid rows/2048, block 256, shared 0
KERNEL(SORT_THREADS) embedding_sort_place_u32(const __grid_constant__ EmbeddingSort args) {
    const auto row = [&](uint32_t i) { return args.order_in ? args.order_in[i] : i; };
    sort_place<DIGIT>(
        args.rows, DIGIT, args.counts, [&](uint32_t i) { return (args.ids[row(i)] >> args.shift) % DIGIT; },
        [&](uint32_t i, uint32_t position) { args.order_out[position] = row(i); });
}

// launch: grid vocab/256+1, block 256, shared 0
KERNEL(THREADS) embedding_offsets_u32(const __grid_constant__ EmbeddingOffsets args) {
    const uint32_t id = blockIdx.x * THREADS + threadIdx.x;
    if (id > args.vocab) return;
    uint32_t low = 0, high = args.rows; // the first of the sorted rows whose id is not below this one
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (args.ids[args.order[middle]] < id) low = middle + 1;
        else high = middle;
    }
    args.offsets[id] = low;
}

// launch: grid vocab/8, block 256, shared 0
KERNEL(THREADS, 5) embedding_backward_f32(const __grid_constant__ EmbeddingBackward args) { backward<float>(args); }
KERNEL(THREADS, 5) embedding_backward_bf16(const __grid_constant__ EmbeddingBackward args) { backward<bf16>(args); }
