//! Flags that every tool checks in the same way: values of the wrong type, and the form of the log.
//!
//! With `NSQ_TOOLS_ORIGINAL=DIR`, the tools of NSQ 1.3.0 in `DIR` must refuse the values with the same line.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::pages::{WITH_ORIGINAL, WITHOUT_ORIGINAL};
use crate::tool::{Tool, command};
use program::Program;
use program::flag::{Flag, Kind};
use serde_json::Value;
use test_support::TIMEOUT;
use test_support::process::run;

/// Nobody listens on port 1.
const UNREACHABLE: &str = "127.0.0.1:1";

/// Returns values that a flag must refuse while the command line is read.
fn wrong_values(flag: &Flag) -> &'static [&'static str] {
    match flag.kind {
        Kind::Boolean => &["x", "yes", ""],
        Kind::Integer(..) => &["x", "1.5", "", "99999999999999999999"],
        Kind::Duration(..) => &["x", "1", "1y", ""],
        Kind::Float | Kind::Floats => &["x", "1,5", ""],
        Kind::Choice(_) | Kind::Word(_) | Kind::Level => &["x", ""],
        Kind::Text | Kind::List => match flag.name {
            "consumer-opt" | "producer-opt" => &["x,1", "max_in_flight,x", "tls_v1,x"],
            _ => &[],
        },
    }
}

/// Checks that a tool refuses the value with code 2 and the usage text. Returns the line of the error.
fn refusal(program: &str, flag: &Flag, value: &str) -> String {
    let exit = run(
        &mut command(program, format!("-{}={value}", flag.name)),
        TIMEOUT,
    );
    let (line, usage) = exit.stderr.split_once('\n').expect("a line");
    assert_eq!((exit.code(), &*exit.stdout), (2, ""), "{exit}");
    let expected = match flag.kind {
        Kind::Boolean => format!("invalid boolean value {value:?} for -{}: ", flag.name),
        _ => format!("invalid value {value:?} for flag -{}: ", flag.name),
    };
    assert!(
        line.starts_with(&expected) && line.len() > expected.len(),
        "{exit}"
    );
    assert!(usage.starts_with("Usage of "), "{exit}");
    line.to_owned()
}

#[test]
fn every_flag_refuses_values_of_the_wrong_type() {
    let original = std::env::var_os("NSQ_TOOLS_ORIGINAL");
    let mut count = 0;
    for program in WITH_ORIGINAL.into_iter().chain(WITHOUT_ORIGINAL) {
        for flag in program.all_flags() {
            for value in wrong_values(flag) {
                let line = refusal(program.name, flag, value);
                count += 1;
                let is_original_flag = program.flags.iter().any(|known| known.name == flag.name);
                let has_original = WITH_ORIGINAL.iter().any(|known| known.name == program.name);
                // The original nsq_to_file takes every option of the client: docs/reference/differences-tools.md.
                let is_ignored = program.name == "nsq_to_file" && flag.name == "consumer-opt";
                if let Some(directory) = &original
                    && is_original_flag
                    && has_original
                    && !is_ignored
                {
                    let mut original = Command::new(Path::new(directory).join(program.name));
                    original.arg(format!("-{}={value}", flag.name));
                    let exit = run(&mut original, TIMEOUT);
                    let expected = exit.stderr.lines().next();
                    assert_eq!((exit.code(), expected), (2, Some(&*line)), "{exit}");
                }
            }
        }
    }
    assert!(count > 100, "only {count} values were tried");
}

/// Returns arguments with which a tool fails after its log has started. `taken` is an address that somebody listens on.
fn failing(program: &Program, taken: &str) -> String {
    let nsqd = format!("-nsqd-tcp-address={UNREACHABLE}");
    match program.name {
        "nsq_tail" => format!("-topic=t {nsqd}"),
        "nsq_to_file" => format!("-topic=a/b {nsqd}"),
        "nsq_to_http" => format!("-topic=t {nsqd} -post=http://{UNREACHABLE}/"),
        "nsq_to_nsq" => {
            format!("-topic=t {nsqd} -destination-nsqd-tcp-address=127.0.0.1:2")
        }
        "to_nsq" => format!("-topic=t {nsqd}"),
        "nsq_stat" => format!("-topic=t -channel=c -nsqd-http-address={UNREACHABLE}"),
        "nsq_pubsub" => format!("{nsqd} -http-address={taken}"),
        "nsq_forget" => format!("-topic=t -channel=c -field=f {nsqd} -http-address=127.0.0.1:0"),
        other => panic!("{other} has no arguments here"),
    }
}

/// Starts a tool that fails, with a record as its input. Returns its log.
fn log_of_failure(program: &str, args: &str) -> String {
    use std::io::Write;
    let mut tool = Tool::start(program, args);
    // Only to_nsq reads its input.
    let _ = tool.stdin().write_all(b"record\n");
    assert_eq!(tool.wait().code(), Some(1), "{program}: {}", tool.log());
    tool.log()
}

#[test]
fn the_log_has_the_form_that_the_flag_names() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the system has a port");
    let taken = listener.local_addr().expect("it is bound").to_string();
    for program in WITH_ORIGINAL.into_iter().chain(WITHOUT_ORIGINAL) {
        if program.flag("log-format").is_none() {
            assert_eq!(program.name, "nsqtop");
            continue;
        }
        let failing = failing(program, &taken);
        let with = |format: &str| {
            let args = format!("-log-format={format} {failing}");
            log_of_failure(program.name, &args)
        };
        let text = with("text");
        assert!(!text.contains('{'), "{text}");
        let json = with("json");
        if program.name == "nsq_to_nsq" {
            // It connects to the source and to the destination at the same time. The first failure ends it, and its log
            // tells of the other one only if that came before.
            assert_ne!(text, "");
        } else {
            assert_eq!(json.lines().count(), text.lines().count(), "{text}\n{json}");
        }
        let mut levels = Vec::new();
        for line in json.lines() {
            let object: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(object["program"], program.name, "{line}");
            for field in ["time", "level", "message"] {
                let text = object[field].as_str();
                assert!(text.is_some_and(|text| !text.is_empty()), "{line}");
            }
            levels.push(object["level"].clone());
        }
        let is_told = match program.name {
            // A line about the destination may follow.
            "nsq_to_nsq" => levels.iter().any(|level| level == "fatal"),
            _ => levels.last().is_some_and(|level| level == "fatal"),
        };
        assert!(is_told, "{json}");
    }
}
