//! Runs one tool with the input of one case, and gathers what comes out.

// The items are public for the test, not for other crates.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer};
use test_support::{TIMEOUT, wait_until};

use super::case::{Bytes, Case, Source, Until};
use crate::tool::{Tool, consumed, files};

/// The channel of the sources and of the destinations.
const CHANNEL: &str = "c";

/// The names of the two destinations.
const DESTINATIONS: [&str; 2] = ["first", "second"];

/// An address at which nobody listens.
const UNUSED: &str = "127.0.0.1:2";

/// The target of what a tool sends.
enum Destination {
    /// The tool ends before it connects.
    Unused,
    Nsqd(Box<Daemon>),
    Server(HttpServer),
}

impl Destination {
    fn address(&self) -> String {
        match self {
            Destination::Unused => UNUSED.to_owned(),
            Destination::Nsqd(nsqd) => nsqd.tcp.to_string(),
            Destination::Server(server) => server.address.to_string(),
        }
    }
}

/// The daemons and servers of one case.
struct Surroundings {
    /// The nsqlookupd of the source, if an argument names it and the tool connects.
    lookupd: Option<Daemon>,
    /// `None` if the case has no messages: the tool ends before it connects.
    source: Option<Daemon>,
    destinations: Vec<(&'static str, Destination)>,
}

impl Surroundings {
    fn new(case: &Case) -> Surroundings {
        let has_source = !case.sources.is_empty();
        let is_lookupd_named = case.args.iter().any(|arg| arg.contains("{lookupd}"));
        let lookupd = (has_source && is_lookupd_named).then(|| Daemon::nsqlookupd(&[]));
        let lookupds: Vec<&Daemon> = lookupd.iter().collect();
        let source = has_source.then(|| Daemon::nsqd_at(&lookupds, &[]));
        let is_run = source.is_some() || case.stdin.is_some();
        for Source {
            topic,
            messages,
            defer_ms,
        } in &case.sources
        {
            let source = source.as_ref().expect("the case has messages");
            source.create_channel(topic, CHANNEL);
            let defer = defer_ms.map(|ms| format!("&defer={ms}"));
            let target = format!("/pub?topic={topic}{}", defer.unwrap_or_default());
            for message in messages {
                source.post(&target, message.as_slice()).expect_status(200);
            }
            if let Some(lookupd) = &lookupd {
                lookupd.wait_for_producers(topic, 1);
            }
        }
        let mut destinations = Vec::new();
        for name in DESTINATIONS {
            let of_name = format!("{{{name}}}");
            let Some(arg) = case.args.iter().find(|arg| arg.contains(&of_name)) else {
                continue;
            };
            let destination = if !is_run {
                Destination::Unused
            } else if arg.contains(&format!("http://{of_name}")) {
                let mut statuses = case.statuses.clone();
                if statuses.is_empty() {
                    statuses.push(200);
                }
                let last = statuses.len() - 1;
                let answer = move |before: usize| Answer::status(statuses[before.min(last)]);
                Destination::Server(HttpServer::start(move |_, before| answer(before)))
            } else {
                Destination::Nsqd(Box::new(Daemon::nsqd(&[])))
            };
            destinations.push((name, destination));
        }
        Surroundings {
            lookupd,
            source,
            destinations,
        }
    }

    /// Returns the placeholders of the case files, and what they stand for.
    fn placeholders(&self) -> Vec<(String, String)> {
        let address = |of: fn(&Daemon) -> SocketAddr| match &self.source {
            Some(source) => of(source).to_string(),
            None => UNUSED.to_owned(),
        };
        let mut pairs = vec![
            ("{source}".to_owned(), address(|source| source.tcp)),
            ("{source_http}".to_owned(), address(|source| source.http)),
        ];
        let lookupd = self.lookupd.as_ref();
        let lookupd = lookupd.map_or(UNUSED.to_owned(), |lookupd| lookupd.http.to_string());
        pairs.push(("{lookupd}".to_owned(), lookupd));
        let ringq = format!("ringq {}", env!("CARGO_PKG_VERSION"));
        pairs.push(("{ringq}".to_owned(), ringq));
        for (name, destination) in &self.destinations {
            pairs.push((format!("{{{name}}}"), destination.address()));
        }
        pairs
    }

    /// Waits until the tool has answered every message of the sources, or has ended.
    fn wait_for_answers(&self, case: &Case, tool: &mut Tool) {
        let is_answered = |source: &Source| {
            let nsqd = self.source.as_ref().expect("the case has messages");
            let channel = nsqd.channel(&source.topic, CHANNEL);
            let figures = ["depth", "in_flight_count", "deferred_count"];
            channel.is_some_and(|channel| figures.iter().all(|figure| channel[figure] == 0))
        };
        let answered = wait_until(TIMEOUT, || {
            tool.has_ended() || case.sources.iter().all(is_answered)
        });
        assert!(answered, "{}: {}", case.name, tool.log());
    }

    /// Returns how many messages of each source are not finished, and how many the tool requeued.
    fn sources(&self, case: &Case) -> Map<String, Value> {
        let mut found = Map::new();
        for Source { topic, .. } in &case.sources {
            let source = self.source.as_ref().expect("the case has messages");
            source.wait_for_figure(topic, CHANNEL, "client_count", 0);
            let channel = source.channel(topic, CHANNEL);
            let channel = channel.expect("the channel stays");
            let figure = |name: &str| channel[name].as_i64().expect("a figure is a number");
            let left = figure("depth") + figure("in_flight_count") + figure("deferred_count");
            let mut figures = json!({"left": left});
            // A tool that ends by itself gives back as many messages as happen to be on their way.
            if case.until == Until::Answered {
                figures["requeued"] = json!(figure("requeue_count"));
            }
            found.insert(topic.clone(), figures);
        }
        found
    }
}

/// Returns the messages of all topics.
fn messages(nsqd: &Daemon, any_order: bool) -> Map<String, Value> {
    let stats = nsqd.get("/stats?format=json").expect_status(200).json();
    let mut found = Map::new();
    for topic in stats["topics"].as_array().into_iter().flatten() {
        let name = topic["topic_name"].as_str().expect("a topic has a name");
        let count = topic["message_count"].as_u64().expect("a topic counts");
        nsqd.create_channel(name, CHANNEL);
        let count = usize::try_from(count).expect("the cases are small");
        let mut bodies = consumed::bodies(nsqd, name, count);
        if any_order {
            bodies.sort();
        }
        let bodies: Vec<Bytes> = bodies.into_iter().map(Bytes::of).collect();
        found.insert(name.to_owned(), json!(bodies));
    }
    found
}

/// Returns the requests of a server, each with its lines and its body.
fn requests(server: &HttpServer, any_order: bool, named: impl Fn(&str) -> String) -> Value {
    let mut requests = server.requests();
    if any_order {
        requests.sort_by(|a, b| (&a.head, &a.body).cmp(&(&b.head, &b.body)));
    }
    let requests = requests.into_iter().map(|request| {
        let head: Vec<String> = request.head.lines().map(&named).collect();
        json!({"head": head, "body": Bytes::of(request.body)})
    });
    requests.collect()
}

/// Returns the text of a log line, without the prefix of `nsq_to_file` and the time.
fn without_time(line: &str) -> &str {
    let line = line.strip_prefix("[nsq_to_file] ").unwrap_or(line);
    if !line.starts_with(|first: char| first.is_ascii_digit()) {
        return line;
    }
    // The text follows the date and the time of day.
    line.splitn(3, ' ').nth(2).unwrap_or(line)
}

/// Returns true for a line of the client library about its connections, whose moment is random.
fn is_about_connections(line: &str) -> bool {
    ["INF ", "WRN ", "ERR "]
        .iter()
        .any(|level| line.starts_with(level))
}

/// Returns the line that says why the tool failed. Errors of flags come before the usage text, and a crash before its stack.
/// All other errors come last.
fn error_line(code: i32, log: &str) -> &str {
    let lines = log.lines().map(without_time);
    let mut lines = lines.filter(|line| !is_about_connections(line));
    let line = match code {
        2 => lines.next(),
        _ => lines.next_back(),
    };
    line.unwrap_or_default()
}

/// Returns the flags in a usage text: their names, types and defaults, without their descriptions. The flags that only ours
/// have follow behind a heading of their own, and are left out.
fn usage(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines();
    let (_, program) = lines.next()?.split_once("Usage of ")?;
    // The originals show their path.
    let program = program.rsplit('/').next().unwrap_or(program);
    let mut found = vec![program.to_owned()];
    for line in lines.take_while(|line| line.starts_with("  ")) {
        match (line.strip_prefix("  -"), line.rsplit_once(" (default ")) {
            (Some(flag), _) => found.push(format!("-{flag}")),
            (None, Some((_, default))) => {
                let flag = found.last_mut().expect("a flag comes first");
                flag.push_str(&format!(" (default {default}"));
            }
            (None, None) => {}
        }
    }
    Some(found)
}

fn sorted_lines(text: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

/// Returns what a command prints.
fn printed(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("TZ", "UTC").output();
    let output = output.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let text = String::from_utf8(output.stdout).expect("it prints text");
    text.trim_end().to_owned()
}

/// Returns the parts of a file's name that differ from run to run, and what stands for them in the case files.
fn parts_of_names(pid: u32) -> [(String, &'static str); 4] {
    let host = printed("uname", &["-n"]);
    let short_host = host.split('.').next().unwrap_or_default().to_owned();
    [
        (printed("date", &["+%Y-%m-%d"]), "{today}"),
        (format!("pid{pid}"), "{pid}"),
        (format!("host-{host}-"), "{hostname}"),
        (format!("short-{short_host}-"), "{short_host}"),
    ]
}

/// Starts the program in `directory`, with the case's input. Its output goes to the file `stdout`.
fn start(program: &Path, args: &[String], case: &Case, directory: &Path, stdout: File) -> Tool {
    let mut command = Command::new(program);
    command
        .args(args)
        .env("TZ", "UTC")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(stdout);
    let mut tool = Tool::of_command(&mut command);
    let mut stdin = tool.stdin();
    if let Some(input) = &case.stdin {
        // A tool that refuses its flags ends before it reads.
        let _ = stdin.write_all(input.as_slice());
    }
    tool
}

/// Runs a program with the input of the case, and returns the parts of the outcome that are not empty.
pub fn of(program: &Path, case: &Case) -> Value {
    let surroundings = Surroundings::new(case);
    let placeholders = surroundings.placeholders();
    let named = |text: &str| {
        let replace =
            |text: String, (name, address): &(String, String)| text.replace(address, name);
        placeholders.iter().fold(text.to_owned(), replace)
    };
    let replace = |text: String, (name, address): &(String, String)| text.replace(name, address);
    let fill = |arg: &String| placeholders.iter().fold(arg.clone(), replace);
    let args: Vec<String> = case.args.iter().map(fill).collect();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let place = |name: &str| directory.path().join(name);
    fs::create_dir(place("work")).expect("the directory is empty");
    let stdout = File::create(place("stdout")).expect("the directory is empty");
    let mut tool = start(program, &args, case, &place("work"), stdout);
    let parts = parts_of_names(tool.pid());
    if case.until == Until::Answered {
        surroundings.wait_for_answers(case, &mut tool);
        if !tool.has_ended() {
            tool.signal("TERM");
        }
    }
    let code = tool.wait().code();
    let code = code.unwrap_or_else(|| panic!("{}: {}", case.name, tool.log()));

    let mut outcome = Map::new();
    outcome.insert("code".to_owned(), json!(code));
    if code != 0 {
        let line = named(error_line(code, &tool.log()));
        outcome.insert("error".to_owned(), json!(line));
    }
    if code == 0
        && let Some(usage) = usage(&tool.log())
    {
        outcome.insert("usage".to_owned(), json!(usage));
    }
    let stdout = fs::read(place("stdout")).expect("the file is there");
    let stdout = if case.any_order {
        sorted_lines(&stdout)
    } else {
        stdout
    };
    let stdout = match String::from_utf8(stdout) {
        Ok(text) => named(&text).into_bytes(),
        Err(error) => error.into_bytes(),
    };
    if !stdout.is_empty() {
        outcome.insert("stdout".to_owned(), json!(Bytes::of(stdout)));
    }
    let files: BTreeMap<String, String> = files::texts(&place("work"))
        .into_iter()
        .map(|(name, text)| {
            let replace =
                |name: String, (part, stands): &(String, &str)| name.replace(part, stands);
            (parts.iter().fold(name, replace), text)
        })
        .collect();
    if !files.is_empty() {
        outcome.insert("files".to_owned(), json!(files));
    }
    let sources = surroundings.sources(case);
    if !sources.is_empty() {
        outcome.insert("sources".to_owned(), Value::Object(sources));
    }
    for (name, destination) in &surroundings.destinations {
        let got = match destination {
            Destination::Unused => continue,
            Destination::Nsqd(nsqd) => Value::Object(messages(nsqd, case.any_order)),
            Destination::Server(server) => requests(server, case.any_order, named),
        };
        outcome.insert((*name).to_owned(), got);
    }
    Value::Object(outcome)
}
