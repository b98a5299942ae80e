//! The generic address space: which addresses stand for shared, local and parameter memory.

use crate::ptx::ast::Space;

/// Bytes of each window.
pub const WINDOW: u64 = 1 << 32;

const SHARED: u64 = 0x0100_0000_0000;
const LOCAL: u64 = 0x0200_0000_0000;
const PARAM: u64 = 0x0400_0000_0000;

/// First address of a space's window; 0 for spaces whose addresses are generic already.
pub fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
        Space::Global | Space::Const | Space::Generic => 0,
    }
}

/// The space a generic address lies in.
pub fn space_of(address: u64) -> Space {
    match address & !(WINDOW - 1) {
        SHARED => Space::Shared,
        LOCAL => Space::Local,
        PARAM => Space::Param,
        _ => Space::Global,
    }
}
