//! Heartbeats, read and write deadlines, and the timers of topics: one heap per shard.
//!
//! Entries are not removed when they become pointless; they are recognised when they fire.

use super::{Broker, Level, Output};
use crate::Now;
use crate::client::{ClientId, Ending};
use crate::topic::TopicKey;
use std::cmp::Reverse;
use std::time::Duration;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A heartbeat to a client; the number tells the timer that counts from replaced ones.
    Heartbeat(ClientId, u32),
    /// The end of the patience with a silent client.
    Deadline(ClientId, u32),
    /// Whatever a topic has to do.
    Topic(TopicKey),
}

impl Broker {
    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            if at > now.mono {
                return;
            }
            self.timers.pop();
            match timer {
                Timer::Heartbeat(id, epoch) => self.heartbeat(now, id, epoch, out),
                Timer::Deadline(id, epoch) => self.deadline(now, id, epoch, out),
                Timer::Topic(key) => {
                    if let Some(topic) = self.topics.get_mut(key)
                        && topic.timer_at == Some(at)
                    {
                        topic.timer_at = None;
                        topic.handle_timeout(now, &mut self.clients);
                        self.note_topic(key);
                    }
                }
            }
        }
    }

    pub(super) fn arm_topic(&mut self, key: TopicKey, at: Duration) {
        self.timers.push(Reverse((at, Timer::Topic(key))));
    }

    /// Starts a client's heartbeats: at connect, and again at its first IDENTIFY.
    pub(super) fn arm_heartbeat(&mut self, id: ClientId, now: Duration) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.heartbeat_epoch += 1;
        if let Some(interval) = client.delivery.heartbeat {
            let timer = Timer::Heartbeat(id, client.heartbeat_epoch);
            self.timers.push(Reverse((now + interval, timer)));
        }
    }

    /// Starts a client's read deadline: at connect, and again at each IDENTIFY.
    pub(super) fn arm_deadline(&mut self, id: ClientId, now: Duration) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.deadline_epoch += 1;
        if let Some(interval) = client.settings.heartbeat {
            let timer = Timer::Deadline(id, client.deadline_epoch);
            self.timers.push(Reverse((now + interval * 2, timer)));
        }
    }

    fn heartbeat(&mut self, now: Now, id: ClientId, epoch: u32, out: &mut Vec<Output>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(interval) = client.delivery.heartbeat else { return };
        if client.heartbeat_epoch != epoch || client.ending != Ending::No {
            return;
        }
        if let Some(since) = client.stuck_since
            && now.mono.saturating_sub(since) >= interval
        {
            let line = format!("PROTOCOL(V2): [{}] messagePump error - i/o timeout", client.address);
            out.push(Output::Log(Level::Error, line));
            client.ending = Ending::Now;
            out.push(Output::Close(id));
            return;
        }
        client.outbound.push_bytes(wire::encode::HEARTBEAT);
        self.timers.push(Reverse((now.mono + interval, Timer::Heartbeat(id, epoch))));
        self.note_output(id);
    }

    fn deadline(&mut self, now: Now, id: ClientId, epoch: u32, out: &mut Vec<Output>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(interval) = client.settings.heartbeat else { return };
        if client.deadline_epoch != epoch || client.ending != Ending::No {
            return;
        }
        if client.blocked.is_some() {
            // It is us who do not read.
            client.waiting_since = now.mono;
        }
        let at = client.waiting_since + interval * 2;
        if at <= now.mono {
            out.push(Output::Expired(id));
        } else {
            self.timers.push(Reverse((at, Timer::Deadline(id, epoch))));
        }
    }
}
