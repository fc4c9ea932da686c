//! [`Pause`]: a pause as an operator asks for it, with an end, a note and a name.

use crate::now::Now;
use diskq_log::PauseTerms;
use std::time::Duration;

/// A pause that an operator asks for. The default has no end, no note and no name, like every pause of the original.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pause {
    /// The time after which the pause ends by itself. `None`: the pause has no end.
    pub length: Option<Duration>,
    /// The reason. Empty: none was given.
    pub note: String,
    /// The name of the operator. Empty: none was given.
    pub by: String,
}

/// The terms of a pause that is under way, and its end on the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PauseUnderWay {
    /// `None`: the pause has no end.
    pub(crate) until: Option<Duration>,
    /// The terms as a checkpoint records them.
    pub(crate) terms: PauseTerms,
}

impl PauseUnderWay {
    /// A pause that begins now. `None`: the pause has no terms, so nothing has to be remembered.
    pub(crate) fn begin(now: Now, pause: &Pause) -> Option<Box<PauseUnderWay>> {
        let length_ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = |length| now.wall_ns.saturating_add(length_ns(length)).max(1);
        let under_way = PauseUnderWay {
            until: pause.length.map(|length| now.mono.saturating_add(length)),
            terms: PauseTerms {
                until_ns: pause.length.map_or(0, end_ns),
                note: pause.note.clone(),
                by: pause.by.clone(),
            },
        };
        (!under_way.terms.are_none()).then(|| Box::new(under_way))
    }

    /// A pause that an earlier run began. A pause whose time has passed ends at once.
    pub(crate) fn restore(now: Now, terms: &PauseTerms) -> Option<Box<PauseUnderWay>> {
        let left = Duration::from_nanos(terms.until_ns.saturating_sub(now.wall_ns));
        let under_way = PauseUnderWay {
            until: (terms.until_ns > 0).then(|| now.mono + left),
            terms: terms.clone(),
        };
        (!under_way.terms.are_none()).then(|| Box::new(under_way))
    }

    /// Returns whether the time of the pause is over.
    pub(crate) fn is_over(&self, now: Now) -> bool {
        self.until.is_some_and(|until| until <= now.mono)
    }
}
