//! The saved form of a topic's keys: [`KeysSnapshot`] writes it, and [`SavedKeys`] reads it.
//!
//! ```text
//!   magic "RINGQKEY" | version u32 | bytes of the rule u32 | secret, 16 bytes | boundary u64 | tables u64 | rule
//!   for each table, the oldest first:
//!     base u64 | end u64 | began u64 | time of the last key u64 | keys u64
//!     for each key: lower 48 bits of the seq, fingerprint, 80 bits
//!   CRC-32C of all before, u32
//! ```
//!
//! Numbers are little endian. Times are milliseconds since 1970. The state names only messages below `boundary`, and a
//! power failure takes none of these back. The messages from `boundary` on are read from the log.

use crate::fingerprint::KeyHasher;
use crate::key_table::{KeyTable, Lost, used};
use crate::key_tables::{KeyTables, clock_ms};
use crate::plan::Plan;
use diskq_log::{Now, Seq, TopicFile, crc32c};
use std::collections::TryReserveError;
use std::fmt;
use std::io;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"RINGQKEY";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 48;
const KEY_BYTES: usize = 16;
const CRC_BYTES: usize = 4;

/// Keys that are written at a time.
const PIECE_KEYS: usize = 4096;

/// The keys of a topic at one moment, to be written to a file.
#[derive(Debug)]
pub(crate) struct KeysSnapshot {
    rule: String,
    hasher: KeyHasher,
    boundary: Seq,
    lost: Lost,
    /// The oldest one first.
    tables: Vec<TableSnapshot>,
}

#[derive(Debug)]
struct TableSnapshot {
    slots: Slots,
    base: Seq,
    end: Seq,
    began_unix_ms: u64,
    last_key_unix_ms: u64,
}

#[derive(Debug)]
enum Slots {
    /// An older table, which does not change any more.
    Shared(Arc<KeyTable>),
    /// The used slots of the newest table, which are copied in pieces.
    Copied {
        slots: Vec<u128>,
        /// The slot of the table that is looked at next.
        next: usize,
    },
}

impl Slots {
    fn slots(&self) -> &[u128] {
        match self {
            Slots::Shared(table) => table.piece(0, table.slots()),
            Slots::Copied { slots, .. } => slots,
        }
    }
}

/// Converts a time of the clock of keys to a Unix time in milliseconds.
fn unix_from_clock(now: Now, at_ms: u64) -> u64 {
    let age_ms = clock_ms(now.mono).saturating_sub(at_ms);
    (now.wall_ns / 1_000_000).saturating_sub(age_ms)
}

/// Converts a Unix time in milliseconds to the clock of keys. A time of the future counts as now.
fn clock_from_unix(now: Now, unix_ms: u64) -> u64 {
    let age_ms = (now.wall_ns / 1_000_000).saturating_sub(unix_ms);
    clock_ms(now.mono).saturating_sub(age_ms)
}

impl KeysSnapshot {
    /// Takes the older tables of a topic. The newest one follows in pieces: see [`KeysSnapshot::add_newest`]. All
    /// messages below `boundary` are safe from a power failure. `rule` says what the keys are.
    ///
    /// # Errors
    /// The system refuses the memory for the copy of the newest table.
    pub(crate) fn new(
        keys: &KeyTables,
        now: Now,
        rule: String,
        boundary: Seq,
    ) -> Result<KeysSnapshot, TryReserveError> {
        let older = keys.older().rev();
        let mut tables: Vec<TableSnapshot> = older
            .map(|table| snapshot_of(table, now, Slots::Shared(Arc::clone(table))))
            .collect();
        // A copy of all slots would take the memory of a full table for each topic, also of a topic with few keys.
        let mut slots = Vec::new();
        slots.try_reserve_exact(keys.newest.count())?;
        tables.push(snapshot_of(
            &keys.newest,
            now,
            Slots::Copied { slots, next: 0 },
        ));
        Ok(KeysSnapshot {
            rule,
            hasher: keys.hasher,
            boundary,
            lost: keys.lost.clone(),
            tables,
        })
    }

    /// Copies the keys of the next piece of the newest table, of at most `count` slots. Returns the slots of the
    /// piece: 0 at the end. Keys may be added in the meantime: their messages are not below `boundary`, so the snapshot
    /// leaves them out. If the topic has begun another table in the meantime, this takes the rest without copying
    /// it.
    pub(crate) fn add_newest(&mut self, keys: &KeyTables, count: usize) -> usize {
        let Some(newest) = self.tables.last_mut() else {
            return 0;
        };
        let Slots::Copied { slots, next } = &mut newest.slots else {
            return 0;
        };
        if keys.newest.base == newest.base {
            let piece = keys.newest.piece(*next, count);
            let is_used = |slot: &u128| used(*slot, newest.base, newest.end).is_some();
            slots.extend(piece.iter().copied().filter(is_used));
            *next += piece.len();
            return piece.len();
        }
        // Its seqs do not repeat, so the base names the table. A table that is forgotten by now is left as it
        // is.
        let same = keys.older().find(|older| older.base == newest.base);
        if let Some(table) = same {
            newest.slots = Slots::Shared(Arc::clone(table));
        }
        0
    }

    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&(self.rule.len() as u32).to_le_bytes());
        head[16..32].copy_from_slice(&self.hasher.secret());
        head[32..40].copy_from_slice(&self.boundary.0.to_le_bytes());
        head[40..].copy_from_slice(&(self.tables.len() as u64).to_le_bytes());
        head
    }
}

fn snapshot_of(table: &KeyTable, now: Now, slots: Slots) -> TableSnapshot {
    TableSnapshot {
        slots,
        base: table.base,
        end: table.end,
        began_unix_ms: unix_from_clock(now, table.began_ms),
        last_key_unix_ms: unix_from_clock(now, table.last_key_ms),
    }
}

impl TableSnapshot {
    /// The slots with keys of messages below `boundary` that are not lost.
    fn keys(&self, boundary: Seq, lost: &Lost) -> impl Iterator<Item = u128> {
        let (base, end) = (self.base, self.end.min(boundary).max(self.base));
        let slots = self.slots.slots().iter().copied();
        slots.filter(move |slot| used(*slot, base, end).is_some_and(|(_, seq)| !lost.contains(seq)))
    }

    fn head(&self, boundary: Seq, lost: &Lost) -> Vec<u8> {
        let keys = self.keys(boundary, lost).count() as u64;
        let times = [self.began_unix_ms, self.last_key_unix_ms];
        let numbers = [self.base.0, self.end.0, times[0], times[1], keys];
        numbers.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

impl TopicFile for KeysSnapshot {
    fn write(&self, out: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut crc = 0;
        let mut put = |bytes: &[u8]| {
            crc = crc32c(crc, bytes);
            out(bytes)
        };
        put(&self.head())?;
        put(self.rule.as_bytes())?;
        let mut piece = Vec::with_capacity(PIECE_KEYS * KEY_BYTES);
        for table in &self.tables {
            put(&table.head(self.boundary, &self.lost))?;
            for slot in table.keys(self.boundary, &self.lost) {
                piece.extend_from_slice(&slot.to_le_bytes());
                if piece.len() == PIECE_KEYS * KEY_BYTES {
                    put(&piece)?;
                    piece.clear();
                }
            }
            put(&piece)?;
            piece.clear();
        }
        out(&crc.to_le_bytes())
    }
}

/// The reason why a saved state cannot be used. Its text completes a sentence that begins with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedKeysError {
    /// The file is too short, or too long for what it says.
    Length,
    /// The file does not begin as a state does.
    Magic,
    /// The file has another version than this program knows.
    Version(u32),
    /// The file is not what was written.
    Crc,
    /// The file contradicts itself.
    Inconsistent,
}

impl fmt::Display for SavedKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedKeysError::Length => f.write_str("has not the length that it should have"),
            SavedKeysError::Magic => f.write_str("is no file of keys"),
            SavedKeysError::Version(version) => write!(f, "is of unknown version {version}"),
            SavedKeysError::Crc => f.write_str("does not agree with its CRC"),
            SavedKeysError::Inconsistent => f.write_str("contradicts itself"),
        }
    }
}

/// A saved state, borrowed from the bytes of its file.
#[derive(Debug, PartialEq, Eq)]
pub struct SavedKeys<'b> {
    rule: &'b str,
    secret: [u8; 16],
    boundary: Seq,
    tables: Vec<SavedTable<'b>>,
}

#[derive(Debug, PartialEq, Eq)]
struct SavedTable<'b> {
    base: Seq,
    end: Seq,
    began_unix_ms: u64,
    last_key_unix_ms: u64,
    keys: &'b [[u8; KEY_BYTES]],
}

impl<'b> SavedKeys<'b> {
    /// Reads a saved state.
    ///
    /// # Errors
    /// The bytes are no saved state, or are damaged, or come from a newer version.
    pub fn decode(bytes: &'b [u8]) -> Result<SavedKeys<'b>, SavedKeysError> {
        let (all, crc) = bytes
            .split_last_chunk::<CRC_BYTES>()
            .ok_or(SavedKeysError::Length)?;
        if !all.starts_with(MAGIC) {
            return Err(SavedKeysError::Magic);
        }
        let mut rest = &all[MAGIC.len()..];
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Err(SavedKeysError::Version(version));
        }
        if crc32c(0, all) != u32::from_le_bytes(*crc) {
            return Err(SavedKeysError::Crc);
        }
        let rule_bytes = u32::from_le_bytes(take(&mut rest)?);
        let secret = take(&mut rest)?;
        let boundary = Seq(number(&mut rest)?);
        let count = number(&mut rest)?;
        let rule = rest
            .split_off(..rule_bytes as usize)
            .ok_or(SavedKeysError::Length)?;
        let rule = std::str::from_utf8(rule).map_err(|_| SavedKeysError::Inconsistent)?;
        let mut tables = Vec::new();
        for _ in 0..count {
            tables.push(SavedTable::decode(&mut rest)?);
        }
        if !rest.is_empty() {
            return Err(SavedKeysError::Length);
        }
        let are_in_order = tables.is_sorted_by(|a, b| a.end <= b.base);
        if !are_in_order {
            return Err(SavedKeysError::Inconsistent);
        }
        Ok(SavedKeys {
            rule,
            secret,
            boundary,
            tables,
        })
    }

    /// The kind of the keys, in the words of the rule that they were saved with.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.rule
    }

    /// The seq from which the state names no message.
    #[must_use]
    pub fn boundary(&self) -> Seq {
        self.boundary
    }

    /// Returns the keys of the state, as many as the plan has room for. The oldest ones are forgotten first.
    pub(crate) fn restore(&self, now: Now, plan: Plan) -> KeyTables {
        let hasher = KeyHasher::new(self.secret);
        let mut keys = KeyTables::new(plan, hasher, clock_ms(now.mono));
        for table in &self.tables {
            let began_ms = clock_from_unix(now, table.began_unix_ms);
            let last_key_ms = clock_from_unix(now, table.last_key_unix_ms);
            let (base, end) = (table.base, table.end);
            let slots = table.keys.iter().copied().map(u128::from_le_bytes);
            let found = slots.filter_map(|slot| used(slot, base, end));
            let count = table.keys.len();
            keys.restore_table((base, began_ms, last_key_ms), count, found);
        }
        keys
    }
}

impl<'b> SavedTable<'b> {
    fn decode(rest: &mut &'b [u8]) -> Result<SavedTable<'b>, SavedKeysError> {
        let (base, end) = (number(rest)?, number(rest)?);
        let (began_unix_ms, last_key_unix_ms) = (number(rest)?, number(rest)?);
        let count = number(rest)?;
        let bytes = count
            .checked_mul(KEY_BYTES as u64)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .and_then(|bytes| rest.split_off(..bytes))
            .ok_or(SavedKeysError::Length)?;
        let is_possible = base <= end && end <= 1 << 54 && began_unix_ms <= last_key_unix_ms;
        if !is_possible {
            return Err(SavedKeysError::Inconsistent);
        }
        let (keys, _) = bytes.as_chunks();
        Ok(SavedTable {
            base: Seq(base),
            end: Seq(end),
            began_unix_ms,
            last_key_unix_ms,
            keys,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], SavedKeysError> {
    let (first, behind) = rest.split_first_chunk().ok_or(SavedKeysError::Length)?;
    *rest = behind;
    Ok(*first)
}

fn number(rest: &mut &[u8]) -> Result<u64, SavedKeysError> {
    Ok(u64::from_le_bytes(take(rest)?))
}

#[cfg(test)]
mod tests;
