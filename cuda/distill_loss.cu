// Logit distillation (Hinton, Vinyals & Dean, 2015): KL(teacher ‖ student) of rows of logits, and the student's
// gradient. Logits come a chunk of the vocabulary at a time: `sums` carries each row's statistics from chunk to chunk,
// `mean` makes the loss of them, `grad` goes over the chunks again.
//
// With M the largest logit of a model and l = Σ e^(logit − M), cross = Σ e^(t − M_t)·((t − M_t) − (s − M_s)), the
// divergence is cross/l_t − ln l_t + ln l_s: every term is of the size of the divergence and of ln V, however large the
// logits are.

#include "device/kernel.cuh"
#include "device/reduce.cuh"
#include "device/vector.cuh"

constexpr uint32_t THREADS = 512;

/// As DistillStatistics, over some of a row's logits. The shifts start at the most negative number instead of −∞, so
/// that −∞ − shift is still −∞.
template <typename F> struct Statistics {
    F teacher_shift = -3.402823466e38f, teacher_sum = 0, student_shift = -3.402823466e38f, student_sum = 0, cross = 0;

    /// The same statistics against larger shifts.
    __device__ void move_to(F teacher, F student) {
        const F moved_teacher = teacher_shift - teacher, moved_student = student_shift - student;
        const F kept = exp(moved_teacher);
        // Where nothing is kept the product could be 0·∞.
        cross = kept > 0 ? kept * (cross + teacher_sum * (moved_teacher - moved_student)) : F(0);
        teacher_sum *= kept;
        student_sum *= exp(moved_student);
        teacher_shift = teacher;
        student_shift = student;
    }
};

/// One more token. A teacher's probability of 0 adds nothing, whatever the student says.
__device__ inline void add(Statistics<float> &s, float teacher, float student) {
    if (teacher > s.teacher_shift || student > s.student_shift)
        s.move_to(fmaxf(teacher, s.teacher_shift), fmaxf(student, s.student_shift));
    const float t = teacher - s.teacher_shift, u = student - s.student_shift, e = expf(t);
    s.teacher_sum += e;
    s.student_sum += expf(u);
    if (e != 0.0f) s.cross += e * (t - u);
}

/// The larger of the block's threads' numbers, in every thread. All threads must come here.
__device__ inline float block_max(float x) {
    __shared__ float of_warp[THREADS / WARP];
    x = warp_max(x);
    __syncthreads();
    if (lane() == 0) of_warp[warp()] = x;
    __syncthreads();
    x = of_warp[0];
    for (uint32_t w = 1; w < THREADS / WARP; w++) x = fmaxf(x, of_warp[w]);
    return x;
}

template <int N> __device__ void sums_of_row(const DistillSums &args, uint32_t row) {
    const float *teacher = row_of<const float>(args.teacher, row, args.vocab);
    const float *student = row_of<const float>(args.student, row, args.vocab);
    Statistics<float> mine;
    for (uint32_t v = threadIdx.x * N; v < args.vocab; v += THREADS * N) {
        float t[N], s[N];
        load(t, teacher + v);
        load(s, student + v);
#pragma unroll
        for (int j = 0; j < N; j++) add(mine, t[j] * args.scale, s[j] * args.scale);
    }
    Statistics<double> sum = {mine.teacher_shift, mine.teacher_sum, mine.student_shift, mine.student_sum, mine.cross};
    sum.move_to(block_max(mine.teacher_shift), block_max(mine.student_shift));
    double parts[3] = {sum.teacher_sum, sum.student_sum, sum.cross};
    block_sum<THREADS>(parts);
    if (threadIdx.x > 0) return;
    DistillStatistics &out = args.statistics[row];
    if (!args.first) { // the chunks before, then this one, against the larger shifts
        const double larger_teacher = fmax(out.teacher_shift, sum.teacher_shift);
        const double larger_student = fmax(out.student_shift, sum.student_shift);
        Statistics<double> before = {out.teacher_shift, out.teacher_sum, out.student_shift, out.student_sum, out.cross};
        Statistics<double> chunk = {sum.teacher_shift, parts[0], sum.student_shift, parts[1], parts[2]};
        before.move_to(larger_teacher, larger_student);
        chunk.move_to(larger_teacher, larger_student);
        sum = chunk;
        parts[0] = before.teacher_sum + chunk.teacher_sum;
        parts[1] = before.student_sum + chunk.student_sum;
        parts[2] = before.cross + chunk.cross;
    }
    out = {sum.teacher_shift, parts[0], sum.student_shift, parts[1], parts[2]};
}

// launch: grid rows, block 512, shared 0
KERNEL(THREADS) distill_loss_sums_f32(const __grid_constant__ DistillSums args) {
    if (args.valid && !args.valid[blockIdx.x]) return; // nobody reads its statistics
    if (wide_rows<float>(args.vocab, args.teacher, args.student)) sums_of_row<4>(args, blockIdx.x);
    else sums_of_row<1>(args, blockIdx.x);
}

/// The mean divergence over the valid rows, in f64; 0 if none is. One block.
// launch: grid 1, block 512, shared 0
KERNEL(THREADS) distill_loss_mean_f32(const __grid_constant__ DistillMean args) {
    double sums[2] = {0.0, 0.0}; // divergences, rows
    for (uint32_t row = threadIdx.x; row < args.rows; row += THREADS) {
        if (args.valid && !args.valid[row]) continue;
        const DistillStatistics &s = args.statistics[row];
        sums[0] += s.cross / s.teacher_sum - log(s.teacher_sum) + log(s.student_sum);
        sums[1] += 1.0;
    }
    block_sum<THREADS>(sums);
    if (threadIdx.x == 0) *args.loss = sums[1] > 0.0 ? float(sums[0] / sums[1]) : 0.0f;
}

/// factor/temperature·(p_student − p_teacher) of a chunk.
template <typename T, int N> __device__ void gradient_of_row(const DistillGrad &args, uint32_t row) {
    const float *teacher = row_of<const float>(args.teacher, row, args.vocab);
    const float *student = row_of<const float>(args.student, row, args.vocab);
    T *dstudent = row_of<T>(args.dstudent, row, args.vocab);
    const bool valid = !args.valid || args.valid[row];
    const DistillStatistics s = valid ? args.statistics[row] : DistillStatistics{0.0, 1.0, 0.0, 1.0, 0.0};
    const float of_teacher = float(1.0 / s.teacher_sum), of_student = float(1.0 / s.student_sum);
    for (uint32_t v = threadIdx.x * N; v < args.vocab; v += THREADS * N) {
        float d[N] = {};
        if (valid) {
            float t[N];
            load(t, teacher + v);
            load(d, student + v);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float p = expf(d[j] * args.scale - float(s.student_shift)) * of_student;
                const float q = expf(t[j] * args.scale - float(s.teacher_shift)) * of_teacher;
                d[j] = args.factor * args.scale * (p - q);
            }
        }
        store(dstudent + v, d);
    }
}

template <typename T> __device__ void gradient(const DistillGrad &args) {
    if (wide_rows<float>(args.vocab, args.teacher, args.student, args.dstudent))
        gradient_of_row<T, 4>(args, blockIdx.x);
    else gradient_of_row<T, 1>(args, blockIdx.x);
}

// launch: grid rows, block 512, shared 0
KERNEL(THREADS) distill_loss_grad_f32(const __grid_constant__ DistillGrad args) { gradient<float>(args); }
KERNEL(THREADS) distill_loss_grad_bf16(const __grid_constant__ DistillGrad args) { gradient<bf16>(args); }
