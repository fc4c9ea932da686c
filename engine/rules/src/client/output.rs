//! [`ClientOutput`]: the answers that a connection is owed, in the order of its commands, and its unsent output.

use crate::dirty_set::Listed;
use crate::output::Refusal;
use diskq_log::{Log, Run};
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

/// One contiguous piece of output.
#[derive(Debug, Clone, Copy)]
pub enum Piece {
    /// The next `n` bytes of the buffer: answers and heartbeats.
    Buffer(usize),
    /// The next `n` bytes of the buffer: headers of redelivered messages, and messages that are not lent.
    Message(usize),
    /// Bytes of the subscribed topic's log.
    Run(Run),
}

/// The output of one connection, in order: bytes of the connection's own, and runs of a topic's log.
///
/// ```text
///   pieces:  [buffer 10][run 12,800 B of segment 7][header 34][run 166 B][buffer 15]
///   buffer:  OK frame ...                          header of a redelivery    heartbeat
/// ```
///
/// A first delivery is a run: a reference into the mapped segment, whatever the number of messages.
/// The kernel makes the only copy. The owner of the log pins the segment for as long as a run is queued here. Once a
/// sync of the log has failed, the pages of the log may change: queued runs are copied then, and later runs are copied
/// when they are delivered.
///
/// Invariants: the buffer and message pieces add up to what the buffer holds unsent; no piece is empty; `bytes`
/// is the sum of all pieces, `answer_bytes` that of the buffer pieces.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    buffer: Vec<u8>,
    buffer_sent: usize,
    pieces: VecDeque<Piece>,
    bytes: u64,
    answer_bytes: usize,
}

/// A buffer that grew beyond this for a big response is given back once it is empty.
const BUFFER_KEPT_BYTES: usize = 16 * 1024;

impl Outbound {
    /// Bytes not yet sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True when everything was sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes not yet sent that belong to no message.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Queues the header of a redelivered message, whose body follows as a run.
    pub(crate) fn push_header(&mut self, header: &[u8]) {
        self.buffer.extend_from_slice(header);
        self.bytes += header.len() as u64;
        self.push_message_piece(header.len());
    }

    /// Queues bytes of our own: responses, errors, heartbeats.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.push_buffer_piece(bytes.len());
    }

    /// Lets `write` append to the buffer.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.buffer.len();
        write(&mut self.buffer);
        self.push_buffer_piece(self.buffer.len() - before);
    }

    /// Queues a run. Returns true when it became a piece of its own, which the caller must pin;
    /// false when it continues the piece before it, which is pinned already.
    #[must_use]
    pub(crate) fn push_run(&mut self, run: Run) -> bool {
        self.bytes += u64::from(run.end - run.start);
        if let Some(Piece::Run(last)) = self.pieces.back_mut() {
            let follows = last.first.offset(u64::from(last.count)) == run.first;
            if follows && last.end == run.start {
                last.end = run.end;
                last.count += run.count;
                return false;
            }
        }
        self.pieces.push_back(Piece::Run(run));
        true
    }

    /// The pieces in order, each with its bytes if they are the buffer's own.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Piece, &[u8])> {
        let mut at = self.buffer_sent;
        self.pieces.iter().map(move |piece| match *piece {
            Piece::Buffer(bytes) | Piece::Message(bytes) => {
                let slice = &self.buffer[at..at + bytes];
                at += bytes;
                (*piece, slice)
            }
            Piece::Run(_) => (*piece, &[][..]),
        })
    }

    /// Notes that the first `bytes` bytes were sent. `unpin` gets each run that is done with.
    ///
    /// # Panics
    /// If more was sent than was queued.
    pub(crate) fn sent(&mut self, mut bytes: u64, mut unpin: impl FnMut(Run)) {
        assert!(bytes <= self.bytes, "sent what was queued");
        self.bytes -= bytes;
        while bytes > 0 {
            let piece = self.pieces.front_mut().expect("bytes counts the pieces");
            let piece_bytes = match piece {
                Piece::Buffer(left) | Piece::Message(left) => *left as u64,
                Piece::Run(run) => u64::from(run.end - run.start),
            };
            let sent = bytes.min(piece_bytes);
            bytes -= sent;
            if let Piece::Buffer(_) = piece {
                self.answer_bytes -= sent as usize;
            }
            match piece {
                Piece::Buffer(left) | Piece::Message(left) => {
                    *left -= sent as usize;
                    self.buffer_sent += sent as usize;
                }
                // At most the run's own length, which has 32 bits.
                // `first` and `count` keep naming the whole run: they find the segment.
                Piece::Run(run) => run.start += sent as u32,
            }
            if sent == piece_bytes
                && let Some(Piece::Run(run)) = self.pieces.pop_front()
            {
                unpin(run);
            }
        }
        if self.buffer_sent == self.buffer.len() {
            self.buffer.clear();
            self.buffer_sent = 0;
            self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        } else if self.buffer_sent > BUFFER_KEPT_BYTES && self.buffer_sent * 2 > self.buffer.len() {
            self.buffer.drain(..self.buffer_sent);
            self.buffer_sent = 0;
        }
    }

    /// Drops what is queued, for a connection that is gone. `unpin` gets each run.
    pub(crate) fn clear(&mut self, mut unpin: impl FnMut(Run)) {
        for piece in std::mem::take(self).pieces {
            if let Piece::Run(run) = piece {
                unpin(run);
            }
        }
    }

    /// Copies every queued run into the buffer and unpins it, for a log whose bytes may change from now on.
    /// Returns false if a frame is not whole any more: nothing is queued then.
    #[cold]
    #[must_use]
    pub(crate) fn copy_runs(&mut self, log: &mut Log) -> bool {
        let is_run = |piece: &Piece| matches!(piece, Piece::Run(_));
        let Some(first) = self.pieces.iter().position(is_run) else {
            return true;
        };
        let pieces = self.pieces.split_off(first);
        let kept: usize = self.pieces().map(|(_, bytes)| bytes.len()).sum();
        let tail = self.buffer.split_off(self.buffer_sent + kept);
        let mut tail = &tail[..];
        let mut are_whole = true;
        for piece in pieces {
            match piece {
                Piece::Buffer(bytes) | Piece::Message(bytes) => {
                    let (slice, rest) = tail.split_at(bytes);
                    self.buffer.extend_from_slice(slice);
                    tail = rest;
                    match piece {
                        Piece::Message(_) => self.push_message_piece(bytes),
                        _ => self.pieces.push_back(piece),
                    }
                }
                Piece::Run(run) => {
                    are_whole = are_whole && log.copy_run(&run, &mut self.buffer);
                    self.push_message_piece((run.end - run.start) as usize);
                    log.unpin(run.first);
                }
            }
        }
        if !are_whole {
            *self = Outbound::default();
        }
        are_whole
    }

    /// Returns the number of runs that are queued, each of which is pinned once.
    pub(crate) fn run_count(&self) -> usize {
        let is_run = |piece: &&Piece| matches!(piece, Piece::Run(_));
        self.pieces.iter().filter(is_run).count()
    }

    /// True when a run is queued: such output cannot leave its shard.
    pub(crate) fn holds_runs(&self) -> bool {
        self.run_count() > 0
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        let (mut answers, mut messages, mut all) = (0, 0, 0);
        for piece in &self.pieces {
            let bytes = match piece {
                Piece::Buffer(bytes) => {
                    answers += *bytes;
                    *bytes as u64
                }
                Piece::Message(bytes) => {
                    messages += *bytes;
                    *bytes as u64
                }
                Piece::Run(run) => u64::from(run.end - run.start),
            };
            assert!(bytes > 0, "no piece is empty");
            all += bytes;
        }
        assert_eq!(answers, self.answer_bytes);
        assert_eq!(answers + messages, self.buffer.len() - self.buffer_sent);
        assert_eq!(all, self.bytes);
    }

    fn push_message_piece(&mut self, bytes: usize) {
        match self.pieces.back_mut() {
            Some(Piece::Message(last)) => *last += bytes,
            _ => self.pieces.push_back(Piece::Message(bytes)),
        }
    }

    fn push_buffer_piece(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.bytes += bytes as u64;
        self.answer_bytes += bytes;
        match self.pieces.back_mut() {
            Some(Piece::Buffer(last)) => *last += bytes,
            _ => self.pieces.push_back(Piece::Buffer(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use wire::id::Seq;

    fn run(first: u64, count: u32, start: u32, end: u32) -> Run {
        Run {
            first: Seq(first),
            count,
            start,
            end,
        }
    }

    #[test]
    fn output_leaves_in_order_and_runs_are_unpinned_once() {
        let log: Vec<u8> = (0..200).collect();
        let mut outbound = Outbound::default();
        outbound.push_bytes(b"OK");
        assert!(outbound.push_run(run(1, 2, 0, 20)));
        assert!(
            !outbound.push_run(run(3, 1, 20, 30)),
            "contiguous: one piece, one pin"
        );
        outbound.push_bytes(b"he");
        outbound.push_bytes(b"re");
        outbound.push_header(b"head");
        assert!(outbound.push_run(run(9, 1, 100, 110)));
        outbound.check();
        let whole: Vec<u8> = [b"OK", &log[..30], b"herehead", &log[100..110]].concat();
        for step in 1..=whole.len() as u64 {
            let mut copy = Outbound {
                buffer: outbound.buffer.clone(),
                pieces: outbound.pieces.clone(),
                ..outbound
            };
            let (mut got, mut unpinned) = (Vec::new(), 0);
            while !copy.is_empty() {
                let mut flat = Vec::new();
                for (piece, bytes) in copy.pieces() {
                    match piece {
                        Piece::Buffer(_) | Piece::Message(_) => flat.extend_from_slice(bytes),
                        Piece::Run(r) => {
                            flat.extend_from_slice(&log[r.start as usize..r.end as usize])
                        }
                    }
                }
                let n = step.min(flat.len() as u64);
                got.extend_from_slice(&flat[..n as usize]);
                copy.sent(n, |_| unpinned += 1);
                copy.check();
            }
            assert_eq!((got, unpinned), (whole.clone(), 2), "step {step}");
        }
        let mut unpinned = 0;
        outbound.clear(|_| unpinned += 1);
        assert!(outbound.is_empty() && unpinned == 2);
    }
}
