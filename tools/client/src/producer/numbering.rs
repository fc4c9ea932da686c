//! [`Numbering`]: who numbers the messages of a producer. [`Counters`]: the next numbers of one node.
//!
//! nsqd recognises a number surely only while the numbers of a topic come without gaps, or among the last ones. So each
//! node has its own numbers, which count upwards with each message that is written to this node. A number whose message
//! certainly did not leave is used again.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::Mutex;
use thiserror::Error;
use wire::origin::NUMBER_MAX;

use crate::publisher_id::PublisherId;

/// The numbering of a producer's messages.
pub(crate) enum Numbering {
    /// Messages have no numbers.
    Off,
    /// The producer numbers the messages of each node and topic from 0. Each node has an id of its own, which is drawn
    /// here: an nsqd that has two addresses, or that comes back after its removal, never gets a number twice.
    Automatic(Mutex<fastrand::Rng>),
    /// The application numbers the messages. The id belongs to the application.
    Application(PublisherId),
}

impl Numbering {
    /// Returns the numbering by the producer, whose ids follow from `seed`.
    pub(crate) fn automatic(seed: PublisherId) -> Numbering {
        Numbering::Automatic(Mutex::new(fastrand::Rng::with_seed(seed.get())))
    }

    /// Returns the id for a further node.
    pub(crate) fn id(&self) -> Option<PublisherId> {
        match self {
            Numbering::Off => None,
            Numbering::Automatic(random) => PublisherId::new(random.lock().u64(1..)),
            Numbering::Application(id) => Some(*id),
        }
    }

    /// Returns the numbers of the commands over a connection whose nsqd takes numbers, or takes none.
    pub(crate) fn numbers(&self, is_taking: bool) -> Numbers {
        match self {
            Numbering::Automatic(_) if is_taking => Numbers::Counted,
            Numbering::Application(_) if is_taking => Numbers::Given,
            _ => Numbers::None,
        }
    }

    /// Checks that a publish of `count` messages has a number if it needs one.
    pub(crate) fn check(&self, number: Option<u64>, count: usize) -> Result<(), NumberError> {
        match (self, number) {
            (Numbering::Application(_), None) => Err(NumberError::Missing),
            (Numbering::Off | Numbering::Automatic(_), Some(_)) => Err(NumberError::Unexpected),
            (Numbering::Application(_), Some(first)) => {
                let further = (count as u64).saturating_sub(1);
                match first.checked_add(further) {
                    Some(last) if last <= NUMBER_MAX => Ok(()),
                    _ => Err(NumberError::TooLarge { first, count }),
                }
            }
            (Numbering::Off | Numbering::Automatic(_), None) => Ok(()),
        }
    }
}

/// The numbers of the commands of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// The commands have no numbers: nobody numbers the messages, or nsqd takes none.
    None,
    /// The numbers are the next ones of the node.
    Counted,
    /// The numbers are those of the application.
    Given,
}

/// The reason why a publish has a wrong number. The message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NumberError {
    /// The application numbers the messages of this producer, and this publish has no number.
    #[error(
        "the message has no number, and the producer was built with publisher_id: use publish_numbered, or another \
         producer"
    )]
    Missing,
    /// The application does not number the messages of this producer, and this publish has a number.
    #[error(
        "the message has a number, and the producer was built without publisher_id: give the builder a publisher_id, \
         or use publish"
    )]
    Unexpected,
    /// The last number of the publish is above 9223372036854775807.
    #[error("{}", too_large_text(*.first, *.count))]
    TooLarge {
        /// The number of the first message.
        first: u64,
        /// The number of messages.
        count: usize,
    },
}

fn too_large_text(first: u64, count: usize) -> String {
    match count {
        1 => format!("message number {first} is above {NUMBER_MAX}"),
        _ => format!("message number {first} plus {count} messages is above {NUMBER_MAX}"),
    }
}

/// The topics of each of the two maps of [`Counters`]. A map takes about 1 MiB at most.
const TOPICS: usize = 4096;

/// The next number of each topic at one node.
///
/// The topics that were used last are in `recent`. When that map is full, it becomes `older`, and the topics of the old
/// `older` are forgotten. So a topic is forgotten after 4096 other topics have been used since its last publish. The
/// numbers of a forgotten topic go on at `floor`, above all that the topic has had. The numbers between are a gap.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    recent: HashMap<Box<str>, u64>,
    older: HashMap<Box<str>, u64>,
    /// The first number of a topic that is in neither map. No forgotten topic has had this number or a higher one.
    floor: u64,
}

impl Counters {
    /// Returns the next number of a topic.
    pub(crate) fn next(&self, topic: &str) -> u64 {
        let known = self.recent.get(topic).or_else(|| self.older.get(topic));
        known.copied().unwrap_or(self.floor)
    }

    /// States that the next `count` numbers of a topic are in use.
    pub(crate) fn advance(&mut self, topic: &str, count: u64) {
        if let Some(next) = self.recent.get_mut(topic) {
            *next += count;
            return;
        }
        let next = self.older.remove(topic).unwrap_or(self.floor);
        if self.recent.len() == TOPICS {
            let forgotten = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            self.floor = forgotten.into_values().fold(self.floor, u64::max);
        }
        self.recent.insert(topic.into(), next + count);
    }

    /// States that `numbers` of a topic were not sent. They are used again if no higher number is in use. Call this for
    /// the highest numbers first.
    pub(crate) fn give_back(&mut self, topic: &str, numbers: Range<u64>) {
        let recent = self.recent.get_mut(topic);
        if let Some(next) = recent.or_else(|| self.older.get_mut(topic))
            && *next == numbers.end
        {
            *next = numbers.start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_have_numbers_of_their_own() {
        let mut counters = Counters::default();
        counters.advance("a", 3);
        counters.advance("b", 1);
        counters.advance("a", 2);
        assert_eq!([counters.next("a"), counters.next("b")], [5, 1]);
        counters.give_back("a", 4..5);
        counters.give_back("a", 2..4);
        counters.give_back("c", 4..5);
        let next = ["a", "b", "c"].map(|topic| counters.next(topic));
        assert_eq!(next, [2, 1, 0]);
    }

    /// A task that ended with its runtime gave numbers back after another task of the node had sent higher ones. The
    /// higher ones were used twice, and nsqd dropped the second messages.
    #[test]
    fn numbers_below_those_that_are_in_use_stay_gaps() {
        let mut counters = Counters::default();
        counters.advance("a", 3);
        counters.advance("a", 2);
        counters.give_back("a", 1..3);
        assert_eq!(counters.next("a"), 5);
    }

    /// The numbers of each topic were kept for ever, and an application may have ever new ephemeral topics.
    #[test]
    fn the_topics_are_bounded_and_a_forgotten_one_uses_no_number_again() {
        let mut counters = Counters::default();
        counters.advance("idle", 1000);
        for round in 0..3 * TOPICS {
            counters.advance(&format!("{round}#ephemeral"), 5);
            counters.advance("busy", 1);
            assert!(counters.recent.len() + counters.older.len() <= 2 * TOPICS);
        }
        // A topic in use has no gap.
        assert_eq!(counters.next("busy"), 3 * TOPICS as u64);
        let last = format!("{}#ephemeral", 3 * TOPICS - 1);
        assert!(
            counters.next(&last) > 1000,
            "above all numbers of the forgotten ones"
        );
        // The idle one is forgotten, and goes on above all of its numbers.
        assert!(!counters.recent.contains_key("idle") && !counters.older.contains_key("idle"));
        assert!(counters.next("idle") >= 1000);
        counters.give_back("idle", 999..1000);
        assert!(counters.next("idle") >= 1000);
        counters.advance("idle", 1);
        assert!(counters.next("idle") >= 1001);
    }

    #[test]
    fn nodes_have_ids_of_their_own() {
        let numbering = Numbering::automatic(PublisherId::new(7).unwrap());
        assert_ne!(numbering.id(), numbering.id());
        let own = PublisherId::new(7).unwrap();
        let numbering = Numbering::Application(own);
        assert_eq!([numbering.id(), numbering.id()], [Some(own); 2]);
    }

    #[test]
    fn wrong_numbers_are_refused() {
        let own = Numbering::Application(PublisherId::new(7).unwrap());
        let text = |numbering: &Numbering, number, count| {
            let checked = numbering.check(number, count);
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(own.check(Some(NUMBER_MAX), 1), Ok(()));
        assert_eq!(own.check(Some(NUMBER_MAX - 9), 10), Ok(()));
        assert_eq!(own.check(None, 1), Err(NumberError::Missing));
        assert_eq!(
            text(&own, Some(NUMBER_MAX + 1), 1),
            Err("message number 9223372036854775808 is above 9223372036854775807".into())
        );
        assert_eq!(
            text(&own, Some(NUMBER_MAX), 2),
            Err(
                "message number 9223372036854775807 plus 2 messages is above 9223372036854775807"
                    .into()
            )
        );
        assert!(own.check(Some(u64::MAX), usize::MAX).is_err());
        let automatic = Numbering::automatic(PublisherId::new(7).unwrap());
        for numbering in [Numbering::Off, automatic] {
            assert_eq!(numbering.check(None, 1), Ok(()));
            assert_eq!(numbering.check(Some(1), 1), Err(NumberError::Unexpected));
        }
    }
}
