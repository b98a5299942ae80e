// silu(causal depthwise convolution + bias), the short convolution of a Mamba layer, over rows of packed sequences.
//
// A lane owns N neighbouring channels and walks `stretch` rows, the last inputs in registers: a row passes through
// memory once, but for the three rows in front of (and in the gradient, behind) each stretch. Segments begin and end
// anywhere inside.

#include "device/elementary.cuh"
#include "device/kernel.cuh"
#include "device/reduce.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / WARP;
constexpr int TAPS = 4;        // the longest kernel; a shorter one has zeros in front
constexpr int PAST = TAPS - 1; // inputs before the present one
constexpr int CHANNELS = 4;    // of a lane

/// The segment that a row lies in: the last that starts at or before it and is not empty.
__device__ inline uint32_t segment_of(const Conv &conv, uint32_t row) {
    uint32_t low = 0, high = conv.segments; // offsets[low] ≤ row < offsets[high]
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (conv.offsets[middle] <= row) low = middle;
        else high = middle;
    }
    return low;
}

/// One lane's channels of a stretch of rows.
template <typename T, int N> class Window {
  public:
    __device__ Window(const Conv &conv, uint32_t channel, uint32_t row)
        : conv_(conv), channel_(channel), segment_(segment_of(conv, row)) {
        const T *weight = static_cast<const T *>(conv.weight) + uint64_t(channel) * conv.kernel;
        const int missing = TAPS - int(conv.kernel);
        float taps[N * TAPS]; // channel by channel
        if (N == CHANNELS && missing == 0) load(taps, weight);
        else
#pragma unroll
            for (int i = 0; i < N * TAPS; i++)
                taps[i] = i % TAPS < missing ? 0.0f : widen(weight[i / TAPS * int(conv.kernel) + i % TAPS - missing]);
#pragma unroll
        for (int i = 0; i < N * TAPS; i++) tap_[i % TAPS][i / TAPS] = taps[i];
#pragma unroll
        for (int j = 0; j < N; j++) bias_[j] = 0.0f;
        if (conv.bias) load(bias_, static_cast<const T *>(conv.bias) + channel);
        refill(row);
    }

    /// Goes to `row`, the next one, be it in another segment.
    __device__ void enter(uint32_t row) {
        if (row == end_) {
            do segment_++;
            while (row == conv_.offsets[segment_ + 1]);
            refill(row);
        }
        load(input_[PAST], row_of<const T>(conv_.x, row, conv_.channels) + channel_);
    }

    /// The present segment's first row, and the one behind its last.
    __device__ uint32_t begin() const { return begin_; }
    __device__ uint32_t end() const { return end_; }

    /// The convolution of the present row, before the activation.
    __device__ float convolve(int j) const {
        float sum = bias_[j];
#pragma unroll
        for (int k = 0; k < TAPS; k++) sum += tap_[k][j] * input_[k][j];
        return sum;
    }

    __device__ void leave() {
#pragma unroll
        for (int k = 0; k < PAST; k++) {
#pragma unroll
            for (int j = 0; j < N; j++) input_[k][j] = input_[k + 1][j];
        }
    }

    __device__ float input(int k, int j) const { return input_[k][j]; }
    __device__ float tap(int k, int j) const { return tap_[k][j]; }

  private:
    /// The inputs before `row`: of its segment, or what was carried into the segment, or zeros.
    __device__ void refill(uint32_t row) {
        begin_ = conv_.offsets[segment_];
        end_ = conv_.offsets[segment_ + 1];
        const int kept = int(conv_.kernel) - 1; // carried rows
#pragma unroll
        for (int k = 0; k < PAST; k++) {
            const int64_t t = int64_t(row) - begin_ + k - PAST; // in the segment
#pragma unroll
            for (int j = 0; j < N; j++) input_[k][j] = 0.0f;
            if (t >= 0) load(input_[k], row_of<const T>(conv_.x, row + k - PAST, conv_.channels) + channel_);
            else if (conv_.initial && kept + t >= 0)
                load(input_[k],
                    row_of<const T>(conv_.initial, segment_ * kept + uint32_t(kept + t), conv_.channels) + channel_);
        }
    }

    const Conv &conv_;
    uint32_t channel_, segment_, begin_, end_;
    float bias_[N], tap_[TAPS][N];
    float input_[TAPS][N]; // of the rows up to the present one, oldest first
};

/// The lane's first channel: with N = 1 a warp takes its channels in CHANNELS parts.
template <int N> __device__ uint32_t channel_of(uint32_t part) {
    return (blockIdx.y * CHANNELS + part) * WARP + lane() * N;
}

/// The first row of the warp's stretch.
__device__ inline uint32_t first_row(const Conv &conv) { return (blockIdx.x * WARPS + warp()) * conv.stretch; }

template <typename T, int N> __device__ void forward_stretch(const ConvForward &args, uint32_t part) {
    const Conv &conv = args.conv;
    const uint32_t channel = channel_of<N>(part), first = first_row(conv), end = min(first + conv.stretch, conv.rows);
    if (channel >= conv.channels || first >= end) return;
    Window<T, N> window(conv, channel, first);
    for (uint32_t row = first; row < end; row++) {
        window.enter(row);
        float y[N];
#pragma unroll
        for (int j = 0; j < N; j++) y[j] = silu(window.convolve(j));
        store(row_of<T>(args.y, row, conv.channels) + channel, y);
        window.leave();
    }
}

template <typename T> __device__ void forward(const ConvForward &args) {
    if (args.conv.channels % CHANNELS == 0 &&
        wide_rows<T>(0, args.conv.x, args.conv.initial, args.conv.weight, args.conv.bias, args.y))
        return forward_stretch<T, CHANNELS>(args, 0);
    for (uint32_t part = 0; part < CHANNELS; part++) forward_stretch<T, 1>(args, part);
}

/// Writes each lane's numbers, which follow the lane's before. Two neighbours write the halves of a sector together:
/// one alone would touch every sector twice. `lanes`: those that come here, an even number of them.
__device__ inline void store_in_pairs(float *mine, const float (&x)[16], uint32_t lanes) {
    const bool odd = lane() % 2;
    float *pair = mine - (odd ? 16 : 0);
#pragma unroll
    for (int half = 0; half < 16; half += 8) {
        float own[4], others[4]; // of every eight numbers the even lane writes the first four
#pragma unroll
        for (int i = 0; i < 4; i++) {
            own[i] = odd ? x[half + 4 + i] : x[half + i];
            others[i] = __shfl_xor_sync(lanes, odd ? x[half + i] : x[half + 4 + i], 1);
        }
        float of_even[4], of_odd[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            of_even[i] = odd ? others[i] : own[i];
            of_odd[i] = odd ? own[i] : others[i];
        }
        store(pair + half + (odd ? 4 : 0), of_even);
        store(pair + 16 + half + (odd ? 4 : 0), of_odd);
    }
}

/// The gradients of one stretch. Row r's pre-activation gradient reaches the inputs of rows r − 3 … r, so the sums of
/// four rows are open at a time, and up to three rows behind the stretch still add to its own.
template <typename T, int N> class Gradients {
  public:
    __device__ Gradients(const ConvBackward &args, uint32_t channel, uint32_t first, uint32_t end)
        : args_(args), channel_(channel), first_(first), end_(end) {}

    __device__ void run() {
        const Conv &conv = args_.conv;
        Window<T, N> window(conv, channel_, first_);
        const uint32_t last = min(end_ + PAST, conv.rows);
        uint32_t begin = window.begin(), row = first_;
        for (; row < last; row++) {
            const bool ends = row == window.end();
            if (ends && row >= end_) break; // another segment's rows add nothing
            if (ends) close(row, begin);
            window.enter(row);
            begin = window.begin();
            add(window, row);
            if (row >= PAST) write(row - PAST, begin, open_[0]);
            shift();
            window.leave();
        }
        close(row, begin);
    }

    /// [C, K] for the weight, then [C] for the bias.
    __device__ void write_partials(float *partials) const {
        const Conv &conv = args_.conv;
        const int missing = TAPS - int(conv.kernel);
        float *weight = partials + uint64_t(channel_) * conv.kernel;
        float taps[N * TAPS];
#pragma unroll
        for (int i = 0; i < N * TAPS; i++) taps[i] = dtap_[i % TAPS][i / TAPS];
        if constexpr (N == CHANNELS) {
            if (missing == 0 && conv.channels % (2 * N) == 0) {
                const uint32_t lanes = min((conv.channels - channel_) / N + lane(), WARP);
                store_in_pairs(weight, taps, lanes == WARP ? ALL_LANES : (1u << lanes) - 1);
                store(partials + uint64_t(conv.channels) * conv.kernel + channel_, dbias_);
                return;
            }
        }
#pragma unroll
        for (int i = 0; i < N * TAPS; i++)
            if (i % TAPS >= missing) weight[i / TAPS * int(conv.kernel) + i % TAPS - missing] = taps[i];
        store(partials + uint64_t(conv.channels) * conv.kernel + channel_, dbias_);
    }

  private:
    __device__ void add(const Window<T, N> &window, uint32_t row) {
        float d[N];
        load(d, row_of<const T>(args_.dy, row, args_.conv.channels) + channel_);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float pre = window.convolve(j);
            d[j] *= silu_grad(pre, sigmoid(pre));
#pragma unroll
            for (int k = 0; k < TAPS; k++) open_[k][j] += window.tap(k, j) * d[j];
        }
        if (row >= end_) return; // the next stretch counts it
#pragma unroll
        for (int j = 0; j < N; j++) {
            dbias_[j] += d[j];
#pragma unroll
            for (int k = 0; k < TAPS; k++) dtap_[k][j] += window.input(k, j) * d[j];
        }
    }

    /// Writes what is open when no more rows add to it: the three rows before `row`.
    __device__ void close(uint32_t row, uint32_t begin) {
#pragma unroll
        for (int k = 0; k < PAST; k++) {
            if (row + k >= PAST) write(row + k - PAST, begin, open_[k]);
#pragma unroll
            for (int j = 0; j < N; j++) open_[k][j] = 0.0f;
        }
    }

    /// Rows before the segment are what was carried into it, which has no gradient.
    __device__ void write(uint32_t row, uint32_t begin, const float (&dx)[N]) const {
        if (row >= max(first_, begin) && row < end_)
            store(row_of<T>(args_.dx, row, args_.conv.channels) + channel_, dx);
    }

    __device__ void shift() {
#pragma unroll
        for (int j = 0; j < N; j++) {
#pragma unroll
            for (int k = 0; k < PAST; k++) open_[k][j] = open_[k + 1][j];
            open_[PAST][j] = 0.0f;
        }
    }

    const ConvBackward &args_;
    uint32_t channel_, first_, end_;
    float open_[TAPS][N] = {}; // dx of the rows up to the present one, oldest first
    float dtap_[TAPS][N] = {}, dbias_[N] = {};
};

template <typename T, int N> __device__ void backward_stretch(const ConvBackward &args, uint32_t part) {
    const Conv &conv = args.conv;
    const uint32_t channel = channel_of<N>(part), first = first_row(conv), end = min(first + conv.stretch, conv.rows);
    if (channel >= conv.channels || first >= end) return;
    Gradients<T, N> gradients(args, channel, first, end);
    gradients.run();
    gradients.write_partials(row_of<float>(args.partials, first / conv.stretch, conv.channels * (conv.kernel + 1)));
}

template <typename T> __device__ void backward(const ConvBackward &args) {
    if (args.conv.channels % CHANNELS == 0 && wide_rows<T>(0, args.conv.x, args.conv.initial, args.conv.weight,
                                                  args.conv.bias, args.dy, args.dx, args.partials))
        return backward_stretch<T, CHANNELS>(args, 0);
    for (uint32_t part = 0; part < CHANNELS; part++) backward_stretch<T, 1>(args, part);
}

/// Of the K − 1 carried rows followed by the segment's own, the last K − 1.
template <typename T> __device__ void state(const ConvState &args) {
    const uint32_t kept = args.kernel - 1;
    const uint64_t i = uint64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= uint64_t(args.segments) * kept * args.channels) return;
    const uint32_t channel = i % args.channels, k = i / args.channels % kept, segment = i / args.channels / kept;
    const uint32_t begin = args.offsets[segment], rows = args.offsets[segment + 1] - begin;
    T value = narrow<T>(0.0f);
    if (rows + k >= kept) value = row_of<const T>(args.x, begin + rows + k - kept, args.channels)[channel];
    else if (args.initial) value = row_of<const T>(args.initial, segment * kept + rows + k, args.channels)[channel];
    static_cast<T *>(args.state)[i] = value;
}

// launch: grid conv.rows/conv.stretch/8 conv.channels/128, block 256, shared 0
KERNEL(THREADS) causal_conv1d_forward_f32(const __grid_constant__ ConvForward args) { forward<float>(args); }
KERNEL(THREADS) causal_conv1d_forward_bf16(const __grid_constant__ ConvForward args) { forward<bf16>(args); }

// launch: grid conv.rows/conv.stretch/8 conv.channels/128, block 256, shared 0
KERNEL(THREADS) causal_conv1d_backward_f32(const __grid_constant__ ConvBackward args) { backward<float>(args); }
KERNEL(THREADS) causal_conv1d_backward_bf16(const __grid_constant__ ConvBackward args) { backward<bf16>(args); }

// launch: grid segments*kernel*channels/256, block 256, shared 0
KERNEL(THREADS) causal_conv1d_state_f32(const __grid_constant__ ConvState args) { state<float>(args); }
KERNEL(THREADS) causal_conv1d_state_bf16(const __grid_constant__ ConvState args) { state<bf16>(args); }
