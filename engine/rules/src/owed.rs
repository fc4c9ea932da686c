//! [`Owed`]: the messages for which a drain waits.

use std::fmt;
use std::time::Duration;

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
