//! The profile that a plan starts from: what a `find-max` saved, if it can be relied on.

use std::path::Path;

use super::demand::Demand;
use crate::result::{Ended, FindMaxResult, Outcome, Profile, SavedResult};

/// The command that measures what a plan for this demand needs.
pub(super) fn measuring_command(demand: &Demand) -> String {
    let (size, channels) = (demand.size_bytes, demand.channels);
    format!(
        "nsq-bench find-max --slo 'p99<5ms,lost=0' --size {size:.0} --channels {channels} \
         --out profile.json"
    )
}

/// Reads the profile in `path`.
/// Fails when there is none that a plan can rely on; in words for the user, which end in what to measure.
pub(super) fn load(path: Option<&Path>, demand: &Demand) -> Result<Profile, String> {
    read(path).map_err(|problem| {
        format!(
            "{problem}\n\nMeasure with messages like yours, on a machine like the nodes to be:\n\n    \
             {}\n\nand plan with --profile profile.json",
            measuring_command(demand)
        )
    })
}

fn read(path: Option<&Path>) -> Result<Profile, String> {
    let path = path.ok_or("a plan needs a measurement, and --profile names none")?;
    let name = path.display();
    let saved = SavedResult::load(path, "profile")?;
    let kind = match saved.outcome {
        Outcome::FindMax(found) => return check(*found).map_err(|why| format!("{name}{why}")),
        Outcome::Run(_) => "run",
        Outcome::Sweep(_) => "sweep",
        Outcome::Compare(_) => "compare",
    };
    Err(format!(
        "{name} is the result of `nsq-bench {kind}`, which did not look for the highest rate within \
         an objective"
    ))
}

/// The profile of a search. The error stands behind the name of the file.
fn check(found: FindMaxResult) -> Result<Profile, String> {
    let unreliable = |why: String| format!(" cannot be planned by: {why}");
    doubt(&found).map_or(Ok(()), |why| Err(unreliable(why)))?;
    let mut profile = found.profile.ok_or_else(|| {
        format!(
            ": no rate met the objective {}, so there is nothing to plan by; relax the objective or \
             look at the daemon",
            found.slo
        )
    })?;
    // Earlier versions wrote 0 for a time that could not be told from another one.
    for cpu in [
        &mut profile.daemon_cores_used,
        &mut profile.cpu_s_per_published,
        &mut profile.cpu_s_per_delivered,
    ] {
        *cpu = cpu.filter(|value| *value != 0.0);
    }
    implausible(&profile).map_or(Ok(profile), |why| Err(unreliable(why)))
}

/// Finds the reason why the confirming run is not to be relied on, if there is one.
fn doubt(found: &FindMaxResult) -> Option<String> {
    let held = found.held.as_ref()?;
    let ledger = &held.ledger;
    if ledger.lost + ledger.corrupted > 0 {
        return Some(format!(
            "{} messages were lost and {} corrupted at the rate it names",
            ledger.lost, ledger.corrupted
        ));
    }
    match &held.ended {
        Ended::Complete => None,
        Ended::NotDrained => Some("not all messages arrived at the rate it names".to_owned()),
        Ended::Interrupted => Some("its confirming run was interrupted".to_owned()),
        Ended::Failed { reason } => Some(format!("its confirming run failed: {reason}")),
    }
}

/// Finds a figure that no measurement can yield, if there is one.
fn implausible(profile: &Profile) -> Option<String> {
    let must_be_positive = [
        ("messages_per_s", Some(profile.messages_per_s)),
        ("message_bytes", Some(profile.message_bytes)),
        ("daemon_cores_used", profile.daemon_cores_used),
        ("cpu_s_per_published", profile.cpu_s_per_published),
        ("cpu_s_per_delivered", profile.cpu_s_per_delivered),
    ];
    for (name, value) in must_be_positive {
        if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
            return Some(format!("its {name} is {value}"));
        }
    }
    (profile.channels == 0).then(|| "nothing consumed: its channels are 0".to_owned())
}
