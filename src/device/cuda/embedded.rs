//! The device code inside this program, as build.rs took it from `ptx/` (or, with `NVCC` set, compiled it).

/// One module of device code.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The source file's name, `cuda/NAME.cu`.
    pub name: &'static str,
    /// The architectures that it runs on: `compute_80` is compute capability 8.0 and everything above.
    pub tier: &'static str,
    /// PTX, text.
    pub ptx: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
