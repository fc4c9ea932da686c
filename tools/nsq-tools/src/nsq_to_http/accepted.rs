//! [`Accepted`]: remembers which addresses have a message that others refused.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// For each message of a multicast that failed in part, the places of the addresses that have it.
///
/// When the message comes again, only the other addresses get it. The memory is bounded: if it is
/// full, the oldest message is forgotten, and all addresses get that message again.
///
/// Invariant: `order` has each key of `places` once.
#[derive(Debug)]
pub(super) struct Accepted<K> {
    places: HashMap<K, Vec<usize>>,
    order: VecDeque<K>,
    messages_max: usize,
}

impl<K: Clone + Eq + Hash> Accepted<K> {
    /// Returns an empty memory for at most `messages_max` messages.
    pub(super) fn new(messages_max: usize) -> Accepted<K> {
        Accepted {
            places: HashMap::new(),
            order: VecDeque::new(),
            messages_max,
        }
    }

    /// Removes and returns the places that have the message.
    pub(super) fn take(&mut self, message: &K) -> Vec<usize> {
        let Some(places) = self.places.remove(message) else {
            return Vec::new();
        };
        self.order.retain(|key| key != message);
        places
    }

    /// Remembers the places that have a message, for its next delivery.
    pub(super) fn put(&mut self, message: K, places: Vec<usize>) {
        if places.is_empty() {
            return;
        }
        if self.places.insert(message.clone(), places).is_none() {
            self.order.push_back(message);
        }
        if self.order.len() > self.messages_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_remembered_until_it_comes_again() {
        let mut accepted = Accepted::new(10);
        assert!(accepted.take(&"a").is_empty());
        accepted.put("a", vec![0, 2]);
        accepted.put("b", vec![1]);
        accepted.put("c", Vec::new());
        assert_eq!(accepted.take(&"a"), [0, 2]);
        assert!(accepted.take(&"a").is_empty());
        assert_eq!(accepted.take(&"b"), [1]);
        assert_eq!((accepted.order.len(), accepted.places.len()), (0, 0));
    }

    #[test]
    fn the_oldest_message_is_forgotten() {
        let mut accepted = Accepted::new(2);
        accepted.put("a", vec![0]);
        accepted.put("b", vec![1]);
        accepted.put("a", vec![2]);
        accepted.put("c", vec![3]);
        assert!(accepted.take(&"a").is_empty());
        assert_eq!(accepted.take(&"b"), [1]);
        assert_eq!(accepted.take(&"c"), [3]);
    }
}
