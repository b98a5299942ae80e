//! How much memory there is, for refusing at the start what cannot end well.
//!
//! A process that asks for more than there is does not get an error: it is ended by the system, often hours later.

use crate::{Error, Result};

/// Bytes of memory that this process can ever have: the machine's, or what its control group allows. `None` where the
/// system does not say.
pub fn total() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    match (machine, group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// Refuses `what` where it needs more than there is. `needed` is a lower bound; `None` stands for more than 64 bits.
///
/// # Errors
/// [`Error::Memory`].
pub fn require(what: &str, needed: Option<u64>) -> Result<()> {
    let needed = needed.unwrap_or(u64::MAX);
    match total() {
        Some(found) if needed > found => Err(Error::Memory { what: what.into(), needed, found }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_fit_is_refused() {
        assert!(require("nothing", Some(0)).is_ok());
        assert!(total().is_some_and(|bytes| bytes > 1 << 20));
        let error = require("a model", None).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }) && error.to_string().starts_with("a model: needs"), "{error}");
    }
}
