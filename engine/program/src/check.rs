//! `--check`: a daemon with this flag says whether it could start with its other flags, and ends. [`Report`] has the
//! findings. [`flags`] is the check that all daemons share.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use nsq_http::NodeInfo;
use serde_json::json;

use crate::flag::{self, Effect, FlagOf, Kind, Words};
use crate::go_value::parse_bool;
use crate::log::Escaped;
use crate::{FlagValue, Options, Value, tcp_address};

mod finding;

pub use finding::{Finding, State, bytes_text};

/// The report that `--check` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No check: the daemon is to be started.
    No = 0,
    /// A report to read.
    Text = 1,
    /// A report for programs.
    Json = 2,
}

/// The flag that asks for a check. NSQ's programs have no such flag.
pub const FLAG: FlagOf<Check> = flag::new(
    "check",
    "false",
    "check whether this machine is ready for a start, and end: true for text, json for programs",
)
.without_key();

/// `json`, or a boolean.
impl FlagValue for Check {
    const KIND: Kind = Kind::Word(&Words {
        parse: |text| match text {
            "json" => Ok(Check::Json as i64),
            _ => parse_bool(text).map(i64::from).map_err(str::to_owned),
        },
        is_boolean: true,
    });

    fn of(value: &Value) -> Check {
        match value {
            Value::Word(2) => Check::Json,
            Value::Word(1) => Check::Text,
            _ => Check::No,
        }
    }
}

/// The results of all checks of a daemon.
#[derive(Clone, Debug)]
pub struct Report {
    program: &'static str,
    /// Each with the name of its check, in their order.
    findings: Vec<(&'static str, Finding)>,
}

impl Report {
    /// Returns the report of a program without a finding.
    pub fn new(program: &'static str) -> Report {
        Report {
            program,
            findings: Vec::new(),
        }
    }

    /// Adds a finding, if there is one.
    pub fn add(&mut self, name: &'static str, finding: impl Into<Option<Finding>>) {
        let finding = finding.into().map(|finding| (name, finding));
        self.findings.extend(finding);
    }

    /// Adds findings, each with the name of its check.
    pub fn extend(&mut self, findings: impl IntoIterator<Item = (&'static str, Finding)>) {
        self.findings.extend(findings);
    }

    /// Writes the report to standard output. Returns the result of `main`: code 1 if a start would fail.
    pub fn print(&self, form: Check) -> ExitCode {
        let text = match form {
            Check::Json => self.json(),
            Check::Text | Check::No => self.text(),
        };
        if let Err(error) = io::stdout().write_all(text.as_bytes()) {
            eprintln!("cannot write the report: {error}");
            return ExitCode::from(1);
        }
        ExitCode::from(u8::from(self.state() == State::Failure))
    }

    /// The worst state of all.
    fn state(&self) -> State {
        let states = self.findings.iter().map(|(_, finding)| finding.state);
        states.max().unwrap_or(State::Ok)
    }

    /// For people: a line for each check, below it what to do, and a line for them all. A text may come from a client, so
    /// its control characters are quoted: none forges a line or commands the terminal.
    fn text(&self) -> String {
        let mut text = String::new();
        for (name, finding) in &self.findings {
            let word = match finding.state {
                State::Ok => "ok  ",
                State::Warning => "warn",
                State::Waiting => "wait",
                State::Failure => "FAIL",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{word}  {name:<14}{}", Escaped(&finding.found));
            for line in &finding.details {
                let _ = writeln!(text, "{:20}{}", "", Escaped(line));
            }
            if !finding.advice.is_empty() {
                let advice = Escaped(&finding.advice);
                let _ = writeln!(text, "{:20}What to do: {advice}", "");
            }
        }
        text + &self.summary() + "\n"
    }

    fn summary(&self) -> String {
        let program = self.program;
        let states = self.findings.iter().map(|(_, finding)| finding.state);
        let count = |state| states.clone().filter(|it| *it == state).count();
        let some = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        let (failures, warnings) = (count(State::Failure), count(State::Warning));
        if failures > 0 {
            return format!(
                "This machine is not ready for {program} with these flags: {}, {}.",
                some(failures, "failure"),
                some(warnings, "warning")
            );
        }
        let once = match count(State::Waiting) {
            0 => String::new(),
            _ => format!(" once that {program} has stopped"),
        };
        let with = match warnings {
            0 => String::new(),
            _ => format!(", with {}", some(warnings, "warning")),
        };
        format!("This machine is ready for {program}{once}{with}.")
    }

    /// For programs: one object on one line.
    fn json(&self) -> String {
        let check = |(name, finding): &(&str, Finding)| {
            let Finding {
                state,
                found,
                advice,
                data,
                ..
            } = finding;
            let mut check =
                json!({ "name": name, "state": state, "found": found, "advice": advice });
            if let Some(data) = data {
                check["data"] = data.clone();
            }
            check
        };
        let checks: Vec<_> = self.findings.iter().map(check).collect();
        let object = json!({ "state": self.state(), "checks": checks });
        format!("{object}\n")
    }
}

/// Judges the flags that are set: whether a start accepts them, and what each means compared with NSQ's program.
/// `refused` is the reason of a refusal, and `doubts` are sentences about values that probably nobody meant.
pub fn flags(options: &Options, refused: Option<String>, doubts: &[String]) -> Finding {
    if let Some(why) = refused {
        return Finding::failure(
            format!("the flags or the configuration file are refused: {why}"),
            "correct the value; --help says what each flag takes",
        );
    }
    let mut same = Vec::new();
    let mut own = Vec::new();
    let mut others = Vec::new();
    let mut data = Vec::new();
    let (mut differ, mut ignored) = (0, 0);
    for (flag, is_own) in options.set_flags() {
        let name = format!("--{}", flag.name);
        let (effect, how) = match flag.effect {
            _ if is_own => ("own", ""),
            Effect::Same => ("same", ""),
            Effect::Differs(how) => ("differs", how),
            Effect::Nothing(why) => ("ignored", why),
        };
        data.push(json!({ "flag": name, "effect": effect, "how": how }));
        match effect {
            "own" => own.push(name),
            "same" => same.push(name),
            "differs" => {
                differ += 1;
                others.push(format!("{name} differs: {how}"));
            }
            _ => {
                ignored += 1;
                others.push(format!("{name} is ignored: {how}"));
            }
        }
    }
    let count = data.len();
    let mut found = format!(
        "{count} set: {} the same as in NSQ, {differ} differ, {ignored} ignored",
        same.len()
    );
    for (word, names) in [("only in ringq", own), ("the same", same)] {
        if !names.is_empty() {
            others.push(format!("{word}: {}", names.join(" ")));
        }
    }
    let data = json!(data);
    if doubts.is_empty() {
        return Finding::ok(found).with(others, data);
    }
    found = doubts.join("; ");
    Finding::warning(
        found,
        "correct or remove them; docs/reference lists the flags and keys",
    )
    .with(others, data)
}

/// Returns the finding about an address that becomes free when the daemon stops that runs here.
pub fn in_use(address: &str, program: &str) -> Finding {
    let found = format!("{address} is in use by the {program} that runs here");
    Finding::waiting(found, "")
}

/// Returns the program of NSQ or ringq that answers so to `GET /info`. nsqadmin has no `/info`.
pub fn program_of(info: &[u8]) -> Option<&'static str> {
    let info: NodeInfo = nsq_http::read(info).ok()?;
    // nsqlookupd tells its version alone. nsqd tells ports, -1 for a unix socket.
    match (info.version.as_str(), info.tcp_port, info.http_port) {
        ("", _, _) => None,
        (_, 0, 0) => Some("nsqlookupd"),
        _ => Some("nsqd"),
    }
}

/// Returns where this machine reaches an address to listen on. `None`: there is no such address.
pub fn local_address(address: &str) -> Option<SocketAddr> {
    let mut address = tcp_address::resolve(address).ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    (address.port() != 0).then_some(address)
}

#[cfg(test)]
mod tests;
