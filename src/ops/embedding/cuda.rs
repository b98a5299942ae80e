use std::sync::Arc;

use crate::Result;
use crate::autograd::{Mask, Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, DeviceBuffer};
use crate::ops::gpu::{GpuMask, keep_of, launch, own, room, size, symbol};
use crate::tensor::DType;

pub(super) fn embedding(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    ids: &[u32],
    table: &Var,
    mask: Option<&Mask>,
) -> Result<Var> {
    let (vocab, d, dtype, rows) = (table.dims()[0], table.dims()[1], table.value().dtype(), ids.len());
    let device_mask = GpuMask::new(gpu, mask, d, rows)?;
    let ids = gpu.upload(ids)?;
    let y = room(gpu, dtype, &[rows, d])?;
    let args = abi::EmbeddingForward {
        ids: ids.ptr(),
        table: table.value().ptr(),
        y: y.ptr(),
        mask: device_mask.abi(),
        rows: size(rows)?,
        width: size(d)?,
    };
    launch(gpu, &symbol("embedding_forward", dtype), &args)?;
    let (gpu, tv) = (gpu.clone(), table.value().clone());
    Ok(tape.record1("embedding", &[table, &keep_of(mask)], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if let Some(sums) = device_mask.row_sums(&gpu, rows)?.filter(|_| ctx.needs(1)) {
            let args = abi::EmbeddingMaskGrad {
                ids: ids.ptr(),
                table: tv.ptr(),
                dy: dy.ptr(),
                row_sums: sums.ptr(),
                mask: device_mask.abi(),
                rows: size(rows)?,
                width: size(d)?,
            };
            launch(&gpu, &symbol("embedding_mask_grad", dtype), &args)?;
            ctx.add(1, device_mask.grad(&gpu, &sums, rows, 1)?);
        }
        if !ctx.needs(0) {
            return Ok(());
        }
        let (order, offsets) = sort(&gpu, &ids, vocab)?;
        ctx.write(0, || room(&gpu, DType::F32, &[vocab, d]), &mut |dtable, accumulate| {
            own(dtable, accumulate)?;
            let args = abi::EmbeddingBackward {
                order: order.ptr(),
                offsets: offsets.ptr(),
                dy: dy.ptr(),
                dtable: dtable.ptr(),
                mask: device_mask.abi(),
                vocab: size(vocab)?,
                width: size(d)?,
                accumulate: u32::from(accumulate),
                unused: 0,
            };
            launch(&gpu, &symbol("embedding_backward", dtype), &args)
        })
    }))
}

/// Rows in the order of their ids, and where each id's rows start, [V + 1]: a stable sort, digit by digit.
fn sort(gpu: &Cuda, ids: &DeviceBuffer<u32>, vocab: usize) -> Result<(DeviceBuffer<u32>, DeviceBuffer<u32>)> {
    let rows = ids.len();
    let mut order: Option<DeviceBuffer<u32>> = None;
    for shift in if vocab > 1 << 18 { &[0, 9, 18][..] } else { &[0, 9] } {
        let counts: DeviceBuffer<u32> = gpu.buffer(512 * rows.div_ceil(2048))?;
        let out = gpu.buffer(rows)?;
        let args = abi::EmbeddingSort {
            ids: ids.ptr(),
            order_in: order.as_ref().map_or(std::ptr::null(), |order| order.ptr()),
            order_out: out.ptr(),
            counts: counts.ptr(),
            rows: size(rows)?,
            shift: *shift,
        };
        // Without rows there is nothing to sort; the scan alone would still run.
        for kernel in if rows == 0 { &[][..] } else { &["count", "scan", "place"] } {
            launch(gpu, &format!("embedding_sort_{kernel}_u32"), &args)?;
        }
        order = Some(out);
    }
    let order = order.unwrap_or_else(|| unreachable!("two digits were sorted"));
    let offsets = gpu.buffer(vocab + 1)?;
    let args = abi::EmbeddingOffsets {
        ids: ids.ptr(),
        order: order.ptr(),
        offsets: offsets.ptr(),
        rows: size(rows)?,
        vocab: size(vocab)?,
    };
    launch(gpu, "embedding_offsets_u32", &args)?;
    Ok((order, offsets))
}
