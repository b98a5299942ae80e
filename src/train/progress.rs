//! Where a long job stands, on the terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between lines where the output is not a terminal.
const QUIET: Duration = Duration::from_secs(10);

/// A bar on a terminal, a line now and then elsewhere, nothing if silenced.
pub struct Progress {
    what: String,
    bar: Option<ProgressBar>,
    silent: bool,
    started: Instant,
    printed: Instant,
    first_step: u64,
    first_tokens: u64,
    steps: u64,
}

impl Progress {
    pub fn new(what: &str, steps: u64, silent: bool) -> Progress {
        let bar = (!silent && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(steps);
            let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len}  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(what.to_owned());
            bar
        });
        let now = Instant::now();
        Progress {
            what: what.to_owned(),
            bar,
            silent,
            started: now,
            printed: now,
            first_step: 0,
            first_tokens: 0,
            steps,
        }
    }

    /// Where this process begins: rates and the time left are of its own steps.
    pub fn start_at(&mut self, step: u64, tokens: u64) {
        (self.first_step, self.first_tokens, self.started) = (step, tokens, Instant::now());
    }

    /// After `step` steps and `tokens` tokens; `state` is the job's own words (its loss).
    pub fn update(&mut self, step: u64, tokens: u64, state: &str) {
        let elapsed = self.started.elapsed().as_secs_f64().max(1e-9);
        let rate = (tokens - self.first_tokens) as f64 / elapsed;
        self.show(step, &format!("{state}  {rate:.0} tokens/s"));
    }

    /// After `done` parts of a job that reads no tokens.
    pub fn tick(&mut self, done: u64) {
        self.show(done, "");
    }

    fn show(&mut self, step: u64, state: &str) {
        let elapsed = self.started.elapsed().as_secs_f64();
        let left =
            elapsed / (step.saturating_sub(self.first_step)).max(1) as f64 * (self.steps.saturating_sub(step)) as f64;
        let message = format!("{state}  {} left", indicatif::HumanDuration(Duration::from_secs(left as u64)));
        match &self.bar {
            Some(bar) => {
                bar.set_position(step);
                bar.set_message(message);
                if step >= self.steps {
                    bar.finish();
                }
            }
            None if !self.silent && (self.printed.elapsed() >= QUIET || step >= self.steps) => {
                self.printed = Instant::now();
                // A closed standard error (`2>&1 | head`) must not end hours of work.
                let _ = writeln!(std::io::stderr(), "{}: {step}/{}  {}", self.what, self.steps, message.trim_start());
            }
            None => {}
        }
    }
}
