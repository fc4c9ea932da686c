//! The demand that a plan is for: the flags of `plan`.

use clap::builder::TypedValueParser;
use clap::value_parser;
use serde::Serialize;

use crate::scenario::rate::parse_count;
use crate::scenario::span::Span;

/// The work of the cluster, and how much room it shall keep: the flags of `plan`. Whole numbers are
/// floating-point, too, so that each of them can be varied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, clap::Args)]
pub(super) struct Demand {
    /// Messages published per day, such as 5e9
    #[arg(long, value_name = "MESSAGES", value_parser = parse_count)]
    pub(super) per_day: f64,
    /// Mean size of a message's body, in bytes
    #[arg(long = "size", value_name = "BYTES", value_parser = parse_count)]
    pub(super) size_bytes: f64,
    /// Channels per topic: how many times each message is delivered
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = up_to_10_000())]
    pub(super) channels: f64,
    /// The rate of the busiest moment, as a multiple of the day's mean
    #[arg(long, value_name = "FACTOR", default_value = "3", value_parser = at_least_1)]
    pub(super) peak: f64,
    /// The time that consumers may be away while every message is kept, such as 12h
    #[arg(long = "retention", value_name = "TIME", default_value = "12h", value_parser = seconds)]
    pub(super) retention_s: f64,
    /// Share of its measured rate that a node shall carry at the peak, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.6", value_parser = share)]
    pub(super) utilisation: f64,
    /// Share of disk space and memory that may be used, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.8", value_parser = share, display_order = 9)]
    pub(super) fill: f64,
    /// Nodes to which producers publish each message; consumers drop what they have seen
    #[arg(long, value_name = "COUNT", default_value = "1",
          value_parser = value_parser!(u16).range(1..).map(f64::from))]
    pub(super) replicas: f64,
    /// Nodes beyond those that carry the peak
    #[arg(long, value_name = "COUNT", default_value = "1", display_order = 7,
          value_parser = value_parser!(u16).map(f64::from))]
    pub(super) spare_nodes: f64,
    /// Bytes the daemon stores with each body: 50 for ringq, 30 for the original nsqd
    #[arg(long = "stored-overhead", value_name = "BYTES", default_value = "50",
          value_parser = value_parser!(u32).map(f64::from))]
    pub(super) stored_overhead_bytes: f64,
    /// Copies of a message the daemon stores: 1 for ringq, as many as channels for the original nsqd
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = up_to_10_000())]
    pub(super) stored_copies: f64,
    /// The daemon's --mem-queue-size: messages per topic that stay in memory
    #[arg(long, value_name = "MESSAGES", default_value = "10000",
          value_parser = value_parser!(u64).map(|count| count as f64))]
    pub(super) mem_queue: f64,
    /// Topics that may have a backlog at the same time
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = value_parser!(u32).map(f64::from))]
    pub(super) topics: f64,
    /// Processes of producers and consumers, each connected to every node. The plan then has connections
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..).map(f64::from))]
    pub(super) clients: Option<f64>,
    /// Disk space of a node in GB (1e9 bytes), if it is given: it may ask for more nodes
    #[arg(long = "node-disk-gb", value_name = "GB", value_parser = gigabytes)]
    pub(super) node_disk_bytes: Option<f64>,
    /// Bandwidth of a node per direction in Gbit/s, if it is given: it may ask for more nodes
    #[arg(long = "node-network-gbit", value_name = "GBIT", value_parser = gigabits)]
    pub(super) node_network_bytes: Option<f64>,
}

fn up_to_10_000() -> impl TypedValueParser<Value = f64> {
    value_parser!(u32).range(1..=10_000).map(f64::from)
}

fn at_least_1(text: &str) -> Result<f64, String> {
    match parse_count(text)? {
        factor if factor >= 1.0 => Ok(factor),
        _ => Err("the busiest moment is never below the mean: give 1 or more".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!(
            "`{text}` is no share above 0 and up to 1, such as 0.6"
        )),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().map(|span: Span| span.0.as_secs_f64())
}

fn gigabytes(text: &str) -> Result<f64, String> {
    parse_count(text).map(|gigabytes| gigabytes * 1e9)
}

fn gigabits(text: &str) -> Result<f64, String> {
    parse_count(text).map(|gigabits| gigabits * 1e9 / 8.0)
}
