//! Accounts for every message: a [`Bitmap`] of each producer's messages, a [`ChannelLedger`] of each
//! channel, and the [`final_ledger`] of the run.
//!
//! ```text
//!   producer:  sent 0..n, of these exceptions (refused, unconfirmed)     ProducerRecord
//!   channel:   seen {numbers} per producer, given back, damaged          ChannelLedger
//!   lost     = in sent, no exception, not seen; less the damaged ones
//! ```

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::result::Ledger;

/// Numbers of one chunk of a [`Bitmap`].
const CHUNK: u64 = 1 << 16;
const WORDS: usize = (CHUNK / u64::BITS as u64) as usize;

/// A set of numbers that mostly follow one another without holes. Complete chunks take no memory, so the memory
/// grows with the backlog and not with the length of the run.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    chunks: Vec<Chunk>,
    count: u64,
}

#[derive(Clone, Debug)]
enum Chunk {
    Empty,
    Partial(u32, Box<[u64; WORDS]>),
    Full,
}

impl Bitmap {
    /// Adds a number; false when the set had the number already.
    #[inline]
    pub fn insert(&mut self, number: u64) -> bool {
        let index = (number / CHUNK) as usize;
        if index >= self.chunks.len() {
            self.chunks.resize(index + 1, Chunk::Empty);
        }
        let chunk = &mut self.chunks[index];
        if let Chunk::Empty = chunk {
            *chunk = Chunk::Partial(0, Box::new([0; WORDS]));
        }
        let Chunk::Partial(count, words) = chunk else {
            return false;
        };
        let at = number % CHUNK;
        let word = &mut words[(at / 64) as usize];
        let bit = 1 << (at % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        *count += 1;
        self.count += 1;
        if u64::from(*count) == CHUNK {
            *chunk = Chunk::Full;
        }
        true
    }

    /// Returns how many numbers of the range the set has.
    pub fn count_in(&self, range: Range<u64>) -> u64 {
        let mut total = 0;
        let mut at = range.start;
        while at < range.end {
            let Some(chunk) = self.chunks.get((at / CHUNK) as usize) else {
                break;
            };
            let chunk_end = (at / CHUNK + 1) * CHUNK;
            let end = range.end.min(chunk_end);
            total += match chunk {
                Chunk::Empty => 0,
                Chunk::Full => end - at,
                Chunk::Partial(count, _) if end - at == CHUNK => u64::from(*count),
                Chunk::Partial(_, words) => (at..end)
                    .filter(|number| {
                        let at = number % CHUNK;
                        words[(at / 64) as usize] & (1 << (at % 64)) != 0
                    })
                    .count() as u64,
            };
            at = end;
        }
        total
    }

    /// Returns the range from the smallest number to the largest.
    pub fn span(&self) -> Range<u64> {
        let end = self.chunks.len() as u64 * CHUNK;
        let has = |number: &u64| self.count_in(*number..number + 1) == 1;
        let ends = (0..end).find(has).zip((0..end).rev().find(has));
        ends.map_or(0..0, |(first, last)| first..last + 1)
    }
}

/// One delivery of an intact message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The producer that the header names.
    pub producer: u32,
    /// The number that the header names.
    pub number: u64,
    /// The attempts that the frame states: the daemon's deliveries of the message so far, this one included.
    pub attempts: u16,
}

/// An entry of a consumer in its channel's ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerEntry {
    /// A message that arrived intact.
    Delivered(Delivery),
    /// A message that will be given back or left to time out, so that it comes once more: its producer and its number.
    GivenBack(u32, u64),
    /// A message whose checksum does not fit.
    Damaged,
}

/// The account of the deliveries of one channel, over all topics.
#[derive(Debug, Default)]
pub struct ChannelLedger {
    producers: HashMap<u32, usize>,
    seen: Vec<Bitmap>,
    /// The producer of the last delivery and its place in `seen`: they come in batches.
    last: Option<(u32, usize)>,
    /// Messages that a consumer gave back: REQ, left to time out, connection dropped.
    given_back: HashSet<(u32, u64)>,
    /// Connections were dropped with FINs on the way, or are read too late. Repeated deliveries are then
    /// expected.
    allows_redeliveries: bool,
    /// Messages whose first delivery was not the first attempt, with the number of earlier attempts that
    /// may still come from a connection that is read late.
    earlier: HashMap<(u32, u64), u16>,
    received: u64,
    duplicated: u64,
    redelivered: u64,
    corrupted: u64,
}

impl ChannelLedger {
    /// Makes an entry.
    #[inline]
    pub fn enter(&mut self, entry: LedgerEntry) {
        match entry {
            LedgerEntry::Delivered(delivery) => self.deliver(delivery),
            LedgerEntry::GivenBack(producer, number) => {
                self.given_back.insert((producer, number));
            }
            LedgerEntry::Damaged => self.corrupted += 1,
        }
    }

    #[inline]
    fn deliver(&mut self, delivery: Delivery) {
        let index = match self.last {
            Some((producer, index)) if producer == delivery.producer => index,
            _ => self.index(delivery.producer),
        };
        let key = (delivery.producer, delivery.number);
        if self.seen[index].insert(delivery.number) {
            self.received += 1;
            if self.allows_redeliveries && delivery.attempts > 1 {
                self.earlier.insert(key, delivery.attempts - 1);
            }
            return;
        }
        let allowed = self.allows_redeliveries && (delivery.attempts > 1 || self.take_earlier(key));
        if self.given_back.remove(&key) || allowed {
            self.redelivered += 1;
        } else {
            self.duplicated += 1;
        }
    }

    /// Takes off one of the attempts before the first delivery. False when none is left.
    fn take_earlier(&mut self, key: (u32, u64)) -> bool {
        match self.earlier.get_mut(&key) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    fn index(&mut self, producer: u32) -> usize {
        let next = self.seen.len();
        let index = *self.producers.entry(producer).or_insert(next);
        if index == next {
            self.seen.push(Bitmap::default());
        }
        self.last = Some((producer, index));
        index
    }

    /// Allows repeated deliveries: a connection was dropped before the daemon saw its last FINs, or is
    /// read so late that messages may time out on the way.
    pub fn allow_redeliveries(&mut self) {
        self.allows_redeliveries = true;
    }

    /// Different messages that arrived, intact or not.
    pub fn arrived(&self) -> u64 {
        self.received + self.corrupted
    }

    /// Messages given back that have not come again.
    pub fn awaited(&self) -> u64 {
        self.given_back.len() as u64
    }
}

/// The messages that one producer sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerRecord {
    /// The producer that the header names.
    pub producer: u32,
    /// Messages sent: their numbers are below this one.
    pub sent: u64,
    /// Messages that the daemon refused.
    pub refused: Vec<Range<u64>>,
    /// Messages that the daemon neither acknowledged nor refused.
    pub unconfirmed: Vec<Range<u64>>,
}

/// Adds up the ledger of a run and finds what was lost. `producers` is empty when others published: then
/// the holes between the first and the last message of each producer count as missing.
pub fn final_ledger(producers: &[ProducerRecord], channels: &[&ChannelLedger]) -> Ledger {
    let length = |ranges: &[Range<u64>]| ranges.iter().map(|r| r.end - r.start).sum::<u64>();
    let mut ledger = Ledger {
        channels: u32::try_from(channels.len()).unwrap_or(u32::MAX),
        ..Ledger::default()
    };
    for record in producers {
        ledger.sent += record.sent;
        ledger.refused += length(&record.refused);
        ledger.unconfirmed += length(&record.unconfirmed);
    }
    ledger.acknowledged = ledger.sent - ledger.refused - ledger.unconfirmed;
    for channel in channels {
        add_fields!(ledger, channel, received duplicated redelivered corrupted);
        let missing: u64 = if producers.is_empty() {
            let holes = |seen: &Bitmap| seen.span().count() as u64 - seen.count;
            channel.seen.iter().map(holes).sum()
        } else {
            producers.iter().map(|record| channel.missing(record)).sum()
        };
        // The header of a damaged message cannot be trusted, but the message was one of the absent ones.
        ledger.lost += missing.saturating_sub(channel.corrupted);
    }
    ledger
}

impl ChannelLedger {
    /// Acknowledged messages of a producer that did not arrive intact.
    fn missing(&self, record: &ProducerRecord) -> u64 {
        let empty = Bitmap::default();
        let index = self.producers.get(&record.producer);
        let seen = index.map_or(&empty, |index| &self.seen[*index]);
        let absent = |range: Range<u64>| range.end - range.start - seen.count_in(range);
        let exceptions = record.refused.iter().chain(&record.unconfirmed);
        absent(0..record.sent) - exceptions.map(|range| absent(range.clone())).sum::<u64>()
    }
}

#[cfg(test)]
mod tests;
