//! The dispatch of tokens to experts, and the gather that follows it.

use std::ptr::null_mut;

use super::super::super::embedded::abi;
use super::super::workload::Contents::{Room, Words};
use super::super::workload::{Float, Set, Workload, floats, room};
use super::scanned;

/// K experts of each of R tokens, spread evenly: [R, K].
pub(super) fn chosen(rows: usize, experts: usize, top_k: usize) -> Vec<u32> {
    (0..rows * top_k).map(|pair| ((pair / top_k * 5 + pair % top_k) % experts) as u32).collect()
}

/// Where the pairs of [`chosen`] go.
pub(super) struct Dispatch {
    pub chosen: Vec<u32>,
    /// [R·K]: the pair of each row.
    pub pair_of: Vec<u32>,
    /// [R·K]: the row of each pair.
    pub row_of: Vec<u32>,
    /// The rows that are filled: all.
    pub filled: Vec<u32>,
}

impl Dispatch {
    pub fn new(rows: usize, experts: usize, top_k: usize) -> Dispatch {
        let chosen = chosen(rows, experts, top_k);
        let mut pair_of: Vec<u32> = (0..chosen.len() as u32).collect();
        pair_of.sort_by_key(|pair| chosen[*pair as usize]);
        let mut row_of = vec![0; pair_of.len()];
        pair_of.iter().enumerate().for_each(|(row, pair)| row_of[*pair as usize] = row as u32);
        let filled = vec![pair_of.len() as u32];
        Dispatch { chosen, pair_of, row_of, filled }
    }
}

/// R, E, K, L.
pub fn moe_permute(shape: &[usize]) -> Vec<Workload> {
    let &[rows, experts, top_k, width] = shape else { unreachable!("four letters") };
    let dispatch = Dispatch::new(rows, experts, top_k);
    let mut all: Vec<Workload> = sort(&dispatch.chosen, experts, top_k).into();
    all.extend(Float::BOTH.into_iter().flat_map(|dtype| gather(dtype, &dispatch, [rows, top_k, width])));
    all
}

/// The sort's three launches.
fn sort(chosen: &[u32], experts: usize, top_k: usize) -> [Workload; 3] {
    let pairs = chosen.len();
    let starts = scanned(&chosen.iter().map(|expert| *expert as usize).collect::<Vec<_>>(), experts + 1);
    let (counts, of_pairs) = (4 * starts.len(), 4 * pairs);
    let args = move |set: &Set| abi::MoeDispatch {
        chosen: set.at(0),
        counts: set.at(1),
        offsets: set.at(2),
        pair_of: set.at(3),
        row_of: set.at(4),
        draw: null_mut(),
        draw_of: null_mut(),
        pairs: pairs as u32,
        top_k: top_k as u32,
        experts: experts as u32,
        length: 1,
    };
    let offsets = 4 * (experts + 2);
    let sizes = [("count", of_pairs + counts), ("scan", 2 * counts + offsets), ("place", 3 * of_pairs + counts)];
    sizes.map(|(kernel, bytes)| {
        let buffers =
            vec![Words(chosen.to_vec()), Words(starts.clone()), Room(offsets), Room(of_pairs), Room(of_pairs)];
        Workload::new(format!("moe_permute_{kernel}_u32"), [bytes, 0], buffers, args)
    })
}

fn gather(dtype: Float, dispatch: &Dispatch, [rows, top_k, width]: [usize; 3]) -> [Workload; 2] {
    let pairs = rows * top_k;
    let filled = || Words(dispatch.filled.clone());
    let (x, y) = (rows * width, pairs * width);
    let forward = vec![floats(dtype, x), Words(dispatch.pair_of.clone()), filled(), room(dtype, y)];
    let backward = vec![floats(dtype, y), Words(dispatch.row_of.clone()), filled(), room(dtype, x)];
    let bytes = dtype.bytes() * (x + y) + 4 * pairs;
    [
        Workload::of("moe_permute_forward", dtype, [bytes, 0], forward, move |set| abi::MoePermuteForward {
            x: set.at(0),
            pair_of: set.at(1),
            filled: set.at(2),
            y: set.at(3),
            pairs: pairs as u32,
            top_k: top_k as u32,
            width: width as u32,
            unused: 0,
        }),
        Workload::of("moe_permute_backward", dtype, [bytes, y], backward, move |set| abi::MoePermuteBackward {
            dy: set.at(0),
            row_of: set.at(1),
            filled: set.at(2),
            dx: set.at(3),
            tokens: rows as u32,
            top_k: top_k as u32,
            width: width as u32,
            unused: 0,
        }),
    ]
}
