//! Documents packed into rows: shuffled, put end to end, cut every T tokens.
//!
//! Epoch follows epoch in one stream without padding, so each token is seen exactly once per epoch. Row r of the run is
//! the stream's tokens r·T to (r+1)·T, found by a binary search, whatever came before.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::data::batch::IGNORE;
use crate::data::random::{Purpose, Random};
use crate::data::shards::Shard;
use crate::data::source::{Boundaries, Place, Row, Source};
use crate::{Error, Result};

/// Documents whose tokens are in memory.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    tokens: Vec<u32>,
    /// One past the last token of each document.
    ends: Vec<usize>,
}

impl Documents {
    /// Appends a document. An empty one leaves no trace.
    pub fn push(&mut self, document: &[u32]) {
        if !document.is_empty() {
            self.tokens.extend_from_slice(document);
            self.ends.push(self.tokens.len());
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Where documents lie.
enum Store {
    Memory(Documents),
    Shard(Shard),
}

impl Store {
    fn documents(&self) -> usize {
        match self {
            Store::Memory(memory) => memory.ends.len(),
            Store::Shard(shard) => shard.documents(),
        }
    }

    fn document(&self, document: usize) -> Range<usize> {
        match self {
            Store::Memory(memory) => {
                let start = document.checked_sub(1).map_or(0, |previous| memory.ends[previous]);
                start..memory.ends[document]
            }
            Store::Shard(shard) => shard.document(document),
        }
    }

    /// Writes the ids at `range` to `out`, of the same length.
    fn read(&self, range: Range<usize>, out: &mut [u32]) {
        match self {
            Store::Memory(memory) => out.copy_from_slice(&memory.tokens[range]),
            Store::Shard(shard) => out.iter_mut().zip(shard.ids(range)).for_each(|(out, id)| *out = id),
        }
    }
}

/// One epoch's order.
struct Epoch {
    seed: u64,
    number: u64,
    /// Document at each place of the order.
    order: Vec<usize>,
    /// Where, in the epoch's tokens, the document at each place ends.
    ends: Vec<usize>,
}

/// A [`Source`] of packed rows. Targets are valid everywhere but at the ends of documents and of rows.
pub struct PackedSource {
    stores: Vec<Store>,
    /// Documents in the stores up to and including each.
    counts: Vec<usize>,
    tokens: usize,
    boundaries: Boundaries,
    /// The epochs last used: a step reads one, two around an epoch's end.
    epochs: Mutex<Vec<Arc<Epoch>>>,
}

impl PackedSource {
    /// Over documents in memory.
    ///
    /// # Errors
    /// [`Error::Usage`] where there are none.
    pub fn from_documents(documents: Documents, boundaries: Boundaries) -> Result<Self> {
        Self::new(vec![Store::Memory(documents)], boundaries)
    }

    /// Over shards, all of whose ids are read once and checked.
    ///
    /// # Errors
    /// What [`Shard::open`] and [`Shard::check_tokens`] return, [`Error::Usage`] where there are no paths.
    pub fn from_shards(paths: &[PathBuf], vocab_size: usize, boundaries: Boundaries) -> Result<Self> {
        let mut stores = Vec::with_capacity(paths.len());
        for path in paths {
            let shard = Shard::open(path)?;
            shard.check_tokens(vocab_size)?;
            stores.push(Store::Shard(shard));
        }
        Self::new(stores, boundaries)
    }

    fn new(stores: Vec<Store>, boundaries: Boundaries) -> Result<Self> {
        let mut counts = Vec::with_capacity(stores.len());
        let (mut documents, mut tokens) = (0usize, 0usize);
        for store in &stores {
            documents += store.documents();
            counts.push(documents);
            tokens += store.documents().checked_sub(1).map_or(0, |last| store.document(last).end);
        }
        if documents == 0 {
            return Err(Error::Usage("data: found no documents, expected at least one".into()));
        }
        Ok(Self { stores, counts, tokens, boundaries, epochs: Mutex::new(Vec::new()) })
    }

    pub fn documents(&self) -> usize {
        self.counts.last().copied().unwrap_or(0)
    }

    /// Tokens of an epoch.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    fn locate(&self, document: usize) -> (&Store, Range<usize>) {
        let store = self.counts.partition_point(|&count| count <= document);
        let before = store.checked_sub(1).map_or(0, |previous| self.counts[previous]);
        (&self.stores[store], self.stores[store].document(document - before))
    }

    fn epoch(&self, seed: u64, number: u64) -> Arc<Epoch> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(epoch) = epochs.iter().find(|epoch| epoch.seed == seed && epoch.number == number) {
            return Arc::clone(epoch);
        }
        let mut order: Vec<usize> = (0..self.documents()).collect();
        Random::new(seed, Purpose::Epoch, [number, 0]).shuffle(&mut order);
        let mut end = 0;
        let ends = order
            .iter()
            .map(|&document| {
                end += self.locate(document).1.len();
                end
            })
            .collect();
        let epoch = Arc::new(Epoch { seed, number, order, ends });
        if epochs.len() == 2 {
            epochs.remove(0);
        }
        epochs.push(Arc::clone(&epoch));
        epoch
    }
}

impl Source for PackedSource {
    fn fill(&self, place: Place, row: Row<'_>) -> Result<()> {
        let length = row.tokens.len();
        let first = place.global_row()?.checked_mul(length as u64).ok_or_else(|| {
            Error::Usage(format!("step: found {}, expected below 2^64 tokens of training", place.step))
        })?;
        let mut epoch = self.epoch(place.seed, first / self.tokens as u64);
        let mut within = (first % self.tokens as u64) as usize;
        let mut at = 0;
        while at < length {
            if within == self.tokens {
                epoch = self.epoch(place.seed, epoch.number + 1);
                within = 0;
            }
            let index = epoch.ends.partition_point(|&end| end <= within);
            let (store, document) = self.locate(epoch.order[index]);
            let remaining = epoch.ends[index] - within;
            if remaining == document.len() && self.boundaries == Boundaries::Apart {
                row.starts.push(at);
            }
            let taken = remaining.min(length - at);
            let from = document.end - remaining;
            let tokens = &mut row.tokens[at..at + taken];
            store.read(from..from + taken, tokens);
            row.targets[at..at + taken - 1].copy_from_slice(&tokens[1..]);
            row.targets[at + taken - 1] = IGNORE;
            at += taken;
            within += taken;
        }
        Ok(())
    }
}
