//! `nsq-bench plan`: from a measured profile and a demand to nodes, cores, memory, disk and network.
//!
//! ```text
//!   profile (find-max --out) ─► profile::load ─┐
//!                                              ├─► calculate ─► needs and steps, assumptions, sensitivities
//!   demand (flags) ────────────────────────────┘        │
//!                                                       └─► render: text, or JSON
//! ```
//!
//! [`calculate`] is the whole arithmetic, a pure function, and [`steps`] shows how each value came about. The
//! sensitivities come from calling it again with one input varied at a time.

mod assumptions;
mod demand;
mod needs;
mod profile;
mod render;
mod sensitivity;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

use crate::judgement::CPU_NOT_TOLD_APART;
use crate::result::Profile;
use crate::scenario::unit::number;
use assumptions::{Assumption, assumptions};
use demand::Demand;
use needs::{CalculationStep, Needs, calculate, steps};
use profile::measuring_command;
use sensitivity::Sensitivity;

/// The flags of `plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The measured limits of one node: a file that `nsq-bench find-max --out FILE` wrote
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    demand: Demand,
    /// Print the plan as JSON, all figures in bytes, seconds and messages
    #[arg(long)]
    json: bool,
}

/// A plan with its inputs and its arithmetic.
#[derive(Debug, Serialize)]
struct CapacityPlan {
    demand: Demand,
    profile: Profile,
    needs: Needs,
    steps: Vec<CalculationStep>,
    assumptions: Vec<Assumption>,
    notes: Vec<String>,
    /// All inputs, those that matter most first.
    sensitivities: Vec<Sensitivity>,
}

impl CapacityPlan {
    fn of(demand: Demand, profile: Profile) -> CapacityPlan {
        let needs = calculate(&demand, &profile);
        CapacityPlan {
            needs,
            steps: steps(&demand, &profile, &needs),
            assumptions: assumptions(&demand, &profile),
            notes: notes(&demand, &profile, &needs),
            sensitivities: sensitivity::sensitivities(&demand, &profile),
            demand,
            profile,
        }
    }
}

/// Says where the measurement and the demand do not fit together well, and what is missing.
fn notes(demand: &Demand, profile: &Profile, needs: &Needs) -> Vec<String> {
    let size_ratio = demand.size_bytes / profile.message_bytes;
    let is_other =
        demand.channels != f64::from(profile.channels) || !(0.8..=1.25).contains(&size_ratio);
    let notes = [
        is_other.then(|| {
            format!(
                "the profile is of {:.0}-byte messages to {} channels, the demand of {:.0} bytes to \
                 {}: the steps c and d bridge that by assumption. Better: {}",
                profile.message_bytes,
                profile.channels,
                demand.size_bytes,
                demand.channels,
                measuring_command(demand)
            )
        }),
        profile.generator_limited.then(|| {
            "the generator, not the daemon, was the limit of the profile: a node can do more, the \
             plan is on the safe side. Better: measure with the generator on another machine"
                .to_owned()
        }),
        profile.reached_most.then(|| {
            "the search for the profile ended at its --most: a node can do more, the plan is on the safe side. \
             Better: measure with a higher --most"
                .to_owned()
        }),
        (!profile.tells_cpu_apart()).then(|| CPU_NOT_TOLD_APART.to_owned()),
        (needs.cores.is_none() || needs.memory_per_node.is_none()).then(|| {
            "the profile has no CPU time or memory of the daemon, so the plan has no cores or \
             memory: run find-max on the daemon's machine"
                .to_owned()
        }),
        (is_cpu_left(profile) && !profile.reached_most).then(|| {
            format!(
                "at the measured rate the daemon used {} of {} cores: the objective ({}), one \
                 busy shard or the generator beside it was the limit, not the machine's CPU",
                number(profile.daemon_cores_used.unwrap_or(0.0)),
                profile.cores,
                profile.slo
            )
        }),
        (needs.catch_up_s > Some(demand.retention_s)).then(|| {
            "catching up takes longer than the retention: a second outage meanwhile finds less \
             room. A lower utilisation catches up faster"
                .to_owned()
        }),
    ];
    notes.into_iter().flatten().collect()
}

/// Tells whether the measured rate left half of the machine's cores unused, so that something else was the limit.
fn is_cpu_left(profile: &Profile) -> bool {
    profile
        .daemon_cores_used
        .is_some_and(|used| used < 0.5 * f64::from(profile.cores))
}

/// Reads the profile and makes the plan, as text or JSON. Fails in words for the user.
pub fn run(args: &Args) -> Result<String, String> {
    let profile = profile::load(args.profile.as_deref(), &args.demand)?;
    let plan = CapacityPlan::of(args.demand, profile);
    Ok(if args.json {
        serde_json::to_string_pretty(&plan).expect("plain data") + "\n"
    } else {
        render::text(&plan)
    })
}
