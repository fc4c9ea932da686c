//! `nsq-bench plan`: from a measured profile and a demand to nodes, cores, memory, disk and network.
//!
//! ```text
//!   profile (find-max --out) ─► profile::load ─┐
//!                                              ├─► Needs::of ─► steps, assumptions, sensitivities
//!   demand (flags) ────────────────────────────┘        │
//!                                                       └─► render: text, or JSON
//! ```
//!
//! [`Needs::of`] is the whole arithmetic, a pure function. The steps show what it computed. The
//! sensitivities come from calling it again with one input varied at a time.

mod needs;
mod profile;
mod render;
mod sensitivity;
mod steps;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::result::Profile;
use needs::{Demand, Needs};
use profile::measuring_command;
use sensitivity::Sensitivity;
use steps::{Assumption, Step};

/// The flags of `plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What one node was measured to do: a file that `nsq-bench find-max --out FILE` wrote
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    demand: Demand,
    /// Print the plan as JSON, all figures in bytes, seconds and messages
    #[arg(long)]
    json: bool,
}

/// A plan with all that led to it.
#[derive(Debug, Serialize)]
struct Plan {
    /// The demand.
    demand: Demand,
    /// The measurement of one node.
    profile: Profile,
    /// The needs that follow.
    needs: Needs,
    /// The arithmetic.
    steps: Vec<Step>,
    /// The assumptions behind the steps.
    assumptions: Vec<Assumption>,
    /// Warnings about the measurement and the demand.
    notes: Vec<String>,
    /// All inputs, those that matter most first.
    sensitivities: Vec<Sensitivity>,
}

impl Plan {
    /// The plan for a demand by a profile.
    fn of(demand: Demand, profile: Profile) -> Plan {
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
    fn to_text(&self) -> String {
        render::text(self)
    }
}

/// Says where the measurement and the demand do not fit together well, and what is missing.
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
            measuring_command(demand)
        ));
    }
    if profile.generator_limited {
        let text = "the generator, not the daemon, was the limit of the profile: a node can do more, the \
                    plan is on the safe side. Better: measure with the generator on another machine";
        notes.push(text.to_owned());
    }
    if needs.cores.is_none() || needs.memory_per_node.is_none() {
        let text = "the profile has no CPU time or memory of the daemon, so the plan has no cores or \
                    memory: run find-max on the daemon's machine";
        notes.push(text.to_owned());
    }
    let half_of_the_cores = 0.5 * f64::from(profile.cores);
    if let Some(used) = profile
        .daemon_cores_used
        .filter(|used| *used < half_of_the_cores)
    {
        notes.push(format!(
            "at the measured rate the daemon used {used:.2} of {} cores: the objective ({}), one \
             busy shard or the generator beside it was the limit, not the machine's CPU",
            profile.cores, profile.slo
        ));
    }
    if needs
        .catch_up_s
        .is_some_and(|seconds| seconds > demand.retention_s)
    {
        let text = "catching up takes longer than the retention: a second outage meanwhile finds less \
                    room. A lower utilisation catches up faster";
        notes.push(text.to_owned());
    }
    notes
}

/// Runs `plan` as a program: reads the profile, prints the plan. An error goes to standard error.
pub fn main(args: &Args) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nsq-bench plan: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let profile = profile::load(args.profile.as_deref(), &args.demand)?;
    let plan = Plan::of(args.demand, profile);
    let text = match args.json {
        true => serde_json::to_string_pretty(&plan).expect("plain data") + "\n",
        false => plan.to_text(),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot print the plan: {error}"))
}
