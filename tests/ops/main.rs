//! Promise: every op equals its naive f64 reference, in value and in every gradient, masks included, at awkward sizes, with
//! memory poisoned by NaN, and gives the same bits on one thread and on two.

use autocompress::autograd::check::check;

#[test]
fn every_op_equals_its_reference() {
    let mut faults = Vec::new();
    for (op, cases) in autocompress::ops::cases() {
        assert!(!cases.is_empty(), "{op} has no cases");
        // Twice in one process: the second run meets recycled memory.
        for round in 0..2 {
            faults
                .extend(cases.iter().filter_map(|case| check(case).err()).map(|e| format!("{op}, round {round}: {e}")));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
