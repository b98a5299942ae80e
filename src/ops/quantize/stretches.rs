use super::hadamard;
use crate::device::parallel::for_rows;

/// Where experts' rows lie once each begins at a multiple of `edge`, so that no block of scales belongs to two of them.
#[derive(Clone, Debug)]
pub struct Stretches {
    offsets: Vec<usize>,
    /// [E + 1]: expert e's rows begin at `starts[e]`.
    pub starts: Vec<usize>,
}

impl Stretches {
    /// Of experts whose rows are `offsets[e] .. offsets[e + 1]` now.
    pub fn new(offsets: &[usize], edge: usize) -> Stretches {
        let mut starts = vec![0];
        for rows in offsets.windows(2) {
            starts.push(starts[starts.len() - 1] + (rows[1] - rows[0]).next_multiple_of(edge));
        }
        Stretches { offsets: offsets.to_vec(), starts }
    }

    /// All rows.
    pub fn rows(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// x laid out so, with zeros behind each expert's rows: [rows, width].
    pub fn spread(&self, x: &[f32], width: usize) -> Vec<f32> {
        let mut y = vec![0.0; self.rows() * width];
        for_rows(&mut y, width, |first, y| {
            for (i, y) in y.chunks_exact_mut(width).enumerate() {
                let expert = self.starts.partition_point(|start| *start <= first + i) - 1;
                let row = self.offsets[expert] + (first + i - self.starts[expert]);
                if row < self.offsets[expert + 1] {
                    y.copy_from_slice(&x[row * width..][..width]);
                }
            }
        });
        y
    }

    /// As [`Stretches::spread`], each sixteen rows transformed ([`hadamard`]). The edge is 16.
    pub fn hadamard(&self, x: &[f32], width: usize) -> Vec<f32> {
        hadamard(&self.spread(x, width), width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_begin_at_edges_and_zeros_follow() {
        let stretches = Stretches::new(&[0, 3, 3, 8], 4);
        assert_eq!(stretches.starts, [0, 4, 4, 12]);
        let x: Vec<f32> = (1..=16).map(|v| v as f32).collect();
        let y = stretches.spread(&x, 2);
        assert_eq!(y[..8], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
        assert_eq!((&y[8..10], &y[16..]), (&[7.0, 8.0][..], &[15.0, 16.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0][..]));
    }
}
