//! [`Operated`]: what operators have done to a topic or channel. Only ringq's nsqds tell the terms of a pause, and the
//! messages of an empty that can come back. nsqd 1.3.0 tells only that something is paused.

use serde::Serialize;
use wire::go_json::is_default;

/// The pause of a topic or channel, and the messages that it was emptied of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operated {
    /// True if it is paused on any nsqd.
    #[serde(rename = "paused")]
    pub is_paused: bool,
    /// The terms of the pause. `None` if it is not paused.
    #[serde(flatten)]
    pub pause: Option<Pause>,
    /// Emptied messages that can come back.
    #[serde(flatten)]
    pub undo: Option<Undo>,
}

/// The terms of a pause, under nsqd's names. Terms that were not given are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// The end, in milliseconds since 1970. `None` is a pause without an end.
    #[serde(rename = "pause_until_ms", skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// The reason, or an empty text.
    #[serde(rename = "pause_note", skip_serializing_if = "is_default")]
    pub note: String,
    /// The name of the admin, or an empty text.
    #[serde(rename = "paused_by", skip_serializing_if = "is_default")]
    pub by: String,
}

/// The messages that a topic or channel was emptied of, while they can come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undo {
    /// The time until which they can come back, in milliseconds since 1970.
    #[serde(rename = "undo_until_ms")]
    pub until_ms: i64,
    /// The number of these messages.
    #[serde(rename = "undo_message_count")]
    pub message_count: i64,
}

/// Reads what both a topic and a channel tell, in fields of the same names.
macro_rules! operated_of {
    ($stats:ty) => {
        impl From<&$stats> for Operated {
            fn from(given: &$stats) -> Operated {
                Operated {
                    is_paused: given.paused,
                    pause: given.paused.then(|| Pause {
                        until_ms: given.pause_until_ms,
                        note: given.pause_note.clone(),
                        by: given.paused_by.clone(),
                    }),
                    undo: given.undo_until_ms.map(|until_ms| Undo {
                        until_ms,
                        message_count: given.undo_message_count,
                    }),
                }
            }
        }
    };
}

operated_of!(nsq_http::TopicStats);
operated_of!(nsq_http::ChannelStats);

impl Operated {
    /// Adds what is told on another nsqd.
    pub fn add(&mut self, part: &Operated) {
        self.is_paused |= part.is_paused;
        Pause::add(&mut self.pause, part.pause.as_ref());
        Undo::add(&mut self.undo, part.undo);
    }
}

impl Pause {
    /// Adds the pause on another nsqd. The total is the pause with terms that ends last, because the reason of one and
    /// the name of another do not belong together. A pause without terms hides no others.
    fn add(total: &mut Option<Pause>, part: Option<&Pause>) {
        // A pause without an end ends last.
        let rank = |pause: &Pause| {
            let has_terms = *pause != Pause::default();
            (has_terms, pause.until_ms.unwrap_or(i64::MAX))
        };
        if let Some(part) = part
            && total.as_ref().is_none_or(|total| rank(total) < rank(part))
        {
            *total = Some(part.clone());
        }
    }
}

impl Undo {
    /// Adds the undo on another nsqd. The total can be undone as a whole until the first one ends.
    fn add(total: &mut Option<Undo>, part: Option<Undo>) {
        let Some(part) = part else {
            return;
        };
        let own = total.unwrap_or(Undo {
            until_ms: i64::MAX,
            message_count: 0,
        });
        *total = Some(Undo {
            until_ms: own.until_ms.min(part.until_ms),
            message_count: own.message_count.saturating_add(part.message_count),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The total had the name of one pause and the note of another.
    #[test]
    fn a_pause_is_that_of_the_node_where_it_ends_last() {
        let part = |until_ms, by: &str, note: &str| Pause {
            until_ms,
            note: note.to_owned(),
            by: by.to_owned(),
        };
        let mut total = None;
        Pause::add(&mut total, None);
        assert_eq!(total, None);
        Pause::add(&mut total, Some(&part(Some(5), "ann", "")));
        Pause::add(&mut total, Some(&part(Some(9), "", "deploying")));
        assert_eq!(total, Some(part(Some(9), "", "deploying")));
        Pause::add(&mut total, Some(&part(None, "bob", "")));
        Pause::add(&mut total, Some(&part(Some(20), "ann", "x")));
        assert_eq!(total, Some(part(None, "bob", "")));
        assert_eq!(Operated::from(&nsq_http::TopicStats::default()).pause, None);
    }

    /// The note of a pause ("db repair dont touch") was gone from the list.
    #[test]
    fn a_pause_without_terms_hides_no_terms() {
        let (plain, noted) = (
            Pause::default(),
            Pause {
                until_ms: Some(9),
                note: "db repair dont touch".to_owned(),
                by: String::new(),
            },
        );
        for pauses in [[&plain, &noted], [&noted, &plain]] {
            let mut total = None;
            for pause in pauses {
                Pause::add(&mut total, Some(pause));
            }
            assert_eq!(total.as_ref(), Some(&noted));
        }
    }

    #[test]
    fn an_undo_ends_with_its_first_node() {
        let part = |until_ms, message_count| Undo {
            until_ms,
            message_count,
        };
        let mut total = None;
        for other in [None, Some(part(9, 3)), None, Some(part(5, 4))] {
            Undo::add(&mut total, other);
        }
        assert_eq!(total, Some(part(5, 7)));
    }
}
