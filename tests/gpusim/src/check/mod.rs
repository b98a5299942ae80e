//! What is checked while kernels run, and the list of what was found.

pub mod clock;
pub mod finding;
pub mod shadow;
