//! [`RoaringPair`]: exact sets of message numbers, in two bitmaps per source.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use roaring::RoaringTreemap;

use crate::arithmetic::positive;
use crate::error::{FilterOptionError, StateError};
use crate::filter::{Filter, UnixTime};
use crate::key::MessageNumber;
use crate::saved::{Reader, Saved, Writer};

/// Two bitmaps of message numbers for each source: one is written, and both are consulted. When the written bitmap has
/// `capacity` numbers, the roles flip: the other bitmap is emptied, and written from then on.
///
/// The answers are exact. The filter never takes a fresh message for a known one, and it knows at least the last
/// `capacity` numbers of each source, and at most twice as many. Numbers that follow each other take the least memory:
/// a bit or less each. Numbers that are spread over the 64 bits take up to 16 bytes and more.
///
/// The number of sources is bounded. When a new source comes and the bound is reached, the filter forgets the source
/// whose last commit is oldest. A source that sends only copies makes no commits. A forgotten source is accepted again,
/// as a new one.
///
/// # Exactly once over restarts
///
/// A consumer that records the numbers of what it has done together with its results, in one write, rebuilds the filter
/// at its start: it calls [`remember`](Filter::remember) for the last numbers of its record. Then each message counts
/// once within the window, whenever the consumer is killed (`tests/exactly_once.rs` does that).
#[derive(Clone, Debug, PartialEq)]
pub struct RoaringPair {
    capacity: u64,
    sources_max: usize,
    sources: HashMap<u64, Source>,
    /// The sources by their last commits, the oldest commit first.
    by_commit: BTreeMap<u64, u64>,
    /// The number of commits so far.
    commits: u64,
    forgotten: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Source {
    written: RoaringTreemap,
    /// The number of numbers in `written`. `RoaringTreemap::len` visits each of its bitmaps.
    written_count: u64,
    other: RoaringTreemap,
    last_commit: u64,
}

/// The most bytes that one number takes, with the allocator's own. A number takes the most if no other number has its
/// upper 32 bits. In `roaring` 0.12, such a number has these parts:
///
/// - 72 bytes: an entry of a `BTreeMap`. A leaf of 11 entries has 320 bytes and at least 5 entries, and five leaves or
///   more share an inner node of 416 bytes.
/// - 176 bytes: a list of containers, which begins with room for 4 of 40 bytes.
/// - 32 bytes: an array of 16-bit numbers, which begins with room for 4.
///
/// That makes 280. The bound counts the allocator's most for the list and the array: 288. In all other cases, numbers
/// share a container or a list, and take less.
const NUMBER_BYTES_MAX: u64 = 288;

/// The most bytes that a source takes without its numbers: the first node of each of two trees, which may have a single
/// entry, and the source's entries in the table and in the order of commits while the table grows.
const SOURCE_BYTES_MAX: u64 = 1024;

/// The parts of a number's memory: see [`NUMBER_BYTES_MAX`].
const ENTRY_BYTES_MAX: u64 = 72;
const CONTAINER_BYTES: u64 = 40;
const CONTAINERS_MIN: u64 = 4;
/// The most bytes that the allocator adds to one piece of memory: a header, and the rest up to a multiple of 16.
const ALLOCATOR_BYTES: u64 = 24;
/// The bytes of a bitmap of 65,536 numbers.
const BITMAP_BYTES: u64 = 8192;

impl RoaringPair {
    /// Makes an empty filter that knows at least the last `capacity` numbers of each of up to `sources_max` sources.
    ///
    /// # Errors
    /// If `capacity` or `sources_max` is 0.
    pub fn new(capacity: u64, sources_max: usize) -> Result<RoaringPair, FilterOptionError> {
        positive("capacity", capacity as f64)?;
        positive("sources_max", sources_max as f64)?;
        Ok(RoaringPair {
            capacity,
            sources_max,
            sources: HashMap::new(),
            by_commit: BTreeMap::new(),
            commits: 0,
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

    /// Returns the most bytes that the filter takes if the numbers of each source follow each other, without large
    /// gaps. Each 65,536 numbers take a bitmap of 8 KiB. The two bitmaps of a source have up to 2 · `capacity` numbers.
    #[must_use]
    pub fn bytes_if_consecutive(&self) -> u64 {
        // The numbers need not begin where a container begins.
        let containers = self.capacity.div_ceil(1 << 16).saturating_add(1);
        // A small container is an array, whose room doubles as it grows.
        let container = BITMAP_BYTES.min(self.capacity.saturating_mul(4)) + ALLOCATOR_BYTES;
        let list = containers
            .max(CONTAINERS_MIN)
            .saturating_mul(2 * CONTAINER_BYTES);
        let bitmap = containers.saturating_mul(container).saturating_add(list);
        self.of_all_sources(bitmap.saturating_mul(2))
    }

    /// Returns the bytes of all sources, whose numbers take `bytes` each. For a moment, there is a source more than the
    /// bound.
    fn of_all_sources(&self, bytes: u64) -> u64 {
        let sources = (self.sources_max as u64).saturating_add(1);
        bytes
            .saturating_add(SOURCE_BYTES_MAX)
            .saturating_mul(sources)
    }

    /// Returns the source with this number, as the one with the last commit. Makes it if it is new.
    fn commit_to(&mut self, number: u64) -> &mut Source {
        self.commits += 1;
        let source = self.sources.entry(number).or_default();
        self.by_commit.remove(&source.last_commit);
        source.last_commit = self.commits;
        self.by_commit.insert(self.commits, number);
        source
    }

    /// Forgets the source whose last commit is oldest, if there are more than the bound.
    fn bound_sources(&mut self) {
        if self.sources.len() <= self.sources_max {
            return;
        }
        if let Some((_, oldest)) = self.by_commit.pop_first() {
            self.sources.remove(&oldest);
            self.forgotten += 1;
        }
    }
}

impl Filter for RoaringPair {
    type Key = MessageNumber;

    fn remembers(&mut self, key: MessageNumber, _now: UnixTime) -> bool {
        self.sources.get(&key.source).is_some_and(|source| {
            source.written.contains(key.number) || source.other.contains(key.number)
        })
    }

    fn remember(&mut self, key: MessageNumber, _now: UnixTime) {
        let capacity = self.capacity;
        let source = self.commit_to(key.source);
        if source.other.contains(key.number) {
            return;
        }
        source.written_count += u64::from(source.written.insert(key.number));
        if source.written_count >= capacity {
            source.other = std::mem::take(&mut source.written);
            source.written_count = 0;
        }
        self.bound_sources();
    }

    /// Returns the most bytes that sets of this shape take. The lists of the sets may have some room less.
    fn bytes(&self) -> u64 {
        let sets = self
            .sources
            .values()
            .flat_map(|source| [&source.written, &source.other]);
        let numbers: u64 = sets.map(set_bytes).sum();
        numbers + self.sources.len() as u64 * SOURCE_BYTES_MAX
    }

    fn bytes_max(&self) -> u64 {
        let numbers = self.capacity.saturating_mul(2);
        self.of_all_sources(numbers.saturating_mul(NUMBER_BYTES_MAX))
    }
}

/// Returns the most bytes that a set takes, by the number and the kinds of its containers.
fn set_bytes(set: &RoaringTreemap) -> u64 {
    let entries = set.bitmaps().map(|(_, bitmap)| {
        let statistics = bitmap.statistics();
        let list = u64::from(statistics.n_containers)
            .next_power_of_two()
            .max(CONTAINERS_MIN);
        // `statistics` counts 4 bytes for each number that an array has room for. A number takes 2.
        let arrays = statistics.n_bytes_array_containers / 2
            + u64::from(statistics.n_array_containers) * ALLOCATOR_BYTES;
        let bitmaps = u64::from(statistics.n_bitset_containers) * (BITMAP_BYTES + ALLOCATOR_BYTES);
        let runs = statistics.n_bytes_run_containers
            + u64::from(statistics.n_run_containers) * ALLOCATOR_BYTES;
        ENTRY_BYTES_MAX + list * CONTAINER_BYTES + ALLOCATOR_BYTES + arrays + bitmaps + runs
    });
    entries.sum()
}

impl Saved for RoaringPair {
    const NAME: &'static str = "roaring-pair";

    fn write(&self, out: &mut Writer<'_>) -> std::io::Result<()> {
        for number in [
            self.capacity,
            self.sources_max as u64,
            self.commits,
            self.forgotten,
            self.sources.len() as u64,
        ] {
            out.u64(number)?;
        }
        for (number, source) in &self.sources {
            out.u64(*number)?;
            out.u64(source.last_commit)?;
            for bitmap in [&source.written, &source.other] {
                out.u64(bitmap.serialized_size() as u64)?;
                bitmap.serialize_into(&mut *out)?;
            }
        }
        Ok(())
    }

    fn read(input: &mut Reader<'_>) -> Result<RoaringPair, StateError> {
        let (capacity, sources_max) = (input.u64()?, input.u64()?);
        let damaged = |_| StateError::Damaged("a bound without meaning");
        let mut filter = RoaringPair::new(capacity, sources_max as usize).map_err(damaged)?;
        filter.commits = input.u64()?;
        filter.forgotten = input.u64()?;
        let sources = input.u64()?;
        for _ in 0..sources {
            let number = input.u64()?;
            let last_commit = input.u64()?;
            let (written, other) = (bitmap(input)?, bitmap(input)?);
            let source = Source {
                last_commit,
                written_count: written.len(),
                written,
                other,
            };
            filter.by_commit.insert(source.last_commit, number);
            filter.sources.insert(number, source);
        }
        let is_consistent = filter.sources.len() as u64 == sources
            && filter.by_commit.len() == filter.sources.len()
            && filter
                .by_commit
                .keys()
                .next_back()
                .is_none_or(|last| *last <= filter.commits);
        if !is_consistent {
            return Err(StateError::Damaged("two sources in one place"));
        }
        Ok(filter)
    }
}

/// Reads a bitmap, without a copy of its saved form in memory.
fn bitmap(input: &mut Reader<'_>) -> Result<RoaringTreemap, StateError> {
    let bytes = input.u64()?;
    let mut saved = input.by_ref().take(bytes);
    let bitmap = RoaringTreemap::deserialize_from(&mut saved);
    let is_whole = saved.limit() == 0;
    let bitmap = bitmap.ok().filter(|_| is_whole);
    bitmap.ok_or(StateError::Damaged("a bitmap that cannot be decoded"))
}

#[cfg(test)]
mod tests;
