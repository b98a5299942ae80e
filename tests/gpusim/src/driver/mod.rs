//! The CUDA driver API, as far as cudarc 0.19 reaches: a thin layer over [`crate::device::Device`].
//!
//! Handles are numbers that are never given twice, so a stale one is always recognised. Streams are synchronous: work is done when
//! its call returns, and an error of a kernel is returned by the launch itself and, as CUDA's are, by every call after it until
//! the context is gone.

mod attribute;
mod context;
mod control;
mod error;
mod event;
mod function;
mod graph;
mod launch;
mod memory;
mod module;
mod occupancy;
mod pool;
mod state;
mod stream;
mod work;
