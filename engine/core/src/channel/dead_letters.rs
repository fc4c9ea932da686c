//! Takes dead letters out of their channel.

use super::Channel;
use crate::dead_letter_rules::DeadLetterRule;
use crate::dead_letters::{DeadLetter, DeadLetters};
use diskq_log::{Log, Run, SeqRange, Taken, planted::Bug, planted::is_planted};
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

/// The dead letters that the channels of a shard may still send in this turn.
#[derive(Debug)]
pub(crate) struct LetterBudget {
    messages: usize,
    bytes: usize,
}

impl LetterBudget {
    /// The budget of one turn.
    pub(crate) fn new() -> LetterBudget {
        LetterBudget {
            messages: SHARD_TURN_MESSAGES,
            bytes: SHARD_TURN_BYTES,
        }
    }

    /// True if another message may be sent.
    pub(crate) fn is_left(&self) -> bool {
        self.messages > 0 && self.bytes > 0
    }

    fn spend(&mut self, bytes: usize) {
        self.messages -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Channel {
    /// Gives the channel a rule for its dead letters, before it has messages.
    pub(crate) fn set_dead_letters(&mut self, rule: Option<Arc<DeadLetterRule>>) {
        self.dead_letters = rule.map(|rule| Box::new(DeadLetters::new(rule)));
    }

    /// Takes messages that can leave for the dead-letter topic, as many as one turn and the shard's budget allow. They
    /// are still owed, until [`Channel::finish_dead_letter`]. Returns true if the next turn can take more.
    pub(crate) fn take_dead_letters(
        &mut self,
        log: &mut Log,
        budget: &mut LetterBudget,
        mut out: impl FnMut(DeadLetter),
    ) -> bool {
        let Some(dead) = self.dead_letters.as_mut().filter(|_| !self.paused) else {
            return false;
        };
        let (mut count, mut bytes) = (0, 0);
        while dead.may_send()
            && let Some(message) = dead.pop()
        {
            if count >= TURN_MESSAGES || bytes >= TURN_BYTES || !budget.is_left() {
                dead.put_back(message);
                return true;
            }
            let run = match log.take_run(message.range(), 1, u32::MAX) {
                Taken::Run(run) => run,
                Taken::Loading => {
                    // The channel is pumped when the message is there.
                    dead.put_back(message);
                    return false;
                }
                Taken::Damaged(_) => {
                    // The damage was counted and reported when it was found.
                    log.release(message.seq);
                    self.out_of_order.remove(message.seq);
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
                continue;
            }
            count += 1;
            bytes += body.len();
            budget.spend(body.len());
            out(dead.send(message, body));
        }
        false
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
    pub(crate) fn return_dead_letter(&mut self, now: Duration, seq: Seq, log: &mut Log) {
        if is_planted(Bug::RefusedLetterForgotten) {
            return self.finish_dead_letter(now, seq, seq, log);
        }
        let dead = self.dead_letters.as_mut();
        if let Some(attempts) = dead.and_then(|dead| dead.give_back(now, seq)) {
            self.tell_scan(seq, attempts, None);
        }
    }
}

#[cfg(test)]
mod tests;
