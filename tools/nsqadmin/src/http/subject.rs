//! [`Subject`]: what an act is about, and the name of the act.

use super::endpoint::Change;
use crate::audit::Details;
use crate::cluster::{Act, Terms};

/// The subject of an act.
#[derive(Clone, Debug, Default)]
pub(super) struct Subject {
    pub(super) topic: String,
    /// Empty for an act on a topic.
    pub(super) channel: String,
    /// Empty, except for a tombstone.
    pub(super) node: String,
    /// Empty, except for `PUT /config/*`.
    pub(super) key: String,
    /// The terms.
    pub(super) details: Details,
}

impl Subject {
    /// Returns what the path of a request names.
    pub(super) fn of_path(change: Change, segments: &[String]) -> Subject {
        let segment = |index: usize| segments.get(index).cloned().unwrap_or_default();
        match change {
            Change::Create | Change::Many => Subject::default(),
            Change::Act | Change::Delete => Subject {
                topic: segment(0),
                channel: segment(1),
                ..Subject::default()
            },
            Change::Tombstone => Subject {
                node: segment(0),
                ..Subject::default()
            },
        }
    }

    /// Returns the subject with the terms of an act, as far as they mean something to it. `messages` is the number of
    /// messages that an empty drops or an undo brings back.
    pub(super) fn with_details(self, act: Act, terms: &Terms, messages: Option<i64>) -> Subject {
        let mut details = Details::default();
        match act {
            Act::Pause => {
                details.limit.clone_from(&terms.limit);
                details.note.clone_from(&terms.note);
            }
            Act::Empty => {
                details.undo.clone_from(&terms.undo);
                details.messages = messages;
            }
            Act::Unempty => details.messages = messages,
            Act::Create | Act::Delete | Act::Unpause => {}
        }
        Subject { details, ..self }
    }

    /// Returns the name of an action: `pause_topic`, `pause_channel`, ...
    pub(super) fn action(&self, verb: Act) -> String {
        let kind = if self.channel.is_empty() {
            "topic"
        } else {
            "channel"
        };
        format!("{}_{kind}", verb.word())
    }
}
