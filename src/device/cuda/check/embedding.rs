use super::super::embedded::abi;
use super::super::{CudaError, DeviceBuffer};
use super::bench::{Bench, Float};
use super::masks::{address, masks, planted};
use super::problem::Problem;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::embedding::reference;

/// Rows, V, d.
const SIZES: [(usize, usize, usize); 9] = [
    (0, 3, 4),
    (1, 1, 1),
    (13, 101, 7),
    (331, 17, 32),
    // Ids that come often, in rows of single elements.
    (67, 7, 29),
    (31, 7, 24),
    (4100, 1300, 8),
    // Rows in many steps, of single elements and of 16 bytes.
    (5, 9, 301),
    (4, 3, 2568),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    // Keys of more blocks than a warp has lanes, and of two.
    for (rows, vocab) in [(2048 * 33 + 5, 70_000), (2048 * 2, 513), (2049, 3)] {
        bench.case(format!("{rows} ids of {vocab}"));
        let ids: Vec<u32> = (0..rows as u32).map(|row| row.wrapping_mul(0x9E37_79B9) % vocab as u32).collect();
        sort(bench, &ids, vocab)?;
    }
    for (rows, vocab, d) in SIZES {
        bench.case(format!("{rows} ids of {vocab}"));
        let ids: Vec<u32> = (0..rows).map(|row| (row * row * 31 % vocab) as u32).collect();
        let sorted = sort(bench, &ids, vocab)?;
        for dtype in bench.dtypes() {
            for (at, mask) in masks(rows, d).into_iter().enumerate() {
                bench.case(format!("{rows} ids of {vocab}, d {d} in {}, mask {at}", dtype.name()));
                one(bench, dtype, (&ids, vocab, d), &sorted, mask)?;
            }
        }
    }
    let (ids, vocab, d) = ([2, 0, 2, 1, 2], 4, 16);
    bench.case("5 ids of 4");
    let sorted = sort(bench, &ids, vocab)?;
    for dtype in bench.dtypes() {
        bench.off_16_bytes(|bench| {
            bench.case(format!("5 ids of 4, d 16 in {}", dtype.name()));
            one(bench, dtype, (&ids, vocab, d), &sorted, masks(ids.len(), d).swap_remove(2))
        })?;
    }
    Ok(())
}

/// Rows in the order of their ids, and where each id's start.
struct Sorted {
    order: DeviceBuffer<u32>,
    offsets: DeviceBuffer<u32>,
}

fn sort(bench: &mut Bench, ids: &[u32], vocab: usize) -> Result<Sorted, CudaError> {
    let rows = ids.len();
    let device = bench.cuda.upload(ids)?;
    let mut order: Option<DeviceBuffer<u32>> = None;
    for shift in [0, 9] {
        let counts: DeviceBuffer<u32> = bench.numbers(512 * rows.div_ceil(2048))?;
        let out = bench.numbers(rows)?;
        let args = abi::EmbeddingSort {
            ids: device.ptr(),
            order_in: address(&order),
            order_out: out.ptr(),
            counts: counts.ptr(),
            rows: rows as u32,
            shift,
        };
        // Without rows there is nothing to sort; the scan alone would still run.
        for kernel in if rows == 0 { &[][..] } else { &["count", "scan", "place"] } {
            bench.launch(&format!("embedding_sort_{kernel}_u32"), &args)?;
        }
        order = Some(out);
    }
    let order = order.unwrap_or_else(|| unreachable!("two digits were sorted"));
    let offsets = bench.numbers(vocab + 1)?;
    let args = abi::EmbeddingOffsets {
        ids: device.ptr(),
        order: order.ptr(),
        offsets: offsets.ptr(),
        rows: rows as u32,
        vocab: vocab as u32,
    };
    bench.launch("embedding_offsets_u32", &args)?;
    let mut want: Vec<u32> = (0..rows as u32).collect();
    want.sort_by_key(|row| ids[*row as usize]);
    bench.equal("order", &order.read()?, &want);
    let sorted: Vec<u32> = want.iter().map(|row| ids[*row as usize]).collect();
    let below = |id: usize| sorted.partition_point(|other| (*other as usize) < id) as u32;
    bench.equal("offsets", &offsets.read()?, &(0..=vocab).map(below).collect::<Vec<_>>());
    Ok(Sorted { order, offsets })
}

fn one(
    bench: &mut Bench,
    dtype: Float,
    (ids, vocab, d): (&[u32], usize, usize),
    sorted: &Sorted,
    mask: Option<(MaskSpec, usize)>,
) -> Result<(), CudaError> {
    let rows = ids.len();
    let mut generator = Generator::new((rows + d) as u64);
    let (spec, draws) = mask.map_or((None, 1), |(spec, draws)| (Some(spec), draws));
    let inputs = vec![
        (generator.normal("table", &[vocab, d], 1.0), dtype),
        (generator.keep(draws, spec.as_ref().map_or(1, |s| s.ends.len())), Float::F32),
    ];
    let ours = spec.clone();
    let m = move |keep: &[f64], row: usize, j: usize| ours.as_ref().map_or(1.0, |mask| mask.value(keep, row, j));
    let (same, our_ids) = (m.clone(), ids.to_vec());
    let problem = Problem::new(dtype, inputs, move |v| {
        vec![reference::embedding(&our_ids, &v[0], d, |row, j| same(&v[1], row, j))]
    });

    let mask = bench.mask(spec.as_ref(), &problem.inputs[1])?;
    let (device_ids, table) = (bench.cuda.upload(ids)?, bench.put(dtype, &problem.inputs[0])?);
    let y = bench.room(dtype, rows * d)?;
    let (r, width) = (rows as u32, d as u32);
    let args = abi::EmbeddingForward {
        ids: device_ids.ptr(),
        table: table.ptr(),
        y: y.ptr(),
        mask: mask.abi(),
        rows: r,
        width,
    };
    bench.launch(&format!("embedding_forward_{}", dtype.name()), &args)?;
    bench.value(&problem, 0, &y, dtype)?;

    if let Some(sums) = bench.row_sums(&mask, rows)? {
        let dy = bench.put(dtype, &problem.seeds[0])?;
        let args = abi::EmbeddingMaskGrad {
            ids: device_ids.ptr(),
            table: table.ptr(),
            dy: dy.ptr(),
            row_sums: sums.ptr(),
            mask: mask.abi(),
            rows: r,
            width,
        };
        bench.launch(&format!("embedding_mask_grad_{}", dtype.name()), &args)?;
        let grad = bench.mask_grad(&mask, &sums, rows, 1)?;
        bench.gradient(&problem, 1, &grad, Float::F32.tolerance().grad);
    }
    let planted = planted(&problem.seeds[0], d, |row, j| m(&problem.exact[1], row, j) == 0.0);
    let dy = bench.put(dtype, &planted)?;
    for accumulate in [0, 1] {
        let start = |at: usize| if accumulate == 1 { (at % 7) as f32 } else { f32::NAN };
        let dtable = bench.put(Float::F32, &(0..vocab * d).map(start).collect::<Vec<_>>())?;
        let args = abi::EmbeddingBackward {
            order: sorted.order.ptr(),
            offsets: sorted.offsets.ptr(),
            dy: dy.ptr(),
            dtable: dtable.ptr(),
            mask: mask.abi(),
            vocab: vocab as u32,
            width,
            accumulate,
            unused: 0,
        };
        bench.launch(&format!("embedding_backward_{}", dtype.name()), &args)?;
        let added = |(at, g): (usize, f32)| if accumulate == 1 { g - start(at) } else { g };
        let grad: Vec<f32> = dtable.read()?.into_iter().enumerate().map(added).collect();
        bench.gradient(&problem, 0, &grad, Float::F32.tolerance().grad);
    }
    Ok(())
}
