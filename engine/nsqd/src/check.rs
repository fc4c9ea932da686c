//! `nsqd --check`: says whether this machine is ready for a start with these flags, and what to do where it is not.
//!
//! ```text
//!   flags            accepted, and the files that they name can be used
//!   cores.rs         a core for each shard, and no quota below that
//!   limits.rs        open files (the limit is raised first, as by a start), memory mappings
//!   io.rs            the engine of the shards works
//!   clock.rs         right, and cheap to read
//!   data_path.rs     there, writable, free; closed to other users; nsqd.dat can be read
//!   takeover.rs      the files of the original nsqd that a start takes over, and the room for that
//!   file_system.rs   keeps what it has reserved and synced
//!   disk.rs          room, files that can be reserved and mapped, the time of a sync
//!   addresses.rs     free, and no two the same
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer, as in [`crate::preflight`], which a start
//! goes through. A check makes no directory and leaves no file. It holds the lock of the data path and each address for
//! an instant. A start in the instant of the lock fails; for an address, a start tries again for a second.

use serde::Serialize;
use std::fmt::Write as _;
use std::num::NonZeroUsize;

use crate::config::Config;
use crate::preflight::PreflightError;
use crate::tls;

mod addresses;
mod clock;
mod cores;
mod data_path;
mod disk;
mod file_system;
mod io;
mod limits;
mod takeover;

/// The outcome of a check; the worst is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is well.
    Ok,
    /// nsqd works, but slower or with less safety: on some file systems a power failure may take synced messages.
    Warning,
    /// A start would fail, or nsqd could not do its work from the beginning.
    Failure,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    name: &'static str,
    state: State,
    found: String,
    advice: String,
}

impl Finding {
    fn ok(name: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            name,
            state: State::Ok,
            found: found.into(),
            advice: String::new(),
        }
    }

    fn warning(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            name,
            state: State::Warning,
            found: found.into(),
            advice: advice.into(),
        }
    }

    fn failure(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            state: State::Failure,
            ..Finding::warning(name, found, advice)
        }
    }

    /// The error that would end a start, in the start's words.
    fn refusal(name: &'static str, error: &PreflightError) -> Finding {
        Finding::failure(name, error.found(), error.advice())
    }
}

/// The results of all checks.
#[derive(Clone, Debug)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// The worst state of all.
    pub fn state(&self) -> State {
        let states = self.findings.iter().map(|finding| finding.state);
        states.max().unwrap_or(State::Ok)
    }

    /// For people: a line for each check, below it what to do, and a line for them all.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let word = match finding.state {
                State::Ok => "ok  ",
                State::Warning => "warn",
                State::Failure => "FAIL",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{word}  {:<14}{}", finding.name, finding.found);
            if !finding.advice.is_empty() {
                let _ = writeln!(text, "{:20}What to do: {}", "", finding.advice);
            }
        }
        text + &self.summary() + "\n"
    }

    fn summary(&self) -> String {
        let count = |state| {
            let findings = self.findings.iter();
            findings.filter(|finding| finding.state == state).count()
        };
        let some = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        let (failures, warnings) = (count(State::Failure), count(State::Warning));
        match (failures, warnings) {
            (0, 0) => "This machine is ready for nsqd.".to_owned(),
            (0, _) => format!(
                "This machine is ready for nsqd, with {}.",
                some(warnings, "warning")
            ),
            _ => format!(
                "This machine is not ready for nsqd with these flags: {}, {}.",
                some(failures, "failure"),
                some(warnings, "warning")
            ),
        }
    }

    /// For programs: one object on one line.
    pub fn json(&self) -> String {
        let object = serde_json::json!({ "state": self.state(), "checks": self.findings });
        format!("{object}\n")
    }
}

/// Makes all checks. Blocks: some seconds on a slow disk, and a second for each address that is taken.
pub fn examine(mut config: Config) -> Report {
    let flags = flags(&mut config);
    let has_good_flags = flags.state != State::Failure;
    let mut findings = vec![flags];
    findings.push(cores::check(config.shard_count));
    findings.push(limits::open_files(config.shard_count));
    findings.extend(limits::mappings());
    // Without good flags nobody knows which engine is asked for, and for how many shards.
    if has_good_flags {
        findings.push(io::check(&config));
    }
    findings.push(clock::wall());
    findings.extend(clock::source());
    let path = &config.data_path;
    findings.push(data_path::check(path));
    let is_writable = diskq::check_writable(path).is_ok();
    if path.is_dir() {
        findings.push(file_system::check(path));
        findings.push(disk::space(path));
    }
    if is_writable {
        findings.push(data_path::permissions(path));
        findings.push(data_path::metadata(path));
        findings.extend(takeover::check(path));
        findings.extend(disk::trial(&config));
    }
    findings.extend(addresses::check(&config));
    Report { findings }
}

/// Reports whether the values of all flags are good.
fn flags(config: &mut Config) -> Finding {
    const NAME: &str = "flags";
    if let Err(why) = tls::check_values(config) {
        return Finding::failure(
            NAME,
            format!("the flags or the configuration file are refused: {why}"),
            "correct the value; nsqd --help says what each flag takes",
        );
    }
    let mut doubts = config.options.ignored();
    doubts.extend(config.useless());
    if doubts.is_empty() {
        return Finding::ok(NAME, "the values of all flags are accepted");
    }
    Finding::warning(
        NAME,
        doubts.join("; "),
        "correct or remove them; docs/configuration.md lists the flags and keys",
    )
}

/// `1 shard`, `2 shards`.
fn shards_text(shard_count: NonZeroUsize) -> String {
    match shard_count.get() {
        1 => "1 shard".to_owned(),
        count => format!("{count} shards"),
    }
}

/// Bytes in the unit that people read.
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut number = bytes as f64;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} bytes"),
        _ if number < 10.0 => format!("{number:.1} {}", UNITS[unit]),
        _ => format!("{number:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests;
