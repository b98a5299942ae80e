//! Promise: both losses are right where comparable kernels were not: underflow, low temperatures, impossible tokens, rows that
//! do not count, options that do not exist; and neither holds the logits of all rows.

use std::sync::{Mutex, MutexGuard};

use autocompress::autograd::check::Generator;
use autocompress::autograd::{Gradients, Param, Params, Tape, Var};
use autocompress::device::{pool, with_threads};
use autocompress::ops::cross_entropy::{NOT_COUNTED, cross_entropy, token_losses};
use autocompress::ops::distill_loss::{DistillOptions, Divergence, Head, TeacherHead, distill_loss, reference};
use autocompress::tensor::Tensor;

/// Memory counters are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

fn normal(seed: u64, rows: usize, width: usize, std: f64) -> Tensor {
    Tensor::from_slice([rows, width], &Generator::new(seed).normal("x", &[rows, width], std).values)
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// |a − b| ≤ 1e-4·(rms + |b|).
fn near(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    let rms = (b.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / b.len().max(1) as f64).sqrt() as f32;
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).abs() <= 1e-4 * (rms + y.abs()) + 1e-9, "{i}: {x} for {y}");
    }
}

/// The loss and the gradients of hidden states and head.
fn cross(hidden: &Tensor, head: &Tensor, targets: &[u32]) -> (f32, Vec<f32>, Vec<f32>) {
    let tape = Tape::new();
    let (hidden, head) = (tape.leaf(hidden.clone()), tape.leaf(head.clone()));
    let loss = cross_entropy(&tape, &hidden, &head, targets).unwrap();
    let grads = tape.backward(&loss, 1.0, &mut ()).unwrap();
    let of = |var| grads.take(var).unwrap().f32().to_vec();
    (loss.value().item(), of(&hidden), of(&head))
}

struct Distill {
    student: (Tensor, Tensor),
    teacher: (Tensor, Tensor),
    valid: Vec<bool>,
    options: DistillOptions,
}

impl Distill {
    /// Random heads of standard deviation `std` on normal hidden states of sizes 4 and 6.
    fn new(rows: usize, vocab: usize, std: f64, temperature: f32, vocab_chunk: usize) -> Distill {
        Distill {
            student: (normal(1, rows, 4, 1.0), normal(2, vocab, 4, std)),
            teacher: (normal(3, rows, 6, 1.0), normal(4, vocab, 6, std)),
            valid: vec![true; rows],
            options: DistillOptions { temperature, divergence: Divergence::ForwardKl, vocab_chunk },
        }
    }

    /// The loss and the gradients of the student's hidden states and weight.
    fn run(&self) -> (f32, Vec<f32>, Vec<f32>) {
        let tape = Tape::new();
        let (hidden, weight) = (tape.leaf(self.student.0.clone()), tape.leaf(self.student.1.clone()));
        let student = Head { hidden: &hidden, weight: &weight };
        let teacher = TeacherHead { hidden: &self.teacher.0, weight: &self.teacher.1 };
        let loss = distill_loss(&tape, student, teacher, &self.valid, &self.options).unwrap();
        let grads = tape.backward(&loss, 1.0, &mut ()).unwrap();
        let of = |var| grads.take(var).unwrap().f32().to_vec();
        (loss.value().item(), of(&hidden), of(&weight))
    }

    fn exact(&self) -> f64 {
        let wide = |x: &Tensor| x.f32().iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let parts = [&self.student.0, &self.student.1, &self.teacher.0, &self.teacher.1].map(wide);
        let of = |i: usize, d: usize| reference::Logits { hidden: &parts[i], weight: &parts[i + 1], d };
        let (student, teacher) = (of(0, self.student.1.dims()[1]), of(2, self.teacher.1.dims()[1]));
        reference::distill_loss(student, teacher, &self.valid, f64::from(self.options.temperature))
    }

    fn check(&self) {
        let (loss, d_hidden, d_weight) = self.run();
        let exact = self.exact();
        assert!((f64::from(loss) - exact).abs() <= 2e-5 * (1.0 + exact), "{loss} for {exact}");
        assert!(d_hidden.iter().chain(&d_weight).all(|x| x.is_finite()));
    }
}

#[test]
fn cross_entropy_of_equal_logits_is_the_log_of_the_vocabulary() {
    let _alone = alone();
    let (loss, d_hidden, d_head) = cross(&Tensor::full([3, 2], 1.0), &Tensor::full([7, 2], 0.25), &[0, 6, 3]);
    assert!((loss - 7f32.ln()).abs() < 1e-6, "{loss}");
    assert!(d_hidden.iter().all(|x| x.abs() < 1e-7));
    // The head's row of a target gets (1/7 − 1/3·1)·hidden, another 1/7 of it.
    assert!((d_head[0] - (1.0 / 7.0 - 1.0 / 3.0)).abs() < 1e-6 && (d_head[2] - 1.0 / 7.0).abs() < 1e-6, "{d_head:?}");
}

#[test]
fn rows_that_do_not_count_change_nothing() {
    let _alone = alone();
    let (mut hidden, head) = (normal(1, 300, 8, 1.0), normal(2, 31, 8, 1.0));
    let targets: Vec<u32> = (0..300).map(|i| if i % 3 == 1 { i % 31 } else { NOT_COUNTED }).collect();
    let rows: Vec<f32> = hidden.f32().chunks(8).skip(1).step_by(3).flatten().copied().collect();
    let counted: Vec<u32> = targets.iter().copied().filter(|t| *t != NOT_COUNTED).collect();
    let alone = cross(&Tensor::from_slice([100, 8], &rows), &head, &counted);
    for (i, row) in hidden.f32_mut().chunks_mut(8).enumerate() {
        if i % 3 != 1 {
            row.fill(f32::NAN);
        }
    }
    let all = cross(&hidden, &head, &targets);
    assert_eq!((all.0, bits(&all.2)), (alone.0, bits(&alone.2)));
    for (i, row) in all.1.chunks(8).enumerate() {
        let expected = if i % 3 == 1 { &alone.1[i / 3 * 8..][..8] } else { &[0.0; 8] };
        assert_eq!(row, expected);
    }
    let (loss, d_hidden, d_head) = cross(&hidden, &head, &[NOT_COUNTED; 300]);
    assert_eq!(loss, 0.0);
    assert!(d_hidden.iter().chain(&d_head).all(|x| *x == 0.0));
}

#[test]
fn a_target_beyond_the_vocabulary_is_refused_by_name() {
    let _alone = alone();
    let (hidden, head) = (normal(1, 3, 2, 1.0), normal(2, 5, 2, 1.0));
    let error = cross_entropy(&Tape::inference(), &hidden.clone().into(), &head.clone().into(), &[1, 4, 5]);
    let message = error.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("found 5") && message.contains("position 2") && message.contains("below 5"), "{message}");
    assert!(token_losses(&hidden, &head, &[1, 4, 5]).is_err());
}

#[test]
fn large_logits_keep_cross_entropy_finite() {
    let _alone = alone();
    let hidden = Tensor::from_slice([2, 1], &[1e4f32, -1e4]);
    let head = Tensor::from_slice([3, 1], &[1.0f32, 0.0, -1.0]);
    let (loss, d_hidden, d_head) = cross(&hidden, &head, &[2, 2]);
    assert_eq!(loss, 1e4); // 2·10⁴ and 0
    assert!(d_hidden.iter().chain(&d_head).all(|x| x.is_finite()));
}

#[test]
fn token_losses_average_to_the_loss_and_name_the_likeliest_token() {
    let _alone = alone();
    let (hidden, head) = (normal(1, 140, 6, 1.0), normal(2, 97, 6, 1.0));
    let targets: Vec<u32> = (0..140).map(|i| if i % 5 == 0 { NOT_COUNTED } else { i * 13 % 97 }).collect();
    let losses = token_losses(&hidden, &head, &targets).unwrap();
    let total: f64 = losses.iter().map(|loss| f64::from(loss.nats)).sum();
    let (mean, ..) = cross(&hidden, &head, &targets);
    assert!((total / 112.0 - f64::from(mean)).abs() < 1e-5);
    for (row, loss) in losses.iter().enumerate() {
        let dot = |w: &[f32]| -> f32 { w.iter().zip(&hidden.f32()[row * 6..]).map(|(w, h)| w * h).sum() };
        let logits: Vec<f32> = head.f32().chunks(6).map(dot).collect();
        let best = (0..97).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32;
        assert_eq!(loss.top, if row % 5 == 0 { NOT_COUNTED } else { best });
    }
    let tie = token_losses(&Tensor::full([1, 1], 1.0), &Tensor::from_slice([4, 1], &[0.0f32, 2.0, 2.0, 1.0]), &[0]);
    assert_eq!(tie.unwrap()[0].top, 1);
}

#[test]
fn gradients_are_scaled_by_the_seed_and_add_up_in_a_parameter() {
    let _alone = alone();
    let (hidden, head) = (normal(1, 20, 4, 1.0), normal(2, 33, 4, 1.0));
    let targets: Vec<u32> = (0..20).collect();
    let (_, _, expected) = cross(&hidden, &head, &targets);
    let distill = Distill::new(20, 33, 1.0, 1.0, 8);
    let mut whole = Distill::new(20, 33, 1.0, 1.0, 64);
    whole.student = (hidden.clone(), head.clone());
    let chunked = Distill { student: whole.student.clone(), ..distill };
    let mut params = Params::default();
    let id = params.push(Param { name: "head".into(), value: head, decay: true, trainable: true, rate: 1.0 });
    type Loss<'l> = &'l dyn Fn(&Tape<'static>, &Var, &Var) -> Var;
    let losses: [Loss; 3] = [
        &|tape, h, w| cross_entropy(tape, h, w, &targets).unwrap(),
        &|tape, h, w| distill_of(tape, h, w, &whole),
        &|tape, h, w| distill_of(tape, h, w, &chunked),
    ];
    for (i, loss) in losses.iter().enumerate() {
        let mut sink = Gradients::new(&params);
        for seed in [0.5, 1.25] {
            let tape = Tape::new();
            let loss = loss(&tape, &hidden.clone().into(), &tape.param(&params, id));
            tape.backward(&loss, seed, &mut sink).unwrap();
        }
        let expected = if i == 0 { expected.clone() } else { whole.run().2 };
        let scaled: Vec<f32> = expected.iter().map(|x| 1.75 * x).collect();
        near(sink.get(id).unwrap().f32(), &scaled);
    }
}

fn distill_of(tape: &Tape<'static>, hidden: &Var, weight: &Var, problem: &Distill) -> Var {
    let teacher = TeacherHead { hidden: &problem.teacher.0, weight: &problem.teacher.1 };
    distill_loss(tape, Head { hidden, weight }, teacher, &problem.valid, &problem.options).unwrap()
}

#[test]
fn both_probabilities_may_underflow() {
    let _alone = alone();
    for chunk in [5, 50] {
        for temperature in [0.05, 0.5, 1.0] {
            // Logits of both models spread over several hundred: most log-probabilities are far below −104.
            Distill::new(40, 37, 60.0, temperature, chunk).check();
        }
    }
}

#[test]
fn a_token_that_the_teacher_excludes_adds_nothing() {
    let _alone = alone();
    for chunk in [2, 3, 40] {
        let mut problem = Distill::new(9, 31, 0.5, 0.7, chunk);
        // Positive hidden states, so that a weight of −∞ is a logit of −∞: the first chunk whole, and one in the middle.
        problem.teacher.0.f32_mut().iter_mut().for_each(|x| *x = x.abs() + 0.1);
        for token in [0, 1, 2, 17] {
            problem.teacher.1.f32_mut()[token * 6] = f32::NEG_INFINITY;
        }
        problem.check();
        let (loss, _, d_weight) = problem.run();
        assert!(loss > 0.0 && d_weight[17 * 4..18 * 4].iter().any(|x| *x != 0.0), "the student still unlearns it");
    }
}

#[test]
fn an_objective_that_does_not_exist_is_an_error() {
    let _alone = alone();
    assert_eq!("forward_kl".parse::<Divergence>().unwrap(), Divergence::ForwardKl);
    for text in ["reverse_kl", "jsd", "kl", "Forward_KL", ""] {
        let message = text.parse::<Divergence>().unwrap_err().to_string();
        assert!(message.contains(text) && message.contains("forward_kl"), "{message}");
    }
    let problem = Distill::new(2, 3, 1.0, 1.0, 4);
    let with = |temperature: f32, vocab_chunk: usize| {
        let options = DistillOptions { temperature, vocab_chunk, ..problem.options };
        let (hidden, weight) = (problem.student.0.clone().into(), problem.student.1.clone().into());
        let teacher = TeacherHead { hidden: &problem.teacher.0, weight: &problem.teacher.1 };
        distill_loss(&Tape::inference(), Head { hidden: &hidden, weight: &weight }, teacher, &[true; 2], &options)
    };
    assert!(with(1.0, 1).is_ok());
    for temperature in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-45] {
        let message = with(temperature, 4).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("temperature"), "{message}");
    }
    assert!(with(1.0, 0).map(|_| ()).unwrap_err().to_string().contains("vocab_chunk"));
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let _alone = alone();
    let problem = Distill::new(3, 5, 1.0, 1.0, 4);
    let fault = |hidden: Tensor, teacher: (Tensor, Tensor), valid: &[bool]| {
        let (hidden, weight) = (hidden.into(), problem.student.1.clone().into());
        let teacher = TeacherHead { hidden: &teacher.0, weight: &teacher.1 };
        let head = Head { hidden: &hidden, weight: &weight };
        distill_loss(&Tape::inference(), head, teacher, valid, &problem.options).map(|_| ()).unwrap_err().to_string()
    };
    let (student, teacher) = (problem.student.0.clone(), problem.teacher.clone());
    assert!(fault(student.clone(), teacher.clone(), &[true; 2]).contains("student hidden"));
    assert!(fault(student.clone(), (normal(1, 2, 6, 1.0), teacher.1.clone()), &[true; 3]).contains("teacher hidden"));
    assert!(fault(student, (teacher.0, normal(1, 6, 6, 1.0)), &[true; 3]).contains("teacher weight"));
}

#[test]
fn equal_student_and_teacher_have_no_divergence() {
    let _alone = alone();
    for (std, chunk) in [(1.0, 16), (1.0, 500), (1000.0, 16), (1e4, 500)] {
        let mut problem = Distill::new(50, 301, std, 0.9, chunk);
        problem.student = problem.teacher.clone();
        assert!(problem.run().0.abs() <= 1e-6, "std {std}: {}", problem.run().0);
        // The same logits from sums in another order.
        let reversed = |x: &Tensor| {
            let values: Vec<f32> =
                x.f32().chunks(6).flat_map(|row| row.iter().rev().copied().collect::<Vec<f32>>()).collect();
            Tensor::from_slice(x.shape().clone(), &values)
        };
        problem.student = (reversed(&problem.teacher.0), reversed(&problem.teacher.1));
        let limit = if std > 1.0 { 1e-3 } else { 1e-6 }; // the logits themselves differ by their rounding
        assert!(problem.run().0.abs() <= limit, "std {std}, reversed: {}", problem.run().0);
    }
}

#[test]
fn a_common_shift_of_the_logits_changes_nothing() {
    let _alone = alone();
    // The last hidden unit is 1: its weight shifts all logits of a model alike.
    let shifted = |by: f32| {
        let mut problem = Distill::new(20, 101, 0.5, 1.0, 32);
        problem.student.0.f32_mut().chunks_mut(4).for_each(|row| row[3] = 1.0);
        problem.student.1.f32_mut().chunks_mut(4).for_each(|row| row[3] = by);
        problem.run().0
    };
    let (plain, far) = (shifted(0.0), shifted(512.0));
    assert!((plain - far).abs() <= 1e-4 * plain, "{plain} {far}");
}

#[test]
fn the_chunk_of_the_vocabulary_does_not_matter() {
    let _alone = alone();
    let whole = Distill::new(90, 53, 1.0, 1.3, 53).run();
    for chunk in [1, 7, 52, 54, 1000] {
        let (loss, d_hidden, d_weight) = Distill::new(90, 53, 1.0, 1.3, chunk).run();
        assert!((loss - whole.0).abs() <= 2e-6 * (1.0 + whole.0), "{chunk}: {loss} for {}", whole.0);
        near(&d_hidden, &whole.1);
        near(&d_weight, &whole.2);
    }
}

#[test]
fn blocks_of_rows_add_up() {
    let _alone = alone();
    // More rows than a block of logits holds at this vocabulary, against batches that fit: the mean of means.
    let (rows, pieces, vocab) = (700, 7, 3001);
    let targets: Vec<u32> = (0..rows as u32).map(|i| i * 7 % vocab as u32).collect();
    let whole = |chunk: usize| Distill::new(rows, vocab, 1.0, 0.8, chunk);
    let cut = |x: &Tensor, piece: usize| {
        let len = rows / pieces * x.dims()[1];
        Tensor::from_slice([rows / pieces, x.dims()[1]], &x.f32()[piece * len..(piece + 1) * len])
    };
    let (hidden, head) = whole(1).student;
    let mut problems = vec![(
        cross(&hidden, &head, &targets),
        (0..pieces).map(|piece| cross(&cut(&hidden, piece), &head, &targets[piece * 100..][..100])).collect::<Vec<_>>(),
    )];
    for chunk in [2048, 4096] {
        let parts = (0..pieces).map(|piece| {
            let mut part = whole(chunk);
            (part.student.0, part.teacher.0) = (cut(&part.student.0, piece), cut(&part.teacher.0, piece));
            part.valid.truncate(rows / pieces);
            part.run()
        });
        problems.push((whole(chunk).run(), parts.collect()));
    }
    for ((loss, d_hidden, d_head), parts) in problems {
        let n = pieces as f32;
        near(&[loss], &[parts.iter().map(|part| part.0).sum::<f32>() / n]);
        near(&d_hidden, &parts.iter().flat_map(|part| part.1.iter().map(|x| x / n)).collect::<Vec<f32>>());
        let sum = |i: usize| parts.iter().map(|part| part.2[i]).sum::<f32>() / n;
        near(&d_head, &(0..d_head.len()).map(sum).collect::<Vec<f32>>());
    }
}

#[test]
fn invalid_rows_change_nothing() {
    let _alone = alone();
    for chunk in [8, 64] {
        let mut problem = Distill::new(12, 33, 1.0, 1.0, chunk);
        problem.valid = (0..12).map(|row| row % 4 == 2).collect();
        let clean = problem.run();
        for row in (0..12).filter(|row| row % 4 != 2) {
            problem.student.0.f32_mut()[row * 4..][..4].fill(f32::NAN);
            problem.teacher.0.f32_mut()[row * 6..][..6].fill(f32::INFINITY);
        }
        let broken = problem.run();
        assert_eq!((clean.0, bits(&clean.1), bits(&clean.2)), (broken.0, bits(&broken.1), bits(&broken.2)));
        problem.valid = vec![false; 12];
        let (loss, d_hidden, d_weight) = problem.run();
        assert_eq!(loss, 0.0);
        assert!(d_hidden.iter().chain(&d_weight).all(|x| *x == 0.0));
    }
}

#[test]
fn memory_does_not_grow_with_the_logits() {
    let _alone = alone();
    let (rows, vocab) = (64, 50_000);
    let problem = Distill::new(rows, vocab, 1.0, 1.0, 2048);
    let extra = peak_of(|| assert!(problem.run().0.is_finite()));
    assert!(extra < rows * vocab * 4 / 3, "{extra} bytes beside one model's {} of logits", rows * vocab * 4);

    let rows = 1024;
    let (hidden, head) = (normal(1, rows, 4, 1.0), normal(2, vocab, 4, 1.0));
    let targets: Vec<u32> = (0..rows as u32).collect();
    let extra = peak_of(|| assert!(cross(&hidden, &head, &targets).0.is_finite()));
    assert!(extra < rows * vocab * 4 / 5, "{extra} bytes beside {} of logits", rows * vocab * 4);
}

fn peak_of(work: impl FnOnce()) -> usize {
    let before = pool::stats().live;
    pool::reset_peak();
    work();
    pool::stats().peak - before
}

#[test]
fn threads_do_not_change_bits() {
    let _alone = alone();
    let on = |threads: usize| {
        with_threads(threads, || {
            let targets: Vec<u32> = (0..700).map(|i| i * 7 % 3001).collect();
            let ce = cross(&normal(1, 700, 40, 1.0), &normal(2, 3001, 40, 0.3), &targets);
            let mut all = vec![bits(&[ce.0]), bits(&ce.1), bits(&ce.2)];
            for chunk in [1024, 4096] {
                let kl = Distill::new(700, 3001, 1.0, 1.0, chunk).run();
                all.extend([bits(&[kl.0]), bits(&kl.1), bits(&kl.2)]);
            }
            all
        })
        .unwrap()
    };
    assert_eq!(on(1), on(2));
}
