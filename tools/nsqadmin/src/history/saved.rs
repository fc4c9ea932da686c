//! The saved form of a history.
//!
//! ```text
//!   "nsqadmin history 3\n" kept_since (8) series*
//!   series: kind (1) length (2) name length (2) channel, and for each tier: last (8) length (4) runs
//!
//!   runs: those of `Runs`, and a run with the last point          all other numbers are little-endian
//! ```
//!
//! The forms 1 and 2 have points instead of runs, and no `kept_since`. They are read, too:
//!
//! ```text
//!   each tier: last (8) count (4) points       point: depth (4) rate (4) oldest_seconds (4), each an f32, and NaN in a gap
//! ```
//!
//! A point of these forms with a number that cannot be is a gap, too.

use std::io::{self, Write};
use std::ops::Bound;

use super::ring::Ring;
use super::{History, Key, Loss, Point, Series, TIERS, Tier};

const MAGIC: &[u8] = b"nsqadmin history 3\n";
const OLD_MAGICS: [&[u8]; 2] = [b"nsqadmin history 1\n", b"nsqadmin history 2\n"];

/// Stands for a history from which no points were dropped.
const NEVER: i64 = i64::MIN;

/// The bytes of a point in the forms 1 and 2.
const OLD_POINT_BYTES: usize = 12;

/// Bytes after which a piece ends. A larger piece would hold up the samples of the next second.
const PIECE_BYTES: usize = 1 << 20;

/// A part of the saved form.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The bytes of this part.
    pub bytes: Vec<u8>,
    /// The last series of this part. `None` at the end.
    pub last: Option<Key>,
}

impl History {
    /// Returns the piece of the saved form after the series `last`, or the first piece. Samples may be added between two
    /// pieces.
    pub fn piece(&self, last: Option<&Key>) -> Piece {
        let mut bytes = Vec::new();
        if last.is_none() {
            bytes.extend_from_slice(MAGIC);
            bytes.extend_from_slice(&self.kept_since.unwrap_or(NEVER).to_le_bytes());
        }
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for (key, series) in self.series.range((start, Bound::Unbounded)) {
            if bytes.len() >= PIECE_BYTES {
                return Piece { bytes, last };
            }
            push_series(&mut bytes, key, series);
            last = Some(key.clone());
        }
        Piece { bytes, last: None }
    }

    /// Returns the saved form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        let written = write_pieces(&mut whole, |last| self.piece(last));
        written.expect("memory takes all bytes");
        whole
    }

    /// Reads the saved form. The past is as long as `bytes_max` permits. Series for which there is no room are left out.
    ///
    /// # Errors
    /// The bytes are no history, or they are cut off.
    pub fn from_bytes(bytes: &[u8], bytes_max: usize) -> Result<History, String> {
        let is_old = OLD_MAGICS.iter().any(|magic| bytes.starts_with(magic));
        let mut rest = bytes;
        let magic = take::<{ MAGIC.len() }>(&mut rest).filter(|magic| is_old || magic == MAGIC);
        magic.ok_or("the file is no history of nsqadmin")?;
        let mut history = History::new(bytes_max);
        history
            .read(rest, is_old)
            .ok_or("the file is cut off or damaged")?;
        Ok(history)
    }

    fn read(&mut self, mut rest: &[u8], is_old: bool) -> Option<()> {
        let read_ring = if is_old { read_old_ring } else { read_ring };
        if !is_old {
            let since = i64::from_le_bytes(take(&mut rest)?);
            self.kept_since = Some(since).filter(|since| *since != NEVER);
        }
        let (mut reach, mut saved_reach) = (i64::MAX, 0);
        while !rest.is_empty() {
            let key = read_key(&mut rest)?;
            let mut series = Series::new();
            for (ring, tier) in series.0.iter_mut().zip(TIERS) {
                *ring = read_ring(&mut rest, tier)?;
            }
            // Earlier versions also saved names that NSQ forbids.
            if key.is_valid() && series.last_second().is_some() {
                saved_reach = saved_reach.max(series.reach());
                reach = self.insert_saved(key, series, reach);
            }
        }
        // At a full limit, each past is shortened a bit now and then.
        if reach < saved_reach / 4 * 3 {
            self.loss = Some(Loss::Room);
        }
        Some(())
    }
}

/// Writes the saved form piece by piece. `next` returns the one after a series.
///
/// # Errors
/// The file takes no more.
pub fn write_pieces(
    mut file: impl Write,
    mut next: impl FnMut(Option<&Key>) -> Piece,
) -> io::Result<()> {
    let mut last = None;
    loop {
        let piece = next(last.as_ref());
        file.write_all(&piece.bytes)?;
        match piece.last {
            None => return Ok(()),
            some => last = some,
        }
    }
}

fn push_series(bytes: &mut Vec<u8>, key: &Key, series: &Series) {
    let (kind, name, channel) = match key {
        Key::All => (3, "", ""),
        Key::Node(node) => (0, node.as_str(), ""),
        Key::Topic(topic) => (1, topic.as_str(), ""),
        Key::Channel(topic, channel) => (2, topic.as_str(), channel.as_str()),
    };
    bytes.push(kind);
    for text in [name, channel] {
        let length = u16::try_from(text.len()).expect("names of keys are short");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    for (ring, tier) in series.0.iter().zip(TIERS) {
        let last = ring.last_slot().unwrap_or(0);
        bytes.extend_from_slice(&last.to_le_bytes());
        let at = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        ring.save(tier, bytes);
        let length = u32::try_from(bytes.len() - at - 4).expect("a ring has at most 400 kB");
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

fn read_key(rest: &mut &[u8]) -> Option<Key> {
    let [kind] = take::<1>(rest)?;
    let name = read_text(rest)?;
    let channel = read_text(rest)?;
    Some(match kind {
        0 => Key::Node(name),
        1 => Key::Topic(name),
        2 => Key::Channel(name, channel),
        3 => Key::All,
        _ => return None,
    })
}

fn read_ring(rest: &mut &[u8], tier: Tier) -> Option<Ring> {
    let last = i64::from_le_bytes(take(rest)?);
    let length = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    let (saved, after) = rest.split_at_checked(length)?;
    *rest = after;
    Ring::restore(tier, last, saved)
}

/// Reads a ring of the forms 1 and 2.
fn read_old_ring(rest: &mut &[u8], tier: Tier) -> Option<Ring> {
    let last = i64::from_le_bytes(take(rest)?);
    let count = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    if count > tier.points || rest.len() < count * OLD_POINT_BYTES {
        return None;
    }
    let mut ring = Ring::default();
    for index in 0..count {
        let mut value = || Some(f32::from_le_bytes(take(rest)?));
        let (depth, rate, oldest_seconds) = (value()?, value()?, value()?);
        let can_be = |value: &f32| (0.0..=f32::MAX).contains(value);
        if ![depth, rate, oldest_seconds].iter().all(can_be) {
            continue;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The casts saturate.
        let point = Point {
            depth: depth as u64,
            rate: Some(f64::from(rate)),
            oldest_ms: (f64::from(oldest_seconds) * 1000.0).round() as u64,
        };
        let before = i64::try_from(count - 1 - index).ok()?;
        let slot = last.saturating_sub(before);
        ring.add(tier, slot.saturating_mul(tier.step), point);
    }
    Some(ring)
}

fn read_text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests;
