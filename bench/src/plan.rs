//! `nsq-bench plan`: from a measured profile and a demand to nodes, cores, memory, disk and network.
//!
//! ```text
//!   profile (find-max --out) ─► profile::load ─┐
//!                                              ├─► Needs::of ─► steps, assumptions, sensitivities
//!   demand (flags) ────────────────────────────┘        │
//!                                                       └─► render: text, or JSON
//! ```
//!
//! [`Needs::of`] is the whole arithmetic, a pure function. The steps show what it computed; the
//! sensitivities come from calling it again with one input varied at a time.

mod needs;
mod profile;
mod render;
mod sensitivity;
mod steps;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

pub use needs::{Demand, Needs};
pub use profile::{ProfileError, measuring_command};
pub use sensitivity::{Input, Sensitivity, Variant};
pub use steps::{Assumption, Step};

use crate::rate::parse_count;
use crate::result::Profile;
use crate::span::Span;

/// The flags of `plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What one node was measured to do: a file that `nsq-bench find-max --out FILE` wrote
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Messages published per day, such as 5e9
    #[arg(long, value_name = "MESSAGES", value_parser = parse_count)]
    pub per_day: f64,
    /// Mean size of a message's body, in bytes
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    pub size: f64,
    /// Channels per topic: how many times each message is delivered
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub channels: u32,
    /// The rate of the busiest moment, as a multiple of the day's mean
    #[arg(long, value_name = "FACTOR", default_value_t = 3.0, value_parser = at_least_1)]
    pub peak: f64,
    /// How long consumers may be away while every message is kept, such as 12h
    #[arg(long, value_name = "TIME", default_value = "12h")]
    pub retention: Span,
    /// Share of its measured rate that a node shall carry at the peak, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.6, value_parser = share)]
    pub utilisation: f64,
    /// Nodes beyond those that carry the peak
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub spare_nodes: u16,
    /// Nodes to which producers publish each message; consumers drop what they have seen
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub replicas: u16,
    /// Share of disk space and memory that may be used, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = share)]
    pub fill: f64,
    /// Bytes the daemon stores with each body: 50 for ringq, 30 for the original nsqd
    #[arg(long, value_name = "BYTES", default_value_t = 50)]
    pub stored_overhead: u32,
    /// Copies of a message the daemon stores: 1 for ringq, as many as channels for the original nsqd
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub stored_copies: u32,
    /// The daemon's --mem-queue-size: messages per topic that stay in memory
    #[arg(long, value_name = "MESSAGES", default_value_t = 10_000)]
    pub mem_queue: u64,
    /// Topics that may have a backlog at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub topics: u32,
    /// Disk space of a node in GB (1e9 bytes), if it is given: it may ask for more nodes
    #[arg(long, value_name = "GB", value_parser = parse_count)]
    pub node_disk_gb: Option<f64>,
    /// Bandwidth of a node per direction in Gbit/s, if it is given: it may ask for more nodes
    #[arg(long, value_name = "GBIT", value_parser = parse_count)]
    pub node_network_gbit: Option<f64>,
    /// Print the plan as JSON, all figures in bytes, seconds and messages
    #[arg(long)]
    pub json: bool,
}

impl Args {
    fn demand(&self) -> Demand {
        Demand {
            per_day: self.per_day,
            size_bytes: self.size,
            channels: self.channels.into(),
            peak: self.peak,
            retention_s: self.retention.as_secs_f64(),
            utilisation: self.utilisation,
            fill: self.fill,
            replicas: self.replicas.into(),
            spare_nodes: self.spare_nodes.into(),
            stored_overhead_bytes: self.stored_overhead.into(),
            stored_copies: self.stored_copies.into(),
            mem_queue: self.mem_queue as f64,
            topics: self.topics.into(),
            node_disk_bytes: self.node_disk_gb.map(|gb| gb * 1e9),
            node_network_bytes: self.node_network_gbit.map(|gbit| gbit * 1e9 / 8.0),
        }
    }
}

/// A plan with all that led to it.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// What is asked for.
    pub demand: Demand,
    /// What one node was measured to do.
    pub profile: Profile,
    /// What it takes.
    pub needs: Needs,
    /// How that comes about.
    pub steps: Vec<Step>,
    /// What it takes for granted.
    pub assumptions: Vec<Assumption>,
    /// What to know before relying on it.
    pub notes: Vec<String>,
    /// All inputs, those that matter most first.
    pub sensitivities: Vec<Sensitivity>,
}

impl Plan {
    /// The plan for a demand by a profile.
    #[must_use]
    pub fn of(demand: Demand, profile: Profile) -> Plan {
        let needs = Needs::of(&demand, &profile);
        Plan {
            steps: steps::steps(&demand, &profile, &needs),
            assumptions: steps::assumptions(&demand, &profile),
            notes: notes(&demand, &profile, &needs),
            sensitivities: sensitivity::sensitivities(&demand, &profile),
            demand,
            profile,
            needs,
        }
    }

    /// The plan as text for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        render::text(self)
    }
}

/// Where the measurement and the demand do not fit together well, and what is missing.
fn notes(demand: &Demand, profile: &Profile, needs: &Needs) -> Vec<String> {
    let mut notes = Vec::new();
    let channels = demand.channels as u32;
    let size_ratio = demand.size_bytes / profile.message_bytes;
    if channels != profile.channels || !(0.8..=1.25).contains(&size_ratio) {
        notes.push(format!(
            "the profile is of {:.0}-byte messages to {} channels, the demand of {:.0} bytes to \
             {channels}: the steps c and d bridge that by assumption. Better: {}",
            profile.message_bytes,
            profile.channels,
            demand.size_bytes,
            measuring_command(demand.size_bytes, channels)
        ));
    }
    if profile.generator_limited {
        notes.push(
            "the generator, not the daemon, was the limit of the profile: a node can do more, the \
             plan is on the safe side. Better: measure with the generator on another machine"
                .to_owned(),
        );
    }
    if needs.cores.is_none() || needs.memory_per_node.is_none() {
        notes.push(
            "the profile has no CPU time or memory of the daemon, so the plan has no cores or \
             memory: run find-max on the daemon's machine"
                .to_owned(),
        );
    }
    if let Some(used) = profile.daemon_cores_used
        && used < 0.5 * f64::from(profile.cores)
    {
        notes.push(format!(
            "at the measured rate the daemon used {used:.2} of {} cores: the objective ({}), one \
             busy shard or the generator beside it was the limit, not the machine's CPU",
            profile.cores, profile.slo
        ));
    }
    if let Some(seconds) = needs.catch_up_s
        && seconds > demand.retention_s
    {
        notes.push(
            "catching up takes longer than the retention: a second outage meanwhile finds less \
             room. A lower utilisation catches up faster"
                .to_owned(),
        );
    }
    notes
}

/// Why there is no plan.
#[derive(Debug)]
pub enum PlanError {
    /// No profile to rely on.
    Profile(ProfileError),
    /// The plan could not be printed.
    Print(std::io::Error),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Profile(error) => error.fmt(f),
            PlanError::Print(error) => write!(f, "cannot print the plan: {error}"),
        }
    }
}

impl std::error::Error for PlanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PlanError::Profile(error) => error.source(),
            PlanError::Print(error) => Some(error),
        }
    }
}

/// Runs `plan`: reads the profile, prints the plan.
///
/// # Errors
/// When there is no profile that can be relied on, or nothing to print to.
pub fn run(args: &Args) -> Result<(), PlanError> {
    let demand = args.demand();
    let profile = profile::load(args.profile.as_deref(), args.size, args.channels)
        .map_err(PlanError::Profile)?;
    let plan = Plan::of(demand, profile);
    let text = if args.json {
        let mut json = serde_json::to_string_pretty(&plan).expect("plain data");
        json.push('\n');
        json
    } else {
        plan.to_text()
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(PlanError::Print)
}

/// Runs `plan` as a program: an error goes to standard error.
pub fn main(args: Args) -> ExitCode {
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nsq-bench plan: {error}");
            ExitCode::FAILURE
        }
    }
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
