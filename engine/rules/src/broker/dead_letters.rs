//! Moves dead letters from their channels to the dead-letter topics, which may belong to any shard.
//!
//! ```text
//!   Channel::take_dead_letters ──► forwards[owner] ──► Topic::publish, and a waiter for the sync
//!   Channel::finish_dead_letter ◄── reply: stored ◄─────────┘
//!   Channel::return_dead_letter ◄── reply: refused
//! ```

use super::keeper::repeated_error;
use super::output::Output;
use super::{Broker, place};
use crate::channel::dead_letters::LetterBudget;
use crate::dead_letters::DeadLetter;
use crate::forward::{ForwardId, Sender};
use crate::ids::{ChannelId, TopicKey};
use crate::now::Now;
use crate::refusal::Refusal;
use crate::topic::Waiter;
use diskq_log::plant;
use wire::id::Seq;
use wire::name::TopicName;

/// The most topics whose held letters are released in one turn.
const RELEASED_MAX: usize = 64;

impl Broker {
    /// Sends dead letters of a topic to the shards of the dead-letter topics.
    pub(super) fn send_dead_letters(
        &mut self,
        topic: TopicKey,
        letters: Vec<(ChannelId, DeadLetter)>,
    ) {
        for (channel, letter) in letters {
            let to = TopicName::new(letter.to.as_bytes()).expect("a rule has a valid name");
            let owner = place(to.as_bytes(), self.options.shards);
            let seq = letter.seq;
            let sender = Sender::Channel {
                topic,
                channel,
                seq,
                stored: Seq(0),
            };
            self.letter_bytes += LetterBudget::bytes_of(letter.body.len());
            let batch = &mut self.forwards[owner.0 as usize];
            batch.push_dead_letter(sender, to, &letter.body, letter.wants_sync);
        }
    }

    /// Notes that a letter with a body of this size is not on its way any more.
    pub(super) fn letter_arrived(&mut self, body_bytes: usize) {
        self.letter_bytes -= LetterBudget::bytes_of(body_bytes);
    }

    /// Releases topics whose dead letters were held, if there is room for more letters on their way. While all the room
    /// is taken, answers are to come, and the turn of the next answer looks again.
    pub(super) fn release_letters(&mut self) {
        let mut left = RELEASED_MAX;
        while left > 0 && self.letter_bytes < self.options.dead_letter_bytes {
            let topics = &mut self.topics;
            let key = self
                .topics_to_release
                .pop_first(|key| Some(&mut topics.get_mut(key)?.in_to_release));
            let Some(key) = key else {
                return;
            };
            if let Some(topic) = self.topics.get_mut(key) {
                topic.release_letters();
                self.pump_later(key);
                left -= 1;
            }
        }
    }

    /// Delivers what this shard forwards to itself: dead letters, and the answers to them. Mail goes to other shards
    /// only.
    pub(super) fn deliver_own_forwards(&mut self) {
        let own = self.options.shard;
        if let Some(batch) = self.take_forwards(own) {
            self.publish_batch(&batch);
        }
        if let Some(replies) = self.take_forward_replies(own) {
            self.take_replies(replies);
        }
    }

    /// Requests the answer to a dead letter that was published just now. The answer comes after the sync, with any
    /// `--sync-every`. A power failure may take an acknowledged publish before its sync. It must not take a dead
    /// letter, which may have been synced in its old topic long ago.
    pub(super) fn answer_dead_letter(
        &mut self,
        key: TopicKey,
        id: ForwardId,
        upto: Seq,
        wants_sync: bool,
    ) {
        plant!(DeadLetterBeforeSync, return self.reply_forward(id, Ok(())));
        let topic = &mut self.topics[key];
        topic.waiters.add_for_sync(upto, Waiter::Forward(id));
        if wants_sync {
            topic.log.want_sync();
        }
    }

    /// Takes the answer to a dead letter: its seq in the dead-letter topic, or the refusal. Does nothing if the topic
    /// or channel was deleted meanwhile.
    pub(super) fn dead_letter_answered(
        &mut self,
        (key, channel_id, seq): (TopicKey, ChannelId, Seq),
        result: Result<Seq, &Refusal>,
    ) {
        let Some(topic) = self.topics.get_mut(key) else {
            return;
        };
        let name = topic.name.clone();
        let Some((channel, log)) = topic.find_channel_and_log(channel_id) else {
            return;
        };
        match result {
            Ok(stored) => {
                channel.finish_dead_letter(self.now.mono, seq, stored, log);
                self.letters_moved += u64::from(self.is_draining);
            }
            Err(refusal) => {
                plant!(
                    RefusedLetterForgotten,
                    channel.finish_dead_letter(self.now.mono, seq, seq, log)
                );
                channel.return_dead_letter(self.now.mono, seq);
                let (what, cause) = ("no dead letter can be stored", refusal.to_string());
                let to = channel.dead_letters.as_ref().map(|dead| dead.to().clone());
                let line = format!(
                    "TOPIC({name}) CHANNEL({}) ERROR: {what} in topic {}, they stay in the channel - {cause}",
                    channel.name,
                    to.as_deref().unwrap_or_default(),
                );
                self.out.push(repeated_error(what, &cause, line));
            }
        }
        topic.after_answer(channel_id);
        self.pump_later(key);
    }
}
