//! How many architectures a space holds.

use num_bigint::BigUint;

use super::search_space::{Axis, SearchSpace};
use crate::model::config::{Layer, LayerKind};

impl SearchSpace {
    /// The exact number of distinct architectures: where F = 0 the number of experts does not matter, and where no Mamba
    /// layer is left the number of heads does not.
    pub fn count(&self) -> BigUint {
        let candidates = |axis, layer| self.gate(axis, layer).map(|g| self.gates[g].candidates.as_slice());
        let size = |axis, layer| BigUint::from(candidates(axis, layer).map_or(1, <[usize]>::len));
        let mut count = size(Axis::Hidden, None) * self.count_mamba(size(Axis::Heads, None));
        for (i, layer) in self.parent.layers.iter().enumerate() {
            if let Layer::Moe(moe) = layer {
                let fixed = [moe.intermediate];
                let widths = candidates(Axis::Routed, Some(i)).unwrap_or(&fixed);
                let dense = widths.iter().filter(|width| **width == 0).count();
                let routed = size(Axis::Experts, Some(i)) * (widths.len() - dense);
                count *= (routed + dense) * size(Axis::Shared, Some(i));
            }
        }
        count
    }

    fn count_mamba(&self, heads: BigUint) -> BigUint {
        let removable = self.gates.iter().filter(|gate| gate.axis == Axis::KeepMamba).count();
        let subsets = BigUint::from(1u8) << removable;
        if removable > 0 && removable == self.parent.count(LayerKind::Mamba) {
            (subsets - 1u8) * heads + 1u8
        } else {
            subsets * heads
        }
    }
}
