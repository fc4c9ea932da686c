//! [`KeysSave`]: the state of the save of a topic's keys: what is due, and which step it is in.
//!
//! ```text
//!   new keys ──► due ──► a snapshot, put together in slices ──► the keeper writes it ──► renamed
//!                 ▲                                                                        │
//!                 └──────────────── an interval later, if there are new keys ◄─────────────┘
//! ```
//!
//! A snapshot names only messages that a power failure cannot take back: those below the log's synced mark at its
//! beginning. If it named another message, a power failure could take the message and leave its key. The producer's
//! next try would be answered with OK, and the message would be lost.

use crate::content::generations::Generations;
use crate::content::saved::KeysSnapshot;
use std::time::Duration;
use wire::id::Seq;

/// The least time between the end of a write and the next snapshot.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Bytes that are written per second, at most, on average: 4 MiB. A file of 16 MiB is written every 14 s.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// Slots of the table that count as one entry of a turn's work. Copying 64 slots takes some 50 ns.
pub(super) const SLOTS_PER_ENTRY: usize = 64;

/// The save of a topic's keys, in their file.
#[derive(Debug, Default)]
pub(super) struct KeysSave {
    pub(super) step: KeysSaveStep,
    /// When the next snapshot is due. `None`: there are no new keys.
    pub(super) due: Option<Duration>,
    /// The boundary of the last snapshot: all messages below have their keys in it.
    pub(super) saved_boundary: Seq,
    /// A graceful stop has asked for the last file.
    pub(super) is_last: bool,
}

/// The progress of the save.
#[derive(Debug, Default)]
pub(super) enum KeysSaveStep {
    /// No save is under way.
    #[default]
    Idle,
    /// The snapshot is being put together.
    Snapshot(Box<KeysSnapshot>),
    /// The keeper has the snapshot.
    Writing,
}

/// The shortest time between two saves of the keys.
pub(super) fn interval(keys: &Generations) -> Duration {
    INTERVAL_MIN + Duration::from_millis(keys.bytes() * 1000 / BYTES_PER_SECOND)
}

impl KeysSave {
    /// Makes a snapshot due in some time, unless one is due. Returns when it is due. `None`: no timer is needed.
    pub(super) fn make_snapshot_due(
        &mut self,
        mono: Duration,
        keys: &Generations,
    ) -> Option<Duration> {
        if self.due.is_some() {
            return None;
        }
        self.due = Some(mono + interval(keys));
        self.next_timeout()
    }

    /// Returns when the next snapshot is due.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.due.filter(|_| matches!(self.step, KeysSaveStep::Idle))
    }
}
