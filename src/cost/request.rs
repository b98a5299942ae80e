//! The time of a request from the rows of a table, for one model.

use serde::Serialize;

use super::table::{Cost, Key, Measure, REST, Table, part_name};
use crate::engine::profile::Workload;
use crate::model::Config;
use crate::{Error, Result};

/// What a model's request takes: the sum of its parts' rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RequestTime {
    pub prefill_seconds: f64,
    /// The mean over the workload's steps.
    pub decode_step_seconds: f64,
    /// Prefill and all decode steps.
    pub request_seconds: f64,
    /// Generated tokens of the batch per second.
    pub throughput: f64,
    /// Rows behind it, and how many of them are estimates.
    pub rows: usize,
    pub estimates: usize,
}

impl RequestTime {
    /// Decode is read at the workload's contexts, between measured ones along a line, beyond them from the nearest.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the first row that the table lacks.
    pub fn of(config: &Config, workload: &Workload, table: &Table) -> Result<RequestTime> {
        let mut time = RequestTime {
            prefill_seconds: 0.0,
            decode_step_seconds: 0.0,
            request_seconds: 0.0,
            throughput: 0.0,
            rows: 0,
            estimates: 0,
        };
        let parts = config.layers.iter().map(part_name).chain([REST.to_owned()]);
        for part in parts {
            let key = Key { measure: Measure::Prefill, context: 0, hidden_size: config.hidden_size, part };
            time.prefill_seconds += time.count(table.rows.get(&key), &key)?;
            for (context, weight) in workload.contexts() {
                time.decode_step_seconds += weight * time.decode(table, &key, context)?;
            }
        }
        time.request_seconds = time.prefill_seconds + workload.output_tokens as f64 * time.decode_step_seconds;
        time.throughput = (workload.batch * workload.output_tokens) as f64 / time.request_seconds;
        Ok(time)
    }

    fn count(&mut self, cost: Option<&Cost>, key: &Key) -> Result<f64> {
        let cost = cost.ok_or_else(|| Error::Usage(format!("the cost table has no row for {key}")))?;
        self.rows += 1;
        self.estimates += usize::from(cost.repeats == 0);
        Ok(cost.median)
    }

    fn decode(&mut self, table: &Table, part: &Key, context: usize) -> Result<f64> {
        let at = |context| Key { measure: Measure::Decode, context, ..part.clone() };
        let of_part = |key: &Key| key.hidden_size == part.hidden_size && key.part == part.part;
        let rows = || table.rows.iter().filter(|(key, _)| key.measure == Measure::Decode && of_part(key));
        let exact = table.rows.get_key_value(&at(context));
        let below =
            exact.or_else(|| rows().filter(|(key, _)| key.context <= context).max_by_key(|(key, _)| key.context));
        let above =
            exact.or_else(|| rows().filter(|(key, _)| key.context >= context).min_by_key(|(key, _)| key.context));
        let (low, high) = match (below, above) {
            (Some(low), Some(high)) => (low, high),
            (Some(only), None) | (None, Some(only)) => (only, only),
            (None, None) => return self.count(None, &at(context)),
        };
        let span = (high.0.context - low.0.context) as f64;
        let share = if span > 0.0 { (context - low.0.context) as f64 / span } else { 0.0 };
        Ok(self.count(Some(low.1), low.0)? + share * (high.1.median - low.1.median))
    }
}
