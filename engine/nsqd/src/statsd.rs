//! The push to statsd: every interval a snapshot as UDP datagrams.
//!
//! ```text
//!   shards ──► snapshot ──► lines (what changed since the last one) ──► datagrams, spread over the interval
//! ```
//!
//! The push has a separate thread. A shard only answers the question for its figures. The end of the process does not wait
//! for this thread: to resolve the name of the host can take minutes.

use crate::http::{memory_fields, stats_of_all};
use crate::process::Info;
use crate::shard::mail::Post;
use Sort::{Counter, Gauge};
use engine_rules::stats::{ChannelStats, LatencyStats, StatsFilter, StatsSnapshot, TopicStats};
use futures_lite::future::block_on;
use program::{log_error, log_info};
use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};
use wire::name::is_ephemeral;

/// The time at the end of each interval in which no datagram is sent.
const SPREAD_MARGIN: Duration = Duration::from_secs(1);
/// A datagram's size when none is given: `--statsd-udp-packet-size` of 0 or less.
const PACKET_BYTES_DEFAULT: usize = 4096;

/// Stops the pushes when it is dropped.
pub(crate) type Pushing = Sender<Infallible>;

/// Starts the pushes, if they are configured.
///
/// # Errors
/// No thread could be started.
pub(crate) fn start(info: &Info, post: Post) -> io::Result<Option<Pushing>> {
    let config = &info.config;
    if config.statsd_address.is_empty() {
        return Ok(None);
    }
    let (pushing, stop) = channel();
    let pusher = Pusher {
        address: config.statsd_address.clone(),
        interval: config.statsd_interval,
        packet_bytes: match usize::try_from(config.statsd_packet_bytes) {
            Ok(0) => PACKET_BYTES_DEFAULT,
            bytes => bytes.unwrap_or(usize::MAX),
        },
        lines: Lines::new(
            info.statsd_prefix.clone(),
            config.statsd_mem_stats,
            config.statsd_exclude_ephemeral,
        ),
        post,
        stop,
    };
    let thread = Builder::new().name("statsd".to_owned());
    thread.spawn(move || pusher.run())?;
    Ok(Some(pushing))
}

struct Pusher {
    address: String,
    interval: Duration,
    packet_bytes: usize,
    lines: Lines,
    post: Post,
    /// Closes when the process ends.
    stop: Receiver<Infallible>,
}

impl Pusher {
    fn run(mut self) {
        let mut next = Instant::now() + self.interval;
        while self.waits_until(next) {
            next = (next + self.interval).max(Instant::now());
            if let Err(why) = self.push() {
                let address = &self.address;
                log_error!("failed to create UDP socket to statsd({address}) - {why}");
            }
        }
    }

    /// Waits until `at`. Returns false, perhaps earlier, if the process ends.
    fn waits_until(&self, at: Instant) -> bool {
        let wait = at.saturating_duration_since(Instant::now());
        self.stop.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    }

    /// Pushes the figures.
    fn push(&mut self) -> io::Result<()> {
        let socket = connect(resolve(&self.address)?)?;
        log_info!("STATSD: pushing stats to {}", self.address);
        let filter = StatsFilter::default();
        let snapshot = block_on(stats_of_all(&self.post, &filter));
        let packets = packets(self.lines.of(snapshot), self.packet_bytes);
        let spread = self.interval.saturating_sub(SPREAD_MARGIN);
        let pause = spread / u32::try_from(packets.len().max(1)).unwrap_or(u32::MAX);
        for packet in &packets {
            // If nobody listens, the packet is lost, as in nsqd. The counters of later packets make up for it.
            let _ = socket.send(packet.as_bytes());
            self.waits_until(Instant::now() + pause);
        }
        Ok(())
    }
}

fn resolve(address: &str) -> io::Result<SocketAddr> {
    let mut addresses = address.to_socket_addrs()?;
    let none = || io::Error::other("the name has no address");
    addresses.next().ok_or_else(none)
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

/// Whole lines, as many as fit; one that fits none has a datagram of its own.
fn packets(lines: Vec<String>, bytes_max: usize) -> Vec<String> {
    let mut packets: Vec<String> = Vec::new();
    for line in lines {
        match packets.last_mut() {
            Some(packet) if packet.len() + line.len() <= bytes_max => packet.push_str(&line),
            _ => packets.push(line),
        }
    }
    packets
}

/// Makes lines, and remembers what was told last.
struct Lines {
    prefix: String,
    has_memory: bool,
    excludes_ephemeral: bool,
    /// The last snapshot, sorted.
    before: StatsSnapshot,
}

impl Lines {
    fn new(prefix: String, has_memory: bool, excludes_ephemeral: bool) -> Lines {
        Lines {
            prefix,
            has_memory,
            excludes_ephemeral,
            before: StatsSnapshot::default(),
        }
    }

    /// The lines of a snapshot that is sorted, in nsqd's order.
    fn of(&mut self, snapshot: StatsSnapshot) -> Vec<String> {
        let mut out = Out {
            prefix: &self.prefix,
            lines: Vec::new(),
        };
        let is_wanted = |name: &str| !self.excludes_ephemeral || !is_ephemeral(name.as_bytes());
        for topic in &snapshot.topics {
            if !is_wanted(&topic.topic_name) {
                continue;
            }
            let before = find(&self.before.topics, |t| t.topic_name.cmp(&topic.topic_name));
            out.topic(topic, before);
            for channel in &topic.channels {
                if is_wanted(&channel.channel_name) {
                    let channels = before.map_or(&[][..], |topic| &topic.channels);
                    let before = find(channels, |c| c.channel_name.cmp(&channel.channel_name));
                    out.channel(&topic.topic_name, channel, before);
                }
            }
        }
        if self.has_memory {
            for (name, value) in memory_fields(&snapshot.memory) {
                match name {
                    // A counter under another name, of a collector that there is not.
                    "gc_total_runs" => out.counter("mem.gc_runs", value, value),
                    name => out.gauge(&format!("mem.{name}"), value),
                }
            }
        }
        let lines = out.lines;
        self.before = snapshot;
        lines
    }
}

fn find<T>(sorted: &[T], compare: impl FnMut(&T) -> std::cmp::Ordering) -> Option<&T> {
    let index = sorted.binary_search_by(compare).ok()?;
    Some(&sorted[index])
}

/// A figure: its name, its sort, and how it is read.
type Row<T> = (&'static str, Sort, fn(&T) -> u64);

/// The sort of a figure: what was added since the last push, or the number itself.
#[derive(Clone, Copy)]
enum Sort {
    Counter,
    Gauge,
}

/// The figures of a topic, in nsqd's order.
const TOPIC: &[Row<TopicStats>] = &[
    ("message_count", Counter, |it| it.message_count),
    ("message_bytes", Counter, |it| it.message_bytes),
    ("depth", Gauge, |it| it.depth),
    ("backend_depth", Gauge, |it| it.backend_depth),
    ("oldest_unfinished_ms", Gauge, |it| it.oldest_unfinished_ms),
];

/// The figures of a channel, in nsqd's order.
const CHANNEL: &[Row<ChannelStats>] = &[
    ("message_count", Counter, |it| it.counters.message_count),
    ("depth", Gauge, |it| it.depth),
    ("backend_depth", Gauge, |it| it.backend_depth),
    ("in_flight_count", Gauge, |it| it.in_flight_count),
    ("deferred_count", Gauge, |it| it.deferred_count),
    ("oldest_unfinished_ms", Gauge, |it| it.oldest_unfinished_ms),
    ("requeue_count", Counter, |it| it.counters.requeue_count),
    ("timeout_count", Counter, |it| it.counters.timeout_count),
    ("clients", Gauge, |it| it.client_count),
];

struct Out<'a> {
    prefix: &'a str,
    lines: Vec<String>,
}

impl Out<'_> {
    fn gauge(&mut self, key: &str, value: impl Display) {
        self.lines.push(format!("{}{key}:{value}|g\n", self.prefix));
    }

    /// Less than before when the topic or channel was deleted and made again: as in nsqd.
    fn counter(&mut self, key: &str, value: u64, before: u64) {
        let change = value.wrapping_sub(before) as i64;
        self.lines
            .push(format!("{}{key}:{change}|c\n", self.prefix));
    }

    fn rows<T>(&mut self, of: &str, rows: &[Row<T>], now: &T, before: Option<&T>) {
        for (name, sort, read) in rows {
            let key = format!("{of}.{name}");
            match sort {
                Counter => self.counter(&key, read(now), before.map_or(0, read)),
                Gauge => self.gauge(&key, read(now)),
            }
        }
    }

    fn topic(&mut self, now: &TopicStats, before: Option<&TopicStats>) {
        let of = format!("topic.{}", now.topic_name);
        self.rows(&of, TOPIC, now, before);
        if !now.channels.is_empty() {
            self.latency(&of, &now.e2e_processing_latency);
        }
    }

    fn channel(&mut self, topic: &str, now: &ChannelStats, before: Option<&ChannelStats>) {
        let of = format!("topic.{topic}.channel.{}", now.channel_name);
        self.rows(&of, CHANNEL, now, before);
        self.latency(&of, &now.e2e_processing_latency);
    }

    fn latency(&mut self, of: &str, latency: &LatencyStats) {
        for percentile in &latency.percentiles {
            let percent = percentile.quantile * 100.0;
            let key = format!("{of}.e2e_processing_latency_{percent:.0}");
            self.gauge(&key, percentile.value as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine_rules::stats::{ChannelCounters, Percentile};

    #[test]
    fn lines_are_never_split() {
        let lines = |lengths: &[usize]| lengths.iter().map(|n| "x".repeat(*n)).collect();
        let sizes = |lengths: &[usize], max| -> Vec<usize> {
            packets(lines(lengths), max)
                .iter()
                .map(String::len)
                .collect()
        };
        assert_eq!(sizes(&[4, 4, 4], 8), [8, 4]);
        assert_eq!(sizes(&[4, 5, 4], 8), [4, 5, 4]);
        assert_eq!(sizes(&[20, 3, 20, 3, 3], 8), [20, 3, 20, 6]);
        assert_eq!(sizes(&[], 8), [0; 0]);
    }

    fn snapshot(count: u64) -> StatsSnapshot {
        let latency = LatencyStats {
            count: 3,
            percentiles: [1.0, 0.999, 0.95, 0.505, 0.5]
                .map(|quantile| Percentile {
                    quantile,
                    value: 250_284_077.9,
                })
                .into(),
        };
        let channel = |name: &str| ChannelStats {
            channel_name: name.to_owned(),
            counters: ChannelCounters {
                message_count: count,
                requeue_count: 1,
                ..ChannelCounters::default()
            },
            deferred_count: 1,
            client_count: 2,
            e2e_processing_latency: latency.clone(),
            ..ChannelStats::default()
        };
        let topic = |name: &str, channels| TopicStats {
            topic_name: name.to_owned(),
            channels,
            depth: 7,
            message_count: count,
            message_bytes: 6 * count,
            e2e_processing_latency: latency.clone(),
            ..TopicStats::default()
        };
        StatsSnapshot {
            topics: vec![
                topic("a.b-c_d", Vec::new()),
                topic("orders", vec![channel("billing"), channel("tmp#ephemeral")]),
                topic("z#ephemeral", Vec::new()),
            ],
            ..StatsSnapshot::default()
        }
    }

    #[test]
    fn keys_in_nsqds_order() {
        let mut lines = Lines::new("nsq.h.".to_owned(), true, true);
        let expected = "\
nsq.h.topic.a.b-c_d.message_count:4|c
nsq.h.topic.a.b-c_d.message_bytes:24|c
nsq.h.topic.a.b-c_d.depth:7|g
nsq.h.topic.a.b-c_d.backend_depth:0|g
nsq.h.topic.a.b-c_d.oldest_unfinished_ms:0|g
nsq.h.topic.orders.message_count:4|c
nsq.h.topic.orders.message_bytes:24|c
nsq.h.topic.orders.depth:7|g
nsq.h.topic.orders.backend_depth:0|g
nsq.h.topic.orders.oldest_unfinished_ms:0|g
nsq.h.topic.orders.e2e_processing_latency_100:250284077|g
nsq.h.topic.orders.e2e_processing_latency_100:250284077|g
nsq.h.topic.orders.e2e_processing_latency_95:250284077|g
nsq.h.topic.orders.e2e_processing_latency_50:250284077|g
nsq.h.topic.orders.e2e_processing_latency_50:250284077|g
nsq.h.topic.orders.channel.billing.message_count:4|c
nsq.h.topic.orders.channel.billing.depth:0|g
nsq.h.topic.orders.channel.billing.backend_depth:0|g
nsq.h.topic.orders.channel.billing.in_flight_count:0|g
nsq.h.topic.orders.channel.billing.deferred_count:1|g
nsq.h.topic.orders.channel.billing.oldest_unfinished_ms:0|g
nsq.h.topic.orders.channel.billing.requeue_count:1|c
nsq.h.topic.orders.channel.billing.timeout_count:0|c
nsq.h.topic.orders.channel.billing.clients:2|g
nsq.h.topic.orders.channel.billing.e2e_processing_latency_100:250284077|g
nsq.h.topic.orders.channel.billing.e2e_processing_latency_100:250284077|g
nsq.h.topic.orders.channel.billing.e2e_processing_latency_95:250284077|g
nsq.h.topic.orders.channel.billing.e2e_processing_latency_50:250284077|g
nsq.h.topic.orders.channel.billing.e2e_processing_latency_50:250284077|g
nsq.h.mem.heap_objects:0|g
nsq.h.mem.heap_idle_bytes:0|g
nsq.h.mem.heap_in_use_bytes:0|g
nsq.h.mem.heap_released_bytes:0|g
nsq.h.mem.gc_pause_usec_100:0|g
nsq.h.mem.gc_pause_usec_99:0|g
nsq.h.mem.gc_pause_usec_95:0|g
nsq.h.mem.next_gc_bytes:0|g
nsq.h.mem.gc_runs:0|c
";
        assert_eq!(lines.of(snapshot(4)).concat(), expected);
    }

    #[test]
    fn counters_tell_what_was_added() {
        let mut lines = Lines::new(String::new(), false, false);
        let counted = |lines: Vec<String>| -> Vec<String> {
            let is_wanted = |line: &&String| line.contains("orders") && line.contains("count:");
            let is_counter = |line: &&String| line.ends_with("|c\n");
            lines
                .iter()
                .filter(is_wanted)
                .filter(is_counter)
                .map(|line| line.rsplit(':').next().unwrap().trim().to_owned())
                .collect()
        };
        let first = lines.of(snapshot(4));
        assert!(first.iter().any(|line| line.contains("z#ephemeral")));
        assert_eq!(
            counted(first),
            ["4|c", "4|c", "1|c", "0|c", "4|c", "1|c", "0|c"]
        );
        let second = counted(lines.of(snapshot(10)));
        assert_eq!(second, ["6|c", "6|c", "0|c", "0|c", "6|c", "0|c", "0|c"]);
        // Deleted and made again in between.
        let third = counted(lines.of(snapshot(9)));
        assert_eq!(third[0], "-1|c");
        // Gone, and there again: counted from nothing.
        lines.of(StatsSnapshot::default());
        assert_eq!(counted(lines.of(snapshot(2)))[0], "2|c");
    }
}
