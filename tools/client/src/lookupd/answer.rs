//! The answers of nsqlookupds, of which the client keeps a bounded part.

use std::fmt;
use std::marker::PhantomData;

use nsq_http::NodeInfo;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::{NAMES_MAX, NODES_MAX};

/// The answer to a lookup: the channels of a topic, and the nodes that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lookup {
    /// The names of the topic's channels, at most 100,000.
    pub channels: Vec<String>,
    /// The nodes that have the topic, at most 10,000.
    pub producers: Vec<NodeInfo>,
    /// The number of further nodes and channels in the answer.
    pub ignored: usize,
}

/// An answer of any endpoint.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) topics: Bounded<String, NAMES_MAX>,
    channels: Bounded<String, NAMES_MAX>,
    pub(super) producers: Bounded<NodeInfo, NODES_MAX>,
}

impl From<Answer> for Lookup {
    fn from(answer: Answer) -> Lookup {
        Lookup {
            ignored: answer.channels.ignored + answer.producers.ignored,
            channels: answer.channels.kept,
            producers: answer.producers.kept,
        }
    }
}

/// The first elements of a list, at most `MAX`. Go writes an empty list as `null`.
#[derive(Debug)]
pub(super) struct Bounded<T, const MAX: usize> {
    pub(super) kept: Vec<T>,
    /// The number of further elements.
    pub(super) ignored: usize,
}

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Bounded<T, MAX> {
        Bounded {
            kept: Vec::new(),
            ignored: 0,
        }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bounded<T, MAX>, D::Error> {
        from.deserialize_any(BoundedVisitor(PhantomData))
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_unit<E>(self) -> Result<Bounded<T, MAX>, E> {
        Ok(Bounded::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bounded<T, MAX>, A::Error> {
        let mut bounded = Bounded::default();
        while bounded.kept.len() < MAX {
            match list.next_element()? {
                Some(element) => bounded.kept.push(element),
                None => return Ok(bounded),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            bounded.ignored += 1;
        }
        Ok(bounded)
    }
}
