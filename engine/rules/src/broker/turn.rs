//! The end of a turn: deliveries, jobs for the keeper, timers, and what is to be written.

use super::Broker;
use super::to_do::Timer;
use crate::channel::dead_letters::LetterBudget;
use crate::channel::delivery::Delivery;
use crate::client::output::Piece;
use crate::client::{ANSWER_BYTES_MAX, Blocked, Client, Ending};
use crate::ids::{ClientId, TopicKey};
use crate::output::{Level, Output, Refusal, Wakeup};
use crate::topic::{Retrier, Waiter};
use diskq_log::{CheckpointNumber, Notice, Now, Reply};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

/// The state of a connection's output after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// All output was sent.
    All,
    /// Some output is left. Write again when the socket can take it.
    More,
    /// The connection is over. Close it.
    Over,
}

impl Broker {
    /// Delivers what this turn made deliverable, and collects the jobs for the keeper. Call once
    /// after a batch of input; call again while [`Broker::is_turn_open`].
    pub fn end_turn(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let resident_bytes = broker.options.resident_bytes / broker.by_name.len().max(1) as u64;
            let (mut unfinished, mut unserved) = (Vec::new(), Vec::new());
            broker.announce_some();
            broker.deliver_own_forwards();
            let bytes_max = broker.options.dead_letter_bytes;
            let mut letter_budget = LetterBudget::new(broker.letters.bytes, bytes_max);
            for _ in 0..broker.to_do.topics_to_pump.len() {
                let Some(key) = broker.to_do.next_topic(&mut broker.topics) else {
                    break;
                };
                let Some(topic) = broker.topics.get_mut(key) else {
                    continue;
                };
                topic.limit_resident(resident_bytes);
                let mut delivery = Delivery {
                    clients: &mut broker.clients,
                    random: &mut broker.random,
                    topology: broker.options.topology.as_ref(),
                    now: now.mono,
                    letters: &mut letter_budget,
                    to_flush: &mut broker.to_do.clients_to_flush,
                };
                let is_served = delivery.letters.is_left();
                topic.pump(now, &mut broker.work, &mut delivery);
                let letters = std::mem::take(&mut topic.output.dead_letters);
                if topic.has_work_left() {
                    let next = if is_served {
                        &mut unfinished
                    } else {
                        &mut unserved
                    };
                    next.push(key);
                }
                broker
                    .out
                    .extend(topic.output.news.drain(..).map(Output::warning));
                let is_awaited =
                    topic.started && topic.is_caught_up() && !topic.waits.for_topic.is_empty();
                while let Some(request) = topic.log.next_request() {
                    broker
                        .out
                        .push(Output::Keeper(key, topic.name.clone(), request));
                }
                if let Some(at) = topic.next_timeout() {
                    broker.arm_topic(key, at);
                }
                if is_awaited {
                    broker.wake_retriers(key);
                }
                if !letters.is_empty() {
                    broker.send_dead_letters(key, letters);
                }
            }
            broker.deliver_own_forwards();
            // The last one is the first of the next turn. So no topic waits for the dead letters of all others.
            for key in unfinished.into_iter().chain(unserved.into_iter().rev()) {
                broker.pump_later(key);
            }
            broker.work.begin_turn();
        })
    }

    /// True while something is left for [`Broker::end_turn`].
    pub fn is_turn_open(&self) -> bool {
        self.to_do.is_left()
    }

    /// Returns how many entries of long lists the last turn went through: see
    /// [`BrokerOptions::turn_entries`](super::BrokerOptions::turn_entries).
    pub fn entries_spent(&self) -> usize {
        self.work.spent_before()
    }

    /// Takes the list of connections with output to write, in `into`.
    pub fn take_clients_to_flush(&mut self, into: &mut Vec<ClientId>) {
        into.clear();
        while let Some(id) = self.to_do.next_to_flush(&mut self.clients) {
            into.push(id);
        }
    }

    /// The output of a connection, to be written at once: fills `slices` and returns how many.
    pub fn output<'a>(&'a self, id: ClientId, slices: &mut [IoSlice<'a>]) -> usize {
        let Some(client) = self.clients.get(id) else {
            return 0;
        };
        let subscription = client.consumer.subscription;
        let topic = subscription.map(|(key, _)| &self.topics[key]);
        let mut count = 0;
        for (slice, (piece, bytes)) in slices.iter_mut().zip(client.output.queue.pieces()) {
            *slice = IoSlice::new(match piece {
                Piece::Buffer(_) | Piece::Message(_) => bytes,
                Piece::Run(run) => topic
                    .expect("runs belong to the subscribed topic")
                    .log
                    .bytes(&run),
            });
            count += 1;
        }
        count
    }

    /// Notes that the first `bytes` bytes of a connection's output were written; 0 means that the socket took nothing.
    /// The queue of a connection that was cut off is empty, but TLS or compression may still report bytes that it had
    /// taken before.
    pub fn sent(&mut self, now: Now, id: ClientId, bytes: usize, out: &mut Vec<Output>) -> Sent {
        let Some(client) = self.clients.get_mut(id) else {
            return Sent::All;
        };
        if client.ending() == Ending::Now {
            return Sent::Over;
        }
        let subscription = client.consumer.subscription;
        client.output.queue.sent(bytes as u64, |run| {
            let (topic, _) = subscription.expect("runs belong to the subscribed topic");
            self.topics[topic].log.unpin(run.first);
        });
        if client.is_over() {
            return Sent::Over;
        }
        client.output.extend_deadline(now.mono, bytes as u64);
        if client.output.answer_bytes() < ANSWER_BYTES_MAX / 2 && client.unblock(Blocked::Output) {
            // The broker did not read the peer, so the peer does not count as silent.
            client.heard(now.mono);
            out.push(Output::Resume(id));
        }
        let left = if client.output.queue.is_empty() {
            Sent::All
        } else {
            Sent::More
        };
        if bytes > 0 && client.consumer.subscription.is_some() && !client.consumer.in_ready.is_set()
        {
            self.make_ready(id);
        }
        left
    }

    /// Ends a connection without ceremony: its socket failed.
    pub fn abandon(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.end_now();
        }
    }

    /// Returns after a read how long the next answers of a consumer may gather. `None` if they may not, or
    /// there is output for the consumer.
    pub fn coalescing_delay(&mut self, id: ClientId) -> Option<Duration> {
        let client = self.clients.get_mut(id)?;
        let may_wait = client.output.is_empty();
        client
            .consumer
            .coalescing
            .next_delay(client.consumer.in_flight, may_wait)
    }

    /// True while commands of a connection are carried out as they come.
    pub fn is_reading(&self, id: ClientId) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| !client.is_stopped())
    }

    /// True when input of `bytes` bytes, which was offered already, has more to be carried out:
    /// [`Broker::receive`] stopped for the sake of other connections.
    pub fn has_more(&self, id: ClientId, bytes: usize) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| client.takes_input(bytes))
    }

    /// Returns how many bytes of input a connection's unfinished command needs. 0 if that is not known.
    pub fn needs(&self, id: ClientId) -> usize {
        self.clients
            .get(id)
            .map_or(0, |client| client.session.needs())
    }

    /// Returns when [`Broker::handle_timeout`] has something to do; may be early.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.timers.first()
    }
}

/// The effects of the keeper's answers.
impl Broker {
    /// Takes the keeper's answer to a job of a topic's log. If the topic was deleted meanwhile, the memory of the
    /// answer goes back to the keeper ([`Output::Free`]).
    pub fn handle_reply(&mut self, now: Now, key: TopicKey, reply: Reply, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let Some(topic) = broker.topics.get_mut(key) else {
                broker.out.extend(reply.into_memory().map(Output::Free));
                return;
            };
            let mut notices = Vec::new();
            topic.log.handle_reply(now.mono, reply, &mut notices);
            broker.follow_health(key);
            for notice in notices {
                broker.handle_notice(key, notice);
            }
            broker.pump_later(key);
        })
    }

    /// Notes whether a topic's log takes messages, and tells when it takes messages again.
    pub(super) fn follow_health(&mut self, key: TopicKey) {
        let topic = &self.topics[key];
        if topic.log.health().is_some() {
            self.unhealthy.insert(key);
        } else if self.unhealthy.remove(&key) {
            let what = "takes messages again";
            self.out.push(Output::Repeated {
                level: Level::Info,
                cause: what.to_owned(),
                line: format!("TOPIC({}): {what}", topic.name),
            });
        }
    }

    /// Adds an ERROR line about an action that is tried again. `why` ends with the system's error text. The cause leaves
    /// out the text before it, because that has file names, which differ between topics.
    pub(super) fn repeat_error(&mut self, what: &str, line: String, why: &str) {
        let answer = why.rsplit(": ").next().unwrap_or(why);
        self.out.push(Output::Repeated {
            level: Level::Error,
            cause: format!("{what}: {answer}"),
            line: format!("{line} - {why}"),
        });
    }

    fn handle_notice(&mut self, key: TopicKey, notice: Notice) {
        let topic = &mut self.topics[key];
        let name = topic.name.clone();
        if let Some(gate) = &mut topic.gate {
            gate.handle_notice(self.now, &mut topic.log, &notice);
        }
        match notice {
            Notice::Room => {
                self.wake_blocked(key);
                self.retry_forwarded(key);
            }
            Notice::RoomRefused { cause, is_new } => self.room_refused(key, cause, is_new),
            Notice::Loaded(_) => topic.channels.pump_all_later(),
            Notice::LoadFailed(seqs, cause) => {
                topic.channels.pump_all_later();
                let line = format!("TOPIC({name}): cannot read {} messages back", seqs.len());
                self.repeat_error("cannot read messages back", line, &cause);
            }
            Notice::SpillFailed(cause) => {
                let what = "a backlog stays in memory";
                self.repeat_error(what, format!("TOPIC({name}): {what}"), &cause);
            }
            Notice::Synced(upto) => {
                for waiter in topic.waits.take_synced(upto) {
                    self.answer(waiter, Ok(()));
                }
            }
            Notice::StateSaved(_) | Notice::TopicFileWritten(Ok(())) => {}
            Notice::StateFailed(_, cause) => {
                let what = "cannot save the numbers of messages";
                let line = format!(
                    "TOPIC({name}): {what}, after a crash messages that are sent again may be stored twice"
                );
                self.repeat_error(what, line, &cause);
            }
            Notice::SyncDelayed(cause) => {
                let what = "sync waits, is tried again";
                self.repeat_error(what, format!("TOPIC({name}) ERROR: {what}"), &cause);
            }
            Notice::SyncFailed(cause) => self.sync_failed(key, cause),
            Notice::Checkpointed { number, synced } => {
                let kept = topic.mark_recorded(number, synced);
                self.checkpoint_ended(key, number, kept.as_ref().copied());
            }
            Notice::CheckpointFailed { number, cause } => {
                let what = "cannot record progress";
                self.repeat_error(what, format!("TOPIC({name}): {what}"), &cause);
                self.checkpoint_ended(key, number, Err(&Refusal::Disk(cause)));
            }
            Notice::TopicFileWritten(Err(cause)) | Notice::TopicFileNotRenamed(cause) => {
                let what = "cannot save the keys of messages";
                let line =
                    format!("TOPIC({name}): {what}, so duplicates may be stored after a crash");
                self.repeat_error(what, line, &cause);
            }
            Notice::Damage(damage) => {
                let line = format!("TOPIC({name}): damaged on disk - {damage}");
                self.out.push(Output::error(line));
            }
        }
    }

    fn room_refused(&mut self, key: TopicKey, cause: Arc<str>, is_new: bool) {
        let topic = &self.topics[key];
        let is_disk_full = topic.log.is_disk_full();
        // Then the topic is unhealthy until the refused messages would find room. Until then, the metrics count
        // what is refused, and the log is silent.
        if is_new {
            let what = "failed to write message to backend";
            let line = format!("TOPIC({}) ERROR: {what}", topic.name);
            self.repeat_error(what, line, &cause);
        }
        // Without the undos, a full disk has more room. Any other failure would stay.
        if is_disk_full {
            self.is_disk_full = true;
            self.drop_all_undos();
        }
        // The blocked clients and tasks publish again, and this time are refused with the reason.
        self.wake_blocked(key);
        self.refuse_forwarded(key, &Refusal::Disk(cause));
    }

    fn sync_failed(&mut self, key: TopicKey, cause: Arc<str>) {
        let topic = &mut self.topics[key];
        let line = format!(
            "TOPIC({}) ERROR: sync failed, no more messages are taken; what is stored is still delivered - {cause}",
            topic.name
        );
        self.out.push(Output::error(line));
        topic.mark_sync_failed();
        for id in topic.copy_runs(&mut self.clients) {
            self.out.push(Output::Close(id));
        }
        let refusal = Refusal::Disk(cause);
        for waiter in topic.waits.take_all_for_sync() {
            self.answer(waiter, Err(&refusal));
        }
        self.wake_blocked(key);
        self.refuse_forwarded(key, &refusal);
    }

    /// Answers the waiters for a checkpoint that was written or could not be.
    fn checkpoint_ended(
        &mut self,
        key: TopicKey,
        number: CheckpointNumber,
        result: Result<(), &Refusal>,
    ) {
        let topic = &mut self.topics[key];
        topic.advance_stop(number);
        for waiter in topic.waits.take_checkpointed(number) {
            self.answer(waiter, result);
        }
    }

    /// Lets the clients and tasks whose publish found no room try again.
    pub(super) fn wake_blocked(&mut self, key: TopicKey) {
        let retriers = std::mem::take(&mut self.topics[key].waits.for_room);
        self.wake(retriers, Blocked::Room(key));
    }

    /// Lets the clients and tasks that wait for a topic try again. Call this when the topic has started, has caught up,
    /// or was deleted.
    pub(super) fn wake_retriers(&mut self, key: TopicKey) {
        let retriers = std::mem::take(&mut self.topics[key].waits.for_topic);
        self.wake(retriers, Blocked::Topic(key));
    }

    fn wake(&mut self, retriers: Vec<Retrier>, reason: Blocked) {
        for retrier in retriers {
            match retrier {
                Retrier::Client(id) => self.resume(id, reason),
                Retrier::Task(task) => self.out.push(Output::Wake(task, Wakeup::Retry)),
            }
        }
    }

    pub(super) fn answer(&mut self, waiter: Waiter, result: Result<(), &Refusal>) {
        match waiter {
            Waiter::Client(id, token) => self.resolve(id, token, result),
            Waiter::Task(task) => {
                self.out.push(Output::Wake(
                    task,
                    Wakeup::Done(result.map_err(Refusal::clone)),
                ));
            }
            Waiter::Forward(id) => self.mail.reply(id, result.map_err(Refusal::clone)),
        }
    }

    /// Refuses everything that waits for a topic, because the topic is being deleted.
    pub(super) fn refuse_all(&mut self, key: TopicKey) {
        let topic = &mut self.topics[key];
        for waiter in topic.waits.take_all() {
            self.answer(waiter, Err(&Refusal::Exiting));
        }
        self.wake_blocked(key);
        self.wake_retriers(key);
        self.refuse_forwarded(key, &Refusal::Exiting);
    }
}

/// The number of moments in an interval at which heartbeats go out. All connections with the same interval share these
/// moments. So ten thousand idle connections with heartbeats every 30 s wake the shard twice a second instead of three
/// hundred times. A heartbeat is late by at most the time between two moments.
const TICKS_PER_HEARTBEAT: u32 = 64;

/// Heartbeats, read and write deadlines, and the timers of topics.
impl Broker {
    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            while let Some(timer) = broker.timers.pop_due(now.mono) {
                match timer {
                    Timer::Heartbeat(id) => broker.heartbeat(id),
                    Timer::Deadline(id) => broker.deadline(id),
                    Timer::Topic(key) => {
                        let topic = &mut broker.topics[key];
                        topic.listed.timer_at = None;
                        let ended = topic.end_in_time(now);
                        if !ended.is_empty() {
                            broker.out.extend(ended.into_iter().map(Output::info));
                            broker.out.push(Output::MetadataChanged);
                        }
                        topic.handle_timeout(now, &mut broker.clients, &mut broker.work);
                        let grace = topic.grace.as_mut();
                        if grace.is_some_and(|grace| grace.take_question(now))
                            && broker.options.asks_for_channels
                        {
                            broker.out.push(Output::AskAgain(key, topic.name.clone()));
                        }
                        broker.follow_health(key);
                        broker.pump_later(key);
                    }
                }
            }
        })
    }

    /// Has a topic's timer fire at `at`, unless it fires earlier anyway.
    pub(super) fn arm_topic(&mut self, key: TopicKey, at: Duration) {
        let topic = &mut self.topics[key];
        if topic.listed.timer_at.is_some_and(|armed| armed <= at) {
            return;
        }
        let armed = &mut topic.listed.timer_at;
        self.timers.set(Timer::Topic(key), armed, Some(at));
    }

    /// Sets a client's heartbeat timer, which also checks the write deadline. Called at connect for the write deadline
    /// alone, and for the heartbeats at the magic and at the first IDENTIFY.
    pub(super) fn arm_heartbeat(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        let at = client.consumer.settings.heartbeat.map(|interval| {
            let tick = (interval / TICKS_PER_HEARTBEAT).as_nanos().max(1);
            let ticks = (self.now.mono + interval).as_nanos().div_ceil(tick);
            Duration::from_nanos((ticks * tick) as u64)
        });
        let armed = &mut client.heartbeat_at;
        self.timers.set(Timer::Heartbeat(id), armed, at);
    }

    /// Starts a client's read deadline: at connect, and again at each IDENTIFY and upgrade. While an upgrade is under
    /// way, there is no read deadline, but that of [`Broker::upgrade_begins`].
    pub(super) fn arm_deadline(&mut self, id: ClientId) {
        let client = &self.clients[id];
        let interval = client.session.settings.heartbeat;
        let at = match client.blocked() {
            Some(Blocked::Upgrading) => None,
            _ => interval.map(|interval| self.now.mono + interval * 2),
        };
        self.set_deadline(id, at);
    }

    /// Sets the time by which a client must have sent its next command, or done its part of an upgrade.
    pub(super) fn set_deadline(&mut self, id: ClientId, at: Option<Duration>) {
        if let Some(client) = self.clients.get_mut(id) {
            let armed = &mut client.deadline_at;
            self.timers.set(Timer::Deadline(id), armed, at);
        }
    }

    /// Forgets the timers of a client that leaves this shard.
    pub(super) fn disarm(&mut self, id: ClientId, client: &mut Client) {
        let (heartbeat, deadline) = (&mut client.heartbeat_at, &mut client.deadline_at);
        self.timers.set(Timer::Heartbeat(id), heartbeat, None);
        self.timers.set(Timer::Deadline(id), deadline, None);
    }

    fn heartbeat(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        client.heartbeat_at = None;
        if client.is_overdue(self.now.mono) {
            // Linux reports room in a socket late: when a third of the socket's send buffer is free.
            return self.out.push(Output::WriteExpired(id));
        }
        self.beat(id);
    }

    /// Closes a connection if its output still leaves too slowly. The shell has just written as much as the socket
    /// takes.
    pub fn write_expired(&mut self, now: Now, id: ClientId, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let Some(client) = broker.clients.get_mut(id) else {
                return;
            };
            if client.is_overdue(now.mono) {
                let line = format!(
                    "PROTOCOL(V2): [{}] messagePump error - i/o timeout",
                    client.address
                );
                broker.out.push(Output::error(line));
                client.end_now();
                return broker.out.push(Output::Close(id));
            }
            broker.beat(id);
        })
    }

    /// Sends a heartbeat, and arms the timer of the next one.
    fn beat(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        if client.ending() == Ending::Now {
            return;
        }
        // A connection that is ending gets no heartbeat, but the timer still checks its write deadline: a peer that
        // reads nothing must not stay for ever. During an upgrade, the peer would take a heartbeat for the upgrade's
        // OK. A peer that has not sent the magic may speak another protocol.
        let is_heard = client.session.magic_seen && client.blocked() != Some(Blocked::Upgrading);
        if client.ending() == Ending::No && is_heard {
            client.output.queue.push_bytes(wire::encode::HEARTBEAT);
            self.flush_later(id);
        }
        self.arm_heartbeat(id);
    }

    fn deadline(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        client.deadline_at = None;
        if client.ending() != Ending::No {
            return;
        }
        if client.blocked() == Some(Blocked::Upgrading) {
            return self.out.push(Output::UpgradeExpired(id));
        }
        let Some(interval) = client.session.settings.heartbeat else {
            return;
        };
        if client.blocked().is_some() {
            // The broker does not read this client at the moment, so the client does not count as silent.
            client.heard(self.now.mono);
        }
        let at = client.waiting_since + interval * 2;
        if at <= self.now.mono {
            self.out.push(Output::Expired(id));
        } else {
            self.set_deadline(id, Some(at));
        }
    }
}
