//! The pump: what a topic does at the end of a turn, and which of its channels the next turn has to serve.
//!
//! ```text
//!   publish, FIN, REQ, RDY, timeout ──pump_channel_later──► channels to pump ──pump──► deliveries, dead letters
//! ```

use super::{Stopping, Topic};
use crate::channel::dead_letters::LettersEnd;
use crate::channel::delivery::Delivery;
use crate::discarded::Discarded;
use crate::ids::ChannelId;
use crate::now::Now;
use crate::work::Work;
use diskq_log::plant;

impl Topic {
    /// Does the topic's part of the end of a turn: gives published messages to the channels, delivers from the channels
    /// that have a message for a consumer, and continues work that takes more than one turn.
    pub(crate) fn pump(&mut self, now: Now, work: &mut Work, delivery: &mut Delivery<'_>) {
        work.begin_share();
        self.distribute(now, delivery.clients, work);
        work.begin_long_share();
        self.continue_checkpoint(now, work);
        self.pump_gate(work);
        let (mut again, mut unserved) = (Vec::new(), Vec::new());
        loop {
            let channels = &mut self.channels;
            let id = self
                .channels_to_pump
                .pop_last(|id| Some(&mut channels.get_mut(id)?.in_to_pump));
            let Some(id) = id else {
                break;
            };
            let channel = &mut self.channels[id];
            channel.deliver(&mut self.log, delivery);
            let (letters, budget) = (&mut self.dead_letters, &mut *delivery.letters);
            let is_served = budget.is_left();
            let take = |letter| letters.push((id, letter));
            let end = match self.stopping {
                Stopping::No => channel.take_dead_letters(&mut self.log, budget, take),
                _ => LettersEnd::Nothing,
            };
            match end {
                LettersEnd::Nothing => {}
                LettersEnd::Turn if is_served => again.push(id),
                LettersEnd::Turn => unserved.push(id),
                LettersEnd::Held => self.held_letters.push(id),
            }
            let at = channel.next_timeout();
            plant!(TimerLost, let at = None);
            self.lower_deadline(at);
        }
        // The last one is the first of the next turn.
        for id in again.into_iter().chain(unserved.into_iter().rev()) {
            self.pump_channel_later(id);
        }
        while let Some(discarded) = self.discarded.last_mut()
            && discarded.release_slice(Some(&mut self.log), work)
        {
            self.discarded.pop();
        }
    }

    /// Goes on with the save of what the gate remembers, and takes what the gate has for others.
    fn pump_gate(&mut self, work: &mut Work) {
        let Some(gate) = &mut self.gate else {
            return;
        };
        work.spend(gate.continue_save(&mut self.log, work.left()));
        let name = &self.name;
        let news = gate.take_news();
        self.news
            .extend(news.map(|text| format!("TOPIC({name}): {text}")));
        let tables = gate.take_unneeded();
        if !tables.is_empty() {
            self.discarded.push(Discarded {
                tables,
                ..Discarded::default()
            });
        }
    }

    /// Lets the dead letters leave that were held: see [`LettersEnd::Held`].
    pub(crate) fn release_letters(&mut self) {
        for id in std::mem::take(&mut self.held_letters) {
            // A channel that was deleted has no letters.
            if let Some(channel) = self.channels.get_mut(id) {
                channel.release_dead_letters();
                self.pump_channel_later(id);
            }
        }
    }

    /// Returns true when the next turn has to continue unfinished work.
    pub(crate) fn has_work_left(&self) -> bool {
        let gate = self.gate.as_ref();
        let is_saving = self.unfinished.is_some() || gate.is_some_and(|it| it.has_slices_left());
        is_saving || !self.discarded.is_empty() || self.wants_pump()
    }

    /// Names a channel for the next pump, if it has something for someone.
    pub(crate) fn pump_channel_later(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id];
        if channel.wants_pump() {
            self.channels_to_pump.insert(id, &mut channel.in_to_pump);
        }
    }

    /// Does what follows when a message of a channel was finished, requeued or touched: a checkpoint is due, and there
    /// may be deliveries or an earlier timeout.
    pub(crate) fn after_answer(&mut self, id: ChannelId) {
        self.make_checkpoint_due();
        self.lower_deadline(self.channel(id).next_timeout());
        self.pump_channel_later(id);
    }

    /// Names every channel for the next pump that has something for someone.
    pub(crate) fn pump_channels_later(&mut self) {
        for (id, channel) in &mut self.channels {
            if channel.wants_pump() {
                self.channels_to_pump.insert(id, &mut channel.in_to_pump);
            }
        }
    }

    /// True when a pump would do something.
    pub(crate) fn wants_pump(&self) -> bool {
        !self.channels_to_pump.is_empty()
            || (!self.undistributed.is_empty() && self.can_distribute())
    }
}
