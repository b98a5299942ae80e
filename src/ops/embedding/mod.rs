//! Token embedding: rows of a table, times the mask of the hidden size (axis d).

pub mod cases;
mod cpu;
pub mod reference;

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// ids [R], table [V, d] → table[ids]·m, [R, d]. An id that the table lacks is an error.
///
/// The table's gradient adds the rows of one id in their order; rows of ids that do not occur get zeros.
pub fn embedding(tape: &Tape<'_>, ids: &[u32], table: &Var, mask: Option<&Mask>) -> Result<Var> {
    let &[vocab, d] = table.dims() else {
        return Err(Error::contract("embedding", "table", table.dims(), "[V, d]"));
    };
    if let Some(at) = ids.iter().position(|id| *id as usize >= vocab) {
        let expected = format!("ids below {vocab}, the table's rows, but position {at} has another");
        return Err(Error::contract("embedding", "ids", ids[at], expected));
    }
    let mask_rows = mask.map(|m| m.rows(d, ids.len())).transpose()?;
    let y = Tensor::build([ids.len(), d], |y| cpu::forward(ids, table.f32(), d, mask_rows.as_ref(), y));
    let keep = mask.map(|m| m.keep.clone()).unwrap_or_else(|| Var::constant(Tensor::zeros([0])));
    let (tv, keep_shape, ids) = (table.value().clone(), keep.shape().clone(), ids.to_vec());
    Ok(tape.record1("embedding", &[table, &keep], y, move |ctx| {
        let Some(dy) = ctx.output(0) else { return Ok(()) };
        if let Some(mask) = mask_rows.as_ref().filter(|_| ctx.needs(1)) {
            ctx.add(1, Tensor::from_slice(keep_shape, &cpu::mask_grad(&ids, tv.f32(), mask, dy.f32())));
        }
        ctx.accumulate(0, tv.shape(), |dtable, accumulate| {
            cpu::table_grad(&ids, dy.f32(), d, mask_rows.as_ref(), dtable, accumulate);
        });
        Ok(())
    }))
}
