//! The saved form of a history.
//!
//! ```text
//!   "nsqadmin history 3\n" kept_since (8) series*
//!   series: kind (1) length (2) name length (2) channel, and for each tier: last (8) length (4) runs
//!
//!   runs: those of `Runs`, and a run with the last point          all other numbers are little-endian
//! ```

use std::io::{self, Write};
use std::ops::Bound;

use super::ring::Ring;
use super::{History, Key, Series, TIERS, Tier};

const MAGIC: &[u8] = b"nsqadmin history 3\n";

/// Stands for a history from which no points were dropped.
const NEVER: i64 = i64::MIN;

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
        let rest = bytes.strip_prefix(MAGIC);
        let rest = rest.ok_or("the file is no history of nsqadmin")?;
        let mut history = History::new(bytes_max);
        history.read(rest).ok_or("the file is cut off or damaged")?;
        Ok(history)
    }

    fn read(&mut self, mut rest: &[u8]) -> Option<()> {
        let since = i64::from_le_bytes(take(&mut rest)?);
        self.kept_since = Some(since).filter(|since| *since != NEVER);
        let mut reach = i64::MAX;
        while !rest.is_empty() {
            let key = read_key(&mut rest)?;
            let mut series = Series::new();
            for (ring, tier) in series.0.iter_mut().zip(TIERS) {
                *ring = read_ring(&mut rest, tier)?;
            }
            if key.is_valid() && series.last_second().is_some() {
                reach = self.insert_saved(key, series, reach);
            }
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
