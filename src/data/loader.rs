//! Batches made ahead of the training loop.

use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, bounded};

use crate::data::batch::Batch;
use crate::data::source::Source;
use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderConfig {
    pub seed: u64,
    /// B.
    pub sequences: usize,
    /// T.
    pub length: usize,
    /// How many finished batches may wait; with 0 each is handed over as it is asked for.
    pub prefetch: usize,
}

/// A background thread that makes the batches of step `start_step`, `start_step + 1`, … in order.
///
/// What a step holds depends on the source, the seed, B and T; neither on the thread, nor on `prefetch`, nor on the step
/// the loader was started at. Dropping the loader stops the thread and waits for it.
pub struct Loader {
    /// None only while dropping: the thread ends once nobody can receive.
    batches: Option<Receiver<Result<Batch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// # Errors
    /// [`Error::Usage`] where B or T is 0 or B·T overflows, [`Error::Io`] where no thread can be started.
    pub fn new(source: impl Source + 'static, config: LoaderConfig, start_step: u64) -> Result<Self> {
        let LoaderConfig { seed, sequences, length, prefetch } = config;
        if sequences.checked_mul(length).is_none_or(|total| total == 0) {
            return Err(Error::Usage(format!(
                "loader: found {sequences} sequences of {length} tokens, expected both at least 1"
            )));
        }
        let (sender, receiver) = bounded(prefetch);
        let work = move || {
            for step in start_step..=u64::MAX {
                let batch = source.batch(seed, step, sequences, length);
                let failed = batch.is_err();
                if sender.send(batch).is_err() || failed {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("data-loader".into()).spawn(work);
        let thread = thread.map_err(Error::io("data loader thread", "start"))?;
        Ok(Self { batches: Some(receiver), thread: Some(thread) })
    }

    /// The next step's batch; waits until it is made.
    ///
    /// # Errors
    /// What the source returned. The thread ends with its first error, later calls return [`Error::Contract`].
    #[expect(clippy::should_implement_trait, reason = "an iterator would end where this one reports an error")]
    pub fn next(&mut self) -> Result<Batch> {
        let received = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        received.unwrap_or_else(|| {
            Err(Error::contract("data loader", "next", "a stopped thread", "a call before the first error"))
        })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        drop(self.batches.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the source was reported by the thread itself; panicking again in a drop would abort.
            let _ = thread.join();
        }
    }
}
