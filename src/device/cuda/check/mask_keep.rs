use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::problem::Problem;
use crate::ops::mask_keep::{cases, reference};

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for case in cases::cases() {
        bench.case(case.name);
        let Some(y) = case.inputs.into_iter().next() else { continue };
        let (draws, candidates) = (y.dims[0], y.dims[1]);
        let problem =
            Problem::new(Float::F32, vec![(y, Float::F32)], move |v| vec![reference::mask_keep(&v[0], candidates)]);
        for (kernel, from) in [("forward", &problem.inputs[0]), ("backward", &problem.seeds[0])] {
            let (given, out) = (bench.put(Float::F32, from)?, bench.room(Float::F32, from.len())?);
            let args =
                abi::MaskKeep { in_: given.ptr(), out: out.ptr(), draws: draws as u32, candidates: candidates as u32 };
            bench.launch(&format!("mask_keep_{kernel}_f32"), &args)?;
            match kernel {
                "forward" => bench.value(&problem, 0, &out, Float::F32)?,
                _ => bench.gradient(&problem, 0, &out.read()?, Float::F32.tolerance().grad),
            }
        }
    }
    Ok(())
}
