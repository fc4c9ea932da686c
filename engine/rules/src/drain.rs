//! [`Drain`]: decides when a drain is over, and what the log says about it. [`Owed`]: the messages for which a drain
//! waits.
//!
//! ```text
//!   begin ──► look, look, look ... ──┬─► nothing is owed: the process ends
//!                 │                  └─► the timeout is over: the process ends, the messages stay on disk
//!                 └─► from time to time a line about what is still owed
//! ```

use crate::output::Level;
use std::fmt;
use std::time::Duration;

/// The time between two lines about the state of a drain.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A drain that is under way. The times are those of one monotonic clock.
#[derive(Debug)]
pub struct Drain {
    began_at: Duration,
    /// The time that the drain may take. `None`: no limit.
    timeout: Option<Duration>,
    line_at: Duration,
    /// The number of messages in the last line.
    told: Option<u64>,
}

/// The outcome of a look at what is owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainStep {
    /// The drain is over, and the process ends.
    pub is_over: bool,
    /// The line for the log, if there is one.
    pub line: Option<(Level, String)>,
}

impl Drain {
    /// A drain that begins now.
    pub fn begin(now: Duration, timeout: Option<Duration>) -> Drain {
        Drain {
            began_at: now,
            timeout,
            line_at: now,
            told: None,
        }
    }

    /// Decides whether the drain is over. `owed` is what all shards owe now.
    pub fn look(&mut self, now: Duration, owed: &Owed) -> DrainStep {
        let took = now.saturating_sub(self.began_at);
        let line = if owed.total() == 0 {
            let text = "nothing is owed any more, nsqd ends".to_owned();
            (Level::Info, text)
        } else if self.timeout.is_some_and(|timeout| took >= timeout) {
            let text = "--drain-timeout is over, nsqd ends, and the messages stay on disk";
            (Level::Warning, format!("{text} - {owed}"))
        } else {
            return DrainStep {
                is_over: false,
                line: self.line(now, owed),
            };
        };
        DrainStep {
            is_over: true,
            line: Some(line),
        }
    }

    fn line(&mut self, now: Duration, owed: &Owed) -> Option<(Level, String)> {
        if now < self.line_at {
            return None;
        }
        self.line_at = now + LINE_EVERY;
        let total = owed.total();
        match self.told.replace(total) {
            None => Some((Level::Info, format!("publishes are refused - {owed}"))),
            Some(before) if total < before => Some((
                Level::Info,
                format!("{} less than before - {owed}", before - total),
            )),
            Some(_) => Some((Level::Warning, format!("no progress - {owed}"))),
        }
    }
}

/// The number of causes that a log line names.
const CAUSES_MAX: usize = 5;

/// The messages that a node still has for its channels, and the causes that keep them from leaving.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owed {
    /// The messages that wait in channels. A message of two channels counts twice.
    pub waiting: u64,
    /// The messages in flight.
    pub in_flight: u64,
    /// The deferred messages of channels.
    pub deferred: u64,
    /// The messages that no channel has been given: their topic has no channel, is paused, or has not started.
    pub undistributed: u64,
    /// The messages that topics keep until the end of their grace.
    pub in_grace: u64,
    /// The time until the last deferred message is due.
    pub last_due_in: Option<Duration>,
    /// The first causes, such as `orders/billing has no consumer`.
    causes: Vec<String>,
    /// The number of the other causes.
    more_causes: usize,
}

impl Owed {
    /// Returns the number of messages of all kinds together. The drain is over at 0.
    pub fn total(&self) -> u64 {
        self.waiting + self.in_flight + self.deferred + self.undistributed + self.in_grace
    }

    /// Adds a cause that keeps messages from leaving.
    pub(crate) fn add_cause(&mut self, cause: fmt::Arguments<'_>) {
        if self.causes.len() < CAUSES_MAX {
            self.causes.push(cause.to_string());
        } else {
            self.more_causes += 1;
        }
    }

    /// Adds what another shard owes.
    pub fn add(&mut self, other: Owed) {
        self.waiting += other.waiting;
        self.in_flight += other.in_flight;
        self.deferred += other.deferred;
        self.undistributed += other.undistributed;
        self.in_grace += other.in_grace;
        self.last_due_in = self.last_due_in.max(other.last_due_in);
        self.more_causes += other.more_causes;
        for cause in other.causes {
            self.add_cause(format_args!("{cause}"));
        }
    }
}

/// Writes the text of log lines.
impl fmt::Display for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            (self.waiting, "waiting"),
            (self.in_flight, "in flight"),
            (self.deferred, "deferred"),
            (self.undistributed, "without a channel or behind a pause"),
            (self.in_grace, "in the grace of a new topic"),
        ];
        write!(f, "{} messages are owed", self.total())?;
        let mut separator = ": ";
        for (count, kind) in kinds.iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {kind}")?;
            separator = ", ";
        }
        if let Some(wait) = self.last_due_in {
            write!(f, "; the last deferred one is due in {} s", seconds(wait))?;
        }
        let mut separator = "; ";
        for cause in &self.causes {
            write!(f, "{separator}{cause}")?;
            separator = ", ";
        }
        match self.more_causes {
            0 => Ok(()),
            more => write!(f, ", and {more} more such causes"),
        }
    }
}

/// Returns whole seconds, rounded up.
fn seconds(time: Duration) -> u128 {
    time.as_millis().div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed(waiting: u64) -> Owed {
        let mut owed = Owed::default();
        owed.waiting += waiting;
        owed
    }

    fn check(timeout: Option<u64>, looks: &[(u64, u64, &str)]) {
        let timeout = timeout.map(Duration::from_secs);
        let mut drain = Drain::begin(Duration::from_secs(100), timeout);
        for (after, waiting, expected) in looks {
            let now = Duration::from_secs(100 + after);
            let DrainStep { is_over, line } = drain.look(now, &owed(*waiting));
            let line = line.map_or(String::new(), |(level, line)| format!("{level:?} {line}"));
            let shown = if is_over { format!("End {line}") } else { line };
            assert_eq!(shown, *expected, "after {after} s");
        }
    }

    #[test]
    fn lines_say_whether_there_is_progress() {
        check(
            None,
            &[
                (
                    0,
                    5,
                    "Info publishes are refused - 5 messages are owed: 5 waiting",
                ),
                (9, 4, ""),
                (
                    10,
                    3,
                    "Info 2 less than before - 3 messages are owed: 3 waiting",
                ),
                (
                    20,
                    3,
                    "Warning no progress - 3 messages are owed: 3 waiting",
                ),
                // A new channel got messages of the grace.
                (
                    31,
                    4,
                    "Warning no progress - 4 messages are owed: 4 waiting",
                ),
                (40, 0, "End Info nothing is owed any more, nsqd ends"),
            ],
        );
    }

    #[test]
    fn the_timeout_ends_it() {
        let text = "End Warning --drain-timeout is over, nsqd ends, and the messages stay on disk - 1 messages are \
                    owed: 1 waiting";
        check(
            Some(5),
            &[(4, 0, "End Info nothing is owed any more, nsqd ends")],
        );
        check(
            Some(5),
            &[
                (
                    0,
                    1,
                    "Info publishes are refused - 1 messages are owed: 1 waiting",
                ),
                (4, 1, ""),
                (5, 1, text),
            ],
        );
    }

    #[test]
    fn the_text_names_kinds_and_causes() {
        let mut all = Owed {
            waiting: 3,
            deferred: 1,
            last_due_in: Some(Duration::from_millis(1500)),
            ..Owed::default()
        };
        all.add_cause(format_args!("t/c has no consumer"));
        let mut other = Owed {
            undistributed: 2,
            ..Owed::default()
        };
        for topic in ["a", "b", "c", "d", "e", "f"] {
            other.add_cause(format_args!("{topic} has no channel"));
        }
        all.add(other);
        assert_eq!(all.total(), 6);
        assert_eq!(
            all.to_string(),
            "6 messages are owed: 3 waiting, 1 deferred, 2 without a channel or behind a pause; the last deferred one \
             is due in 2 s; t/c has no consumer, a has no channel, b has no channel, c has no channel, \
             d has no channel, and 2 more such causes"
        );
        assert_eq!(Owed::default().to_string(), "0 messages are owed");
    }
}
