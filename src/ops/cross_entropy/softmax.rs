//! Row reductions that every softmax here needs, as loops that vectorise.

use crate::numerics::fma;

const LANES: usize = 16;
/// Elements that are summed in f32 lanes before the sum moves to f64: long rows lose nothing to rounding.
const RUN: usize = 1024;

/// eˣ for x ≤ 88: what a softmax takes it of, differences to a largest element. Below −87.3 it is 0; NaN stays NaN.
///
/// Without the general one's upper range, 2ⁿ is one addition to the exponent's bits.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.3;
    const LN2_HI: f32 = 0.693_359_4; // the upper bits of ln 2: n·LN2_HI is exact for |n| < 2¹⁰
    const LN2_LO: f32 = -2.121_944_4e-4;
    const ROUND: f32 = 12_582_912.0; // 1.5·2²³: adding it leaves the nearest integer in the low mantissa bits
    let clamped = if x < LOWEST { LOWEST } else { x };
    let shifted = fma(clamped, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma(n, -LN2_LO, fma(n, -LN2_HI, clamped));
    // Taylor series of eʳ on |r| ≤ ln 2 / 2; the first dropped term is below 6e-9.
    let mut p = 1.0 / 5040.0;
    p = fma(p, r, 1.0 / 720.0);
    p = fma(p, r, 1.0 / 120.0);
    p = fma(p, r, 1.0 / 24.0);
    p = fma(p, r, 1.0 / 6.0);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    let y = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    // The bits of a NaN may add up to a number: 0·NaN brings it back.
    let y = fma(clamped, 0.0, y);
    if x < LOWEST { 0.0 } else { y }
}

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
                chunk[i] = exp(chunk[i] - shift);
                lanes[i] += chunk[i];
            }
        }
        let mut sum = fold(lanes);
        for x in chunks.into_remainder() {
            *x = exp(*x - shift);
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
    *t = exp(dt);
    *s = exp(ds);
    if *t > 0.0 { *t * (dt - ds) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp_and_right_at_the_edges() {
        let mut x = -87.3f32;
        while x < 88.0 {
            let exact = f64::from(x).exp() as f32;
            assert!(exp(x).to_bits().abs_diff(exact.to_bits()) <= 2, "{x}: {} for {exact}", exp(x));
            x += 0.000_73;
        }
        assert_eq!([exp(0.0), exp(-104.0), exp(-1e30), exp(f32::NEG_INFINITY)], [1.0, 0.0, 0.0, 0.0]);
        for bits in [0x7FC0_0000, 0xFFFF_FFFF, 0x7F80_0001] {
            assert!(exp(f32::from_bits(bits)).is_nan(), "{bits:x}");
        }
    }

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
