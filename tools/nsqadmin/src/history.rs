//! [`History`]: the recent past of topics, channels and nodes, in memory.
//!
//! A series has a ring of points for each of three steps:
//!
//! ```text
//!   1 s  for 10 minutes    600 points
//!   10 s for 6 hours     2,160 points
//!   60 s for 7 days     10,080 points     12 bytes per point: 154,080 bytes per full series
//! ```
//!
//! A point of a longer step has the highest depth and age of its time, so no peak is lost, and the
//! mean rate. A step without a sample is a gap. The time is an argument.

use std::collections::{BTreeMap, VecDeque};

use wire::name::is_valid_name;

mod saved;

pub use saved::Piece;

/// The rings of a series.
pub const TIERS: [Tier; 3] = [
    Tier {
        step: 1,
        points: 600,
    },
    Tier {
        step: 10,
        points: 2_160,
    },
    Tier {
        step: 60,
        points: 10_080,
    },
];

/// Time after which a series without samples makes room for another one, in seconds.
const IDLE_SECONDS: i64 = 600;

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

/// The figures of one interval. All are NaN in a gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Messages that wait: the highest number.
    pub depth: f32,
    /// Messages per second: the mean.
    pub rate: f32,
    /// The age of the oldest message that is owed, in seconds: the highest.
    pub oldest_seconds: f32,
}

/// The points of one tier.
#[derive(Clone, Debug, PartialEq)]
struct Ring {
    tier: Tier,
    /// The number of the last point's interval, counted from 1970.
    last: i64,
    points: VecDeque<Point>,
    /// The number of samples in the last point.
    samples: u32,
}

/// The points of one subject.
#[derive(Clone, Debug, PartialEq)]
struct Series([Ring; 3]);

/// The series of all subjects.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    series: BTreeMap<Key, Series>,
    series_max: usize,
    /// The time of the last samples, in seconds since 1970.
    last_second: Option<i64>,
    /// True if points are gone since the last [`History::take_loss`].
    has_lost_past: bool,
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

impl Point {
    /// The point of a step without samples.
    pub const GAP: Point = Point {
        depth: f32::NAN,
        rate: f32::NAN,
        oldest_seconds: f32::NAN,
    };

    /// Returns true if the step has no samples.
    pub fn is_gap(self) -> bool {
        self.depth.is_nan()
    }

    fn merge(&mut self, other: Point, samples: u32) {
        self.depth = self.depth.max(other.depth);
        self.oldest_seconds = self.oldest_seconds.max(other.oldest_seconds);
        #[allow(clippy::cast_precision_loss)] // A step has at most 60 samples.
        let samples = samples as f32;
        self.rate += (other.rate - self.rate) / samples;
    }
}

impl Ring {
    fn new(tier: Tier) -> Ring {
        Ring {
            tier,
            last: i64::MIN,
            points: VecDeque::new(),
            samples: 0,
        }
    }

    fn add(&mut self, unix_seconds: i64, point: Point) {
        let slot = unix_seconds.div_euclid(self.tier.step);
        let length = i64::try_from(self.tier.points).unwrap_or(i64::MAX);
        if !self.points.is_empty() && slot < self.last && slot > self.last.saturating_sub(length) {
            // The clock has gone back a little.
            return;
        }
        if let Some(back) = self.points.back_mut()
            && slot == self.last
        {
            self.samples += 1;
            back.merge(point, self.samples);
            return;
        }
        let missing = slot.saturating_sub(self.last).saturating_sub(1);
        if self.points.is_empty() || !(0..length).contains(&missing) {
            self.points.clear();
        } else {
            self.points.extend((0..missing).map(|_| Point::GAP));
        }
        self.points.push_back(point);
        let excess = self.points.len().saturating_sub(self.tier.points);
        self.points.drain(..excess);
        (self.last, self.samples) = (slot, 1);
    }

    /// Returns the points up to now: the start of the first point in seconds since 1970, and the
    /// points.
    fn points(&self, unix_seconds: i64) -> (i64, Vec<Point>) {
        let now = unix_seconds.div_euclid(self.tier.step);
        let length = i64::try_from(self.tier.points).unwrap_or(i64::MAX);
        let held = i64::try_from(self.points.len()).unwrap_or(i64::MAX);
        // A server whose clock has gone back shows what it has.
        let now = if held == 0 { now } else { now.max(self.last) };
        let oldest = now.saturating_sub(length - 1);
        let first = self.last.saturating_sub(held).saturating_add(1).max(oldest);
        if held == 0 || first > self.last {
            return (now.saturating_mul(self.tier.step), Vec::new());
        }
        let skipped = usize::try_from(held - (self.last - first + 1)).unwrap_or(0);
        let points = self.points.iter().skip(skipped).copied();
        (first.saturating_mul(self.tier.step), points.collect())
    }
}

impl Series {
    fn new() -> Series {
        Series(TIERS.map(Ring::new))
    }

    fn add(&mut self, unix_seconds: i64, point: Point) {
        for ring in &mut self.0 {
            ring.add(unix_seconds, point);
        }
    }

    fn is_empty(&self) -> bool {
        self.0[0].points.is_empty()
    }

    fn last_second(&self) -> i64 {
        self.0[0].last
    }
}

impl History {
    /// Returns an empty history of at most `series_max` series, and the series of all topics together.
    pub fn new(series_max: usize) -> History {
        History {
            series: BTreeMap::new(),
            series_max,
            last_second: None,
            has_lost_past: false,
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

    /// Returns the greatest number of series, without the one of all topics together.
    pub fn series_max(&self) -> usize {
        self.series_max
    }

    /// Returns the bytes of all points.
    pub fn points_bytes(&self) -> usize {
        let rings = self.series.values().flat_map(|series| &series.0);
        rings.map(|ring| ring.points.len()).sum::<usize>() * size_of::<Point>()
    }

    /// Adds the samples of one moment. Known series come first. If new series find no room, series without a sample for
    /// ten minutes are dropped, the longest idle one first, and no more of them than are needed. [`Key::All`] always has
    /// room, unless the history keeps no series at all. A sample with a name that NSQ forbids is dropped. Returns the
    /// number of samples for which there was no room.
    pub fn add(
        &mut self,
        unix_seconds: i64,
        samples: impl IntoIterator<Item = (Key, Point)>,
    ) -> usize {
        let mut new = BTreeMap::new();
        for (key, point) in samples {
            match self.series.get_mut(&key) {
                Some(series) => series.add(unix_seconds, point),
                None if key.is_valid() => _ = new.insert(key, point),
                None => {}
            }
        }
        let wanted = self.len() + new.keys().filter(|key| **key != Key::All).count();
        self.drop_idle(unix_seconds, wanted.saturating_sub(self.series_max));
        let mut left_out = 0;
        for (key, point) in new {
            let has_room = match key {
                Key::All => self.series_max > 0,
                _ => self.len() < self.series_max,
            };
            match has_room {
                true => {
                    let series = self.series.entry(key).or_insert_with(Series::new);
                    series.add(unix_seconds, point);
                }
                false => left_out += 1,
            }
        }
        let past = self.last_second.replace(unix_seconds);
        self.has_lost_past |= past.is_some_and(|last| loses_points(last, unix_seconds));
        left_out
    }

    /// Returns true if points are gone since the last call, because the clock has moved far between two samples: ten
    /// minutes back, or seven days ahead.
    pub fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_past)
    }

    /// Drops at most `count` series that are idle.
    fn drop_idle(&mut self, unix_seconds: i64, count: usize) {
        if count == 0 {
            return;
        }
        let series = self.series.iter().filter(|(key, _)| **key != Key::All);
        let series = series.map(|(key, series)| (series.last_second(), key));
        let idle = series.filter(|(last, _)| unix_seconds.saturating_sub(*last) >= IDLE_SECONDS);
        let mut idle: Vec<_> = idle.map(|(last, key)| (last, key.clone())).collect();
        idle.sort_unstable();
        for (_, key) in idle.into_iter().take(count) {
            self.series.remove(&key);
        }
    }

    /// Returns the points of a series at the step of a tier, an index of [`TIERS`]: the start of the
    /// first point in seconds since 1970, and the points. `None` if there is no such series.
    pub fn points(&self, key: &Key, tier: usize, unix_seconds: i64) -> Option<(i64, Vec<Point>)> {
        let series = self.series.get(key)?;
        Some(series.0.get(tier)?.points(unix_seconds))
    }
}

/// Returns true if a sample at `now` clears a ring of a series whose last sample was at `last`. Seconds are also cleared after
/// ten minutes without samples, which is usual.
fn loses_points(last: i64, now: i64) -> bool {
    let seconds = |tier: Tier| tier.step * i64::try_from(tier.points).unwrap_or(i64::MAX);
    let passed = now.saturating_sub(last);
    passed <= -seconds(TIERS[0]) || passed >= seconds(TIERS[2])
}

#[cfg(test)]
mod tests;
