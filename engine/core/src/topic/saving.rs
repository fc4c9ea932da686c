//! [`Saving`]: when the keys of a topic are written to their file.
//!
//! ```text
//!   new keys ──► due ──► a draft, put together in slices ──► the keeper writes it ──► renamed
//!                 ▲                                                                     │
//!                 └──────────────── an interval later, if there are new keys ◄──────────┘
//! ```
//!
//! A draft names only messages that a power failure cannot take back: those below the log's synced mark at its beginning.
//! If it named another message, a power failure could take the message and leave its key. The producer's next try would
//! be answered with OK, and the message would be lost.

use crate::dedup::generations::Generations;
use crate::dedup::saved::KeysDraft;
use std::time::Duration;
use wire::id::Seq;

/// The least time between the end of a write and the next draft.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Bytes that are written per second, at most, on average: 4 MiB. A file of 16 MiB is written every 14 s.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// Slots of the table that count as one entry of a turn's work. Copying 64 slots takes some 50 ns.
pub(super) const SLOTS_PER_ENTRY: usize = 64;

/// The state of a topic's file of keys.
#[derive(Debug, Default)]
pub(super) struct Saving {
    pub(super) step: Step,
    /// When the next draft is due. `None`: there are no new keys.
    pub(super) due: Option<Duration>,
    /// All messages below have their keys in the last draft.
    pub(super) saved_upto: Seq,
    /// A graceful stop has asked for the last file.
    pub(super) is_last: bool,
}

#[derive(Debug, Default)]
pub(super) enum Step {
    #[default]
    Idle,
    /// The draft is being put together.
    Draft(Box<KeysDraft>),
    /// The keeper has the draft.
    Writing,
}

/// The shortest time between two saves of the keys.
pub(super) fn interval(keys: &Generations) -> Duration {
    INTERVAL_MIN + Duration::from_millis(keys.bytes() * 1000 / BYTES_PER_SECOND)
}

impl Saving {
    /// Makes a draft due in some time, unless one is due. Returns when it is due. `None`: no timer is needed.
    pub(super) fn make_draft_due(
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

    /// Returns when the next draft is due.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.due.filter(|_| matches!(self.step, Step::Idle))
    }
}
