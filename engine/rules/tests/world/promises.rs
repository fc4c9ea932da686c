//! The promises that operators got. Each must hold after a crash, whatever nsqd.dat contains.

use super::model::Place;
use super::{CHANNELS, TOPICS};
use diskq::TopicFacts;
use engine_rules::{Change, TaskId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A fact about a topic or channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    TopicExists(usize),
    TopicIsPaused(usize),
    ChannelExists(Place),
    ChannelIsPaused(Place),
}

impl Fact {
    pub(crate) fn topic(self) -> usize {
        match self {
            Fact::TopicExists(topic) | Fact::TopicIsPaused(topic) => topic,
            Fact::ChannelExists(place) | Fact::ChannelIsPaused(place) => place.0,
        }
    }

    fn is_durable(self) -> bool {
        let is_ephemeral = match self {
            Fact::TopicExists(_) | Fact::TopicIsPaused(_) => false,
            Fact::ChannelExists(place) | Fact::ChannelIsPaused(place) => {
                CHANNELS[place.1].ends_with("#ephemeral")
            }
        };
        !is_ephemeral && !TOPICS[self.topic()].ends_with("#ephemeral")
    }

    /// Returns true if the fact is true, or `None` if its topic or channel does not exist.
    fn look_up(self, topics: &[TopicFacts]) -> Option<bool> {
        let topic = topics
            .iter()
            .find(|facts| facts.name == TOPICS[self.topic()]);
        let channel = |place: Place| {
            let mut channels = topic.iter().flat_map(|facts| &facts.channels);
            channels.find(|facts| facts.name == CHANNELS[place.1])
        };
        match self {
            Fact::TopicExists(_) => Some(topic.is_some()),
            Fact::TopicIsPaused(_) => topic.map(|facts| facts.paused),
            Fact::ChannelExists(place) => Some(channel(place).is_some()),
            Fact::ChannelIsPaused(place) => channel(place).map(|facts| facts.paused),
        }
    }
}

#[derive(Debug)]
struct Promise {
    is_true: bool,
    task: TaskId,
    is_answered: bool,
    /// The time at which the promise ends by itself.
    until: Option<Duration>,
}

/// The last command of an operator for each fact.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    promises: BTreeMap<Fact, Promise>,
}

impl Promises {
    /// Notes an operator's command. Until the answer, a crash may leave the fact true or false.
    pub(crate) fn command(&mut self, fact: Fact, is_true: bool, task: TaskId) {
        match fact {
            Fact::TopicExists(topic) if !is_true => {
                self.promises.retain(|other, _| other.topic() != topic);
                for channel in 0..CHANNELS.len() {
                    self.command(Fact::ChannelExists((topic, channel)), false, task);
                }
            }
            Fact::ChannelExists(place) if !is_true => {
                self.promises.remove(&Fact::ChannelIsPaused(place));
            }
            _ => {}
        }
        if fact.is_durable() {
            let promise = Promise {
                is_true,
                task,
                is_answered: false,
                until: None,
            };
            self.promises.insert(fact, promise);
        }
    }

    /// Notes that the fact of the last command holds only until a time. `None`: without an end.
    pub(crate) fn limit(&mut self, fact: Fact, until: Option<Duration>) {
        if let Some(promise) = self.promises.get_mut(&fact) {
            promise.until = until;
        }
    }

    /// Notes that an operator's command was answered as done. Returns the facts that a power
    /// failure may undo until they are synced. The deletion of a topic gives none, because it is
    /// durable at the answer.
    pub(crate) fn answer(&mut self, task: TaskId) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut is_topic_gone = false;
        for (fact, promise) in self.promises.iter_mut().filter(|(_, p)| p.task == task) {
            promise.is_answered = true;
            is_topic_gone |= matches!(fact, Fact::TopicExists(_)) && !promise.is_true;
            facts.push(*fact);
        }
        facts.retain(|_| !is_topic_gone);
        facts
    }

    /// Forgets a fact that a power failure may have undone.
    pub(crate) fn take_back(&mut self, fact: Fact) {
        self.promises.remove(&fact);
    }

    /// Notes that a client created a topic or channel again that an operator had deleted.
    pub(crate) fn note(&mut self, change: &Change) {
        let topic = TOPICS.iter().position(|name| *name == &*change.topic);
        let topic = topic.expect("a topic of ours");
        let fact = match &change.channel {
            None => Fact::TopicExists(topic),
            Some(channel) => {
                let channel = CHANNELS.iter().position(|name| *name == &**channel);
                Fact::ChannelExists((topic, channel.expect("a channel of ours")))
            }
        };
        let is_over = |promise: &Promise| change.is_there && !promise.is_true;
        if self.promises.get(&fact).is_some_and(is_over) {
            self.promises.remove(&fact);
        }
    }

    /// Checks the promises after a crash that they must survive, at the time `now`. Returns the number of promises
    /// checked.
    pub(crate) fn check(&mut self, topics: &[TopicFacts], now: Duration) -> usize {
        let is_over = |promise: &Promise| promise.until.is_some_and(|until| until <= now);
        self.promises
            .retain(|_, promise| promise.is_answered && !is_over(promise));
        for (fact, promise) in &self.promises {
            let is_true = fact.look_up(topics);
            assert_eq!(is_true, Some(promise.is_true), "{fact:?} was promised");
        }
        self.promises.len()
    }

    /// Forgets all promises.
    pub(crate) fn clear(&mut self) {
        self.promises.clear();
    }
}
