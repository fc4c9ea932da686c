//! The delivery of a channel's messages to its consumers, and of its dead letters to their topic.

use super::Channel;
use super::consumers::TURN_MESSAGES;
use super::dead_letters::{DeadLetter, DeadLetterRule, DeadLetters, LetterBudget};
use super::single_messages::SingleMessage;
use crate::client::consumer::{Locality, Topology};
use crate::client::{Client, Clients};
use crate::dirty_set::DirtySet;
use crate::ids::ClientId;
use diskq_log::{Log, Random, Run, SeqRange, Taken, plant};
use std::sync::Arc;
use std::time::Duration;
use wire::frame;
use wire::id::Seq;

/// Bytes a consumer gets before the next one has its turn.
const TURN_BYTES: u32 = 256 * 1024;

/// The parts of the broker that deliveries need, besides the channel and its topic's log.
pub(crate) struct Delivery<'a> {
    pub(crate) clients: &'a mut Clients,
    pub(crate) random: &'a mut Random,
    /// The order of near and far consumers; `None` if all are alike.
    pub(crate) topology: Option<&'a Topology>,
    pub(crate) now: Duration,
    /// The dead letters that may still leave in this turn.
    pub(crate) letters: &'a mut LetterBudget,
    /// Clients that have something to send.
    pub(crate) to_flush: &'a mut DirtySet<ClientId>,
}

/// The consumer whose turn it is, and what a delivery to this consumer needs.
struct Recipient<'a> {
    id: ClientId,
    client: &'a mut Client,
    /// The most messages of this turn.
    count_max: u32,
    log: &'a mut Log,
    random: &'a mut Random,
    now: Duration,
}

/// The result of one attempt to deliver messages to one client.
enum Delivered {
    Messages,
    /// The next message is on its way from the disk.
    Loading,
    /// Nothing is left.
    Nothing,
}

impl Channel {
    /// Delivers messages to the ready consumers in turn, until there are no messages or no ready consumers.
    pub(crate) fn deliver(&mut self, log: &mut Log, delivery: &mut Delivery<'_>) {
        while self.pause.is_none() && self.deliverable_count() > 0 {
            let Some(id) = self.next_ready(delivery) else {
                return;
            };
            let Some(client) = delivery.clients.get_mut(id) else {
                continue;
            };
            let count_max = client.credit().min(TURN_MESSAGES);
            if count_max == 0 {
                continue;
            }
            let delivered = self.deliver_to(&mut Recipient {
                id,
                client,
                count_max,
                log,
                random: delivery.random,
                now: delivery.now,
            });
            let is_cut = log.has_failed_sync() && !client.copy_runs(log);
            if client.credit() > 0 {
                let in_ready = &mut client.consumer.in_ready;
                match delivered {
                    Delivered::Messages => self.consumers.ready.insert(id, in_ready),
                    Delivered::Loading | Delivered::Nothing => {
                        self.consumers.ready.insert_first(id, in_ready)
                    }
                }
            }
            // The shell learns of a connection that is over when it has something to flush.
            if is_cut || !client.output.queue.is_empty() {
                delivery.to_flush.insert(id, &mut client.output.in_to_flush);
            }
            if matches!(delivered, Delivered::Loading) {
                return;
            }
        }
    }

    /// Takes the consumer whose turn it is off the ready list. With a topology, the nearest of them.
    fn next_ready(&mut self, delivery: &mut Delivery<'_>) -> Option<ClientId> {
        let clients = &mut *delivery.clients;
        let Some(topology) = delivery.topology else {
            return self
                .consumers
                .ready
                .pop_first(|id| Some(&mut clients.get_mut(id)?.consumer.in_ready));
        };
        let rank = |id| Some((topology.rank(clients.get(id)?.consumer.locality), id));
        // The first of equals.
        let ranked = self.consumers.ready.iter().filter_map(rank);
        let (_, nearest) = ranked.min_by_key(|(rank, _)| *rank)?;
        let client = clients.get_mut(nearest)?;
        self.consumers
            .ready
            .remove(nearest, &mut client.consumer.in_ready);
        Some(nearest)
    }

    fn deliver_to(&mut self, to: &mut Recipient<'_>) -> Delivered {
        self.requeued_turn = !self.requeued_turn;
        let again = !self.requeued.is_empty() && (self.requeued_turn || self.waiting.is_empty());
        let delivered = if again {
            self.redeliver_to(to)
        } else {
            self.deliver_run_to(to)
        };
        match delivered {
            // The chosen kind of messages (requeued or waiting) is on the disk. The other kind may be in memory.
            Delivered::Loading if again && !self.waiting.is_empty() => self.deliver_run_to(to),
            Delivered::Loading if !again && !self.requeued.is_empty() => self.redeliver_to(to),
            delivered => delivered,
        }
    }

    /// First deliveries: one run of the log, as it is.
    fn deliver_run_to(&mut self, to: &mut Recipient<'_>) -> Delivered {
        let is_sampled = to.client.consumer.settings.sample_rate > 0;
        let count_max = if is_sampled { 1 } else { to.count_max };
        loop {
            let Some(range) = self.waiting.front() else {
                return Delivered::Nothing;
            };
            let run = match to.log.take_run(range, count_max, TURN_BYTES) {
                Taken::Run(run) => run,
                Taken::Loading => return Delivered::Loading,
                Taken::Damaged(damaged) => {
                    // Counted and reported when it was found.
                    to.log.release_range(self.waiting.take_front(damaged.len()));
                    continue;
                }
            };
            let seqs = self.waiting.take_front(u64::from(run.count));
            if is_sampled && to.is_sampled_out() {
                to.log.release_range(seqs);
                continue;
            }
            self.put_in_flight(to, &run, 1);
            if to.client.output.queue.push_run(run) {
                to.log.pin(run.first);
            }
            return Delivered::Messages;
        }
    }

    /// Redeliveries: header with the attempts patched, body from the log.
    fn redeliver_to(&mut self, to: &mut Recipient<'_>) -> Delivered {
        let is_sampled = to.client.consumer.settings.sample_rate > 0;
        let mut count = 0;
        while count < to.count_max && to.client.credit() > 0 {
            let Some(message) = self.requeued.pop_front() else {
                break;
            };
            let SingleMessage { seq, attempts } = message;
            let run = match to.log.take_run(message.range(), 1, TURN_BYTES) {
                Taken::Run(run) => run,
                Taken::Loading => {
                    self.requeued.push_front(message);
                    return match count {
                        0 => Delivered::Loading,
                        _ => Delivered::Messages,
                    };
                }
                Taken::Damaged(_) => {
                    self.out_of_order.remove(seq);
                    to.log.release(seq);
                    continue;
                }
            };
            self.out_of_order.remove(seq);
            if is_sampled && to.is_sampled_out() {
                to.log.release(seq);
                continue;
            }
            let attempts = attempts.saturating_add(1);
            plant!(AttemptsNotCounted, let attempts = message.attempts);
            self.put_in_flight(to, &run, attempts);
            let mut header = [0; frame::HEADER_BYTES];
            header.copy_from_slice(&to.log.bytes(&run)[..frame::HEADER_BYTES]);
            frame::patch_attempts(&mut header, attempts);
            to.client.output.queue.push_header(&header);
            let body = Run {
                start: run.start + frame::HEADER_BYTES as u32,
                ..run
            };
            if to.client.output.queue.push_run(body) {
                to.log.pin(seq);
            }
            count += 1;
        }
        match count {
            0 => Delivered::Nothing,
            _ => Delivered::Messages,
        }
    }

    /// Puts the messages of a run in flight to a consumer.
    #[inline]
    fn put_in_flight(&mut self, to: &mut Recipient<'_>, run: &Run, attempts: u16) {
        if let Some(latency) = &mut self.latency {
            latency.start_samples(run.first, to.log.bytes(run));
        }
        let seqs = SeqRange::new(run.first, run.first.offset(u64::from(run.count)));
        let consumer = &mut to.client.consumer;
        let timeout = consumer.settings.msg_timeout;
        self.window.insert(seqs, to.id, attempts, to.now, timeout);
        consumer.delivered(run.count);
        let counters = &mut self.counters;
        let deliveries = match consumer.locality {
            Locality::Zone => &mut counters.zone_local_msg_count,
            Locality::Region => &mut counters.region_local_msg_count,
            Locality::Global => &mut counters.global_msg_count,
        };
        *deliveries += u64::from(run.count);
    }
}

impl Recipient<'_> {
    /// Decides at random whether a client with a sample rate does not get a message. The channel drops such a message.
    /// The comparison is nsqd's: with a rate of r, the client gets (r + 1) % of the messages.
    fn is_sampled_out(&mut self) -> bool {
        self.random.below(100) > u64::from(self.client.consumer.settings.sample_rate)
    }
}

impl Channel {
    /// Gives the channel a rule for its dead letters, before it has messages.
    pub(crate) fn set_dead_letters(&mut self, rule: Option<Arc<DeadLetterRule>>) {
        self.dead_letters = rule.map(|rule| Box::new(DeadLetters::new(rule)));
    }

    /// Takes messages that can leave for the dead-letter topic, as many as the shard's budget allows. They are still owed,
    /// until [`Channel::finish_dead_letter`]. Returns true if the next turn can take more.
    pub(crate) fn take_dead_letters(
        &mut self,
        now: Duration,
        log: &mut Log,
        budget: &mut LetterBudget,
        out: impl FnMut(DeadLetter),
    ) -> bool {
        match &mut self.dead_letters {
            Some(dead) if self.pause.is_none() => {
                dead.take(now, &mut self.out_of_order, log, budget, out)
            }
            _ => false,
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
