//! Takes dead letters out of their channel.

use super::Channel;
use crate::dead_letter_rules::DeadLetterRule;
use crate::dead_letters::{DeadLetter, DeadLetters};
use diskq_log::{Log, Run, SeqRange, Taken};
use std::sync::Arc;
use std::time::Duration;
use wire::frame::HEADER_BYTES;
use wire::id::Seq;

/// The most messages, and about the most bytes, that a channel sends in one turn.
const TURN_MESSAGES: usize = 64;
const TURN_BYTES: usize = 256 * 1024;

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

/// The reason why a channel sends no further dead letter in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LettersEnd {
    /// No message can leave now.
    Nothing,
    /// The turn's budget is spent. The next turn can take more.
    Turn,
    /// The letters of all channels that are on their way take too much memory. The channel is held until
    /// [`Channel::release_dead_letters`].
    Held,
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

impl Channel {
    /// Gives the channel a rule for its dead letters, before it has messages.
    pub(crate) fn set_dead_letters(&mut self, rule: Option<Arc<DeadLetterRule>>) {
        self.dead_letters = rule.map(|rule| Box::new(DeadLetters::new(rule)));
    }

    /// Takes messages that can leave for the dead-letter topic, as many as one turn and the shard's budget allow. They
    /// are still owed, until [`Channel::finish_dead_letter`].
    pub(crate) fn take_dead_letters(
        &mut self,
        log: &mut Log,
        budget: &mut LetterBudget,
        mut out: impl FnMut(DeadLetter),
    ) -> LettersEnd {
        let Some(dead) = self.dead_letters.as_mut().filter(|_| !self.paused) else {
            return LettersEnd::Nothing;
        };
        let (mut count, mut bytes) = (0, 0);
        while dead.may_send()
            && let Some(message) = dead.pop()
        {
            if count >= TURN_MESSAGES || bytes >= TURN_BYTES || !budget.is_left() {
                dead.put_back(message);
                return LettersEnd::Turn;
            }
            if budget.room == 0 {
                dead.put_back(message);
                dead.hold();
                return LettersEnd::Held;
            }
            let run = match log.take_run(message.range(), 1, u32::MAX) {
                Taken::Run(run) => run,
                Taken::Loading => {
                    // The channel is pumped when the message is there.
                    dead.put_back(message);
                    return LettersEnd::Nothing;
                }
                Taken::Damaged(_) => {
                    // The damage was counted and reported when it was found.
                    log.release(message.seq);
                    self.out_of_order.remove(message.seq);
                    count += 1;
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
                dead.put_back(message);
                count += 1;
                budget.skip();
                continue;
            }
            count += 1;
            bytes += body.len();
            budget.spend(body.len());
            let mut letter = dead.send(message, body);
            letter.wants_sync |= budget.room == 0;
            out(letter);
        }
        LettersEnd::Nothing
    }

    /// Lets dead letters leave again after [`LettersEnd::Held`].
    pub(crate) fn release_dead_letters(&mut self) {
        if let Some(dead) = &mut self.dead_letters {
            dead.release();
        }
    }

    /// Finishes a message that the dead-letter topic has on disk, as `stored`. Does nothing if the channel was emptied
    /// in the meantime.
    pub(crate) fn finish_dead_letter(
        &mut self,
        now: Duration,
        seq: Seq,
        stored: Seq,
        log: &mut Log,
    ) {
        let dead = self.dead_letters.as_mut();
        if dead.is_some_and(|dead| dead.finish(now, seq, stored)) {
            self.out_of_order.remove(seq);
            log.release_range(SeqRange::one(seq));
        }
    }

    /// Takes a message back that the dead-letter topic has refused. The channel sends no message for a while.
    pub(crate) fn return_dead_letter(&mut self, now: Duration, seq: Seq) {
        let dead = self.dead_letters.as_mut();
        if let Some(attempts) = dead.and_then(|dead| dead.give_back(now, seq)) {
            self.tell_scan(seq, attempts, None);
        }
    }
}

#[cfg(test)]
mod tests;
