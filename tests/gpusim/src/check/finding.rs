//! A fault or suspicion, named precisely enough to be fixed.

use std::collections::BTreeMap;

use crate::json::Json;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    OutOfBounds,
    Misaligned,
    UseAfterFree,
    /// A read of bytes nobody wrote.
    Uninitialized,
    /// Two threads, one of them writing, with no barrier between.
    SharedRace,
    /// A block at what another block wrote in the same launch.
    GlobalRace,
    /// Shared memory touched while a `cp.async` into it is in flight.
    AsyncInFlight,
    /// Threads of a warp at different barriers, or not all at one that wants all.
    BarrierDivergence,
    Deadlock,
    /// More instructions than the watchdog allows.
    Watchdog,
    /// `trap` or a failed assertion.
    Trap,
    /// A launch that the device refuses: its geometry, shared memory or parameters.
    BadLaunch,
    DoubleFree,
    InvalidFree,
    /// Memory, modules, streams or events still alive when their context ended.
    Leak,
    InvalidPtx,
    /// A driver call with arguments that are not what it takes.
    InvalidCall,
    /// A fault of gpusim itself.
    Internal,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::OutOfBounds => "out_of_bounds",
            Kind::Misaligned => "misaligned",
            Kind::UseAfterFree => "use_after_free",
            Kind::Uninitialized => "uninitialized",
            Kind::SharedRace => "shared_race",
            Kind::GlobalRace => "global_race",
            Kind::AsyncInFlight => "async_in_flight",
            Kind::BarrierDivergence => "barrier_divergence",
            Kind::Deadlock => "deadlock",
            Kind::Watchdog => "watchdog",
            Kind::Trap => "trap",
            Kind::BadLaunch => "bad_launch",
            Kind::DoubleFree => "double_free",
            Kind::InvalidFree => "invalid_free",
            Kind::Leak => "leak",
            Kind::InvalidPtx => "invalid_ptx",
            Kind::InvalidCall => "invalid_call",
            Kind::Internal => "internal",
        }
    }
}

/// Where in a kernel: the instruction, and the first thread it was seen in.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub kernel: String,
    pub instruction: String,
    /// Line of the PTX text.
    pub line: u32,
    /// `file:line` of the source, where the PTX has `.loc`.
    pub source: Option<String>,
    pub block: [u32; 3],
    pub thread: [u32; 3],
}

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: Kind,
    pub place: Option<Place>,
    pub address: Option<u64>,
    pub message: String,
    /// How often the same was seen at the same instruction.
    pub count: u64,
}

impl Finding {
    /// A finding outside any kernel.
    pub fn of_call(kind: Kind, message: impl Into<String>) -> Self {
        Finding { kind, place: None, address: None, message: message.into(), count: 1 }
    }

    pub fn to_json(&self) -> Json {
        let mut fields = vec![("kind", Json::text(self.kind.name())), ("message", Json::text(&self.message))];
        if let Some(place) = &self.place {
            fields.push(("kernel", Json::text(&place.kernel)));
            fields.push(("instruction", Json::text(&place.instruction)));
            fields.push(("line", Json::Number(place.line as u64)));
            if let Some(source) = &place.source {
                fields.push(("source", Json::text(source)));
            }
            fields.push(("block", Json::numbers(&place.block)));
            fields.push(("thread", Json::numbers(&place.thread)));
        }
        if let Some(address) = self.address {
            fields.push(("address", Json::text(&format!("{address:#x}"))));
        }
        fields.push(("count", Json::Number(self.count)));
        Json::object(fields)
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        if let Some(place) = &self.place {
            let ([bx, by, bz], [tx, ty, tz]) = (place.block, place.thread);
            write!(f, "\n  in {} at `{}` (PTX line {})", place.kernel, place.instruction, place.line)?;
            if let Some(source) = &place.source {
                write!(f, "\n  from {source}")?;
            }
            write!(f, "\n  block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")?;
        }
        if self.count > 1 {
            write!(f, "\n  seen {} times", self.count)?;
        }
        Ok(())
    }
}

/// The findings of one worker in one launch: the first of each kind at each instruction, and how often.
#[derive(Default)]
pub struct Findings {
    first: BTreeMap<(usize, Kind), (u64, Finding)>,
}

impl Findings {
    /// Notes a finding at instruction `pc` in the block with linear index `block`; `describe` runs for the first one only.
    pub fn note(&mut self, kind: Kind, pc: usize, block: u64, count: u64, describe: impl FnOnce() -> Finding) {
        match self.first.get_mut(&(pc, kind)) {
            Some((_, finding)) => finding.count += count,
            None => {
                let finding = Finding { count, ..describe() };
                self.first.insert((pc, kind), (block, finding));
            }
        }
    }

    /// Joins the workers' findings: the description from the lowest block wins, so that it does not depend on the workers.
    pub fn merge(&mut self, other: Findings) {
        for (key, (block, finding)) in other.first {
            match self.first.get_mut(&key) {
                None => {
                    self.first.insert(key, (block, finding));
                }
                Some((own_block, own)) => {
                    let count = own.count + finding.count;
                    if block < *own_block {
                        (*own_block, *own) = (block, finding);
                    }
                    own.count = count;
                }
            }
        }
    }

    pub fn into_vec(self) -> Vec<Finding> {
        self.first.into_values().map(|(_, finding)| finding).collect()
    }
}
