//! Documents packed into rows: shuffled, put end to end, cut every T tokens.
//!
//! Epoch follows epoch in one stream without padding, so each token is seen exactly once per epoch. Row r of the run is
//! the stream's tokens r·T to (r+1)·T, found by a binary search, whatever came before.
//!
//! A source may be one of two parts, so that what a model is scored on is not what it was trained on: see [`Part`].

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

/// The documents that a source gives.
///
/// Of 20 documents or more, every 20th is held out; of fewer, the last 20th of each one's tokens. It depends on the
/// documents and their order alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    Train,
    HeldOut,
}

/// One in so many is held out.
const HELD_OUT: usize = 20;

impl Part {
    /// How many of `all` documents have something of this part.
    fn documents(self, all: usize) -> usize {
        match self {
            Part::Train if all >= HELD_OUT => all - all / HELD_OUT,
            Part::HeldOut if all >= HELD_OUT => all / HELD_OUT,
            _ => all,
        }
    }

    /// The number among all of this part's document `number`.
    fn number(self, number: usize, all: usize) -> usize {
        match self {
            Part::Train if all >= HELD_OUT => number + number / (HELD_OUT - 1),
            Part::HeldOut if all >= HELD_OUT => number * HELD_OUT + HELD_OUT - 1,
            _ => number,
        }
    }

    /// What this part has of a document's tokens.
    fn cut(self, document: Range<usize>, all: usize) -> Range<usize> {
        let at = document.end - document.len() / HELD_OUT;
        match self {
            Part::Train if all < HELD_OUT => document.start..at,
            Part::HeldOut if all < HELD_OUT => at..document.end,
            _ => document,
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

struct Stores {
    all: Vec<Store>,
    /// Documents in the stores up to and including each.
    counts: Vec<usize>,
}

/// A [`Source`] of packed rows. Targets are valid everywhere but at the ends of documents and of rows.
pub struct PackedSource {
    stores: Arc<Stores>,
    part: Part,
    /// Of the part.
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
            return Err(Error::Usage("found no documents, expected at least one".into()));
        }
        let stores = Arc::new(Stores { all: stores, counts });
        Ok(Self { stores, part: Part::All, tokens, boundaries, epochs: Mutex::new(Vec::new()) })
    }

    /// The same documents' part. What was read is shared.
    ///
    /// # Errors
    /// [`Error::Usage`] where the part has no token.
    pub fn part(&self, part: Part) -> Result<PackedSource> {
        let (stores, boundaries) = (Arc::clone(&self.stores), self.boundaries);
        let mut source = Self { stores, part, tokens: 0, boundaries, epochs: Mutex::new(Vec::new()) };
        source.tokens = (0..source.documents()).map(|document| source.locate(document).1.len()).sum();
        if source.tokens == 0 {
            let found = format!("{} tokens in {} documents", self.tokens, self.documents());
            let expected = "more to hold some of it out, or evaluate.held_out";
            return Err(Error::Usage(format!("found {found}, expected {expected}")));
        }
        Ok(source)
    }

    /// Documents of the source's part.
    pub fn documents(&self) -> usize {
        self.part.documents(self.all_documents())
    }

    fn all_documents(&self) -> usize {
        self.stores.counts.last().copied().unwrap_or(0)
    }

    /// Tokens of an epoch.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    fn locate(&self, document: usize) -> (&Store, Range<usize>) {
        let Stores { all: stores, counts } = &*self.stores;
        let all = self.all_documents();
        let number = self.part.number(document, all);
        let store = counts.partition_point(|&count| count <= number);
        let before = store.checked_sub(1).map_or(0, |previous| counts[previous]);
        (&stores[store], self.part.cut(stores[store].document(number - before), all))
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
    fn tokens(&self) -> Option<usize> {
        Some(self.tokens)
    }

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
