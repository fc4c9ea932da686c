//! [`Depth`]: the messages that wait in the daemon, from `/stats`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Deserialize;

use crate::clock::Clock;
use crate::generator::control::Control;
use crate::http::call;
use crate::result::grid::Grid;

/// Time between two looks of the sampler at its stop flag.
const STOP_LOOK: Duration = Duration::from_millis(10);
/// This many looks at /stats without a message anywhere mean that nothing more will come.
const EMPTY_LOOKS: usize = 4;

/// The numbers of messages that the daemon holds in a run's topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Depth {
    /// Messages that wait in channels, and in topics without a channel.
    pub depth: u64,
    /// Messages delivered and not answered yet.
    #[serde(rename = "in_flight_count")]
    pub in_flight: u64,
    /// Messages that wait for the end of their delay.
    #[serde(rename = "deferred_count")]
    pub deferred: u64,
}

impl Depth {
    /// Tells whether the daemon has no message of the run.
    pub fn is_zero(&self) -> bool {
        *self == Depth::default()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stats {
    topics: Vec<Topic>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Topic {
    topic_name: String,
    depth: u64,
    channels: Vec<Depth>,
}

/// Asks `/stats` for the topics whose names begin with `prefix`, or for the topic `prefix` alone if `single`.
/// Fails when the daemon does not answer, or not with statistics.
pub fn ask(http: SocketAddr, prefix: &str, single: bool) -> Result<Depth, String> {
    let mut path = "/stats?format=json&include_clients=false&include_mem=false".to_string();
    if single {
        path += &format!("&topic={prefix}");
    }
    parse(&call(http, "GET", &path)?, prefix)
}

fn parse(body: &[u8], prefix: &str) -> Result<Depth, String> {
    let stats: Stats =
        serde_json::from_slice(body).map_err(|error| format!("/stats is no JSON: {error}"))?;
    let mut sum = Depth::default();
    let is_ours = |topic: &&Topic| topic.topic_name.starts_with(prefix);
    for topic in stats.topics.iter().filter(is_ours) {
        sum.depth += topic.depth;
        for channel in &topic.channels {
            add_fields!(sum, channel, depth in_flight deferred);
        }
    }
    Ok(sum)
}

/// A thread that asks `/stats` at every boundary of the grid, so that a slow answer delays nobody.
pub struct DepthSampler {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    found: Receiver<(u64, Depth)>,
    /// The time of each look, in nanoseconds, with the depth found.
    pub looks: Vec<(u64, Depth)>,
}

impl DepthSampler {
    /// Starts to ask for the depth of a run's topics, as [`ask`] does; without an HTTP address it asks
    /// nobody.
    pub fn start(
        http: Option<SocketAddr>,
        prefix: &str,
        single: bool,
        clock: Clock,
        grid: Grid,
    ) -> DepthSampler {
        let stop = Arc::new(AtomicBool::new(false));
        let (tx, found) = channel();
        let stopped = Arc::clone(&stop);
        let prefix = prefix.to_string();
        let handle = http.and_then(|http| {
            let look = move || {
                let mut next_ns = grid.start;
                while !Control::is_set(&stopped) {
                    let now_ns = clock.now_ns();
                    if now_ns < next_ns {
                        thread::sleep(Duration::from_nanos(next_ns - now_ns).min(STOP_LOOK));
                        continue;
                    }
                    // A daemon that does not answer in time leaves this row without a depth.
                    if let Ok(depth) = ask(http, &prefix, single) {
                        // The conductor is gone only when the run is over.
                        let _ = tx.send((next_ns, depth));
                    }
                    let now_ns = clock.now_ns();
                    while next_ns <= now_ns {
                        next_ns = grid.boundary_after(next_ns);
                    }
                }
            };
            thread::Builder::new().name("stats".into()).spawn(look).ok()
        });
        DepthSampler {
            stop,
            handle,
            found,
            looks: Vec::new(),
        }
    }

    /// Takes in the depths that the thread has found.
    pub fn receive(&mut self) {
        self.looks.extend(self.found.try_iter());
    }

    /// Tells whether the last looks, none of them before number `first`, found nothing.
    pub fn empty_since(&self, first: usize) -> bool {
        let looks = self.looks[first..].iter().rev();
        looks.take_while(|(_, depth)| depth.is_zero()).count() >= EMPTY_LOOKS
    }

    /// Ends the thread. Returns the depths it found, by boundary.
    pub fn stop(mut self) -> Vec<(u64, Depth)> {
        Control::set(&self.stop);
        if let Some(handle) = self.handle.take() {
            drop(handle.join());
        }
        self.receive();
        self.looks
    }
}

#[cfg(test)]
mod tests;
