//! The profile that a plan starts from: what a `find-max` saved, if it can be relied on.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::result::{Ended, FindMaxResult, Outcome, Profile, SavedResult};

/// Why there is no profile to plan from. Every text ends in what to measure, and how.
#[derive(Debug)]
pub struct ProfileError {
    problem: Problem,
    /// The measurement that would do.
    remedy: String,
}

#[derive(Debug)]
enum Problem {
    /// No file was named.
    NotGiven,
    Unreadable(PathBuf, std::io::Error),
    /// What `SavedResult::from_json` says.
    NotAResult(PathBuf, String),
    /// The kind that it is.
    WrongKind(PathBuf, &'static str),
    /// Nothing that met the objective.
    NothingFound(PathBuf, String),
    /// A measurement, but not one to plan by.
    Unreliable(PathBuf, String),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::NotGiven => write!(f, "a plan needs a measurement, and --profile names none")?,
            Problem::Unreadable(path, error) => {
                write!(f, "cannot read the profile {}: {error}", path.display())?;
            }
            Problem::NotAResult(path, why) => write!(f, "the profile {} {why}", path.display())?,
            Problem::WrongKind(path, kind) => write!(
                f,
                "{} is the result of `nsq-bench {kind}`, which did not look for the highest rate \
                 within an objective",
                path.display()
            )?,
            Problem::NothingFound(path, slo) => write!(
                f,
                "{}: no rate met the objective {slo}, so there is nothing to plan by; relax the \
                 objective or look at the daemon",
                path.display()
            )?,
            Problem::Unreliable(path, why) => {
                write!(f, "{} cannot be planned by: {why}", path.display())?;
            }
        }
        write!(
            f,
            "\n\nMeasure with messages like yours, on a machine like the nodes to be:\n\n"
        )?;
        write!(
            f,
            "    {}\n\nand plan with --profile profile.json",
            self.remedy
        )
    }
}

impl std::error::Error for ProfileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Unreadable(_, error) => Some(error),
            _ => None,
        }
    }
}

/// The command that measures what a plan for such messages needs.
#[must_use]
pub fn measuring_command(size_bytes: f64, channels: u32) -> String {
    format!(
        "nsq-bench find-max --slo 'p99<5ms,lost=0' --size {size_bytes:.0} --channels {channels} \
         --out profile.json"
    )
}

/// Reads the profile in `path`; `size_bytes` and `channels` are the demand's, for the advice.
///
/// # Errors
/// When there is none that a plan can rely on.
pub(super) fn load(
    path: Option<&Path>,
    size_bytes: f64,
    channels: u32,
) -> Result<Profile, ProfileError> {
    let remedy = measuring_command(size_bytes, channels);
    read(path).map_err(|problem| ProfileError { problem, remedy })
}

fn read(path: Option<&Path>) -> Result<Profile, Problem> {
    let path = path.ok_or(Problem::NotGiven)?;
    let named = || path.to_path_buf();
    let text =
        std::fs::read_to_string(path).map_err(|error| Problem::Unreadable(named(), error))?;
    let saved = SavedResult::from_json(&text).map_err(|why| Problem::NotAResult(named(), why))?;
    let found = match saved.outcome {
        Outcome::FindMax(found) => found,
        Outcome::Run(_) => return Err(Problem::WrongKind(named(), "run")),
        Outcome::Sweep(_) => return Err(Problem::WrongKind(named(), "sweep")),
        Outcome::Compare(_) => return Err(Problem::WrongKind(named(), "compare")),
    };
    if let Some(why) = doubt(&found) {
        return Err(Problem::Unreliable(named(), why));
    }
    let FindMaxResult { profile, slo, .. } = *found;
    let profile = profile.ok_or_else(|| Problem::NothingFound(named(), slo))?;
    match implausible(&profile) {
        Some(why) => Err(Problem::Unreliable(named(), why)),
        None => Ok(profile),
    }
}

/// Why the confirming run is not to be relied on, if so.
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

/// A figure that no measurement yields, if there is one.
fn implausible(profile: &Profile) -> Option<String> {
    let must_be_positive = [
        ("messages_per_s", Some(profile.messages_per_s)),
        ("message_bytes", Some(profile.message_bytes)),
        ("daemon_cores_used", profile.daemon_cores_used),
        ("cpu_s_per_published", profile.cpu_s_per_published),
        ("cpu_s_per_delivered", profile.cpu_s_per_delivered),
    ];
    let wrong = must_be_positive
        .into_iter()
        .find(|(_, value)| value.is_some_and(|value| !value.is_finite() || value <= 0.0));
    if let Some((name, value)) = wrong {
        return Some(format!("its {name} is {}", value.unwrap_or_default()));
    }
    (profile.channels == 0).then(|| "nothing consumed: its channels are 0".to_owned())
}
