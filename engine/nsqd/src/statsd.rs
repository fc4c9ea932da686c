//! The push to statsd: every interval a snapshot as UDP datagrams.
//!
//! ```text
//!   shards ──► snapshot ──► lines (what changed since the last one) ──► datagrams, spread over the interval
//! ```
//!
//! The push has a separate thread. A shard only answers the question for its figures. The stop of the process waits for the
//! push, but not for the name of the host: a name is resolved on a thread of its own, because that can take minutes.

use crate::process::Info;
use crate::shard::http_broker;
use crate::shard::mail::Post;
use engine_rules::stats::StatsFilter;
use futures_lite::future::block_on;
use program::{log_error, log_info};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

mod lines;

use lines::Lines;

/// The time at the end of each interval in which no datagram is sent.
const SPREAD_MARGIN: Duration = Duration::from_secs(1);
/// A datagram's size when none is given: `--statsd-udp-packet-size` of 0 or less.
const PACKET_BYTES_DEFAULT: usize = 4096;

/// An event that a push waits for.
pub(crate) enum Event {
    /// The name of the host has an address, or none.
    Resolved(io::Result<SocketAddr>),
    /// The process ends.
    Stop,
}

/// Starts the pushes, if they are configured, until an [`Event::Stop`] comes.
///
/// # Errors
/// No thread could be started.
pub(crate) fn start(
    info: &Info,
    post: Post,
    (sender, events): (Sender<Event>, Receiver<Event>),
) -> io::Result<Option<JoinHandle<()>>> {
    let config = &info.config;
    if config.statsd_address.is_empty() {
        return Ok(None);
    }
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
        sender,
        events,
    };
    let thread = Builder::new().name("statsd".to_owned());
    thread.spawn(move || pusher.run()).map(Some)
}

struct Pusher {
    address: String,
    interval: Duration,
    packet_bytes: usize,
    lines: Lines,
    post: Post,
    /// The way to this thread, for the one that resolves the name.
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Pusher {
    fn run(mut self) {
        let mut next = Instant::now() + self.interval;
        let mut is_resolving = false;
        loop {
            match self.event_before(next) {
                Some(Event::Stop) => break,
                Some(Event::Resolved(address)) => {
                    is_resolving = false;
                    match self.push(address) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(why) => self.tell_failure(&why.to_string()),
                    }
                }
                None => {
                    next = (next + self.interval).max(Instant::now());
                    if is_resolving {
                        self.tell_failure("the name of the host is still being resolved");
                        continue;
                    }
                    is_resolving = true;
                    self.resolve();
                }
            }
        }
        log_info!("STATSD: closing");
    }

    fn tell_failure(&self, why: &str) {
        let address = &self.address;
        log_error!("failed to create UDP socket to statsd({address}) - {why}");
    }

    /// Waits for an event until `at`.
    fn event_before(&self, at: Instant) -> Option<Event> {
        let wait = at.saturating_duration_since(Instant::now());
        // This thread keeps a sender, so the channel never closes: an error only means that the time is over.
        self.events.recv_timeout(wait).ok()
    }

    /// Has the address resolved. The next event has the result, unless the process ends before.
    fn resolve(&self) {
        let (address, sender) = (self.address.clone(), self.sender.clone());
        let resolve = move || {
            // The thread of the pushes ends with the process only.
            let _ = sender.send(Event::Resolved(resolve(&address)));
        };
        if self.address.parse::<SocketAddr>().is_ok() {
            return resolve();
        }
        let thread = Builder::new().name("statsd-dns".to_owned());
        if let Err(error) = thread.spawn(resolve) {
            let _ = self.sender.send(Event::Resolved(Err(error)));
        }
    }

    /// Pushes the figures. Returns false if the process ends.
    fn push(&mut self, address: io::Result<SocketAddr>) -> io::Result<bool> {
        let socket = connect(address?)?;
        log_info!("STATSD: pushing stats to {}", self.address);
        let filter = StatsFilter::default();
        let snapshot = block_on(http_broker::stats_of_all(&self.post, &filter));
        let packets = packets(self.lines.of(snapshot), self.packet_bytes);
        let spread = self.interval.saturating_sub(SPREAD_MARGIN);
        let pause = spread / u32::try_from(packets.len().max(1)).unwrap_or(u32::MAX);
        let mut is_stopped = false;
        for packet in &packets {
            // If nobody listens, the packet is lost, as in nsqd. The counters of later packets make up for it.
            let _ = socket.send(packet.as_bytes());
            is_stopped = is_stopped || self.event_before(Instant::now() + pause).is_some();
        }
        Ok(!is_stopped)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
