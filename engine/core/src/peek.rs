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
}

/// The place in a list at which a peek goes on. Its numbers mean something to the list only; any numbers are harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeekPlace(pub u64, pub u64);

/// The bounds of one slice.
#[derive(Clone, Copy, Debug)]
pub struct PeekBudget {
    /// Messages of a slice.
    pub messages_max: usize,
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
    /// The place at which the list goes on. `None`: this is the end of the list.
    pub next: Option<PeekPlace>,
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

/// A message of a list, before its bytes are looked up.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) seq: Seq,
    pub(crate) attempts: u16,
    pub(crate) state: CandidateState,
    /// The place behind it.
    pub(crate) next: PeekPlace,
}

/// The state of a candidate, with times on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CandidateState {
    Waiting,
    Requeued,
    InFlight(crate::window::Entry),
    Due(std::time::Duration),
    DeferredFor(u32),
}

/// Candidates of a list, and where the list goes on.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    pub(crate) found: Vec<Candidate>,
    pub(crate) next: Option<PeekPlace>,
}

impl Candidates {
    pub(crate) fn push(
        &mut self,
        (seq, attempts): (Seq, u16),
        state: CandidateState,
        next: PeekPlace,
    ) {
        self.found.push(Candidate {
            seq,
            attempts,
            state,
            next,
        });
    }
}
