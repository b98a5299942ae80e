//! Promise: offsets have 64 bits. At the end of tensors of more than 2³² elements every kernel gives the bits that it gives of
//! those last rows alone.
//!
//! Products of many wide experts, which broke other kernels, are right.
//!
//! gpusim gives out memory page by page and runs a launch's last blocks alone, so that nothing in front is ever touched.

mod experts;
mod lab;
mod products;
mod rows;
mod sequences;

use lab::Lab;

/// More than the host has.
const DEVICE_MEBIBYTES: &str = "262144";

#[test]
fn the_end_of_a_large_tensor_is_like_any_other() {
    // SAFETY: the process has no other thread yet that reads its environment.
    unsafe { std::env::set_var("GPUSIM_MEMORY_MB", DEVICE_MEBIBYTES) };
    let lab = Lab::new();
    rows::all(&lab);
    products::all(&lab);
    experts::all(&lab);
    sequences::all(&lab);
    lab.finish();
}
