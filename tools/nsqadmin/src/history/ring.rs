//! [`Ring`]: the points of one tier of a series.

use super::runs::Runs;
use super::{Point, Tier};

/// The points of one tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ring {
    /// All points but the last one.
    runs: Runs,
    /// The last point, to which samples are still added.
    open: Point,
    /// The number of samples in the last point. 0 if there is none.
    samples: u32,
    /// The number of these samples that had a rate.
    rates: u32,
    /// The number of the last point's interval, counted from 1970.
    last: i64,
}

impl Point {
    /// Adds a sample. `rates` is the number of samples with a rate, this one included.
    fn merge(&mut self, other: Point, rates: u32) {
        self.depth = self.depth.max(other.depth);
        self.oldest_ms = self.oldest_ms.max(other.oldest_ms);
        if let Some(rate) = other.rate {
            let mean = self.rate.unwrap_or(0.0);
            self.rate = Some(mean + (rate - mean) / f64::from(rates));
        }
    }
}

impl Ring {
    /// Returns the number of points.
    pub(super) fn len(&self) -> usize {
        self.runs.len() + usize::from(self.samples > 0)
    }

    /// Returns the bytes of memory outside of this value.
    pub(super) fn heap_bytes(&self) -> usize {
        self.runs.heap_bytes()
    }

    /// Returns the number of the last interval.
    pub(super) fn last_slot(&self) -> Option<i64> {
        (self.samples > 0).then_some(self.last)
    }

    pub(super) fn add(&mut self, tier: Tier, unix_seconds: i64, point: Point) {
        let slot = unix_seconds.div_euclid(tier.step);
        let length = i64::try_from(tier.points).unwrap_or(i64::MAX);
        let passed = slot.saturating_sub(self.last);
        if self.samples > 0 && passed == 0 {
            self.samples += 1;
            self.rates += u32::from(point.rate.is_some());
            self.open.merge(point, self.rates);
            return;
        }
        if self.samples > 0 && (1..=length).contains(&passed) {
            self.runs.push(Some(self.open), tier.step_ms());
            let missing = u32::try_from(passed - 1).expect("a ring has at most 10,080 points");
            self.runs.push_gap(missing, tier.step_ms());
        } else {
            self.runs = Runs::default();
        }
        self.open_with(point, slot);
        self.drop_excess(tier, tier.points);
    }

    /// Begins the last point with one sample.
    fn open_with(&mut self, point: Point, slot: i64) {
        self.rates = u32::from(point.rate.is_some());
        (self.open, self.samples, self.last) = (point, 1, slot);
    }

    /// Keeps at most `count` points, which is at least one, and gives back the memory of the others.
    pub(super) fn shorten(&mut self, tier: Tier, count: usize) {
        if self.len() > count {
            self.drop_excess(tier, count);
            self.runs.shrink_to_fit();
        }
    }

    fn drop_excess(&mut self, tier: Tier, count: usize) {
        let excess = self.len().saturating_sub(count);
        self.runs.drop_first(excess, tier.step_ms());
    }

    /// Returns the points up to now: the start of the first point in seconds since 1970, and the
    /// points.
    pub(super) fn points(&self, tier: Tier, unix_seconds: i64) -> (i64, Vec<Option<Point>>) {
        let now = unix_seconds.div_euclid(tier.step);
        let length = i64::try_from(tier.points).unwrap_or(i64::MAX);
        let held = i64::try_from(self.len()).unwrap_or(i64::MAX);
        // A server whose clock has gone back shows what it has, until its next samples.
        let now = if held == 0 { now } else { now.max(self.last) };
        let oldest = now.saturating_sub(length - 1);
        let first = self.last.saturating_sub(held).saturating_add(1).max(oldest);
        if held == 0 || first > self.last {
            return (now.saturating_mul(tier.step), Vec::new());
        }
        let skipped = usize::try_from(held - (self.last - first + 1)).unwrap_or(0);
        let mut points = self.runs.points(tier.step_ms());
        points.push(Some(self.open));
        points.drain(..skipped);
        (first.saturating_mul(tier.step), points)
    }

    /// Appends the saved form of the points. A ring without points has none.
    pub(super) fn save(&self, tier: Tier, out: &mut Vec<u8>) {
        if self.samples > 0 {
            self.runs.save(self.open, tier.step_ms(), out);
        }
    }

    /// Reads the saved form. Returns `None` if the bytes are anything else.
    pub(super) fn restore(tier: Tier, last: i64, saved: &[u8]) -> Option<Ring> {
        if saved.is_empty() {
            return Some(Ring::default());
        }
        let (runs, open) = Runs::restore(saved, tier.points, tier.step_ms())?;
        let mut ring = Ring {
            runs,
            ..Ring::default()
        };
        ring.open_with(open, last);
        Some(ring)
    }
}
