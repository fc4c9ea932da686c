//! [`Unclaimed`]: the bounds of the messages of a topic that has no channel.

use super::pieces::{Bounds, Pieces};
use crate::unclaimed::UnclaimedBounds;

/// The bounds of a topic, and the sizes and ages of the messages that the bounds limit.
#[derive(Debug)]
pub(super) struct Unclaimed {
    pub(super) bounds: Bounds,
    /// `None`: the messages have not been counted since the topic has had no channel.
    pub(super) pieces: Option<Pieces>,
    /// The messages that were dropped since the process started.
    pub(super) dropped_count: u64,
}

impl Unclaimed {
    pub(super) fn new(bounds: UnclaimedBounds) -> Unclaimed {
        let UnclaimedBounds { bytes, age } = bounds;
        Unclaimed {
            bounds: Bounds { bytes, age },
            pieces: None,
            dropped_count: 0,
        }
    }
}
