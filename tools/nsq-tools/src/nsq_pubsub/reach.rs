//! [`Reach`]: learns from the events of a new consumer whether it reaches an nsqd.

use std::collections::BTreeSet;

use ringq_client::Event;

use crate::flags::Sources;

/// The state of the first connections of a consumer.
#[derive(Debug)]
pub(super) struct Reach {
    /// The nsqds that may still be reached. Those that nsqlookupds name are added.
    nodes: BTreeSet<String>,
    /// The nsqlookupds that may still name an nsqd.
    lookupds: usize,
}

/// The part of an event that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A connection is open.
    Connected,
    /// An nsqlookupd has named this nsqd.
    Discovered(String),
    /// A connection to this nsqd could not be made.
    ConnectFailed(String),
    /// An nsqlookupd does not answer, or does not know the topic.
    LookupFailed,
}

/// The decision that an event brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// An nsqd is reached.
    Reached,
    /// No nsqd can be reached now.
    Unreachable,
}

impl News {
    /// Returns the part of an event that counts, if there is one.
    pub(super) fn of(event: &Event) -> Option<News> {
        match event {
            Event::Connected { .. } => Some(News::Connected),
            Event::Discovered { node, .. } => Some(News::Discovered(node.to_string())),
            Event::ConnectFailed { node, .. } => Some(News::ConnectFailed(node.to_string())),
            Event::TopicNotFound { .. } | Event::DiscoveryFailed { .. } => Some(News::LookupFailed),
            _ => None,
        }
    }
}

impl Reach {
    /// Returns the state before the first event.
    pub(super) fn new(sources: &Sources) -> Reach {
        match sources {
            Sources::Nsqds(addresses) => Reach {
                nodes: addresses.iter().cloned().collect(),
                lookupds: 0,
            },
            Sources::Lookupds(addresses) => Reach {
                nodes: BTreeSet::new(),
                lookupds: addresses.len(),
            },
        }
    }

    /// Takes news. Returns the decision, if there is one now.
    pub(super) fn learn(&mut self, news: News) -> Option<Decision> {
        match news {
            News::Connected => return Some(Decision::Reached),
            News::Discovered(node) => {
                self.nodes.insert(node);
            }
            News::ConnectFailed(node) => {
                self.nodes.remove(&node);
            }
            News::LookupFailed => self.lookupds = self.lookupds.saturating_sub(1),
        }
        let has_chance = !self.nodes.is_empty() || self.lookupds > 0;
        (!has_chance).then_some(Decision::Unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn one_nsqd_of_several_is_enough() {
        let mut reach = Reach::new(&Sources::Nsqds(owned(&["a:1", "b:1"])));
        assert_eq!(reach.learn(News::ConnectFailed("a:1".to_owned())), None);
        assert_eq!(reach.learn(News::ConnectFailed("a:1".to_owned())), None);
        assert_eq!(reach.learn(News::Connected), Some(Decision::Reached));
    }

    #[test]
    fn nothing_is_left_when_all_have_failed() {
        let mut reach = Reach::new(&Sources::Nsqds(owned(&["a:1"])));
        let failed = reach.learn(News::ConnectFailed("a:1".to_owned()));
        assert_eq!(failed, Some(Decision::Unreachable));
        let mut reach = Reach::new(&Sources::Lookupds(owned(&["l:1", "m:1"])));
        assert_eq!(reach.learn(News::LookupFailed), None);
        assert_eq!(reach.learn(News::Discovered("a:1".to_owned())), None);
        assert_eq!(reach.learn(News::LookupFailed), None);
        let failed = reach.learn(News::ConnectFailed("a:1".to_owned()));
        assert_eq!(failed, Some(Decision::Unreachable));
    }
}
