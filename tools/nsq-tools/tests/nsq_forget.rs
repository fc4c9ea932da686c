//! `nsq_forget` with real daemons: counts, answers, state, signals.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use crate::tool::{self, Tool};
use serde_json::{Value, json};
use test_support::daemon::Daemon;
use test_support::http::{Response, http, http_with_headers};
use test_support::process::run;
use test_support::{TIMEOUT, wait_until};

/// A running nsq_forget. A drop kills it.
struct Forget {
    tool: Tool,
    http: SocketAddr,
}

impl Forget {
    fn start(nsqd: &Daemon, args: impl AsRef<str>) -> Forget {
        let tool = Tool::of_command(&mut command(nsqd, args));
        let http = tool.wait_for_http();
        Forget { tool, http }
    }

    fn get(&self, target: &str) -> Response {
        http(self.http, "GET", target, b"")
    }

    /// Waits until the sum of a distribution has this value, and returns its bins and counts.
    fn wait_for_z(&self, distribution: &str, z: u64) -> Vec<(String, u64)> {
        let target = format!("/dist?distribution={distribution}");
        let mut last = Value::Null;
        let reached = wait_until(TIMEOUT, || {
            last = self.get(&target).expect_status(200).json();
            last["data"]["Z"] == z
        });
        assert!(reached, "Z is not {z}: {last}");
        let bins = last["data"]["data"].as_array().unwrap();
        let bin = |bin: &Value| {
            (
                bin["bin"].as_str().unwrap().to_owned(),
                bin["count"].as_u64().unwrap(),
            )
        };
        bins.iter().map(bin).collect()
    }

    /// Sends a signal, and returns the exit code and the log.
    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        self.tool.end(signal)
    }
}

/// A rate at which nothing is forgotten during a test: a message lives for 30,000 years.
const NEVER: &str = "--rate=1e-12";

fn command(nsqd: &Daemon, args: impl AsRef<str>) -> Command {
    let flags = "--topic=clicks --channel=forget --field=country --http-address=127.0.0.1:0";
    let (address, args) = (nsqd.tcp, args.as_ref());
    tool::command(
        "nsq_forget",
        format!("{flags} --nsqd-tcp-address={address} {args}"),
    )
}

fn nsqd_with_clicks(countries: &[&str]) -> Daemon {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("clicks", "forget");
    publish(&nsqd, countries);
    nsqd
}

fn publish(nsqd: &Daemon, countries: &[&str]) {
    let body = |country: &&str| json!({"country": country, "site": {"name": "s1"}}).to_string();
    let bodies: Vec<String> = countries.iter().map(body).collect();
    nsqd.publish("clicks", &bodies);
}

fn owned(bins: &[(&str, u64)]) -> Vec<(String, u64)> {
    bins.iter()
        .map(|(bin, count)| ((*bin).to_owned(), *count))
        .collect()
}

#[test]
fn messages_are_counted_and_finished() {
    let nsqd = nsqd_with_clicks(&["US", "JP", "US", "BR", "US", "JP"]);
    nsqd.publish("clicks", &["not json", "{}", "{\"country\":null}"]);
    let forget = Forget::start(&nsqd, NEVER);
    let bins = forget.wait_for_z("clicks", 6);
    assert_eq!(bins, owned(&[("US", 3), ("JP", 2), ("BR", 1)]));
    // All are finished, also those that have nothing to count.
    nsqd.wait_for_answers("clicks", "forget");
    let skipped = || forget.get("/dbstats").json()["data"]["skipped"] == 3;
    assert!(
        wait_until(TIMEOUT, skipped),
        "{}",
        forget.get("/dbstats").text()
    );
    let warning = "is not counted - the message is not JSON: ";
    forget.tool.wait_for_log(warning);
    let (code, log) = forget.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    let stats = nsqd.channel("clicks", "forget").unwrap();
    assert_eq!(
        (&stats["requeue_count"], &stats["timeout_count"]),
        (&json!(0), &json!(0))
    );
}

/// Two tools with one file overwrote each other's counts.
#[test]
fn a_state_file_belongs_to_one_tool() {
    let nsqd = nsqd_with_clicks(&[]);
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("counts.json");
    let flag = format!("--state-file={}", state.display());
    let forget = Forget::start(&nsqd, format!("{NEVER} {flag}"));
    let second = run(&mut command(&nsqd, format!("{NEVER} {flag}")), TIMEOUT);
    assert_eq!(second.code(), 1, "{second}");
    let used = format!(
        "FATAL: --state-file: {} is used by process {}, and two processes would overwrite each other's state; ",
        state.display(),
        forget.tool.pid()
    );
    assert!(second.stderr.contains(&used), "{second}");
    // The file is free again at the end.
    assert_eq!(forget.end("TERM").0, Some(0));
    let third = Forget::start(&nsqd, format!("{NEVER} {flag}"));
    assert_eq!(third.end("TERM").0, Some(0));
}

#[test]
fn answers_are_those_of_the_original() {
    let nsqd = nsqd_with_clicks(&[]);
    let forget = Forget::start(&nsqd, NEVER);
    assert_eq!(
        forget
            .get("/incr?distribution=colors&field=red&field=blue&N=2")
            .text(),
        "OK"
    );
    assert_eq!(
        forget.get("/incr?distribution=colors&field=red").text(),
        "OK"
    );
    assert_eq!(forget.get("/incr?field=DE").text(), "OK");
    let dist = forget.get("/dist?distribution=colors").expect_status(200);
    let text = dist.text();
    let begin = r#"{"status_code":200,"status_txt":"","data":{"distribution":"colors","Z":5,"T":"#;
    let end = r#","data":[{"bin":"red","count":3,"p":0.6},{"bin":"blue","count":2,"p":0.4}],"rate":1e-12,"prune":true}}"#;
    assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
    assert_eq!(
        dist.header("content-type"),
        Some("application/json; charset=utf-8")
    );
    let data = |target: &str| forget.get(target).expect_status(200).json()["data"].clone();
    let get = data("/get?distribution=colors&field=blue&field=gr%C3%BCn&rate=1e-12");
    let expected =
        json!([{"bin": "blue", "count": 2, "p": 0.4}, {"bin": "grün", "count": 0, "p": 0.0}]);
    assert_eq!((&get["Z"], &get["data"]), (&json!(5), &expected));
    let most = data("/nmostprobable?distribution=colors&N=1");
    assert_eq!(most["data"], json!([{"bin": "red", "count": 3, "p": 0.6}]));
    // A request without a distribution is about the one of the messages.
    assert_eq!(
        data("/nmostprobable")["data"],
        json!([{"bin": "DE", "count": 1, "p": 1.0}])
    );
    let nothing = data("/dist?distribution=nothing");
    assert_eq!((&nothing["Z"], &nothing["data"]), (&json!(0), &json!([])));
    assert_eq!(data("/dbsize"), json!(2));
    let stats = json!({
        "distributions": 2, "bins": 3, "rate": 1e-12, "observations": 6, "skipped": 0,
        "evicted_bins": 0, "evicted_distributions": 0,
    });
    assert_eq!(data("/dbstats"), stats);
    assert_eq!(forget.get("/ping").text(), "OK");
    let long = "x".repeat(1025);
    for (target, status, code) in [
        ("/incr", 400, "MISSING_ARG_FIELD"),
        ("/incr?field=", 400, "MISSING_ARG_FIELD"),
        (
            "/incr?distribution=&field=a",
            400,
            "MISSING_ARG_DISTRIBUTION",
        ),
        ("/incr?field=a&N=x", 400, "COULDNT_PARSE_N"),
        ("/incr?field=a&N=-1", 400, "COULDNT_PARSE_N"),
        (&format!("/incr?field={long}"), 400, "INVALID_ARG_FIELD"),
        (
            &format!("/dist?distribution={long}"),
            400,
            "INVALID_ARG_DISTRIBUTION",
        ),
        ("/get", 400, "MISSING_ARG_FIELD"),
        ("/get?field=a&rate=x", 400, "CANNOT_PARSE_RATE"),
        ("/dist?rate=0.5", 400, "RATE_IS_FIXED"),
        ("/nmostprobable?N=x", 400, "INVALID_ARG_N"),
        ("/nope", 404, "NOT_FOUND"),
    ] {
        let answer = forget.get(target).expect_status(status);
        let expected = format!(r#"{{"status_code":{status},"status_txt":"{code}","data":null}}"#);
        assert_eq!(answer.text(), expected, "{target}");
    }
}

#[test]
fn pages_of_other_sites_count_nothing() {
    let nsqd = nsqd_with_clicks(&[]);
    let forget = Forget::start(&nsqd, NEVER);
    assert_eq!(forget.get("/incr?distribution=d&field=a").text(), "OK");
    for mark in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        for method in ["GET", "POST"] {
            let target = "/incr?distribution=d&field=b";
            let answer = http_with_headers(forget.http, method, target, &[mark], b"");
            assert_eq!(
                (answer.status, &*answer.text()),
                (403, "FORBIDDEN_ORIGIN\n")
            );
        }
    }
    assert_eq!(forget.wait_for_z("d", 1), owned(&[("a", 1)]));
}

#[test]
fn counts_survive_a_restart_and_are_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("counts.json");
    let file = format!("--state-file={}", path.display());
    let names = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    let nsqd = nsqd_with_clicks(&["US", "US", "JP"]);
    let forget = Forget::start(&nsqd, format!("{NEVER} {file}"));
    forget.wait_for_z("clicks", 3);
    let (code, log) = forget.end("INT");
    assert_eq!(code, Some(0), "{log}");
    let own = ["counts.json", "counts.json.lock"];
    assert_eq!(names(), own.map(Into::into).into());
    publish(&nsqd, &["JP"]);
    // The state is written at each interval, so a kill loses only what came since.
    let forget = Forget::start(&nsqd, format!("{NEVER} {file} --save-interval=100ms"));
    assert_eq!(
        forget.wait_for_z("clicks", 4),
        owned(&[("JP", 2), ("US", 2)])
    );
    let has_state = " has 1 distributions with 2 values";
    forget.tool.wait_for_log(has_state);
    let is_saved = || read(&path)["distributions"]["clicks"]["bins"]["JP"]["count"] == 2;
    assert!(wait_until(TIMEOUT, is_saved), "{}", read(&path));
    drop(forget);
    // A kill may leave a temporary file, and the next run leaves no other one.
    let left = names();
    // A message lives for a thousandth of a second.
    let forget = Forget::start(&nsqd, format!("--rate=1000 {file}"));
    forget.wait_for_z("clicks", 0);
    let (code, log) = forget.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(read(&path), json!({"version": 1, "distributions": {}}));
    assert_eq!(names(), left);
}

#[test]
fn a_killed_tool_goes_on_with_its_last_save() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("counts.json");
    let file = format!("--state-file={}", path.display());
    let nsqd = nsqd_with_clicks(&[]);
    let saved = || read(&path)["distributions"]["clicks"]["bins"]["US"]["count"].as_u64();
    let kill = |mut forget: Forget| {
        forget.tool.signal("KILL");
        assert_eq!(forget.tool.wait().code(), None, "{}", forget.tool.log());
    };
    // Kills while the file is written again and again: it is always whole, and no count becomes smaller.
    let mut last = 0;
    for _ in 0..5 {
        let forget = Forget::start(&nsqd, format!("{NEVER} {file} --save-interval=1ms"));
        forget.wait_for_z("clicks", last);
        publish(&nsqd, &["US", "US"]);
        forget.wait_for_z("clicks", last + 2);
        nsqd.wait_for_answers("clicks", "forget");
        kill(forget);
        let now = saved().unwrap_or_default();
        assert!((last..=last + 2).contains(&now), "{last} {now}");
        last = now;
    }
    // Counts behind the last save are lost, as the page says.
    let forget = Forget::start(&nsqd, format!("{NEVER} {file} --save-interval=1h"));
    forget.wait_for_z("clicks", last);
    publish(&nsqd, &["US", "US", "US"]);
    forget.wait_for_z("clicks", last + 3);
    nsqd.wait_for_answers("clicks", "forget");
    kill(forget);
    let forget = Forget::start(&nsqd, format!("{NEVER} {file}"));
    assert_eq!(forget.wait_for_z("clicks", last), owned(&[("US", last)]));
}

/// The tool took no signal before its first connection.
#[test]
fn a_signal_ends_the_tool_while_it_connects() {
    let nsqd = nsqd_with_clicks(&[]);
    // Its kernel takes the connection, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent
        .local_addr()
        .map(|at| format!("--nsqd-tcp-address={at}"));
    let mut tool = Tool::of_command(&mut command(&nsqd, silent.unwrap()));
    tool.wait_for_log(" connected");
    tool.stop();
}

/// A library that lets each sync of a file wait while the file `hang` is there, and makes the file `waits` then.
const HANGING_SYNC: &str = r#"
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int file) {
    while (access("hang", F_OK) == 0) {
        close(open("waits", O_CREAT | O_WRONLY, 0600));
        usleep(1000);
    }
    return syscall(SYS_fsync, file);
}
"#;

/// Starts the tool in a directory whose disk hangs while the file `hang` is there.
fn start_with_hanging_sync(directory: &Path, nsqd: &Daemon, args: &str) -> Forget {
    std::fs::write(directory.join("sync.c"), HANGING_SYNC).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", "sync.so", "sync.c"]);
    let exit = run(compiler.current_dir(directory), TIMEOUT);
    assert_eq!(exit.code(), 0, "{exit}");
    let mut command = command(nsqd, args);
    command
        .current_dir(directory)
        .env("LD_PRELOAD", directory.join("sync.so"));
    let tool = Tool::of_command(&mut command);
    let http = tool.wait_for_http();
    Forget { tool, http }
}

/// The tool waited without a limit for the filter of `--dedup`.
#[test]
fn a_disk_that_hangs_does_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let nsqd = nsqd_with_clicks(&["US"]);
    let args = format!(
        "{NEVER} --state-file=counts.json --dedup=json:/country,slots=1000 --dedup-state=filter"
    );
    let forget = start_with_hanging_sync(directory.path(), &nsqd, &args);
    forget.wait_for_z("clicks", 1);
    std::fs::write(directory.path().join("hang"), "").unwrap();
    let (code, log) = forget.end("TERM");
    assert_eq!(code, Some(1), "{log}");
    for line in [
        "ending although the filter of --dedup is not saved",
        "the state file was not written - the disk does not answer",
    ] {
        assert!(log.contains(line), "no {line:?}: {log}");
    }
}

/// The tool counted nothing and took no signal while the disk hung.
#[test]
fn a_disk_that_hangs_holds_up_neither_the_counts_nor_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let nsqd = nsqd_with_clicks(&["US"]);
    let args = format!("{NEVER} --state-file=counts.json --save-interval=50ms");
    let forget = start_with_hanging_sync(directory.path(), &nsqd, &args);
    forget.wait_for_z("clicks", 1);
    std::fs::write(at("hang"), "").unwrap();
    assert!(wait_until(TIMEOUT, || at("waits").exists()));
    publish(&nsqd, &["US", "JP"]);
    forget.wait_for_z("clicks", 3);
    forget.tool.signal("TERM");
    forget.tool.wait_for_log("stopping");
    std::fs::remove_file(at("hang")).unwrap();
    let (code, log) = forget.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    let bins = &read(&at("counts.json"))["distributions"]["clicks"]["bins"];
    assert_eq!(
        (&bins["US"]["count"], &bins["JP"]["count"]),
        (&json!(2), &json!(1))
    );
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_field_names_the_distribution() {
    let nsqd = nsqd_with_clicks(&["US", "JP"]);
    let forget = Forget::start(&nsqd, format!("{NEVER} --distribution-field=/site/name"));
    assert_eq!(forget.wait_for_z("s1", 2), owned(&[("JP", 1), ("US", 1)]));
    assert_eq!(forget.wait_for_z("clicks", 0), []);
}

#[test]
fn a_start_that_fails_says_why() {
    let nsqd = Daemon::nsqd(&[]);
    let directory = tempfile::tempdir().unwrap();
    let check = |nsqd: &Daemon, args: &str, text: &str| {
        let exit = run(&mut command(nsqd, args), TIMEOUT);
        exit.expect(1, &format!("…{text}…"));
    };
    let odd = directory.path().join("odd");
    std::fs::write(&odd, "odd").unwrap();
    let odd = format!("--state-file={}", odd.display());
    check(&nsqd, &odd, "odd is not a state of nsq_forget - ");
    let missing = format!(
        "--state-file={}",
        directory.path().join("no/file").display()
    );
    check(&nsqd, &missing, "No such file or directory");
    let taken = format!("--http-address={}", nsqd.http);
    let text = format!(
        "FATAL: listen ({}) failed - listen tcp {0}: bind: address already in use",
        nsqd.http
    );
    check(&nsqd, &taken, &text);
    let mut dead = Daemon::nsqd(&[]);
    dead.kill();
    check(&dead, "", "error connecting to nsqd");
    let exit = run(&mut command(&nsqd, "--version"), TIMEOUT);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (exit.code(), exit.stdout),
        (0, format!("nsq_forget v1.3.0\nringq {version}\n"))
    );
}
