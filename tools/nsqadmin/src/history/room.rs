//! The memory of a [`History`]: who gets room, and who loses points if there is not enough.
//!
//! ```text
//!   reach    longest ring    10 s       1 s
//!   7 days   10,080          2,160      600     points of each series
//!   1 day     1,440          2,160      600     all series lose the same time: an eighth of it, again and again
//!   1 hour       60            360      600
//!   10 min       10             60      600     less would be no past, so new series find no room
//! ```
//!
//! Names and rings without points take at most half of the limit, so that a shorter past always helps.
//!
//! A shortening gives back a sixteenth of the limit. So the next one comes when that much is full again, and not with the
//! next samples. The rings then grow again by themselves.

use std::collections::BTreeMap;

use super::ring::Ring;
use super::{History, Key, Point, Series, TIERS};

/// The shortest past for the sake of new series, in seconds.
const REACH_MIN: i64 = 600;

/// Time between two tries to make room for new series, in seconds. A try that fails costs time and gives nothing.
const TRY_INTERVAL: i64 = 60;

/// Time between two looks for series that have no points any more, in seconds.
const SWEEP_INTERVAL: i64 = 3_600;

/// Bytes that an allocation takes in addition.
const ALLOCATION_BYTES: usize = 16;

impl Key {
    /// Returns the bytes that a series of this name takes at least. The nodes of a B-tree are at least half full.
    fn series_bytes(&self) -> usize {
        let names = match self {
            Key::All => 0,
            Key::Node(name) | Key::Topic(name) => name.len() + ALLOCATION_BYTES,
            Key::Channel(topic, channel) => topic.len() + channel.len() + 2 * ALLOCATION_BYTES,
        };
        names + 2 * size_of::<(Key, Box<Series>)>() + size_of::<Series>() + ALLOCATION_BYTES
    }
}

impl Series {
    /// Returns the bytes of memory outside of this value.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.iter().map(Ring::heap_bytes).sum()
    }

    /// Returns the time of the longest ring, in seconds.
    pub(super) fn reach(&self) -> i64 {
        let rings = self.0.iter().zip(TIERS);
        let reaches = rings.map(|(ring, tier)| {
            let count = i64::try_from(ring.len()).unwrap_or(i64::MAX);
            tier.step.saturating_mul(count)
        });
        reaches.max().unwrap_or(0)
    }

    /// Drops the points that are older than `reach` seconds, counted from the last one.
    pub(super) fn shorten(&mut self, reach: i64) {
        for (ring, tier) in self.0.iter_mut().zip(TIERS) {
            let count = usize::try_from(reach / tier.step).unwrap_or(0);
            ring.shorten(tier, count.max(1));
        }
    }

    /// Returns the time since the last sample, in seconds.
    fn silence(&self, unix_seconds: i64) -> i64 {
        let last = self.last_second();
        last.map_or(i64::MAX, |last| unix_seconds.saturating_sub(last))
    }
}

impl History {
    /// Returns the time before which points were dropped because there was no room, in seconds since 1970. `None` if that
    /// matters no more.
    pub fn kept_since(&self, unix_seconds: i64) -> Option<i64> {
        self.kept_since
            .filter(|since| (0..TIERS[2].seconds()).contains(&unix_seconds.saturating_sub(*since)))
    }

    /// Returns the time for which the past has had room, in seconds: seven days, or less if points were dropped.
    pub fn room_seconds(&self, unix_seconds: i64) -> i64 {
        let since = self.kept_since(unix_seconds);
        since.map_or(TIERS[2].seconds(), |since| unix_seconds - since)
    }

    /// Adds series, in the order of their names, as far as there is room. Returns the number of those without room.
    /// [`Key::All`] always has room, unless the history is off.
    pub(super) fn add_new(&mut self, unix_seconds: i64, new: BTreeMap<Key, Point>) -> usize {
        let wanted: usize = new.keys().map(Key::series_bytes).sum();
        // Names get no more than their half, so the others need not lose points for more.
        let wanted = wanted.min((self.bytes_max / 2).saturating_sub(self.name_bytes));
        if self.bytes + wanted > self.bytes_max && self.is_try_due(unix_seconds) {
            self.tried = Some(unix_seconds);
            self.shorten(unix_seconds, wanted, REACH_MIN);
        }
        let has_past = self
            .kept_since(unix_seconds)
            .is_none_or(|since| unix_seconds - since >= REACH_MIN);
        let mut left_out = 0;
        for (key, point) in new {
            let bytes = key.series_bytes();
            let has_room = match key {
                Key::All => self.bytes_max > 0,
                _ => {
                    has_past
                        && self.bytes + bytes <= self.bytes_max
                        && self.has_room_for_name(bytes)
                }
            };
            if has_room {
                let mut series = Series::new();
                series.add(unix_seconds, point);
                self.insert(key, series);
            } else {
                left_out += 1;
            }
        }
        self.has_left_out = left_out > 0;
        left_out
    }

    fn has_room_for_name(&self, bytes: usize) -> bool {
        self.name_bytes + bytes <= self.bytes_max / 2
    }

    fn is_try_due(&self, unix_seconds: i64) -> bool {
        let since = self.tried.map(|tried| unix_seconds.saturating_sub(tried));
        since.is_none_or(|passed| passed.saturating_abs() >= TRY_INTERVAL)
    }

    /// Inserts a series.
    fn insert(&mut self, key: Key, series: Series) {
        let bytes = key.series_bytes();
        self.bytes += bytes + series.heap_bytes();
        self.name_bytes += bytes;
        if let Some(old) = self.series.insert(key, Box::new(series)) {
            self.bytes -= bytes + old.heap_bytes();
            self.name_bytes -= bytes;
        }
    }

    /// Inserts a saved series with a past of at most `reach` seconds, and makes the past of all series shorter if there is no
    /// room. Without room for ten minutes of it, the series is dropped, but for that of all topics. Returns the seconds that the past reaches back.
    pub(super) fn insert_saved(&mut self, key: Key, mut series: Series, reach: i64) -> i64 {
        series.shorten(reach);
        self.last_second = self.last_second.max(series.last_second());
        if key != Key::All && !self.has_room_for_name(key.series_bytes()) {
            return reach;
        }
        let is_total = key == Key::All;
        self.insert(key.clone(), series);
        let Some(newest) = self.last_second.filter(|_| self.bytes > self.bytes_max) else {
            return reach;
        };
        // A pass over all series that can free nothing more is left out.
        let shorter = if reach > REACH_MIN {
            self.shorten(newest, 0, REACH_MIN)
        } else {
            reach
        };
        if self.bytes > self.bytes_max
            && !is_total
            && let Some(dropped) = self.series.remove(&key)
        {
            self.bytes -= key.series_bytes() + dropped.heap_bytes();
            self.name_bytes -= key.series_bytes();
        }
        reach.min(shorter)
    }

    /// Makes the past of all series shorter if they take too much, and forgets series that had no sample for the time of the
    /// longest ring.
    pub(super) fn stay_in_bounds(&mut self, unix_seconds: i64) {
        if self.bytes > self.bytes_max {
            self.shorten(unix_seconds, 0, 0);
        }
        let hour = |second: i64| second.div_euclid(SWEEP_INTERVAL);
        if self.last_second.map(hour) != Some(hour(unix_seconds)) {
            let seconds = TIERS[2].seconds();
            self.retain(|series| series.silence(unix_seconds) < seconds);
        }
    }

    /// Makes the past of all series shorter, until there is room for `wanted` bytes and some more, or until the past reaches
    /// back `reach_min` seconds only. Returns the seconds that the past reaches back.
    pub(super) fn shorten(&mut self, unix_seconds: i64, wanted: usize, reach_min: i64) -> i64 {
        let free = wanted.max(self.bytes_max / 16);
        let target = self.bytes_max.saturating_sub(free);
        let reaches = self.series.values().map(|series| series.reach());
        let mut reach = reaches.max().unwrap_or(0);
        loop {
            // A subject that was not seen for ten minutes, and for longer than the past reaches back, has no past.
            let idle = reach.max(TIERS[0].seconds());
            self.retain(|series| {
                series.shorten(reach);
                series.silence(unix_seconds) < idle
            });
            if self.bytes <= target || reach <= reach_min {
                return reach;
            }
            reach = (reach - (reach / 8).max(1)).max(reach_min);
            self.kept_since = Some(unix_seconds.saturating_sub(reach));
        }
    }

    /// Keeps the series that `is_kept` returns true for. It may also change them.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&mut Series) -> bool) {
        let (mut bytes, mut name_bytes) = (0, 0);
        self.series.retain(|key, series| {
            let stays = is_kept(series);
            if stays {
                bytes += key.series_bytes() + series.heap_bytes();
                name_bytes += key.series_bytes();
            }
            stays
        });
        (self.bytes, self.name_bytes) = (bytes, name_bytes);
    }
}

#[cfg(test)]
mod tests;
