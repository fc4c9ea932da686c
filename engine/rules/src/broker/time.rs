//! Heartbeats, read and write deadlines, and the timers of topics.

use super::Broker;
use super::output::Output;
use super::timers::{Timer, replace};
use crate::client::{Blocked, Client, Ending};
use crate::ids::{ClientId, TopicKey};
use crate::now::Now;
use std::time::Duration;

/// The number of moments in an interval at which heartbeats go out. All connections with the same interval share these
/// moments. So ten thousand idle connections with heartbeats every 30 s wake the shard twice a second instead of three
/// hundred times. A heartbeat is late by at most the time between two moments.
const TICKS_PER_HEARTBEAT: u32 = 64;

impl Broker {
    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            while let Some((at, timer)) = broker.timers.first().copied() {
                if at > now.mono {
                    return;
                }
                broker.timers.pop_first();
                match timer {
                    Timer::Heartbeat(id) => broker.heartbeat(id),
                    Timer::Deadline(id) => broker.deadline(id),
                    Timer::Topic(key) => {
                        let topic = &mut broker.topics[key];
                        topic.timer_at = None;
                        let ended = topic.end_in_time(now);
                        if !ended.is_empty() {
                            broker.out.extend(ended.into_iter().map(Output::info));
                            broker.out.push(Output::MetadataChanged);
                        }
                        topic.handle_timeout(now, &mut broker.clients, &mut broker.work);
                        if topic.take_question(now) && broker.options.asks_for_channels {
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
        if topic.timer_at.is_some_and(|armed| armed <= at) {
            return;
        }
        if let Some(armed) = topic.timer_at.replace(at) {
            self.timers.remove(&(armed, Timer::Topic(key)));
        }
        self.timers.insert((at, Timer::Topic(key)));
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
        replace(&mut self.timers, Timer::Heartbeat(id), armed, at);
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
            replace(&mut self.timers, Timer::Deadline(id), armed, at);
        }
    }

    /// Forgets the timers of a client that leaves this shard.
    pub(super) fn disarm(&mut self, id: ClientId, client: &mut Client) {
        let (heartbeat, deadline) = (&mut client.heartbeat_at, &mut client.deadline_at);
        replace(&mut self.timers, Timer::Heartbeat(id), heartbeat, None);
        replace(&mut self.timers, Timer::Deadline(id), deadline, None);
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
