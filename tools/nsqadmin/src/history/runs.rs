//! [`Runs`]: the points of a ring. Neighbours that are equal are one run, so the past of an idle topic takes some bytes.
//!
//! ```text
//!   first run        ...        run before the last │ last run
//!   └──────────────── bytes ───────────────────────┘   decoded, and grows with each equal point
//!
//!   run:  count · 4 + kind    depth    rate · 1000    age in ms       a gap has the first number only
//! ```
//!
//! The numbers are unsigned LEB128, as in protocol buffers: seven bits a byte, the lowest ones first. A run of kind `Growing`
//! has an age that grows with the clock: that of a channel from which nobody takes messages. The largest number stands for a
//! rate that is not known.

use std::collections::VecDeque;

use super::Point;

/// The rate of points whose rate is not known, in the unit of [`Run::rate`]. No server has such a rate.
const RATE_UNKNOWN: u64 = u64::MAX;

/// Most bytes of a number: 64 bits, seven in each byte.
const NUMBER_BYTES_MAX: u32 = 10;

/// Most bytes of a run: four numbers, and the first one has 34 bits.
const RUN_BYTES_MAX: usize = 35;

/// Smallest number of bytes for which memory that is no longer used is given back.
const SHRINKABLE_BYTES: usize = 64;

/// Points of equal steps, from the oldest to the newest. `None` is a gap.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Runs {
    /// All runs but the last one.
    bytes: VecDeque<u8>,
    /// The points of the first run in `bytes` that were dropped.
    skipped: u32,
    /// The number of points.
    len: u32,
    last: Option<Run>,
}

/// Equal points.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    count: u32,
    kind: Kind,
    depth: u64,
    /// Messages per 1,000 seconds, or [`RATE_UNKNOWN`].
    rate: u64,
    /// The age of the first point's oldest message, in milliseconds.
    oldest_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Gap,
    Steady,
    Growing,
}

impl Run {
    fn new(point: Option<Point>) -> Run {
        let kind = match point {
            Some(_) => Kind::Steady,
            None => Kind::Gap,
        };
        let point = point.unwrap_or_default();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The cast saturates.
        let rate = |rate: f64| ((rate * 1000.0).round() as u64).min(RATE_UNKNOWN - 1);
        let rate = point.rate.map_or(RATE_UNKNOWN, rate);
        Run {
            count: 1,
            kind,
            depth: point.depth,
            rate,
            oldest_ms: point.oldest_ms,
        }
    }

    fn oldest_at(&self, index: u32, step_ms: u64) -> u64 {
        match self.kind {
            Kind::Growing => self
                .oldest_ms
                .saturating_add(u64::from(index).saturating_mul(step_ms)),
            _ => self.oldest_ms,
        }
    }

    fn point(&self, index: u32, step_ms: u64) -> Option<Point> {
        #[allow(clippy::cast_precision_loss)] // A rate needs no more.
        let rate = (self.rate != RATE_UNKNOWN).then(|| self.rate as f64 / 1000.0);
        (self.kind != Kind::Gap).then(|| Point {
            depth: self.depth,
            rate,
            oldest_ms: self.oldest_at(index, step_ms),
        })
    }

    /// Makes the run longer if the next run continues it. Returns true if it does.
    fn extend(&mut self, next: &Run, step_ms: u64) -> bool {
        let is_other = (next.kind == Kind::Gap) != (self.kind == Kind::Gap);
        if is_other || (next.depth, next.rate) != (self.depth, self.rate) {
            return false;
        }
        if self.kind == Kind::Growing || next.oldest_ms != self.oldest_ms {
            let grown = Run {
                kind: Kind::Growing,
                ..*self
            };
            let is_new = self.kind == Kind::Steady && self.count > 1;
            let expected = grown.oldest_at(self.count, step_ms);
            if is_new || !is_near(next.oldest_ms, expected, step_ms) {
                return false;
            }
            self.kind = Kind::Growing;
        }
        self.count += next.count;
        true
    }

    /// Drops points at the beginning. There must be more.
    fn drop_first(&mut self, count: u32, step_ms: u64) {
        self.oldest_ms = self.oldest_at(count, step_ms);
        self.count -= count;
    }

    fn write(&self, out: &mut impl Extend<u8>) {
        write_number(out, u64::from(self.count) << 2 | self.kind as u64);
        if self.kind != Kind::Gap {
            for number in [self.depth, self.rate, self.oldest_ms] {
                write_number(out, number);
            }
        }
    }

    /// Reads a run. Returns `None` if the bytes are no run.
    fn read<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<Run> {
        let head = read_number(bytes)?;
        let kind = match head & 3 {
            0 => Kind::Gap,
            1 => Kind::Steady,
            2 => Kind::Growing,
            _ => return None,
        };
        let count = u32::try_from(head >> 2).ok().filter(|count| *count > 0)?;
        let mut run = Run {
            count,
            kind,
            ..Run::new(None)
        };
        if kind != Kind::Gap {
            for number in [&mut run.depth, &mut run.rate, &mut run.oldest_ms] {
                *number = read_number(bytes)?;
            }
        }
        Some(run)
    }
}

/// Returns true if an age is the expected one, as far as a chart shows. Samples come some milliseconds too early or too late.
fn is_near(age_ms: u64, expected_ms: u64, step_ms: u64) -> bool {
    age_ms.abs_diff(expected_ms) <= (expected_ms / 128).min(step_ms / 4)
}

fn write_number(out: &mut impl Extend<u8>, mut number: u64) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        out.extend([low | u8::from(number > 0) << 7]);
        if number == 0 {
            return;
        }
    }
}

fn read_number<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..NUMBER_BYTES_MAX {
        let byte = *bytes.next()?;
        let low = u64::from(byte & 0x7f);
        if low << (7 * place) >> (7 * place) != low {
            return None;
        }
        number |= low << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

impl Runs {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the bytes of memory outside of this value.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Adds a point.
    pub(super) fn push(&mut self, point: Option<Point>, step_ms: u64) {
        self.push_run(Run::new(point), step_ms);
    }

    /// Adds steps without a point.
    pub(super) fn push_gap(&mut self, count: u32, step_ms: u64) {
        if count > 0 {
            let gap = Run {
                count,
                ..Run::new(None)
            };
            self.push_run(gap, step_ms);
        }
    }

    fn push_run(&mut self, run: Run, step_ms: u64) {
        if let Some(last) = &mut self.last
            && last.extend(&run, step_ms)
        {
            self.len += run.count;
        } else {
            self.append(run);
        }
    }

    fn append(&mut self, run: Run) {
        self.len += run.count;
        if let Some(whole) = self.last.replace(run) {
            self.write(whole);
        }
    }

    /// Adds a run to the bytes. Their memory grows in small steps, because doubling would leave up to half of it free.
    fn write(&mut self, run: Run) {
        if self.bytes.capacity() - self.bytes.len() < RUN_BYTES_MAX {
            let more = RUN_BYTES_MAX + self.bytes.len() / 32;
            self.bytes.reserve_exact(more);
        }
        run.write(&mut self.bytes);
    }

    /// Drops the oldest points, at most all.
    pub(super) fn drop_first(&mut self, count: usize, step_ms: u64) {
        let mut count = u32::try_from(count).unwrap_or(u32::MAX).min(self.len);
        self.len -= count;
        while count > 0 {
            let mut bytes = self.bytes.iter();
            let Some(first) = Run::read(&mut bytes) else {
                // Only the last run is left.
                match &mut self.last {
                    Some(last) if last.count > count => last.drop_first(count, step_ms),
                    last => *last = None,
                }
                return;
            };
            let left = first.count - self.skipped;
            if count < left {
                self.skipped += count;
                return;
            }
            let used = self.bytes.len() - bytes.len();
            self.bytes.drain(..used);
            (self.skipped, count) = (0, count - left);
            self.shrink();
        }
    }

    /// Gives memory back if half of it is free. An eighth stays free, so that this is seldom done.
    fn shrink(&mut self) {
        let (used, capacity) = (self.bytes.len(), self.bytes.capacity());
        if capacity > SHRINKABLE_BYTES && used < capacity / 2 {
            self.bytes.shrink_to(used + used / 8);
        }
    }

    /// Gives back the memory that is free.
    pub(super) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Returns all points, from the oldest to the newest.
    pub(super) fn points(&self, step_ms: u64) -> Vec<Option<Point>> {
        let mut points = Vec::with_capacity(self.len());
        for run in self.runs(step_ms) {
            points.extend((0..run.count).map(|index| run.point(index, step_ms)));
        }
        points
    }

    /// Returns the runs without the points that were dropped.
    fn runs(&self, step_ms: u64) -> impl Iterator<Item = Run> {
        let mut bytes = self.bytes.iter();
        let mut skipped = self.skipped;
        let written = std::iter::from_fn(move || {
            let mut run = Run::read(&mut bytes)?;
            run.drop_first(std::mem::take(&mut skipped), step_ms);
            Some(run)
        });
        written.chain(self.last)
    }

    /// Appends all runs in the form of this module's head, and a run with the point that is still open.
    pub(super) fn save(&self, open: Point, step_ms: u64, out: &mut Vec<u8>) {
        for run in self.runs(step_ms) {
            run.write(out);
        }
        Run::new(Some(open)).write(out);
    }

    /// Reads what [`Runs::save`] has written, with at most `points_max` points. Returns the runs and the open point. `None` if
    /// the bytes are anything else.
    pub(super) fn restore(saved: &[u8], points_max: usize, step_ms: u64) -> Option<(Runs, Point)> {
        let mut saved = saved.iter();
        let mut runs = Runs::default();
        runs.bytes.reserve_exact(saved.len());
        while saved.len() > 0 {
            let run = Run::read(&mut saved)?;
            let is_open = saved.len() == 0;
            if is_open {
                let point = run.point(0, step_ms).filter(|_| run.count == 1)?;
                runs.shrink_to_fit();
                return Some((runs, point));
            }
            let len = runs.len().checked_add(run.count as usize)?;
            if len >= points_max {
                return None;
            }
            runs.append(run);
        }
        None
    }
}

#[cfg(test)]
mod tests;
