//! Peeks: messages that are shown and not consumed. These are the values of a question and of its answer.
//!
//! ```text
//!   PeekQuestion ─► Broker::peek ─► PeekSlice: copies of frames in memory, places of messages on disk
//!        ▲                              │
//!        └──────────── next ────────────┘
//! ```
//!
//! A peek borrows the broker without the right to change it. So no attempt, order, depth or timeout changes, and no
//! segment is loaded.

use diskq_log::ColdMessage;
use wire::id::{MessageId, Seq};

/// The list that a peek goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeekFrom {
    /// Messages that wait for their first delivery, the next one first.
    #[default]
    Oldest,
    /// The same messages, the newest first.
    Newest,
    /// Messages in flight: first those that were left behind by all others, then all others, each by their age.
    InFlight,
    /// Deferred messages, the next one that is due first.
    Deferred,
    /// Messages that were requeued, timed out, or were deferred and are due: in the order of their next delivery.
    Requeued,
    /// The messages of the last three lists, one list after the other, that have had at least so many attempts.
    Attempts(u16),
    /// The messages of the topic's log behind a seq, whoever has them: the newest first, as far as they are in memory.
    Published {
        /// The messages behind this one. 0: all.
        since: Seq,
    },
}

/// The place in a list at which a peek goes on. Its numbers mean something to the list only; any numbers are harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeekPlace {
    /// The number of the list, if a peek goes through several.
    pub list: u8,
    /// The place in this list.
    pub at: (u64, u64),
}

impl PeekPlace {
    /// Returns a place of a peek that goes through a single list.
    #[must_use]
    pub const fn new(first: u64, second: u64) -> PeekPlace {
        PeekPlace {
            list: 0,
            at: (first, second),
        }
    }
}

/// The bounds of one slice.
#[derive(Clone, Copy, Debug)]
pub struct PeekBudget {
    /// Messages of a slice.
    pub messages_max: usize,
    /// Entries of lists that are gone through for a slice: messages, and free places between messages in flight.
    pub entries_max: usize,
    /// Bytes of frames that are copied. One message may exceed this bound.
    pub bytes_max: usize,
    /// Bytes of a frame that are copied; the rest is left out.
    pub frame_bytes_max: usize,
}

/// A question for one slice.
#[derive(Clone, Debug)]
pub struct PeekQuestion {
    /// The topic.
    pub topic: String,
    /// The channel. `None`: the messages that no channel has got yet.
    pub channel: Option<String>,
    /// The list.
    pub from: PeekFrom,
    /// The place at which the slice begins. `None`: the beginning of the list.
    pub place: Option<PeekPlace>,
    /// The bounds.
    pub budget: PeekBudget,
}

/// A slice of a list.
#[derive(Clone, Debug, Default)]
pub struct PeekSlice {
    /// The messages, in the order of the list.
    pub messages: Vec<PeekedMessage>,
    /// The number of messages that were passed over, because they have had too few attempts.
    pub passed: u64,
    /// The place at which the list goes on. `None`: this is the end of the list.
    pub next: Option<PeekPlace>,
    /// The end of the topic's log, if the list is [`PeekFrom::Published`].
    pub log_end: Option<LogEnd>,
}

/// The end of a topic's log, at the time of a peek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The newest message that the log has ever had. 0: there was none.
    pub newest: Seq,
    /// Its id. There may be no message with this id any more.
    pub newest_id: MessageId,
    /// The messages that were published since the start of the process.
    pub message_count: u64,
    /// Nothing is known of the number of messages below this seq: they were published before the start of the process. 0: the
    /// topic was made since.
    pub first: Seq,
}

/// A message as a peek finds it.
#[derive(Clone, Debug)]
pub struct PeekedMessage {
    /// Its place in the topic.
    pub seq: Seq,
    /// Its id.
    pub id: MessageId,
    /// Deliveries so far.
    pub attempts: u16,
    /// Its state in the channel or topic.
    pub state: PeekState,
    /// Its bytes, or where they are.
    pub frame: PeekedFrame,
    /// The place behind the message.
    pub next: PeekPlace,
}

/// The state of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeekState {
    /// It waits for its first delivery.
    Waiting,
    /// It waits for its next delivery.
    Requeued,
    /// A consumer has it. Times are in Unix nanoseconds.
    InFlight {
        /// The consumer's address and id. `None`: the consumer has gone.
        client: Option<(String, String)>,
        /// The time of the delivery.
        since_ns: u64,
        /// The time at which it times out.
        until_ns: u64,
    },
    /// It is due at this time, in Unix nanoseconds.
    DeferredUntil(u64),
    /// It is due this number of milliseconds after its channels have got it.
    DeferredFor(u32),
    /// It was published. Nothing is said of its attempts.
    Published {
        /// True if no channel has to deliver the message any more, and the topic has given it to all channels. `None` if
        /// the topic has too many channels to ask each of them.
        is_finished: Option<bool>,
    },
}

/// The bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeekedFrame {
    /// The beginning of the frame, and the length of the whole frame.
    Copied(Vec<u8>, usize),
    /// They are on disk.
    Cold(ColdMessage),
    /// They are damaged.
    Damaged,
    /// The log does not have them any more.
    Gone,
}

impl PeekedFrame {
    /// The number of bytes that were copied.
    pub(crate) fn copied_bytes(&self) -> usize {
        match self {
            PeekedFrame::Copied(bytes, _) => bytes.len(),
            _ => 0,
        }
    }
}

/// A message of a list, before its bytes are looked up.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) seq: Seq,
    pub(crate) attempts: u16,
    pub(crate) state: CandidateState,
    /// The place behind it.
    pub(crate) next: PeekPlace,
    /// The messages that were passed over before it.
    pub(crate) passed: u64,
}

/// The state of a candidate, with times on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CandidateState {
    Waiting,
    Requeued,
    InFlight(crate::window::Entry),
    Due(std::time::Duration),
    DeferredFor(u32),
    Published { is_finished: Option<bool> },
}

/// Candidates of a list, and where the list goes on.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    pub(crate) found: Vec<Candidate>,
    pub(crate) next: Option<PeekPlace>,
    /// The messages that were passed over.
    pub(crate) passed: u64,
    /// The number of the list, for places.
    pub(crate) list: u8,
    count_max: usize,
    entries_left: usize,
    attempts_min: u16,
}

impl Candidates {
    /// No candidates yet, and the bounds of those that come.
    pub(crate) fn new(budget: &PeekBudget, attempts_min: u16) -> Candidates {
        Candidates {
            count_max: budget.messages_max,
            entries_left: budget.entries_max,
            attempts_min,
            ..Candidates::default()
        }
    }

    /// True if a bound is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= self.count_max || self.entries_left == 0
    }

    /// Takes a message of the list, or passes over it. `next` is the place behind the message.
    pub(crate) fn take(
        &mut self,
        (seq, attempts): (Seq, u16),
        state: CandidateState,
        next: (u64, u64),
    ) {
        self.step();
        if attempts < self.attempts_min {
            self.passed += 1;
            return;
        }
        self.found.push(Candidate {
            seq,
            attempts,
            state,
            next: PeekPlace {
                list: self.list,
                at: next,
            },
            passed: self.passed,
        });
    }

    /// Goes past an entry of the list that is no message.
    pub(crate) fn step(&mut self) {
        self.entries_left = self.entries_left.saturating_sub(1);
    }

    /// Ends the slice before the entry at a place.
    pub(crate) fn stop_at(&mut self, at: (u64, u64)) {
        self.next = Some(PeekPlace {
            list: self.list,
            at,
        });
    }
}
