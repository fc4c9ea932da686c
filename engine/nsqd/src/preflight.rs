//! The checks before anything starts, and `nsqd --check`, which says whether this machine is ready for a start with these
//! flags, and what to do where it is not.
//!
//! ```text
//!                    a start                                     nsqd --check
//!   flags            are accepted                                and the files that they name can be used
//!   limits.rs        raises the limit on open files              cores and their quota, memory mappings
//!   engine.rs        one engine per shard reports one wake-up    and its price
//!   data_path.rs     locked, writable, closed to others; nsqd.dat can be read
//!   takeover.rs                                                  the files of the original nsqd, and the room for them
//!   file_system.rs                                               keeps what it has reserved and synced
//!   disk.rs                                                      room, files that can be mapped, the time of a sync
//!   addresses.rs     reserved until the shards listen on them    free, and no two the same
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer; the judgements are tested with the answers of
//! systems that we do not have. A [`Finding`] says what happened and what to do about it, to a reader who has never heard of
//! io_uring. A start logs it, and `nsqd --check` reports it.
//!
//! `nsqd --check` makes no directory and leaves no file. It holds the lock of the data path for an instant, and the addresses
//! that are free until all have been tried. A start in the instant of the lock fails; for an address, a start tries again
//! for a second.

use program::inherited::InheritedSockets;
use program::tcp_socket::BIND_TIMEOUT;
use serde_json::json;
use std::fmt::Write as _;

use crate::config::Config;
use crate::net::address::Addresses;
use crate::reactor::Engine;
use crate::tls;

mod addresses;
pub(crate) mod data_path;
mod disk;
mod engine;
mod file_system;
mod finding;
mod limits;
mod takeover;

use addresses::{Place, Reserved, places};
#[cfg(test)]
pub(crate) use engine::is_usable;
pub use engine::{is_kernel_too_old, prepare_system};
pub use finding::{Finding, State};

/// The result of the preparations for a start.
#[derive(Debug)]
pub(crate) struct StartPlan {
    /// The engine with which the shards wait for their sockets.
    pub(crate) engine: Engine,
    /// The addresses to listen at, with each port decided. Without a certificate there is none for HTTPS.
    pub(crate) addresses: Addresses,
    /// Keeps other processes from these addresses until the shards listen.
    pub(crate) reserved: Vec<Reserved>,
}

/// Prepares the system and the addresses for a start, in the order in which nsqd would fail.
pub(crate) fn prepare(config: &Config, inherited: InheritedSockets) -> Result<StartPlan, Finding> {
    let engine = prepare_system(&config.io, config.shard_count)?;
    let [tcp, http, https, unix, http_unix] = places(config, inherited)?;
    let mut reserved = Vec::new();
    let mut take = |place: Place<'_>| {
        let place = place.reserve(config.unix_socket_mode.0, BIND_TIMEOUT)?;
        let found = place.address.clone();
        reserved.push(place);
        Ok(found)
    };
    let tcp = take(tcp)?;
    let mut take_unless_off = |place: Place<'_>| {
        let taken = (!place.is_off()).then(|| take(place));
        taken.transpose()
    };
    let addresses = Addresses {
        tcp,
        http: take_unless_off(http)?,
        https: take_unless_off(https)?,
        unix: take_unless_off(unix)?,
        http_unix: take_unless_off(http_unix)?,
    };
    Ok(StartPlan {
        engine,
        addresses,
        reserved,
    })
}

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
        let states = self.findings.iter().map(|(_, finding)| finding.state);
        let count = |state| states.clone().filter(|it| *it == state).count();
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
pub fn examine(mut config: Config, inherited: InheritedSockets) -> Report {
    let flags = flags(&mut config);
    let has_good_flags = flags.state != State::Failure;
    let mut report = Report::default();
    report.add("flags", flags);
    report.add("cores", limits::cores(config.shard_count));
    report.add("open-files", limits::open_files(config.shard_count));
    report.add("mappings", limits::mappings());
    // Without good flags nobody knows which engine is asked for, and for how many shards.
    if has_good_flags {
        report.add("io", engine::check(&config));
    }
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
    report.findings.extend(addresses::check(&config, inherited));
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
        "correct or remove them; docs/reference/flags-nsqd.md lists the flags and keys",
    )
}

#[cfg(test)]
mod tests;
