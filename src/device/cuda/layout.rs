//! Where the members of the kernels' arguments are, read from ptx/abi.rs, so that the rules of kernels.toml can speak of
//! them by name.

use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pointer,
    U32,
    U64,
    Float,
}

/// Members by name, those of inner structs as `outer.inner`: offset and kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    members: HashMap<String, (usize, Kind)>,
    pub size: usize,
}

impl Layout {
    /// An integer member's value in a struct's bytes, or a pointer's address.
    pub fn read(&self, bytes: &[u8], member: &str) -> Option<u64> {
        let (at, kind) = *self.members.get(member)?;
        match kind {
            Kind::Pointer | Kind::U64 => Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?)),
            Kind::U32 => Some(u64::from(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))),
            Kind::Float => None,
        }
    }
}

/// The layouts of all structs in `text`, which bindgen wrote: one member per line, no padding between members.
pub(super) fn layouts(text: &str) -> Result<HashMap<String, Layout>, String> {
    let mut found: HashMap<String, Layout> = HashMap::new();
    let mut open: Option<(String, Layout)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            open = Some((name.into(), Layout::default()));
        } else if line == "}" {
            if let Some((name, layout)) = open.take() {
                found.insert(name, layout);
            }
        } else if let (Some((_, layout)), Some((member, kind))) = (&mut open, member(line)) {
            let (at, inner) = (layout.size, found.get(kind));
            let scalar = match kind {
                _ if kind.starts_with('*') => (8, Kind::Pointer),
                "u64" => (8, Kind::U64),
                "u32" => (4, Kind::U32),
                "f32" => (4, Kind::Float),
                "f64" => (8, Kind::Float),
                _ => {
                    let inner = inner.ok_or_else(|| format!("ptx/abi.rs: {line}: a type that is not known"))?;
                    for (name, (offset, kind)) in &inner.members {
                        layout.members.insert(format!("{member}.{name}"), (at + offset, *kind));
                    }
                    layout.size += inner.size;
                    continue;
                }
            };
            layout.members.insert(member.into(), (at, scalar.1));
            layout.size += scalar.0;
        }
    }
    Ok(found)
}

/// `pub NAME: TYPE,`
fn member(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")
}

#[cfg(test)]
mod tests {
    use super::super::embedded::abi;
    use super::*;

    #[test]
    fn offsets_are_the_compilers() {
        let found = layouts(super::super::ABI).unwrap();
        let residual = &found["LinearResidual"];
        assert_eq!(residual.size, size_of::<abi::LinearResidual>());
        let at = |name: &str| residual.members[name].0;
        assert_eq!(at("product.ldc"), std::mem::offset_of!(abi::Linear, ldc));
        let candidates = std::mem::offset_of!(abi::LinearResidual, gate) + std::mem::offset_of!(abi::Mask, candidates);
        assert_eq!(at("gate.candidates"), candidates);
        let scan = abi::ScanForward { scan: abi::Scan { state: 77, ..Default::default() }, ..Default::default() };
        // SAFETY: the struct has no padding.
        let bytes: [u8; size_of::<abi::ScanForward>()] = unsafe { std::mem::transmute(scan) };
        assert_eq!(found["ScanForward"].read(&bytes, "scan.state"), Some(77));
        assert_eq!(found["ScanForward"].read(&bytes, "scan.dt_low"), None);
    }
}
