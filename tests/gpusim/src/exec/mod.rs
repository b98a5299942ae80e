//! Execution: lanes in warps, warps in CTAs, CTAs over the machine's cores.

mod access;
mod access_shared;
mod async_copy;
mod atomic;
mod collective;
pub mod cta;
pub mod env;
pub mod grid;
pub mod heap;
mod local;
mod matrix;
mod mma;
pub mod registers;
mod select;
mod shared;
pub mod space;
mod step;
mod view;
pub mod warp;
mod zeroed;
