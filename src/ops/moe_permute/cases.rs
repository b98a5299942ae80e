use super::{DROPPED, Dispatch, moe_permute, reference};
use crate::autograd::check::{Case, Generator};

/// Experts [R, K] that leave some experts without tokens and drop some pairs.
pub fn scattered(rows: usize, top_k: usize, count: usize, drop_every: usize) -> Vec<u32> {
    (0..rows * top_k)
        .map(|pair| {
            let (row, slot) = (pair / top_k, pair % top_k);
            let expert = (row * row + row * slot + 3 * slot) % count;
            if drop_every > 0 && pair % drop_every == drop_every - 1 { DROPPED } else { expert as u32 }
        })
        .collect()
}

pub fn cases() -> Vec<Case> {
    [(0, 3, 2, 4, 0), (1, 1, 1, 1, 0), (37, 19, 2, 8, 0), (65, 33, 3, 16, 7), (20, 8, 2, 5, 1)]
        .into_iter()
        .map(|(rows, width, top_k, count, drop_every)| {
            let experts = scattered(rows, top_k, count, drop_every);
            let inputs = vec![Generator::new(rows as u64).normal("x", &[rows, width], 1.0)];
            let ours = experts.clone();
            Case::new(
                format!("{rows} rows of {width}, top {top_k} of {count}, dropped every {drop_every}"),
                inputs,
                move |tape, v| Ok(vec![moe_permute(tape, &v[0], &Dispatch::new(&ours, top_k, count)?)?]),
                move |v| vec![reference::moe_permute(&v[0], width, &experts, top_k, count)],
            )
        })
        .collect()
}
