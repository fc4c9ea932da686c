//! The graceful stop of this shard.
//!
//! ```text
//!   begin_stop: every connection ends ──► drive_stop: the last connection is gone
//!                                              └─► each log is synced and has its last checkpoint
//! ```
//!
//! The shards of a process do not stop at the same moment. From [`Broker::begin_stop`] on, a shard takes no publish any
//! more, not even one that comes from a shard that still serves clients: its sender would get an OK for a message that
//! no sync covers.

use super::output::Output;
use super::{Broker, Stop};
use crate::now::Now;

impl Broker {
    /// Begins the stop: ends every connection, and takes no publish any more.
    pub fn begin_stop(&mut self, out: &mut Vec<Output>) {
        self.stop = Stop::Connections;
        for (id, client) in &mut self.clients {
            client.end_now();
            out.push(Output::Close(id));
        }
    }

    /// Returns true after [`Broker::begin_stop`]. Then nothing new may begin, and no connection may come.
    pub fn is_stopping(&self) -> bool {
        self.stop != Stop::No
    }

    /// Does the next step of the stop. Returns true while a connection is left or a log is not durable: call
    /// [`Broker::end_turn`], perform the jobs, and call this again.
    pub fn drive_stop(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        if self.stop == Stop::Connections && self.clients.is_empty() {
            self.stop = Stop::Logs;
            self.announce_end(out);
        }
        let mut is_unfinished = self.stop == Stop::Connections;
        if self.stop == Stop::Logs {
            for (key, topic) in &mut self.topics {
                if topic.drive_stop(now) {
                    is_unfinished = true;
                    self.topics_to_pump.insert(key, &mut topic.in_to_pump);
                }
            }
        }
        is_unfinished
    }

    /// Says in the log which topics and channels end.
    fn announce_end(&self, out: &mut Vec<Output>) {
        let mut say = |line| out.push(Output::info(line));
        for (_, topic) in self.topics.iter() {
            say(format!("TOPIC({}): closing", topic.name));
            for (_, channel) in topic.channels() {
                say(format!("CHANNEL({}): closing", channel.name));
            }
        }
    }
}
