//! The drain of this shard. The shard refuses publishes, and serves consumers until no message is owed.
//!
//! A topic that owes nothing is withdrawn from the nsqlookupds. A topic that still has messages stays there, so that
//! its consumers find this node.

use super::Broker;
use super::output::{Change, Output};
use crate::ids::TopicKey;
use crate::now::Now;
use crate::owed::Owed;

/// The most topics that are withdrawn at a look, or announced again in a turn: 2 ms.
const TOPICS_MAX: usize = 1000;

impl Broker {
    /// Begins a drain, or takes it back. Publishes that wait for room are refused, too.
    pub fn set_draining(&mut self, is_draining: bool, out: &mut Vec<Output>) {
        self.collect(out, |broker| {
            if is_draining == broker.is_draining {
                return;
            }
            broker.is_draining = is_draining;
            broker.checks_permits = is_draining || broker.options.server.auth_required;
            let keys = broker.by_name.values().copied().collect::<Vec<_>>();
            if !is_draining {
                broker.to_announce = keys;
                return broker.announce_some();
            }
            // A drain that was taken back just now: its topics may have messages again, and consumers must find them.
            while !broker.to_announce.is_empty() {
                broker.announce_some();
            }
            for key in keys {
                broker.wake_blocked(key);
                broker.refuse_in_drain(key);
            }
        })
    }

    /// Announces some of the topics again that were withdrawn. The next turns go on.
    pub(super) fn announce_some(&mut self) {
        for _ in 0..TOPICS_MAX {
            let Some(key) = self.to_announce.pop() else {
                return;
            };
            if self.topics.contains_key(key) {
                self.announce_again(key);
            }
        }
    }

    /// Returns what this shard still owes. Withdraws topics that owe nothing from the nsqlookupds, a part at each call.
    /// Call this from time to time in a drain.
    pub fn drain(&mut self, now: Now, out: &mut Vec<Output>) -> Owed {
        let mut owed = Owed::default();
        // The shard that has these messages now may have been asked before it got them.
        owed.waiting += std::mem::take(&mut self.letters_moved);
        let mut withdrawn_count = 0;
        for key in self.by_name.values() {
            let topic = &mut self.topics[*key];
            let before = owed.total();
            topic.add_owed(now, &mut owed);
            let may_withdraw = self.is_draining && withdrawn_count < TOPICS_MAX;
            if may_withdraw && owed.total() == before && !topic.is_withdrawn {
                topic.is_withdrawn = true;
                withdrawn_count += 1;
                for (_, channel) in topic.channels() {
                    let change = Change::channel(&topic.name, &channel.name, false);
                    out.push(Output::Changed(change));
                }
                out.push(Output::Changed(Change::topic(&topic.name, false)));
            }
        }
        owed
    }

    /// Announces a topic that was withdrawn.
    pub(super) fn announce_again(&mut self, key: TopicKey) {
        let topic = &mut self.topics[key];
        if std::mem::take(&mut topic.is_withdrawn) {
            self.out
                .push(Output::Changed(Change::topic(&topic.name, true)));
            for (_, channel) in topic.channels() {
                let change = Change::channel(&topic.name, &channel.name, true);
                self.out.push(Output::Changed(change));
            }
        }
    }
}
