//! [`RoaringPair`]: exact sets of message numbers, in two generations per source.

use std::collections::{BTreeMap, HashMap};

use roaring::RoaringTreemap;

use crate::arithmetic::positive;
use crate::error::{DedupError, SizeError};
use crate::key::MessageNumber;
use crate::memory::{Memory, UnixTime};
use crate::saved::{Reader, Saved, Writer};

/// Two bitmaps of message numbers for each source: one is written, and both are consulted. When the written bitmap has
/// `capacity` numbers, the roles flip: the other bitmap is emptied, and written from then on.
///
/// The answers are exact. The filter never takes a fresh message for a known one, and it knows at least the last
/// `capacity` numbers of each source, and at most twice as many. Numbers that follow each other take the least memory:
/// a bit or less each. Numbers that are spread over the 64 bits take up to 16 bytes and more.
///
/// The number of sources is bounded. When a new source comes and the bound is reached, the filter forgets the source
/// that has been idle for longest. A forgotten source is accepted again, as a new one.
///
/// # Exactly once over restarts
///
/// A consumer that records the numbers of what it has done together with its results, in one write, rebuilds the filter
/// at its start: it calls [`remember`](Memory::remember) for the last numbers of its record. Then each message counts
/// once within the window, whenever the consumer is killed (`tests/exactly_once.rs` does that).
#[derive(Clone, Debug, PartialEq)]
pub struct RoaringPair {
    capacity: u64,
    sources_max: usize,
    sources: HashMap<u64, Source>,
    /// The sources by their last use. The first one has been idle for longest.
    by_use: BTreeMap<u64, u64>,
    /// The number of uses so far.
    uses: u64,
    forgotten: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Source {
    written: RoaringTreemap,
    other: RoaringTreemap,
    used: u64,
}

impl RoaringPair {
    /// Makes an empty filter that knows at least the last `capacity` numbers of each of up to `sources_max` sources.
    ///
    /// # Errors
    /// If `capacity` or `sources_max` is 0.
    pub fn new(capacity: u64, sources_max: usize) -> Result<RoaringPair, SizeError> {
        positive("capacity", capacity as f64)?;
        positive("sources_max", sources_max as f64)?;
        Ok(RoaringPair {
            capacity,
            sources_max,
            sources: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            forgotten: 0,
        })
    }

    /// Returns the number of numbers that the filter knows of each source, at the least.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the most sources that the filter knows.
    #[must_use]
    pub fn sources_max(&self) -> usize {
        self.sources_max
    }

    /// Returns how many sources were forgotten, because others came.
    #[must_use]
    pub fn forgotten_sources(&self) -> u64 {
        self.forgotten
    }

    /// Returns the number of sources that the filter knows.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the source with this number, as the one that was used last. Makes it if it is new.
    fn used(&mut self, number: u64) -> &mut Source {
        self.uses += 1;
        let source = self.sources.entry(number).or_default();
        self.by_use.remove(&source.used);
        source.used = self.uses;
        self.by_use.insert(self.uses, number);
        source
    }

    /// Forgets the source that has been idle for longest, if there are more than the bound.
    fn bound_sources(&mut self) {
        if self.sources.len() <= self.sources_max {
            return;
        }
        if let Some((_, idle)) = self.by_use.pop_first() {
            self.sources.remove(&idle);
            self.forgotten += 1;
        }
    }
}

impl Memory for RoaringPair {
    type Key = MessageNumber;

    fn remembers(&mut self, key: MessageNumber, _now: UnixTime) -> bool {
        self.sources.get(&key.source).is_some_and(|source| {
            source.written.contains(key.number) || source.other.contains(key.number)
        })
    }

    fn remember(&mut self, key: MessageNumber, _now: UnixTime) {
        let capacity = self.capacity;
        let source = self.used(key.source);
        if source.other.contains(key.number) {
            return;
        }
        source.written.insert(key.number);
        if source.written.len() >= capacity {
            source.other = std::mem::take(&mut source.written);
        }
        self.bound_sources();
    }

    /// Returns the size of the saved bitmaps, in bytes. The bitmaps in memory are somewhat larger. The size depends on
    /// the numbers, so no size is known beforehand: 2 · `capacity` / 8 bytes per source if the numbers follow each
    /// other, and some 20 times as many numbers' bytes if they are spread.
    fn bytes(&self) -> u64 {
        let bitmaps = self.sources.values();
        bitmaps
            .map(|source| source.written.serialized_size() + source.other.serialized_size())
            .sum::<usize>() as u64
    }
}

impl Saved for RoaringPair {
    const NAME: &'static str = "roaring-pair";

    fn write(&self, out: &mut Writer<'_>) -> std::io::Result<()> {
        for number in [
            self.capacity,
            self.sources_max as u64,
            self.uses,
            self.forgotten,
            self.sources.len() as u64,
        ] {
            out.u64(number)?;
        }
        for (number, source) in &self.sources {
            out.u64(*number)?;
            out.u64(source.used)?;
            for bitmap in [&source.written, &source.other] {
                let mut bytes = Vec::with_capacity(bitmap.serialized_size());
                bitmap.serialize_into(&mut bytes)?;
                out.u64(bytes.len() as u64)?;
                out.put(&bytes)?;
            }
        }
        Ok(())
    }

    fn read(input: &mut Reader<'_>) -> Result<RoaringPair, DedupError> {
        let (capacity, sources_max) = (input.u64()?, input.u64()?);
        let damaged = |_| DedupError::Damaged("a bound without meaning");
        let mut filter = RoaringPair::new(capacity, sources_max as usize).map_err(damaged)?;
        filter.uses = input.u64()?;
        filter.forgotten = input.u64()?;
        let sources = input.u64()?;
        for _ in 0..sources {
            let number = input.u64()?;
            let source = Source {
                used: input.u64()?,
                written: bitmap(input)?,
                other: bitmap(input)?,
            };
            filter.by_use.insert(source.used, number);
            filter.sources.insert(number, source);
        }
        let is_consistent = filter.sources.len() as u64 == sources
            && filter.by_use.len() == filter.sources.len()
            && filter
                .by_use
                .keys()
                .next_back()
                .is_none_or(|last| *last <= filter.uses);
        if !is_consistent {
            return Err(DedupError::Damaged("two sources in one place"));
        }
        Ok(filter)
    }
}

fn bitmap(input: &mut Reader<'_>) -> Result<RoaringTreemap, DedupError> {
    let count = input.u64()?;
    let bytes = input.list(count, |input| Ok(input.array::<1>()?[0]))?;
    RoaringTreemap::deserialize_from(bytes.as_slice())
        .map_err(|_| DedupError::Damaged("a bitmap that cannot be decoded"))
}

#[cfg(test)]
mod tests;
