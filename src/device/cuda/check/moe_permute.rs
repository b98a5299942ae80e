use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Float};
use super::masks::address;
use super::problem::Problem;
use crate::autograd::check::Generator;
use crate::ops::moe_permute::cases::scattered;
use crate::ops::moe_permute::{DROPPED, reference};

/// Rows, width, experts per token, experts, which pairs are dropped.
const SIZES: [(usize, usize, usize, usize, usize); 8] = [
    (0, 8, 2, 4, 0),
    (1, 1, 1, 1, 0),
    (40, 24, 3, 8, 7),
    (900, 7, 6, 16, 0),
    (33, 40, 22, 40, 0),
    (20, 8, 2, 5, 1),
    // Rows in many steps, of single elements and of 16 bytes.
    (7, 301, 5, 8, 4),
    (5, 2568, 3, 4, 0),
];

/// Where pairs go, on the device and on the host.
pub struct Dispatched {
    /// [E + 2].
    pub offsets: DeviceBuffer<u32>,
    pub pair_of: DeviceBuffer<u32>,
    pub row_of: DeviceBuffer<u32>,
    /// Pairs in the order of their rows; dropped ones last.
    pub order: Vec<u32>,
    /// Rows that experts have.
    pub filled: usize,
    experts: usize,
}

impl Dispatched {
    fn row_of_pair(&self, pair: usize) -> usize {
        self.order.iter().position(|other| *other as usize == pair).unwrap_or(self.order.len())
    }

    /// The address of the number of rows that experts have.
    pub fn filled_ptr(&self) -> *const u32 {
        self.offsets.ptr::<u32>().wrapping_add(self.experts)
    }
}

/// Sorts pairs by expert and holds the result against a stable sort. `draw` is that of every two tokens.
pub fn dispatch(
    bench: &mut Bench,
    chosen: &[u32],
    top_k: usize,
    experts: usize,
    draw: Option<&[u32]>,
) -> Result<Dispatched, CudaError> {
    let pairs = chosen.len();
    let device = bench.cuda.upload(chosen)?;
    let counts: DeviceBuffer<u32> = bench.numbers((experts + 1) * pairs.div_ceil(2048))?;
    let (offsets, pair_of, row_of) = (bench.numbers(experts + 2)?, bench.numbers(pairs)?, bench.numbers(pairs)?);
    let device_draw = draw.map(|draw| bench.cuda.upload(draw)).transpose()?;
    let draw_of: Option<DeviceBuffer<u32>> = draw.map(|_| bench.numbers(pairs)).transpose()?;
    let args = abi::MoeDispatch {
        chosen: device.ptr(),
        counts: counts.ptr(),
        offsets: offsets.ptr(),
        pair_of: pair_of.ptr(),
        row_of: row_of.ptr(),
        draw: address(&device_draw),
        draw_of: address(&draw_of),
        pairs: pairs as u32,
        top_k: top_k as u32,
        experts: experts as u32,
        length: 2,
    };
    for kernel in ["count", "scan", "place"] {
        bench.launch(&format!("moe_permute_{kernel}_u32"), &args)?;
    }
    let key = |pair: u32| (chosen[pair as usize] as usize).min(experts);
    let mut order: Vec<u32> = (0..pairs as u32).collect();
    order.sort_by_key(|pair| key(*pair));
    bench.equal("pair_of", &pair_of.read()?, &order);
    let mut rows = vec![0; pairs];
    order.iter().enumerate().for_each(|(row, pair)| rows[*pair as usize] = row as u32);
    bench.equal("row_of", &row_of.read()?, &rows);
    let below = |e: usize| order.iter().filter(|pair| key(**pair) < e).count() as u32;
    bench.equal("offsets", &offsets.read()?, &(0..experts + 2).map(below).collect::<Vec<_>>());
    if let (Some(draw), Some(draw_of)) = (draw, draw_of) {
        let want: Vec<u32> = order.iter().map(|pair| draw[*pair as usize / top_k / 2]).collect();
        bench.equal("draw_of", &draw_of.read()?, &want);
    }
    let filled = below(experts) as usize;
    Ok(Dispatched { offsets, pair_of, row_of, order, filled, experts })
}

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    // The first dropped pair, whose row is the first behind the experts', with each slot.
    let dropped = (2..7).flat_map(|every| [(5, 8, 6, 5, every), (5, 7, 6, 5, every)]);
    for (rows, width, top_k, experts, drop_every) in SIZES.into_iter().chain(dropped) {
        bench.case(format!("{rows} rows, top {top_k} of {experts}, dropped every {drop_every}"));
        let chosen = scattered(rows, top_k, experts, drop_every);
        let draw: Vec<u32> = (0..rows.div_ceil(2) as u32).map(|at| at * 5 % 3).collect();
        let sorted = dispatch(bench, &chosen, top_k, experts, (drop_every == 0).then_some(&draw))?;
        for dtype in bench.dtypes() {
            bench.case(format!("{rows} rows of {width} in {}, top {top_k} of {experts}", dtype.name()));
            rows_of(bench, dtype, (&chosen, rows, width, top_k, experts), &sorted)?;
        }
    }
    bench.case("as many experts as there can be");
    dispatch(bench, &scattered(40, 3, 512, 7), 3, 512, None)?;
    bench.case("5 rows of 16");
    let chosen = scattered(5, 3, 5, 4);
    let sorted = dispatch(bench, &chosen, 3, 5, None)?;
    for dtype in bench.dtypes() {
        bench.off_16_bytes(|bench| {
            bench.case(format!("5 rows of 16 in {}", dtype.name()));
            rows_of(bench, dtype, (&chosen, 5, 16, 3, 5), &sorted)
        })?;
    }
    // Of each token's pairs one alone is not dropped, in each slot.
    let (rows, top_k, experts) = (14, 7, 3);
    let mut chosen = vec![DROPPED; rows * top_k];
    (0..rows).for_each(|row| chosen[row * top_k + row % top_k] = row as u32 * 2 % 3);
    for width in [8, 7] {
        bench.case(format!("{rows} rows of {width}, one pair of each"));
        let sorted = dispatch(bench, &chosen, top_k, experts, None)?;
        for dtype in bench.dtypes() {
            rows_of(bench, dtype, (&chosen, rows, width, top_k, experts), &sorted)?;
        }
    }
    Ok(())
}

fn rows_of(
    bench: &mut Bench,
    dtype: Float,
    (chosen, rows, width, top_k, experts): (&[u32], usize, usize, usize, usize),
    sorted: &Dispatched,
) -> Result<(), CudaError> {
    let pairs = rows * top_k;
    let x = Generator::new(rows as u64).normal("x", &[rows, width], 1.0);
    let ours = chosen.to_vec();
    let problem = Problem::new(dtype, vec![(x, dtype)], move |v| {
        let mut y = reference::moe_permute(&v[0], width, &ours, top_k, experts);
        y.resize(pairs * width, 0.0);
        vec![y]
    });
    debug_assert_eq!(sorted.filled, chosen.iter().filter(|e| **e != DROPPED).count());
    let (x, y) = (bench.put(dtype, &problem.inputs[0])?, bench.room(dtype, pairs * width)?);
    let args = abi::MoePermuteForward {
        x: x.ptr(),
        pair_of: sorted.pair_of.ptr(),
        filled: sorted.filled_ptr(),
        y: y.ptr(),
        pairs: pairs as u32,
        top_k: top_k as u32,
        width: width as u32,
        unused: 0,
    };
    bench.launch(&format!("moe_permute_forward_{}", dtype.name()), &args)?;
    bench.equal("rows", &y.read()?, &problem.expected[0].iter().map(|y| *y as f32).collect::<Vec<_>>());

    let mut seeds = problem.seeds[0].clone();
    seeds[sorted.filled * width..].fill(f32::NAN);
    let (dy, dx) = (bench.put(dtype, &seeds)?, bench.room(dtype, rows * width)?);
    let args = abi::MoePermuteBackward {
        dy: dy.ptr(),
        row_of: sorted.row_of.ptr(),
        filled: sorted.filled_ptr(),
        dx: dx.ptr(),
        tokens: rows as u32,
        top_k: top_k as u32,
        width: width as u32,
        unused: 0,
    };
    bench.launch(&format!("moe_permute_backward_{}", dtype.name()), &args)?;
    let dx = dx.read()?;
    bench.gradient(&problem, 0, &dx, dtype.tolerance().grad);
    // A token whose pairs but one are dropped has that one's gradient, to the last bit.
    for (token, pairs) in chosen.chunks(top_k).enumerate() {
        let Some(slot) = pairs.iter().position(|expert| *expert != DROPPED) else { continue };
        if pairs.iter().filter(|expert| **expert != DROPPED).count() == 1 {
            let row = sorted.row_of_pair(token * top_k + slot);
            bench.equal("the only gradient", &dx[token * width..][..width], &seeds[row * width..][..width]);
        }
    }
    Ok(())
}
