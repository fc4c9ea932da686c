//! [`DeadLetters`]: the messages of a channel that have reached their attempts, on their way to the dead-letter topic.
//!
//! ```text
//!   REQ, timeout, due ──► waiting ──send──► sent ──stored and synced──► finished
//!                            ▲                │
//!                            └─── refused ────┘   and a delay before the next one is sent
//! ```
//!
//! A message is finished only after the dead-letter topic has stored and synced it. So no crash loses the message.
//! After a crash between these two steps, the message is in both topics.

use crate::dead_letter_rules::DeadLetterRule;
use crate::long_queue::LongQueue;
use crate::single_message::SingleMessage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::id::Seq;

/// The most messages of a channel that are on their way to the dead-letter topic at a time.
const SENT_MAX: usize = 1024;

/// No further message is sent while this many bytes of bodies are on their way.
const SENT_BYTES_MAX: usize = 1024 * 1024;

/// The delay after a refusal. Each further refusal doubles the delay, up to the longest one.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_LONGEST: Duration = Duration::from_secs(8);

/// The time between two log lines about the dead letters of a channel.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The state of a channel's dead letters.
///
/// Invariants: no message is both in `waiting` and in `sent`; the log holds each message of these two lists for the
/// channel; `sent_bytes` is the number of bytes of the bodies of `sent`.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    rule: Arc<DeadLetterRule>,
    waiting: LongQueue<SingleMessage>,
    sent: BTreeMap<Seq, Sent>,
    sent_bytes: usize,
    /// True while the letters of all channels of the shard that are on their way take too much memory.
    is_held: bool,
    /// The end of the delay after a refusal.
    retry_at: Option<Duration>,
    /// The delay after the next refusal.
    delay: Duration,
    /// Messages that went to the dead-letter topic.
    moved_count: u64,
    told: Told,
}

/// A message on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) attempts: u16,
    bytes: usize,
}

/// The state of the log lines.
#[derive(Debug, Default)]
struct Told {
    /// The number of moved messages that no log line has counted yet.
    untold: u64,
    /// The last of these messages: its seqs here and in the dead-letter topic.
    last: (Seq, Seq),
    /// The time of the next line, if something is to be told.
    next_at: Option<Duration>,
    /// No line comes before this time.
    not_before: Duration,
}

/// A message for the dead-letter topic.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub(crate) seq: Seq,
    pub(crate) to: Arc<str>,
    pub(crate) body: Vec<u8>,
    /// True if the channel sends no further message until messages are synced in the dead-letter topic. Then the sync
    /// should not wait for --sync-timeout.
    pub(crate) wants_sync: bool,
}

/// The messages that were moved since the last log line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MovedLetters {
    pub(crate) count: u64,
    pub(crate) attempts_max: u16,
    /// The last message's seqs: in its topic, and in the dead-letter topic.
    pub(crate) last: (Seq, Seq),
}

impl DeadLetters {
    pub(crate) fn new(rule: Arc<DeadLetterRule>) -> DeadLetters {
        DeadLetters {
            rule,
            waiting: LongQueue::default(),
            sent: BTreeMap::new(),
            sent_bytes: 0,
            is_held: false,
            retry_at: None,
            delay: RETRY_FIRST,
            moved_count: 0,
            told: Told::default(),
        }
    }

    /// The name of the dead-letter topic.
    pub(crate) fn to(&self) -> &Arc<str> {
        self.rule.to()
    }

    /// Messages that went to the dead-letter topic.
    pub(crate) fn moved_count(&self) -> u64 {
        self.moved_count
    }

    /// The number of messages that are to go to the dead-letter topic, including those that are on their way.
    pub(crate) fn count(&self) -> u64 {
        self.waiting.len() as u64 + self.sent.len() as u64
    }

    /// The messages that are not on their way.
    pub(crate) fn waiting(&self) -> &LongQueue<SingleMessage> {
        &self.waiting
    }

    /// The messages on their way, from `seq` on.
    pub(crate) fn sent_from(&self, seq: Seq) -> impl Iterator<Item = (Seq, Sent)> + '_ {
        self.sent.range(seq..).map(|(seq, sent)| (*seq, *sent))
    }

    /// The seqs of all messages.
    pub(crate) fn seqs(&self) -> impl Iterator<Item = Seq> {
        let waiting = self.waiting.iter().map(|message| message.seq);
        waiting.chain(self.sent.keys().copied())
    }

    /// Puts a message back into the queue of its channel, or among the dead letters if it has reached its attempts.
    #[inline]
    pub(crate) fn sort(
        dead_letters: &mut Option<Box<DeadLetters>>,
        requeued: &mut LongQueue<SingleMessage>,
        message: SingleMessage,
    ) {
        match dead_letters {
            Some(dead) if message.attempts >= dead.rule.attempts_max() => {
                dead.waiting.push_back(message);
            }
            _ => requeued.push_back(message),
        }
    }

    fn is_full(&self) -> bool {
        self.sent.len() >= SENT_MAX || self.sent_bytes >= SENT_BYTES_MAX
    }

    /// True if a message can leave.
    pub(crate) fn may_send(&self) -> bool {
        !self.waiting.is_empty() && self.retry_at.is_none() && !self.is_full() && !self.is_held
    }

    /// Lets no message leave until [`DeadLetters::release`].
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// Ends [`DeadLetters::hold`].
    pub(crate) fn release(&mut self) {
        self.is_held = false;
    }

    /// Takes the next message out of those that wait. The caller sends it, or puts it back.
    pub(crate) fn pop(&mut self) -> Option<SingleMessage> {
        self.waiting.pop_front()
    }

    /// Puts the message that was taken last back in its place.
    pub(crate) fn put_back(&mut self, message: SingleMessage) {
        self.waiting.push_front(message);
    }

    /// Notes that a message is on its way. Returns the message for the dead-letter topic.
    pub(crate) fn send(&mut self, message: SingleMessage, body: Vec<u8>) -> DeadLetter {
        let SingleMessage { seq, attempts } = message;
        let bytes = body.len();
        self.sent_bytes += bytes;
        self.sent.insert(seq, Sent { attempts, bytes });
        DeadLetter {
            seq,
            to: self.to().clone(),
            body,
            wants_sync: self.is_full(),
        }
    }

    fn end_sent(&mut self, seq: Seq) -> Option<Sent> {
        let sent = self.sent.remove(&seq)?;
        self.sent_bytes -= sent.bytes;
        Some(sent)
    }

    /// Notes that the dead-letter topic has a message on disk, as `stored`. Returns false if the message is not on its
    /// way, because the channel was emptied.
    pub(crate) fn finish(&mut self, now: Duration, seq: Seq, stored: Seq) -> bool {
        if self.end_sent(seq).is_none() {
            return false;
        }
        self.delay = RETRY_FIRST;
        self.moved_count += 1;
        self.told.untold += 1;
        self.told.last = (seq, stored);
        let at = self.told.not_before.max(now);
        self.told.next_at.get_or_insert(at);
        true
    }

    /// Takes a message back that the dead-letter topic has refused, and begins the delay. Returns the message's
    /// attempts. `None`: the message is not on its way.
    pub(crate) fn give_back(&mut self, now: Duration, seq: Seq) -> Option<u16> {
        let Sent { attempts, .. } = self.end_sent(seq)?;
        self.waiting.push_back(SingleMessage { seq, attempts });
        if self.retry_at.is_none() {
            self.retry_at = Some(now + self.delay);
            self.delay = (self.delay * 2).min(RETRY_LONGEST);
        }
        Some(attempts)
    }

    /// Ends the delay after a refusal, if its time has come. Returns true if it has.
    pub(crate) fn end_delay(&mut self, now: Duration) -> bool {
        self.retry_at.take_if(|at| *at <= now).is_some()
    }

    /// Returns when the delay ends or a log line is due, whichever is earlier.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.retry_at.into_iter().chain(self.told.next_at).min()
    }

    /// Returns the messages that were moved since the last call, once a second at most.
    pub(crate) fn take_moved(&mut self, now: Duration) -> Option<MovedLetters> {
        self.told.next_at.take_if(|at| *at <= now)?;
        self.told.not_before = now + TELL_EVERY;
        Some(MovedLetters {
            count: std::mem::take(&mut self.told.untold),
            attempts_max: self.rule.attempts_max(),
            last: self.told.last,
        })
    }

    /// Removes all messages.
    pub(crate) fn take_all(&mut self) -> LongQueue<SingleMessage> {
        let mut all = std::mem::take(&mut self.waiting);
        for (seq, Sent { attempts, .. }) in std::mem::take(&mut self.sent) {
            all.push_back(SingleMessage { seq, attempts });
        }
        self.sent_bytes = 0;
        all
    }

    /// Asserts the invariants written on the type.
    pub(crate) fn check(&self) {
        self.waiting.check();
        let bytes: usize = self.sent.values().map(|sent| sent.bytes).sum();
        assert_eq!(bytes, self.sent_bytes);
        let mut waiting = self.waiting.iter();
        assert!(waiting.all(|message| message.attempts >= self.rule.attempts_max()));
    }
}
