//! [`ClientOutput`]: the answers that a connection is owed, in the order of its commands, and its unsent output.

use crate::dirty_set::Listed;
use crate::outbound::Outbound;
use crate::refusal::Refusal;
use diskq_log::Log;
use std::collections::VecDeque;
use std::time::Duration;
use wire::error::WireError;

/// The bytes that an answer counts for while it is held back, in addition to its frame: the entry in the queue. This
/// count bounds how many publishes of one client wait for a sync.
const HELD_REPLY_BYTES: usize = 32;

/// A connection whose socket is full has one heartbeat interval for these bytes, or for all of its output if that is
/// less. They are nsqd's default `output_buffer_size`, which nsqd writes under one deadline of the same length. Fewer
/// bytes do not extend the deadline. Kernels free room in pieces (up to 128 KiB on the loopback interface), so a
/// consumer may have to read that much before any bytes leave.
const PROGRESS_BYTES: u64 = 16 * 1024;

/// A command whose answer may be promised: a publish or a SUB. The verb selects the command's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// PUB
    Pub,
    /// MPUB
    Mpub,
    /// DPUB
    Dpub,
    /// SUB: its answer waits for the new channel to be recorded.
    Sub,
}

impl Verb {
    /// The command's spelling on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Pub => "PUB",
            Verb::Mpub => "MPUB",
            Verb::Dpub => "DPUB",
            Verb::Sub => "SUB",
        }
    }

    /// The error frame for a command that could not be carried out.
    pub(crate) fn failed(self, cause: &str) -> WireError {
        match self {
            Verb::Pub | Verb::Mpub | Verb::Dpub => WireError::pub_failed(self.name(), cause),
            Verb::Sub => WireError::sub_failed(cause),
        }
    }
}

/// Names one answer of a connection that is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(u64);

/// An answer in the order of its commands.
#[derive(Debug)]
enum Reply {
    Waiting(Verb),
    Ready(Vec<u8>),
    Failed(WireError),
}

impl Reply {
    fn is_known(&self) -> bool {
        !matches!(self, Reply::Waiting(_))
    }

    /// The bytes that this reply counts for while it is held back.
    fn bytes(&self) -> usize {
        HELD_REPLY_BYTES
            + match self {
                Reply::Waiting(_) => 0,
                Reply::Ready(frame) => frame.len(),
                Reply::Failed(error) => error.text.len(),
            }
    }
}

/// Output that the socket has not taken, and its deadline.
#[derive(Debug, Clone, Copy)]
struct Stuck {
    /// The time at which the current deadline began.
    since: Duration,
    /// The bytes that have to leave before the deadline.
    bytes_due: u64,
}

/// The result of filling in a promised answer.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// The text of the error frame, if the answer is an error.
    pub(super) error_text: Option<String>,
    /// A fatal error has left the queue: nothing follows it.
    pub(super) is_fatal: bool,
}

/// The output that is on its way to a connection, and the answers that are held back.
///
/// Invariants: replies leave in the order of their commands; `reply_bytes` is what those held back count for.
#[derive(Debug, Default)]
pub(crate) struct ClientOutput {
    /// The output that goes to the socket next.
    pub(crate) queue: Outbound,
    /// In the broker's `clients_to_flush`.
    pub(crate) in_to_flush: Listed,
    replies: VecDeque<Reply>,
    replies_gone: u64,
    /// The bytes that `replies` count for; see [`ANSWER_BYTES_MAX`](super::ANSWER_BYTES_MAX).
    reply_bytes: usize,
    stuck: Option<Stuck>,
}

impl ClientOutput {
    /// Returns whether anything is on its way to the client, or held back.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.replies.is_empty()
    }

    /// True when no answer is outstanding.
    pub(crate) fn all_answered(&self) -> bool {
        self.replies.is_empty()
    }

    /// Bytes of answers that have not left, including those that an earlier answer holds back.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.queue.answer_bytes() + self.reply_bytes
    }

    /// Copies the queued runs of the log into the connection's own buffer. Returns false if a copied frame was damaged:
    /// then the queue is empty.
    #[cold]
    #[must_use]
    pub(super) fn copy_runs(&mut self, log: &mut Log) -> bool {
        let are_whole = self.queue.copy_runs(log);
        if !are_whole {
            self.stuck = None;
        }
        are_whole
    }

    /// Sets the deadline of what is left, after the socket took `bytes` bytes.
    pub(crate) fn extend_deadline(&mut self, now: Duration, bytes: u64) {
        self.stuck = match self.stuck {
            _ if self.queue.is_empty() => None,
            Some(Stuck { since, bytes_due }) if bytes < bytes_due => Some(Stuck {
                since,
                bytes_due: bytes_due - bytes,
            }),
            _ => Some(Stuck {
                since: now,
                bytes_due: self.queue.bytes().min(PROGRESS_BYTES),
            }),
        };
    }

    /// True when too little output has left within `time`.
    pub(super) fn is_overdue(&self, now: Duration, time: Duration) -> bool {
        self.stuck
            .is_some_and(|stuck| now.saturating_sub(stuck.since) >= time)
    }

    /// Answers the current command with a complete frame.
    pub(super) fn reply(&mut self, frame: &[u8]) {
        if self.replies.is_empty() {
            self.queue.push_bytes(frame);
        } else {
            self.hold_back(Reply::Ready(frame.to_vec()));
        }
    }

    /// Answers the current command with an error.
    pub(super) fn reply_error(&mut self, error: WireError) {
        if self.replies.is_empty() {
            self.queue.push_with(|out| wire::encode::error(out, &error));
        } else {
            self.hold_back(Reply::Failed(error));
        }
    }

    fn hold_back(&mut self, reply: Reply) {
        self.reply_bytes += reply.bytes();
        self.replies.push_back(reply);
    }

    /// Promises an answer to the current command.
    pub(super) fn reply_later(&mut self, verb: Verb) -> Token {
        self.hold_back(Reply::Waiting(verb));
        Token(self.replies_gone + self.replies.len() as u64 - 1)
    }

    /// Fills in the promised answer. The answer, and later answers that are known, leave once no earlier answer is
    /// outstanding.
    pub(super) fn resolve(&mut self, token: Token, result: Result<(), &Refusal>) -> Resolved {
        let mut resolved = Resolved::default();
        let Some(at) = token.0.checked_sub(self.replies_gone) else {
            return resolved;
        };
        let at = at as usize;
        let Some(Reply::Waiting(verb)) = self.replies.get(at) else {
            panic!("a token is resolved once, while its reply waits");
        };
        let reply = match result {
            Ok(()) => Reply::Ready(wire::encode::OK.to_vec()),
            Err(refusal) => {
                let error = verb.failed(&refusal.to_string());
                resolved.error_text = Some(error.text.clone());
                Reply::Failed(error)
            }
        };
        self.reply_bytes += reply.bytes() - self.replies[at].bytes();
        self.replies[at] = reply;
        while let Some(reply) = self.replies.pop_front_if(|reply| reply.is_known()) {
            self.replies_gone += 1;
            self.reply_bytes -= reply.bytes();
            match reply {
                Reply::Ready(frame) => self.queue.push_bytes(&frame),
                Reply::Failed(error) => {
                    self.queue.push_with(|out| wire::encode::error(out, &error));
                    if error.is_fatal() {
                        // Later commands were carried out, but nothing follows a fatal error.
                        self.replies_gone += self.replies.len() as u64;
                        self.replies.clear();
                        self.reply_bytes = 0;
                        resolved.is_fatal = true;
                    }
                }
                Reply::Waiting(_) => unreachable!("its answer is not known"),
            }
        }
        resolved
    }

    /// Asserts the invariants written on the type.
    pub(super) fn check(&self) {
        self.queue.check();
        assert!(!self.replies.front().is_some_and(Reply::is_known));
        let held: usize = self.replies.iter().map(Reply::bytes).sum();
        assert_eq!(held, self.reply_bytes);
        assert!(self.stuck.is_none_or(|stuck| stuck.bytes_due > 0));
    }
}
