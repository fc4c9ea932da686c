//! [`Level`]: the importance of an event.

use super::Event;
#[cfg(feature = "dedup")]
use crate::dedup::DedupReport;

/// The importance of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For the search for errors in the client.
    Debug,
    /// The usual course.
    Info,
    /// The client goes on, but something is wrong.
    Warning,
    /// Something failed.
    Error,
}

impl Level {
    /// Returns the tag of log lines: `DBG`, `INF`, `WRN` or `ERR`.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Level::Debug => "DBG",
            Level::Info => "INF",
            Level::Warning => "WRN",
            Level::Error => "ERR",
        }
    }
}

impl Event {
    /// Returns the importance of the event.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Event::ConnectFailed { .. } | Event::ErrorFrame { .. } => Level::Error,
            Event::Disconnected { error: Some(_), .. }
            | Event::HandlerFailed { .. }
            | Event::DiscoveryFailed { .. } => Level::Error,
            // NSQ's client logs an unknown topic as an error. A topic begins with its first message, so a warning is enough.
            Event::TopicNotFound { .. }
            | Event::NoNode { .. }
            | Event::AnswerTooLate { .. }
            | Event::ReadyTruncated { .. }
            | Event::BackoffEntered { .. }
            | Event::BackoffLeft { .. }
            | Event::NodesIgnored { .. }
            | Event::TimedOut { .. }
            | Event::DrainLimitReached { .. }
            | Event::GaveUp { .. } => Level::Warning,
            #[cfg(feature = "dedup")]
            Event::Dedup { report, .. } => match report {
                DedupReport::StoreUnavailable { .. }
                | DedupReport::EndFailed { .. }
                | DedupReport::SaveFailed { .. } => Level::Error,
                DedupReport::WithoutKey { .. }
                | DedupReport::ShorterThanTimeout { .. }
                | DedupReport::SaveDelayed { .. } => Level::Warning,
                DedupReport::StoreAvailable
                | DedupReport::ConsumerStopped { .. }
                | DedupReport::Saved { .. } => Level::Info,
            },
            _ => Level::Info,
        }
    }
}
