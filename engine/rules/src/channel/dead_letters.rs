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

use super::seq_set::SeqSet;
use super::single_messages::SingleMessage;
use crate::long_queue::LongQueue;
use diskq_log::{Log, Run, Taken};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::HEADER_BYTES;
use wire::id::Seq;
use wire::name::{ChannelName, TopicName};
use wire::topic_rules::{RuleOrderError, matches};

/// The most messages, and about the most bytes, that all channels of a shard send in one turn. Each letter is copied and
/// appended, so without this bound a turn of thousands of channels would hold up all clients.
const SHARD_TURN_MESSAGES: usize = 256;
const SHARD_TURN_BYTES: usize = 1024 * 1024;

/// The bytes that the dead letters of a shard's channels take on their way, about. A letter is a copy of its message until
/// the log of the dead-letter topic has taken the letter. 32 MiB keep a disk busy, and thousands of channels with large
/// messages do not fill the memory.
pub const DEAD_LETTER_BYTES: usize = 32 << 20;

/// The bytes that a letter on its way takes beside its body: the entries of the batch, of the waiters and of the
/// channel's list.
const LETTER_BYTES: usize = 256;

/// The dead letters that the channels of a shard may still send in this turn.
#[derive(Debug)]
pub(crate) struct LetterBudget {
    messages: usize,
    bytes: usize,
    /// The bytes that more letters on their way may take, in all turns together.
    room: usize,
}

/// The dead letters of a shard's channels that are on their way.
#[derive(Debug, Default)]
pub(crate) struct LettersUnderWay {
    /// The bytes that they take, about.
    pub(crate) bytes: usize,
    /// Letters that were stored in their topics since the last look of a drain.
    pub(crate) moved_count: u64,
}

impl LetterBudget {
    /// The budget of one turn, if the letters on their way take `under_way` bytes and may take `bytes_max`.
    pub(crate) fn new(under_way: usize, bytes_max: usize) -> LetterBudget {
        LetterBudget {
            messages: SHARD_TURN_MESSAGES,
            bytes: SHARD_TURN_BYTES,
            room: bytes_max.saturating_sub(under_way),
        }
    }

    /// Returns the bytes that a letter on its way takes.
    pub(crate) fn bytes_of(body_bytes: usize) -> usize {
        body_bytes + LETTER_BYTES
    }

    /// True if another message may be sent.
    pub(crate) fn is_left(&self) -> bool {
        self.messages > 0 && self.bytes > 0
    }

    /// Counts a message that leaves.
    fn spend(&mut self, body_bytes: usize) {
        self.skip();
        self.bytes = self.bytes.saturating_sub(body_bytes);
        let bytes = LetterBudget::bytes_of(body_bytes);
        self.room = self.room.saturating_sub(bytes);
    }

    /// Counts a message that was looked at and cannot leave.
    fn skip(&mut self) {
        self.messages = self.messages.saturating_sub(1);
    }
}

/// The most messages of a channel that are on their way to the dead-letter topic at a time.
const SENT_MAX: usize = 1024;

/// No further message is sent while this many bytes of bodies are on their way.
const SENT_BYTES_MAX: usize = 1024 * 1024;

/// The delay after a refusal.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The delay while the letters of all channels of the shard take too much memory.
const ROOM_DELAY: Duration = Duration::from_millis(250);

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
    /// The end of the delay.
    retry_at: Option<Duration>,
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
            retry_at: None,
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
        !self.waiting.is_empty() && self.retry_at.is_none() && !self.is_full()
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

    /// Takes messages that can leave, as many as the shard's budget allows. They are still owed, until
    /// [`DeadLetters::finish`]. A damaged message is released, and leaves `out_of_order`. Returns true if the next turn can
    /// take more.
    pub(super) fn take(
        &mut self,
        now: Duration,
        out_of_order: &mut SeqSet,
        log: &mut Log,
        budget: &mut LetterBudget,
        mut out: impl FnMut(DeadLetter),
    ) -> bool {
        while self.may_send()
            && let Some(message) = self.pop()
        {
            if !budget.is_left() {
                self.put_back(message);
                return true;
            }
            if budget.room == 0 {
                self.put_back(message);
                self.retry_at = Some(now + ROOM_DELAY);
                return false;
            }
            let run = match log.take_run(message.range(), 1, u32::MAX) {
                Taken::Run(run) => run,
                Taken::Loading => {
                    // The channel is pumped when the message is there.
                    self.put_back(message);
                    return false;
                }
                Taken::Damaged(_) => {
                    // The damage was counted and reported when it was found.
                    log.release(message.seq);
                    out_of_order.remove(message.seq);
                    budget.skip();
                    continue;
                }
            };
            let mut body = Vec::new();
            let without_header = Run {
                start: run.start + HEADER_BYTES as u32,
                ..run
            };
            if !log.copy_run(&without_header, &mut body) {
                // Without a failed sync, only the copy is checked.
                log.give_up(message.seq);
                self.put_back(message);
                budget.skip();
                continue;
            }
            budget.spend(body.len());
            let mut letter = self.send(message, body);
            letter.wants_sync |= budget.room == 0;
            out(letter);
        }
        false
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
        self.retry_at.get_or_insert(now + RETRY_DELAY);
        Some(attempts)
    }

    /// Ends the delay, if its time has come. Returns true if it has.
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

/// One rule: the patterns of the channels for which it holds, the number of attempts, and the dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRule {
    topic: Box<str>,
    channel: Box<str>,
    attempts_max: u16,
    to: Arc<str>,
}

/// The rules for dead letters. The first rule that fits a channel counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterRules {
    rules: Vec<Arc<DeadLetterRule>>,
}

/// The reason why a rule cannot be added. Its text completes a sentence that begins with the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterError {
    /// The text is no name, and no name with `*` in it.
    BadPattern(String),
    /// The rule gives no delivery at all.
    NoAttempts,
    /// The dead-letter topic is not a valid name.
    BadTopic(String),
    /// The dead-letter topic is ephemeral. Such a topic ends with its last consumer, and its messages end with it.
    Ephemeral(String),
    /// The dead-letter topic is the topic of this rule or of an earlier one. If every rule comes before those of its
    /// dead-letter topic, no dead letter goes round in a circle.
    Circle(String),
}

impl std::fmt::Display for DeadLetterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeadLetterError::BadPattern(text) => {
                write!(
                    f,
                    "has {text:?}, which is no name, and no name with * in it"
                )
            }
            DeadLetterError::NoAttempts => f.write_str("must allow 1 to 65535 attempts"),
            DeadLetterError::BadTopic(text) => {
                write!(f, "has the topic {text:?}, which is not a valid name")
            }
            DeadLetterError::Ephemeral(text) => write!(
                f,
                "would lose messages: {text} is ephemeral, so it ends with its last consumer"
            ),
            DeadLetterError::Circle(to) => write!(
                f,
                "may send dead letters round in a circle: {to} has a rule of its own, which must stand behind this one"
            ),
        }
    }
}

impl DeadLetterRule {
    /// True if the rule is for one topic only.
    fn has_exact_topic(&self) -> bool {
        !self.topic.contains('*')
    }

    /// The channels of the rule: `<topic>/<channel>`.
    fn place(&self) -> String {
        format!("{}/{}", self.topic, self.channel)
    }

    /// Deliveries that a message gets. After them, the message goes to the dead-letter topic.
    pub(crate) fn attempts_max(&self) -> u16 {
        self.attempts_max
    }

    /// The name of the dead-letter topic.
    pub(crate) fn to(&self) -> &Arc<str> {
        &self.to
    }
}

impl DeadLetterRules {
    /// Adds a rule for the channels that fit the patterns. In a pattern, `*` stands for any number of characters.
    /// `attempts_max` is the number of deliveries that a message gets, and `to` is the dead-letter topic.
    ///
    /// # Errors
    /// The rule is wrong, or may make a circle with the earlier ones.
    pub fn add(
        &mut self,
        topic: &str,
        channel: &str,
        attempts_max: u16,
        to: &str,
    ) -> Result<(), DeadLetterError> {
        let bad = |text: &str| DeadLetterError::BadPattern(text.to_owned());
        // A pattern is right if some characters in the place of each * make it a name.
        let example = topic.replace('*', "x");
        TopicName::new(example.as_bytes()).ok_or_else(|| bad(topic))?;
        let example = channel.replace('*', "x");
        ChannelName::new(example.as_bytes()).ok_or_else(|| bad(channel))?;
        if attempts_max == 0 {
            return Err(DeadLetterError::NoAttempts);
        }
        let name = TopicName::new(to.as_bytes())
            .ok_or_else(|| DeadLetterError::BadTopic(to.to_owned()))?;
        if name.is_ephemeral() {
            return Err(DeadLetterError::Ephemeral(to.to_owned()));
        }
        let rule = Arc::new(DeadLetterRule {
            topic: topic.into(),
            channel: channel.into(),
            attempts_max,
            to: to.into(),
        });
        // A rule with a * holds for no dead-letter topic, so it is in no circle.
        let mut earlier = self.rules.iter();
        let is_source = topic == to || earlier.any(|rule| &*rule.topic == to);
        if rule.has_exact_topic() && is_source {
            return Err(DeadLetterError::Circle(to.to_owned()));
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Checks that each rule can count. A rule never counts if an earlier one fits all its channels. Call this when all
    /// rules are there: a `*` does not stand for dead-letter topics, and a later rule may make a topic one.
    ///
    /// # Errors
    /// A rule never counts.
    pub fn check_order(&self) -> Result<(), RuleOrderError> {
        for (index, later) in self.rules.iter().enumerate() {
            let covers = |earlier: &&Arc<DeadLetterRule>| {
                self.fits_topic(earlier, &later.topic) && matches(&earlier.channel, &later.channel)
            };
            if let Some(earlier) = self.rules[..index].iter().find(covers) {
                return Err(RuleOrderError {
                    earlier: earlier.place(),
                    later: later.place(),
                    chosen_for: "channels",
                });
            }
        }
        Ok(())
    }

    /// Returns true if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rule of a channel.
    pub(crate) fn of(&self, topic: &str, channel: &str) -> Option<Arc<DeadLetterRule>> {
        let mut rules = self.rules.iter();
        let fits = |rule: &&Arc<DeadLetterRule>| {
            self.fits_topic(rule, topic) && matches(&rule.channel, channel)
        };
        rules.find(fits).cloned()
    }

    /// Returns whether a pattern fits a topic. A pattern with `*` fits no dead-letter topic. Otherwise `*` could not be
    /// used at all, because it would fit the dead-letter topic of its own rule.
    fn fits_topic(&self, rule: &DeadLetterRule, topic: &str) -> bool {
        matches(&rule.topic, topic) && (rule.has_exact_topic() || !self.is_dead_letter_topic(topic))
    }

    /// Returns true if a rule sends messages to the topic.
    pub(crate) fn is_dead_letter_topic(&self, topic: &str) -> bool {
        self.rules.iter().any(|rule| &*rule.to == topic)
    }
}

#[cfg(test)]
mod tests;
