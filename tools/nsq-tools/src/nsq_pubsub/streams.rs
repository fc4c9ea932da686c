//! [`Streams`]: the open streams, for `/stats`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::request::Subscription;

/// The open streams, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Streams {
    messages: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    streams: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    peer: SocketAddr,
    topic: String,
    channel: String,
    since: Instant,
}

/// An open stream. A drop removes it from the list.
#[derive(Debug)]
pub(super) struct Listed {
    streams: Arc<Streams>,
    number: u64,
}

impl Streams {
    /// Adds a stream that began at `since`.
    pub(super) fn open(
        self: &Arc<Streams>,
        peer: SocketAddr,
        subscription: &Subscription,
        since: Instant,
    ) -> Listed {
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        let entry = Entry {
            peer,
            topic: subscription.topic.clone(),
            channel: subscription.channel.clone(),
            since,
        };
        open.streams.insert(number, entry);
        drop(open);
        Listed {
            streams: Arc::clone(self),
            number,
        }
    }

    /// Counts messages that were written to a client.
    pub(super) fn count_messages(&self, count: u64) {
        self.messages.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the answer of `/stats`.
    pub(super) fn report(&self, now: Instant) -> String {
        let mut report = format!(
            "Total Messages: {}\n\n",
            self.messages.load(Ordering::Relaxed)
        );
        for entry in self.open.lock().streams.values() {
            let seconds = now.saturating_duration_since(entry.since).as_secs();
            let Entry {
                peer,
                topic,
                channel,
                ..
            } = entry;
            // Writing to a String cannot fail.
            let _ = writeln!(
                report,
                "[{peer}] [{topic} : {channel}] connected: {seconds}s"
            );
        }
        report
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.streams.open.lock().streams.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The original's report crashes after one of several clients has left.
    #[test]
    fn the_report_is_the_originals() {
        let streams = Arc::new(Streams::default());
        let begin = Instant::now();
        let open = |port: u16, channel: &str| {
            let subscription = Subscription {
                topic: "ps".to_owned(),
                channel: channel.to_owned(),
                max_in_flight: 1,
            };
            streams.open(
                SocketAddr::from(([127, 0, 0, 1], port)),
                &subscription,
                begin,
            )
        };
        let now = begin + Duration::from_millis(2900);
        assert_eq!(streams.report(now), "Total Messages: 0\n\n");
        let (first, _second) = (open(39020, "web"), open(39021, "b"));
        streams.count_messages(3);
        assert_eq!(
            streams.report(now),
            "Total Messages: 3\n\n[127.0.0.1:39020] [ps : web] connected: 2s\n\
             [127.0.0.1:39021] [ps : b] connected: 2s\n"
        );
        drop(first);
        assert_eq!(
            streams.report(begin),
            "Total Messages: 3\n\n[127.0.0.1:39021] [ps : b] connected: 0s\n"
        );
    }
}
