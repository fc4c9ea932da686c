//! The saved form of a history.
//!
//! ```text
//!   "nsqadmin history 2\n" series*
//!   series: kind (1) length (2) name length (2) channel, and for each tier: last (8) count (4) points
//!   point:  depth (4) rate (4) oldest_seconds (4)          all numbers are little-endian
//! ```
//!
//! The first form, "nsqadmin history 1", has no series of all topics together (kind 3) and is read, too.

use std::ops::Bound;

use super::{History, Key, Point, Ring, Series, TIERS};

const MAGIC: &[u8] = b"nsqadmin history 2\n";
const MAGIC_1: &[u8] = b"nsqadmin history 1\n";
const POINT_BYTES: usize = 12;

/// The series of a piece, at most 10 MB. A larger piece would hold up the samples of the next second.
const PIECE_SERIES: usize = 64;

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
        }
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.series.range((start, Bound::Unbounded));
        let mut last = None;
        for (key, series) in rest.take(PIECE_SERIES) {
            push_series(&mut bytes, key, series);
            last = Some(key.clone());
        }
        Piece { bytes, last }
    }

    /// Returns the saved form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        let mut piece = self.piece(None);
        loop {
            whole.append(&mut piece.bytes);
            match piece.last {
                None => return whole,
                Some(last) => piece = self.piece(Some(&last)),
            }
        }
    }

    /// Reads the saved form of at most `series_max` series, and the series of all topics together.
    ///
    /// # Errors
    /// The bytes are no history, or they are cut off.
    pub fn from_bytes(bytes: &[u8], series_max: usize) -> Result<History, String> {
        let rest = bytes.strip_prefix(MAGIC);
        let rest = rest.or_else(|| bytes.strip_prefix(MAGIC_1));
        let mut rest = rest.ok_or("the file is no history of nsqadmin")?;
        let mut history = History::new(series_max);
        while !rest.is_empty() && history.len() < series_max {
            let (key, series) = read_series(&mut rest).ok_or("the file is cut off or damaged")?;
            if !series.is_empty() {
                history.last_second = history.last_second.max(Some(series.last_second()));
            }
            // Earlier versions also saved names that NSQ forbids.
            if key.is_valid() {
                history.series.insert(key, series);
            }
        }
        Ok(history)
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
    for ring in &series.0 {
        let count = u32::try_from(ring.points.len()).expect("a ring has at most 10,080");
        bytes.extend_from_slice(&ring.last.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        for point in &ring.points {
            for value in [point.depth, point.rate, point.oldest_seconds] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
    }
}

fn read_series(rest: &mut &[u8]) -> Option<(Key, Series)> {
    let [kind] = take::<1>(rest)?;
    let name = read_text(rest)?;
    let channel = read_text(rest)?;
    let key = match kind {
        0 => Key::Node(name),
        1 => Key::Topic(name),
        2 => Key::Channel(name, channel),
        3 => Key::All,
        _ => return None,
    };
    let mut rings = Vec::with_capacity(TIERS.len());
    for tier in TIERS {
        let mut ring = Ring::new(tier);
        ring.last = i64::from_le_bytes(take(rest)?);
        let count = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
        if count > tier.points || rest.len() < count * POINT_BYTES {
            return None;
        }
        for _ in 0..count {
            let mut value = || Some(f32::from_le_bytes(take(rest)?));
            ring.points.push_back(Point {
                depth: value()?,
                rate: value()?,
                oldest_seconds: value()?,
            });
        }
        ring.samples = 1;
        rings.push(ring);
    }
    Some((key, Series(rings.try_into().ok()?)))
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
