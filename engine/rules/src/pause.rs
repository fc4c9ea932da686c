//! [`Pause`]: a pause as an operator asks for it, with an end, a note and a name.

use diskq_log::{Now, PauseTerms};
use std::time::Duration;

/// The longest time after which a pause can end by itself.
pub const PAUSE_TIME_MAX: Duration = Duration::from_secs(720 * 3600);

/// A pause that an operator asks for. The default has no end, no note and no name, like every pause of the original.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pause {
    /// The time after which the pause ends by itself, at most [`PAUSE_TIME_MAX`]. `None`: the pause has no end.
    pub length: Option<Duration>,
    /// The reason. Empty: none was given.
    pub note: String,
    /// The name of the operator. Empty: none was given.
    pub by: String,
}

/// A pause that is under way: its terms, and its end on the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PauseUnderWay {
    /// `None`: the pause has no end.
    pub(crate) until: Option<Duration>,
    /// The terms as a checkpoint records them.
    pub(crate) terms: PauseTerms,
}

impl PauseUnderWay {
    /// A pause that begins now.
    pub(crate) fn begin(now: Now, pause: &Pause) -> Box<PauseUnderWay> {
        let length_ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = |length| now.wall_ns.saturating_add(length_ns(length)).max(1);
        Box::new(PauseUnderWay {
            until: pause.length.map(|length| now.mono.saturating_add(length)),
            terms: PauseTerms {
                until_ns: pause.length.map_or(0, end_ns),
                length_ns: pause.length.map_or(0, length_ns),
                note: pause.note.clone(),
                by: pause.by.clone(),
            },
        })
    }

    /// A pause that an earlier run began. A pause whose time has passed ends at once. If the wall clock was set back, the
    /// pause lasts for as long as the operator asked for from now on, and not longer.
    pub(crate) fn restore(now: Now, terms: &PauseTerms) -> Box<PauseUnderWay> {
        let mut terms = terms.clone();
        let latest_ns = now.wall_ns.saturating_add(terms.length_ns);
        terms.until_ns = terms.until_ns.min(latest_ns);
        let left = Duration::from_nanos(terms.until_ns.saturating_sub(now.wall_ns));
        Box::new(PauseUnderWay {
            until: (terms.until_ns > 0).then(|| now.mono + left),
            terms,
        })
    }
}
