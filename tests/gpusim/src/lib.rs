//! A CUDA device that is a program: it implements the driver functions that cudarc calls and interprets PTX, so that kernels run on
//! machines with no GPU, and every access of theirs is checked and counted. See README.md.
//!
//! From PTX to result:
//! [`ptx`] parses the text, [`decode`] understands each instruction once, [`exec`] runs warps of 32 lanes with [`alu`] for their
//! arithmetic, [`check`] finds what is wrong, [`count`] counts what a profiler would. [`device::Device`] ties them together,
//! `driver` puts it behind CUDA's functions, and [`install()`] puts those in the place of `libcuda.so`.

pub mod alu;
pub mod check;
pub mod count;
pub mod decode;
pub mod device;
mod driver;
pub mod exec;
mod install;
pub mod json;
pub mod mutate;
pub mod ptx;

pub use install::{Installed, install};
