//! [`Seen`]: remembers recently stored messages, so that a message in several queues is stored
//! once.

use std::collections::HashMap;
use std::mem;

use wire::id::{MessageId, Seq};

use crate::nsqd_files::Record;

/// Fewest messages that are remembered. The table holds at most twice as many. The number is 7/8 of
/// a power of two, which fills the hash table. At 33 bytes for each, the table takes at most 70 MB,
/// whatever the backlog.
const COUNT: usize = 7 << 17;

/// The seq of a stored message, and the channels that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) seq: Seq,
    /// One bit for each channel, at the channel's index modulo 64.
    pub(super) channels: u64,
}

/// A table that forgets the older half when it is full. A forgotten message is stored again, which
/// costs space only: no channel gets a message twice for it.
pub(super) struct Seen {
    count_max: usize,
    young: HashMap<Key, Stored>,
    old: HashMap<Key, Stored>,
}

/// The original's id with the message's time, which makes a repeated id harmless.
type Key = (u64, u16, i64);

impl Default for Seen {
    fn default() -> Seen {
        Seen::with_count(COUNT)
    }
}

impl Seen {
    pub(super) fn with_count(count_max: usize) -> Seen {
        Seen {
            count_max,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// Returns the stored message of `record`, if it is known.
    pub(super) fn find(&mut self, record: &Record<'_>) -> Option<&mut Stored> {
        let key = key(record)?;
        // The lookup has two steps because of the borrow checker.
        if self.young.contains_key(&key) {
            return self.young.get_mut(&key);
        }
        self.old.get_mut(&key)
    }

    pub(super) fn insert(&mut self, record: &Record<'_>, stored: Stored) {
        let Some(key) = key(record) else { return };
        if self.young.len() >= self.count_max {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, stored);
    }
}

/// Returns the key of a message, or `None` if its id is not one of nsqd's. Such a message equals no
/// other.
fn key(record: &Record<'_>) -> Option<Key> {
    let (seq, node) = MessageId(record.id).decode()?;
    Some((seq.0, node, record.timestamp_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered() {
        let record = |n: u64| Record {
            timestamp_ns: 7,
            attempts: 0,
            id: MessageId::new(Seq(n), 1).0,
            body: b"",
        };
        let mut seen = Seen::with_count(10);
        for n in 1..=35 {
            let stored = Stored {
                seq: Seq(n + 100),
                channels: 1,
            };
            seen.insert(&record(n), stored);
        }
        let known = |seen: &mut Seen, n| seen.find(&record(n)).map(|stored| stored.seq.0);
        for n in 21..=35 {
            assert_eq!(known(&mut seen, n), Some(n + 100));
        }
        for n in 1..=20 {
            assert_eq!(known(&mut seen, n), None, "the table grows");
        }
        let odd = Record {
            id: *b"not an id at all",
            ..record(35)
        };
        seen.insert(
            &odd,
            Stored {
                seq: Seq(1),
                channels: 1,
            },
        );
        assert_eq!(seen.find(&odd), None);
        let later = Record {
            timestamp_ns: 8,
            ..record(35)
        };
        assert_eq!(seen.find(&later), None, "another message with the same id");
    }
}
