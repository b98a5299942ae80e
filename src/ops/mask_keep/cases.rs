use super::{mask_keep, reference};
use crate::autograd::check::{Case, Generator};

const SIZES: [(usize, usize); 5] = [(0, 3), (1, 1), (1, 2), (3, 6), (32, 18)];

pub fn cases() -> Vec<Case> {
    (SIZES.iter())
        .map(|&(draws, candidates)| {
            let mut y = Generator::new(candidates as u64).uniform("y", &[draws, candidates], 0.0, 1.0);
            for row in y.values.chunks_mut(candidates) {
                // Probabilities, an exact 0 among them.
                row[candidates / 2] = if candidates > 2 { 0.0 } else { row[candidates / 2] };
                let total: f32 = row.iter().sum();
                row.iter_mut().for_each(|y| *y /= total);
            }
            Case::new(
                format!("{draws} draws of {candidates} candidates"),
                vec![y],
                |tape, v| Ok(vec![mask_keep(tape, &v[0])?]),
                move |v| vec![reference::mask_keep(&v[0], candidates)],
            )
        })
        .collect()
}
