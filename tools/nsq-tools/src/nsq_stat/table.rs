//! [`Table`]: the lines of the output.

use std::time::Duration;

use nsq_http::ChannelStats;

/// Polls from one heading to the next. The first poll prints no line of its own.
const HEADING_POLLS: u64 = 25;

const HEADING: &str = "\
------rate------+----------------depth----------------+--------------metadata---------------
";

/// The figures of a channel, summed over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) depth: i64,
    pub(super) backend_depth: i64,
    pub(super) in_flight: i64,
    pub(super) deferred: i64,
    pub(super) requeues: i64,
    pub(super) timeouts: i64,
    pub(super) messages: i64,
    pub(super) clients: i64,
}

/// The output so far: which poll comes next, and the figures of the last one.
#[derive(Debug)]
pub(super) struct Table {
    interval: Duration,
    polls: u64,
    last: Option<Figures>,
}

/// The output for one poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) text: String,
    /// False for the first poll, whose figures are only compared with.
    pub(super) has_line: bool,
}

impl Figures {
    /// Adds the figures of a node.
    pub(super) fn add(&mut self, channel: &ChannelStats) {
        self.depth += channel.depth;
        self.backend_depth += channel.backend_depth;
        self.in_flight += channel.in_flight_count;
        self.deferred += channel.deferred_count;
        self.requeues += channel.requeue_count;
        self.timeouts += channel.timeout_count;
        self.messages += channel.message_count;
        self.clients += channel.count_clients();
    }
}

impl Table {
    pub(super) fn new(interval: Duration) -> Table {
        Table {
            interval,
            polls: 0,
            last: None,
        }
    }

    /// Returns the output for the figures of the next poll.
    pub(super) fn rows(&mut self, now: Figures) -> Rows {
        let mut text = String::new();
        if self.polls.is_multiple_of(HEADING_POLLS) {
            text += HEADING;
            text += &format!(
                "{:>7} {:>7} | {:>7} {:>7} {:>7} {:>5} {:>5} | {:>7} {:>7} {:>12} {:>7}\n",
                "ingress",
                "egress",
                "total",
                "mem",
                "disk",
                "inflt",
                "def",
                "req",
                "t-o",
                "msgs",
                "clients"
            );
        }
        self.polls += 1;
        let last = self.last.replace(now);
        if let Some(last) = last {
            let arrived = now.messages - last.messages;
            let left = arrived - (now.depth - last.depth);
            text += &format!(
                "{:>7} {:>7} | {:>7} {:>7} {:>7} {:>5} {:>5} | {:>7} {:>7} {:>12} {:>7}\n",
                self.rate(arrived),
                self.rate(left),
                now.depth,
                now.depth - now.backend_depth,
                now.backend_depth,
                now.in_flight,
                now.deferred,
                now.requeues,
                now.timeouts,
                now.messages,
                now.clients
            );
        }
        Rows {
            text,
            has_line: last.is_some(),
        }
    }

    /// Returns a rate per second. Like the original, divides by the interval and not by the time that
    /// has passed, and rounds toward zero.
    fn rate(&self, count: i64) -> i64 {
        (count as f64 / self.interval.as_secs_f64()) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(messages: i64, depth: i64) -> Figures {
        Figures {
            depth,
            messages,
            ..Default::default()
        }
    }

    /// The lines are those that the original printed for the same figures.
    #[test]
    fn lines_are_the_originals() {
        let mut table = Table::new(Duration::from_millis(500));
        let first = table.rows(figures(1, 1));
        assert!(!first.has_line);
        let heading = "\
------rate------+----------------depth----------------+--------------metadata---------------
ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients
";
        assert_eq!(first.text, heading);
        assert_eq!(
            table.rows(figures(11, 6)).text,
            "     20      10 |       6       6       0     0     0 |       0       0           11       0\n"
        );
        // A restarted nsqd begins again at 0.
        let all = Figures {
            depth: 12_345_678,
            backend_depth: 12_000_000,
            in_flight: 100_000,
            deferred: 3,
            requeues: 4,
            timeouts: 5,
            messages: 0,
            clients: 7,
        };
        assert_eq!(
            table.rows(all).text,
            "    -22 -24691366 | 12345678  345678 12000000 100000     3 |       4       5            0       7\n"
        );
    }

    #[test]
    fn rates_are_rounded_toward_zero() {
        let mut table = Table::new(Duration::from_secs(3));
        table.rows(figures(10, 0));
        let line = table.rows(figures(15, 0)).text;
        assert!(line.starts_with("      1       1 |"), "{line}");
        let line = table.rows(figures(10, 0)).text;
        assert!(line.starts_with("     -1      -1 |"), "{line}");
    }

    #[test]
    fn the_heading_comes_with_every_25th_poll() {
        let mut table = Table::new(Duration::from_secs(1));
        let mut with_heading = Vec::new();
        for poll in 0..60 {
            if table.rows(figures(poll, 0)).text.starts_with(HEADING) {
                with_heading.push(poll);
            }
        }
        assert_eq!(with_heading, [0, 25, 50]);
    }
}
