//! `--check`: a daemon with this flag says whether it could start with its other flags, and ends. [`Report`] has the
//! findings. [`flags`] and [`addresses`] are the checks that all daemons share.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use nsq_http::NodeInfo;
use serde_json::json;
use wire::go_error::system_text;

use crate::flag::{self, Effect, FlagOf, Kind, Words};
use crate::go_value::parse_bool;
use crate::http_client::{HttpClient, HttpSettings, HttpTls};
use crate::{FlagValue, Options, Value, tcp_address, tcp_socket};

mod finding;

pub use finding::{Finding, State, bytes_text};

/// The time for an answer of a daemon that runs on this machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

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

    /// For people: a line for each check, below it what to do, and a line for them all.
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
            let _ = writeln!(text, "{word}  {name:<14}{}", finding.found);
            for line in &finding.details {
                let _ = writeln!(text, "{:20}{line}", "");
            }
            if !finding.advice.is_empty() {
                let _ = writeln!(text, "{:20}What to do: {}", "", finding.advice);
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

/// Tries to listen at each address, and gives all back. `asked` has the names of flags, and their addresses; an empty one
/// is switched off. An address in use is that of a daemon to be replaced if the same program answers at `http_address`.
pub fn addresses(
    program: &str,
    http_address: &str,
    asked: &[(&'static str, &str)],
) -> Vec<(&'static str, Finding)> {
    // Two flags with one address find each other.
    let mut taken = Vec::new();
    let mut try_address = |address: &str| {
        let resolved = tcp_address::resolve(address).map_err(|why| Finding::failure(why, ""))?;
        let socket = tcp_socket::listen(resolved, false).map_err(|error| {
            if error.kind() == io::ErrorKind::AddrInUse && runs_at(program, http_address) {
                return in_use(address, program);
            }
            Finding::failure(
                format!("{address} cannot be listened on: {}", system_text(&error)),
                tcp_address::bind_hint(&error, program),
            )
        })?;
        taken.push(socket);
        Ok(Finding::ok(format!("{address} is free")))
    };
    let asked = asked.iter().filter(|(_, address)| !address.is_empty());
    asked
        .map(|(name, address)| {
            (
                *name,
                try_address(address).unwrap_or_else(|refused| refused),
            )
        })
        .collect()
}

/// Returns the finding about an address that becomes free when the daemon stops that runs here.
pub fn in_use(address: &str, program: &str) -> Finding {
    let found = format!("{address} is in use by the {program} that runs here");
    Finding::waiting(found, "")
}

/// Returns whether this program of NSQ or ringq serves HTTP at an address to listen on.
pub fn runs_at(program: &str, address: &str) -> bool {
    let Some(url) = local_url(address) else {
        return false;
    };
    let client = HttpClient::new(HttpSettings {
        connect_timeout: ANSWER_TIMEOUT,
        request_timeout: ANSWER_TIMEOUT,
        idle_connections_max: 0,
        tls: HttpTls::System { only_tls13: false },
    });
    let ping = client.get(&format!("{url}/ping"));
    if !ping.is_ok_and(|answer| answer == b"OK") {
        return false;
    }
    // nsqadmin has no /info, and that of nsqlookupd has no ports.
    let found = match client.get(&format!("{url}/info")) {
        Err(_) => "nsqadmin",
        Ok(body) => match nsq_http::read::<NodeInfo>(&body) {
            Ok(info) if info.tcp_port != 0 => "nsqd",
            _ => "nsqlookupd",
        },
    };
    found == program
}

/// Returns the URL at which this machine reaches an address to listen on. `None`: there is no such address.
pub fn local_url(address: &str) -> Option<String> {
    let mut address = tcp_address::resolve(address).ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    (address.port() != 0).then(|| format!("http://{address}"))
}

#[cfg(test)]
mod tests;
