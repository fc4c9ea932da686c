//! `nsqd --check`: says whether this machine is ready for a start with these flags, and what to do where it is not.
//!
//! ```text
//!   flags            accepted, and the files that they name can be used
//!   cores.rs         a core for each shard, and no quota below that
//!   limits           open files (the limit is raised first, as by a start), memory mappings
//!   io.rs            the engine of the shards works
//!   clock.rs         right, and cheap to read
//!   data_path        there, writable, free; closed to other users; nsqd.dat can be read
//!   takeover.rs      the files of the original nsqd that a start takes over, and the room for that
//!   file_system.rs   keeps what it has reserved and synced
//!   disk.rs          room, files that can be reserved and mapped, the time of a sync
//!   addresses.rs     free, and no two the same
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer. Those without a file here are in
//! [`crate::preflight`], and a start goes through them, too. A check makes no directory and leaves no file. It holds the
//! lock of the data path and each address for an instant. A start in the instant of the lock fails; for an address, a
//! start tries again for a second.

use serde_json::json;
use std::fmt::Write as _;

use crate::config::Config;
pub use crate::preflight::State;
use crate::preflight::{Finding, data_path, limits};
use crate::tls;

mod addresses;
mod clock;
mod cores;
mod disk;
mod file_system;
mod io;
mod takeover;

/// The results of all checks.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each with the name of its check, in their order.
    findings: Vec<(&'static str, Finding)>,
}

impl Report {
    fn add(&mut self, name: &'static str, finding: impl Into<Option<Finding>>) {
        let finding = finding.into().map(|finding| (name, finding));
        self.findings.extend(finding);
    }

    /// The worst state of all.
    pub fn state(&self) -> State {
        let states = self.findings.iter().map(|(_, finding)| finding.state);
        states.max().unwrap_or(State::Ok)
    }

    /// For people: a line for each check, below it what to do, and a line for them all.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, finding) in &self.findings {
            let word = match finding.state {
                State::Ok => "ok  ",
                State::Warning => "warn",
                State::Failure => "FAIL",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{word}  {name:<14}{}", finding.found);
            if !finding.advice.is_empty() {
                let _ = writeln!(text, "{:20}What to do: {}", "", finding.advice);
            }
        }
        text + &self.summary() + "\n"
    }

    fn summary(&self) -> String {
        let count = |state| {
            let findings = self.findings.iter();
            findings
                .filter(|(_, finding)| finding.state == state)
                .count()
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
        let check = |(name, finding): &(&str, Finding)| {
            let Finding {
                state,
                found,
                advice,
            } = finding;
            json!({ "name": name, "state": state, "found": found, "advice": advice })
        };
        let checks: Vec<_> = self.findings.iter().map(check).collect();
        let object = json!({ "state": self.state(), "checks": checks });
        format!("{object}\n")
    }
}

/// Makes all checks. Blocks: some seconds on a slow disk, and a second for each address that is taken.
pub fn examine(mut config: Config) -> Report {
    let flags = flags(&mut config);
    let has_good_flags = flags.state != State::Failure;
    let mut report = Report::default();
    report.add("flags", flags);
    report.add("cores", cores::check(config.shard_count));
    report.add("open-files", limits::open_files(config.shard_count));
    report.add("mappings", limits::mappings());
    // Without good flags nobody knows which engine is asked for, and for how many shards.
    if has_good_flags {
        report.add("io", io::check(&config));
    }
    report.add("clock", clock::wall());
    report.add("clock-source", clock::source());
    let path = &config.data_path;
    report.add("data-path", data_path::check(path));
    let is_writable = diskq::check_writable(path).is_ok();
    if path.is_dir() {
        report.add("file-system", file_system::check(path));
        report.add("free-space", disk::space(path));
    }
    if is_writable {
        report.add("permissions", data_path::permissions(path));
        report.add("nsqd.dat", data_path::metadata(path));
        report.add("takeover", takeover::check(path));
        let (segments, syncs) = disk::trial(&config);
        report.add("segments", segments);
        report.add("sync-speed", syncs);
    }
    report.findings.extend(addresses::check(&config));
    report
}

/// Reports whether the values of all flags are good.
fn flags(config: &mut Config) -> Finding {
    if let Err(why) = tls::check_values(config) {
        return Finding::failure(
            format!("the flags or the configuration file are refused: {why}"),
            "correct the value; nsqd --help says what each flag takes",
        );
    }
    let mut doubts = config.options.ignored();
    doubts.extend(config.useless());
    if doubts.is_empty() {
        return Finding::ok("the values of all flags are accepted");
    }
    Finding::warning(
        doubts.join("; "),
        "correct or remove them; docs/configuration.md lists the flags and keys",
    )
}

#[cfg(test)]
mod tests;
