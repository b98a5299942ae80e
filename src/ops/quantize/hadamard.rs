use crate::device::parallel::for_rows;

const ROWS: usize = 16;

/// Signs that make the transform random, fixed for good: bit i belongs to row i of sixteen. As in cuda/quantize.cu.
const SIGNS: u32 = 0b1011_0011_1000_1011;

/// Each sixteen rows r of x [R, width] become `Σ_r ±x[r]·sign[r] / 4`: [R rounded up to 16, width]. It spreads an outlier over
/// its block. The matrix is orthogonal, so a product of two matrices that are both transformed along its depth is that of
/// the matrices themselves. Rows behind the last count as zeros.
pub fn hadamard(x: &[f32], width: usize) -> Vec<f32> {
    let rows = x.len().checked_div(width).unwrap_or(0).next_multiple_of(ROWS);
    let mut y = vec![0.0; rows * width];
    for_rows(&mut y, ROWS * width, |first, y| {
        for (i, y) in y.chunks_exact_mut(ROWS * width).enumerate() {
            let start = (first + i) * ROWS * width;
            let x = &x[start..x.len().min(start + ROWS * width)];
            for (r, (y, x)) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)).enumerate() {
                let sign = if SIGNS >> r & 1 == 1 { -0.25 } else { 0.25 };
                y.iter_mut().zip(x).for_each(|(y, x)| *y = x * sign);
            }
            butterflies(y, width);
        }
    });
    y
}

/// Sums and differences of rows 1, 2, 4 and 8 apart.
fn butterflies(y: &mut [f32], width: usize) {
    for distance in [1, 2, 4, 8] {
        for pair in y.chunks_exact_mut(2 * distance * width) {
            let (a, b) = pair.split_at_mut(distance * width);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::check::Generator;

    #[test]
    fn products_of_transformed_matrices_are_those_of_the_matrices() {
        let (rows, m, n) = (37, 5, 3);
        let mut generator = Generator::new(4);
        let a = generator.normal("a", &[rows, m], 1.0).values;
        let b = generator.normal("b", &[rows, n], 1.0).values;
        let product = |a: &[f32], b: &[f32]| -> Vec<f32> {
            let sum = |i, j| a.chunks(m).zip(b.chunks(n)).map(|(a, b)| a[i] * b[j]).sum();
            (0..m * n).map(|at| sum(at / n, at % n)).collect()
        };
        let (ha, hb) = (hadamard(&a, m), hadamard(&b, n));
        assert_eq!(ha.len(), 48 * m);
        for (got, want) in product(&ha, &hb).iter().zip(product(&a, &b)) {
            assert!((got - want).abs() < 1e-4, "{got} {want}");
        }
        let spread = hadamard(&[16.0, 0.0, 0.0], 1);
        assert!(spread.iter().all(|v| v.abs() == 4.0), "{spread:?}");
    }
}
