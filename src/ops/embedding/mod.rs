//! Token embedding: rows of a table, times the mask of the hidden size (axis d).

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// ids `[R]`, table [V, d] → table\[ids\]·m, [R, d]. An id that the table lacks is an error.
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
    if let Some(gpu) = table.value().gpu() {
        return cuda::embedding(gpu, tape, ids, table, mask);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::Draws;

    #[test]
    fn an_id_beyond_the_table_is_refused_by_name() {
        let table = Var::constant(Tensor::zeros([3, 2]));
        let error = embedding(&Tape::inference(), &[0, 2, 7, 3], &table, None).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("found 7") && error.contains("position 2") && error.contains("below 3"), "{error}");
    }

    #[test]
    fn a_mask_of_zero_over_nan_gives_zero_and_finite_gradients_elsewhere() -> Result<()> {
        let tape = Tape::new();
        let table = tape.leaf(Tensor::from_slice([2, 3], &[1.0f32, 2.0, f32::NAN, 4.0, 5.0, f32::INFINITY]));
        let keep = tape.leaf(Tensor::from_slice([1, 2], &[0.5f32, 0.0]));
        let mask = Mask::new(&[2, 3], keep.clone(), Draws::One)?;
        let y = embedding(&tape, &[1, 0, 1], &table, Some(&mask))?;
        assert_eq!(y.f32(), [2.0, 2.5, 0.0, 0.5, 1.0, 0.0, 2.0, 2.5, 0.0]);
        let grads = tape.backward_from(std::slice::from_ref(&y), vec![Tensor::full([3, 3], 1.0)], &mut ())?;
        let of = |var| grads.take(var).map(|grad| grad.f32().to_vec()).unwrap_or_default();
        assert_eq!(of(&table), [0.5, 0.5, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(of(&keep)[0], 21.0);
        Ok(())
    }
}
