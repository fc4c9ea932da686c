//! [`History`]: the recent past of topics, channels and nodes, in memory.
//!
//! A series has a ring of points for each of three steps:
//!
//! ```text
//!   1 s  for 10 minutes    600 points
//!   10 s for 6 hours     2,160 points
//!   60 s for 7 days     10,080 points
//! ```
//!
//! A point of a longer step has the highest depth and age of its time, so no peak is lost, and the
//! mean rate. A step without a sample is a gap. Equal neighbours are one run ([`runs`]), so an idle topic takes some bytes and
//! a busy one about 8 bytes for each point. If all series together would take more than a limit, all of them lose their oldest
//! points: first those of the longest steps ([`room`]).
//!
//! The time is an argument, and it is that of the system, because it is the axis of charts. If the clock goes back by ten
//! minutes at most, the last point takes the samples until the clock is where it was. If it goes back further, the past begins
//! anew. If the clock goes ahead, there is a gap.

use std::collections::BTreeMap;

use wire::name::is_valid_name;

mod ring;
mod room;
mod runs;
mod saved;

use ring::Ring;

pub use saved::{Piece, write_pieces};

/// The rings of a series.
pub const TIERS: [Tier; 3] = [
    Tier::new(1, 600),
    Tier::new(10, 2_160),
    Tier::new(60, 10_080),
];

/// The longest step back of the clock over which the past is kept, in seconds.
const STEP_BACK_MAX: i64 = 600;

/// Longest name of a node, in bytes. A host name has at most 255.
const NODE_BYTES_MAX: usize = 512;

/// The step and the length of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Seconds per point.
    pub step: i64,
    /// The number of points.
    pub points: usize,
}

/// The subject of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// All topics together.
    All,
    /// `host:port` of a node.
    Node(String),
    /// A topic.
    Topic(String),
    /// A topic and its channel.
    Channel(String, String),
}

/// The figures of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Messages that wait: the highest number.
    pub depth: u64,
    /// Messages per second: the mean. Thousandths are kept. `None` if no sample had a rate.
    pub rate: Option<f64>,
    /// The age of the oldest message that is owed, in milliseconds: the highest.
    pub oldest_ms: u64,
}

/// The points of one subject.
#[derive(Clone, Debug, PartialEq)]
struct Series([Ring; 3]);

/// The series of all subjects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    series: BTreeMap<Key, Box<Series>>,
    /// The bytes of all series, with their names.
    bytes: usize,
    /// The part of `bytes` that no shorter past frees: names, and rings without points.
    name_bytes: usize,
    /// Most bytes of all series.
    pub bytes_max: usize,
    /// The time before which points were dropped because there was no room, in seconds since 1970.
    kept_since: Option<i64>,
    /// The time of the last try to make room for new series.
    tried: Option<i64>,
    /// True if the last samples had a series for which there was no room.
    pub has_left_out: bool,
    /// The time of the last samples, in seconds since 1970.
    last_second: Option<i64>,
}

impl Tier {
    const fn new(step: i64, points: usize) -> Tier {
        Tier { step, points }
    }

    /// Returns the time of a full ring, in seconds.
    pub fn seconds(self) -> i64 {
        self.step * i64::try_from(self.points).unwrap_or(i64::MAX)
    }

    fn step_ms(self) -> u64 {
        self.step.unsigned_abs() * 1000
    }
}

impl Key {
    /// Returns true if an NSQ cluster can have this name. A server may tell any text.
    fn is_valid(&self) -> bool {
        match self {
            Key::All => true,
            Key::Node(node) => node.len() <= NODE_BYTES_MAX,
            Key::Topic(topic) => is_valid_name(topic.as_bytes()),
            Key::Channel(topic, channel) => {
                is_valid_name(topic.as_bytes()) && is_valid_name(channel.as_bytes())
            }
        }
    }
}

impl Series {
    fn new() -> Series {
        Series(TIERS.map(|_| Ring::default()))
    }

    fn add(&mut self, unix_seconds: i64, point: Point) {
        for (ring, tier) in self.0.iter_mut().zip(TIERS) {
            ring.add(tier, unix_seconds, point);
        }
    }

    /// Returns the time of the last sample.
    fn last_second(&self) -> Option<i64> {
        let rings = self.0.iter().zip(TIERS);
        let last =
            rings.filter_map(|(ring, tier)| Some(ring.last_slot()?.saturating_mul(tier.step)));
        last.max()
    }
}

impl History {
    /// Returns an empty history that takes at most `bytes_max` bytes. With 0 bytes, it stays empty.
    pub fn new(bytes_max: usize) -> History {
        History {
            bytes_max,
            ..History::default()
        }
    }

    /// Returns the number of series, without the one of all topics together.
    pub fn len(&self) -> usize {
        self.series.len() - usize::from(self.series.contains_key(&Key::All))
    }

    /// Returns true if there is no series, except the one of all topics together.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of all series.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the samples of one moment. A sample with a name that NSQ forbids is dropped. Returns the number of samples for
    /// which there was no room.
    pub fn add(
        &mut self,
        mut unix_seconds: i64,
        samples: impl IntoIterator<Item = (Key, Point)>,
    ) -> usize {
        match self
            .last_second
            .map(|last| (last, last.saturating_sub(unix_seconds)))
        {
            Some((last, 1..=STEP_BACK_MAX)) => unix_seconds = last,
            Some((_, ..=0)) | None => {}
            Some(_) => *self = History::new(self.bytes_max),
        }
        let mut new = BTreeMap::new();
        for (key, point) in samples {
            match self.series.get_mut(&key) {
                Some(series) => {
                    self.bytes -= series.heap_bytes();
                    series.add(unix_seconds, point);
                    self.bytes += series.heap_bytes();
                }
                None if key.is_valid() => _ = new.insert(key, point),
                None => {}
            }
        }
        let left_out = self.add_new(unix_seconds, new);
        self.stay_in_bounds(unix_seconds);
        self.last_second = Some(unix_seconds);
        left_out
    }

    /// Returns the points of a series at the step of a tier, an index of [`TIERS`]: the start of the
    /// first point in seconds since 1970, and the points. `None` as a point is a gap. `None` if there is no such series.
    pub fn points(
        &self,
        key: &Key,
        tier: usize,
        unix_seconds: i64,
    ) -> Option<(i64, Vec<Option<Point>>)> {
        let series = self.series.get(key)?;
        let (ring, tier) = (series.0.get(tier)?, *TIERS.get(tier)?);
        Some(ring.points(tier, unix_seconds))
    }
}

#[cfg(test)]
mod tests;
