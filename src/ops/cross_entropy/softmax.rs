//! Row reductions that every softmax here needs, as loops that vectorise.

use crate::numerics::exp_to_88;

const LANES: usize = 16;
/// Elements that are summed in f32 lanes before the sum moves to f64: long rows lose nothing to rounding.
const RUN: usize = 1024;

/// The largest element, −∞ of an empty row. NaN is passed over: it shows in the sum of exponentials.
#[inline]
pub fn max(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = row.chunks_exact(LANES);
    let tail = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], chunk[i]);
        }
    }
    lanes.iter().chain(tail).fold(f32::NEG_INFINITY, |a, b| larger(a, *b))
}

/// row = exp(row − shift); returns the sum.
#[inline]
pub fn exp_sum(row: &mut [f32], shift: f32) -> f64 {
    let mut total = 0.0;
    for run in row.chunks_mut(RUN) {
        let mut lanes = [0.0f32; LANES];
        let mut chunks = run.chunks_exact_mut(LANES);
        for chunk in &mut chunks {
            for i in 0..LANES {
                chunk[i] = exp_to_88(chunk[i] - shift);
                lanes[i] += chunk[i];
            }
        }
        let mut sum = fold(lanes);
        for x in chunks.into_remainder() {
            *x = exp_to_88(*x - shift);
            sum += *x;
        }
        total += f64::from(sum);
    }
    total
}

/// The sum of a row of lanes, pairwise.
#[inline]
fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// What one run of two rows adds to the sums of a Kullback–Leibler divergence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KlSums {
    /// Σ eᵗ
    pub teacher: f64,
    /// Σ eˢ
    pub student: f64,
    /// Σ eᵗ·(t − s), a term with eᵗ = 0 being 0
    pub cross: f64,
}

/// With t = teacher − shifts.0 and s = student − shifts.1: teacher = eᵗ, student = eˢ; returns the sums.
#[inline]
pub fn kl_sums(teacher: &mut [f32], student: &mut [f32], shifts: (f32, f32)) -> KlSums {
    let mut total = KlSums::default();
    for (teacher, student) in teacher.chunks_mut(RUN).zip(student.chunks_mut(RUN)) {
        let (mut lt, mut ls, mut lc) = ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
        let (mut tc, mut sc) = (teacher.chunks_exact_mut(LANES), student.chunks_exact_mut(LANES));
        for (t, s) in (&mut tc).zip(&mut sc) {
            for i in 0..LANES {
                let cross = kl_term(&mut t[i], &mut s[i], shifts);
                lt[i] += t[i];
                ls[i] += s[i];
                lc[i] += cross;
            }
        }
        let (mut st, mut ss, mut sx) = (fold(lt), fold(ls), fold(lc));
        for (t, s) in tc.into_remainder().iter_mut().zip(sc.into_remainder()) {
            sx += kl_term(t, s, shifts);
            st += *t;
            ss += *s;
        }
        total.teacher += f64::from(st);
        total.student += f64::from(ss);
        total.cross += f64::from(sx);
    }
    total
}

#[inline(always)]
fn kl_term(t: &mut f32, s: &mut f32, shifts: (f32, f32)) -> f32 {
    let (dt, ds) = (*t - shifts.0, *s - shifts.1);
    *t = exp_to_88(dt);
    *s = exp_to_88(ds);
    if *t > 0.0 { *t * (dt - ds) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_long_rows_lose_nothing() {
        for len in [0, 1, 15, 16, 17, 1023, 1025, 200_003] {
            let mut row: Vec<f32> = (0..len).map(|i| -((i % 97) as f32) / 10.0).collect();
            let exact: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            assert!((exp_sum(&mut row, 0.0) - exact).abs() <= 2e-7 * exact, "{len}");
        }
        assert_eq!(max(&[]), f32::NEG_INFINITY);
        assert_eq!(max(&[-3.0, f32::NAN, -2.0]), -2.0);
    }
}
