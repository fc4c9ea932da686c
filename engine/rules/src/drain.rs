//! [`Drain`]: decides when a drain is over, and what the log says about it.
//!
//! ```text
//!   begin ──► look, look, look ... ──┬─► nothing is owed: the process ends
//!                 │                  └─► the timeout is over: the process ends, the messages stay on disk
//!                 └─► from time to time a line about what is still owed
//! ```

use crate::broker::output::Level;
use crate::owed::Owed;
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
pub enum DrainStep {
    /// Messages are owed. The drain goes on.
    GoOn(Option<(Level, String)>),
    /// The drain is over, and the process ends. The text is the line for the log.
    End(Level, String),
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
        if owed.total() == 0 {
            let text = "nothing is owed any more, nsqd ends".to_owned();
            return DrainStep::End(Level::Info, text);
        }
        if let Some(timeout) = self.timeout
            && now.saturating_sub(self.began_at) >= timeout
        {
            let text = format!(
                "--drain-timeout is over, nsqd ends, and the messages stay on disk - {owed}"
            );
            return DrainStep::End(Level::Warning, text);
        }
        DrainStep::GoOn(self.line(now, owed))
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
            let shown = match drain.look(now, &owed(*waiting)) {
                DrainStep::GoOn(None) => String::new(),
                DrainStep::GoOn(Some((level, line))) => format!("{level:?} {line}"),
                DrainStep::End(level, line) => format!("End {level:?} {line}"),
            };
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
}
