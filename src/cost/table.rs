//! The measured costs of layers: what `cost/table.csv` holds.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::profile::median;
use crate::model::config::Layer;
use crate::{Error, Result, files};

/// What a row measures: seconds or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Seconds of the whole input of a batch.
    Prefill,
    /// Seconds of one step of a batch.
    Decode,
    /// Bytes as loaded.
    Weights,
    /// Bytes of the caches of a batch.
    Cache,
    /// Bytes in use at the peak of prefill beyond weights and caches.
    PrefillWorkspace,
    /// The same of decode.
    DecodeWorkspace,
    /// Bytes that whole models took beyond what their parts predict, at most.
    Reserve,
}

/// What a time or a size can be.
pub(super) const COSTS: &str = "seconds or bytes from 0 to 1e18";

impl Measure {
    /// Whether it can be so much. The reserve is a difference, and may be below 0.
    pub(super) fn allows(self, value: f64) -> bool {
        let least = if self == Measure::Reserve { -1e18 } else { 0.0 };
        (least..=1e18).contains(&value)
    }

    /// Whether it is a time; the others are bytes.
    pub fn is_time(self) -> bool {
        matches!(self, Measure::Prefill | Measure::Decode)
    }

    const ALL: [Measure; 7] = [
        Measure::Prefill,
        Measure::Decode,
        Measure::Weights,
        Measure::Cache,
        Measure::PrefillWorkspace,
        Measure::DecodeWorkspace,
        Measure::Reserve,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Measure::Prefill => "prefill",
            Measure::Decode => "decode",
            Measure::Weights => "weights",
            Measure::Cache => "cache",
            Measure::PrefillWorkspace => "prefill_workspace",
            Measure::DecodeWorkspace => "decode_workspace",
            Measure::Reserve => "reserve",
        }
    }
}

/// The part of a model that is no layer: embedding, final norm, head, sampling.
pub const REST: &str = "rest";
/// A whole model.
pub const MODEL: &str = "model";

/// A layer's configuration in a row: its kind and all sizes that its cost can depend on, but d.
pub fn part_name(layer: &Layer) -> String {
    match layer {
        Layer::Mamba(m) => format!(
            "mamba H{} P{} G{} N{} conv{} chunk{}",
            m.heads, m.head_dim, m.groups, m.state, m.conv_kernel, m.chunk_size
        ),
        Layer::Moe(m) => {
            let latent = m.latent.map_or(String::new(), |l| format!(" L{l}"));
            let groups = if m.n_group > 1 { format!(" groups{}of{}", m.topk_group, m.n_group) } else { String::new() };
            format!("moe E{} F{} S{} K{}{latent}{groups}", m.experts, m.intermediate, m.shared_intermediate, m.top_k)
        }
        Layer::Attention(a) => format!("attention H{} KV{} P{}", a.heads, a.kv_heads, a.head_dim),
        Layer::Mlp(m) => format!("mlp S{}", m.intermediate),
    }
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub measure: Measure,
    /// Tokens in the cache, of [`Measure::Decode`]; else 0.
    pub context: usize,
    /// d; 0 for a whole model.
    pub hidden_size: usize,
    /// [`part_name`], [`REST`] or [`MODEL`].
    pub part: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.measure.name())?;
        if self.measure == Measure::Decode {
            write!(f, " at context {}", self.context)?;
        }
        write!(f, ", hidden size {}, {}", self.hidden_size, self.part)
    }
}

/// A row's number: seconds or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub median: f64,
    /// Between the quartiles.
    pub iqr: f64,
    /// Measurements behind it; 0: an estimate.
    pub repeats: usize,
}

impl Cost {
    /// Of repeated measurements.
    pub fn of(mut values: Vec<f64>) -> Cost {
        values.sort_by(f64::total_cmp);
        let iqr = quantile(&values, 0.75) - quantile(&values, 0.25);
        Cost { repeats: values.len(), iqr, median: median(values) }
    }
}

/// The value below which a share `q` of the rising `values` lies, linear between neighbours; 0 of none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let low = at.floor() as usize;
    values[low] + (at - low as f64) * (values[(low + 1).min(last)] - values[low])
}

/// The rows of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub rows: BTreeMap<Key, Cost>,
}

const HEADER: &str = "measure,context,hidden_size,part,median,iqr,repeats";

impl Table {
    /// The median of a row.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the row where it was not measured.
    pub fn get(&self, measure: Measure, context: usize, hidden_size: usize, part: &str) -> Result<f64> {
        let key = Key { measure, context, hidden_size, part: part.into() };
        self.rows.get(&key).map(|cost| cost.median).ok_or_else(|| {
            Error::Usage(format!("the cost table has no row for {key}: profile this search space under this contract"))
        })
    }

    /// How many rows are times, and how many of them are estimates.
    pub fn times(&self) -> (usize, usize) {
        let times = self.rows.iter().filter(|(key, _)| key.measure.is_time());
        times.fold((0, 0), |(times, estimates), (_, cost)| (times + 1, estimates + usize::from(cost.repeats == 0)))
    }

    /// Comma-separated values with a header line; numbers read back exactly.
    pub fn to_csv(&self) -> String {
        let line = |(key, cost): (&Key, &Cost)| {
            let Key { measure, context, hidden_size, part } = key;
            let Cost { median, iqr, repeats } = cost;
            format!("{},{context},{hidden_size},{part},{median},{iqr},{repeats}\n", measure.name())
        };
        format!("{HEADER}\n{}", self.rows.iter().map(line).collect::<String>())
    }

    /// Parses what [`Table::to_csv`] wrote; `file` is for error messages only.
    pub fn from_csv(file: &Path, text: &str) -> Result<Table> {
        let mut rows = BTreeMap::new();
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        if header.trim_end() != HEADER {
            return Err(Error::input(file, "line 1", header, HEADER));
        }
        for (i, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let at = || format!("line {}", i + 2);
            let (key, cost) = parse(line).ok_or_else(|| Error::input(file, at(), line, HEADER))?;
            if !key.measure.allows(cost.median) {
                return Err(Error::input(file, at(), format!("a median of {:e}", cost.median), COSTS));
            }
            if !(0.0..=1e18).contains(&cost.iqr) {
                return Err(Error::input(file, at(), format!("an iqr of {:e}", cost.iqr), COSTS));
            }
            if rows.insert(key, cost).is_some() {
                return Err(Error::input(file, at(), format!("a second row for `{line}`"), "each row once"));
            }
        }
        Ok(Table { rows })
    }

    pub fn from_file(path: &Path) -> Result<Table> {
        Table::from_csv(path, &files::read_text(path)?)
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        files::write_atomic(path, |file| file.write_all(self.to_csv().as_bytes()))
    }
}

fn parse(line: &str) -> Option<(Key, Cost)> {
    let fields: Vec<&str> = line.trim_end().split(',').collect();
    let [measure, context, hidden_size, part, median, iqr, repeats] = fields[..] else { return None };
    let measure = Measure::ALL.into_iter().find(|m| m.name() == measure)?;
    let number = |text: &str| text.parse::<f64>().ok().filter(|v| v.is_finite());
    let size = |text: &str| text.parse::<usize>().ok();
    let key = Key { measure, context: size(context)?, hidden_size: size(hidden_size)?, part: part.into() };
    Some((key, Cost { median: number(median)?, iqr: number(iqr)?, repeats: size(repeats)? }))
}
