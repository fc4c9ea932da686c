//! After every failure there is a message in words, a report of the run up to the failure, and an
//! exit code.

use std::path::Path;
use std::process::Child;

use crate::support::{check_refused, echo, program, text};
use nsq_bench::http::call;
use nsq_bench::result::{Ended, Outcome, SavedResult};
use nsq_bench::sink::{Faults, Sink};

#[test]
fn wrong_flags_are_refused_before_anything_runs() {
    let run = |flags: &str, words: &str| check_refused(&format!("run {flags}"), 2, words);
    run("--producsers 3", "--producsers");
    run("--rate fast", "fast");
    run("--size 9", "28 bytes");
    run("--duration 10", "ns, us, ms, s");
    run("--rate 5 --per-day 5e9", "cannot be used with");
    run("--consumers 0 --producers 0", "nothing to run");
    run("--scenario /nowhere.toml", "/nowhere.toml");
    run("--interval 1ms", "at least 50ms");
    run("--cores 100000", "no such core");
    for unused in ["--window 5", "--arrivals poisson"] {
        let flags = format!("--client blocking {unused}");
        run(&flags, "leave window and arrivals out");
    }
    for series in ["sweep --from 1 --to 5", "find-max"] {
        let line = format!("{series} --client blocking");
        check_refused(&line, 2, "a blocking client has no rate to vary");
    }
    check_refused("find-max --slo p99", 2, "p99");
    check_refused("sweep --from 5 --to 1", 2, "--from");
    check_refused("compare --a nsqd --b 'x {tcp}'", 2, "{tcp}");
    let line = "compare --a {tcp} --b {tcp} --require speed>=1";
    check_refused(line, 2, "speed");
    check_refused("sink --stall 1s/200ms", 2, "shorter");
    check_refused("sink --drop 1/100", 2, "echo");
    check_refused("", 2, "Usage");
}

#[test]
fn a_missing_daemon_is_named() {
    // Nobody listens here.
    let no_daemon = "no daemon at 127.0.0.1:1";
    check_refused("run --tcp-address 127.0.0.1:1", 2, no_daemon);
    check_refused("run --tcp-address nowhere", 2, "nowhere");
    // This listener is not a daemon.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let greeter = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        stream
    });
    let line = format!("run --tcp-address {address}");
    check_refused(&line, 2, "does not speak NSQ");
    drop(greeter.join());
}

/// Starts a run that saves its result, and waits until `until` accepts the sink's statistics.
fn start(sink: &Sink, out: &Path, args: &[&str], mut until: impl FnMut(&str) -> bool) -> Child {
    let address = sink.address.to_string();
    let out = out.to_string_lossy().into_owned();
    let mut all = vec!["run", "--tcp-address", &address, "--http-address", &address];
    all.extend_from_slice(&["--warm-up", "0s", "--duration", "100s", "--out", &out]);
    all.extend_from_slice(args);
    let mut child = program(&all).spawn().unwrap();
    loop {
        let stats = call(sink.address, "GET", "/stats?format=json").unwrap();
        let ended = child.try_wait().unwrap();
        if until(&String::from_utf8_lossy(&stats)) || ended.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

fn has_published(stats: &str) -> bool {
    !stats.contains("\"published\":0,")
}

fn saved(out: &Path) -> nsq_bench::result::RunResult {
    let text = std::fs::read_to_string(out).unwrap();
    match SavedResult::from_json(&text).unwrap().outcome {
        Outcome::Run(result) => *result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_daemon_that_dies_leaves_a_partial_report() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("dies.json");
    let sink = echo(Faults::default());
    let args = ["--rate", "1000", "--via", "pub"];
    let child = start(&sink, &out, &args, has_published);
    let stopped = sink.stop();
    let (code, stdout, stderr) = text(&child.wait_with_output().unwrap());
    assert!(stopped.is_ok());
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let ended = "this is what ran until then";
    for words in ["ENDED", ended, "ledger", "published", "saved"] {
        assert!(stdout.contains(words), "{words}: {stdout}{stderr}");
    }
    let result = saved(&out);
    assert!(matches!(result.ended, Ended::Failed { .. }));
    // The ledger is complete, although the generator process that saw the failure ended before the
    // others.
    let ledger = &result.ledger;
    assert!(
        ledger.sent > 0 && ledger.sent >= ledger.received,
        "{ledger:?}"
    );
}

#[test]
fn a_connection_refused_in_the_middle_leaves_a_partial_report() {
    // A slow reader connects again when its connection breaks. By then no daemon listens.
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("refused.json");
    let sink = echo(Faults::default());
    let args = ["--producers", "0", "--slow", "1", "--topic", "t"];
    let mut posted = false;
    let child = start(&sink, &out, &args, |stats| {
        // A delivered message shows that the run has begun.
        if !posted && stats.contains("\"channel_name\"") {
            call(sink.address, "POST", "/pub?topic=t").unwrap();
            posted = true;
        }
        !stats.contains("\"delivered\":0,")
    });
    let stopped = sink.stop();
    let (code, stdout, stderr) = text(&child.wait_with_output().unwrap());
    assert!(stopped.is_ok());
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(
        stdout.contains("cannot connect: Connection refused"),
        "{stdout}{stderr}"
    );
    assert!(matches!(saved(&out).ended, Ended::Failed { .. }));
}

/// A run with the topic of an application finished the application's messages, and called them corrupted.
#[test]
fn messages_of_an_application_are_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.json");
    let sink = echo(Faults::default());
    let address = sink.address.to_string();
    for _ in 0..3 {
        call(sink.address, "POST", "/pub?topic=orders").unwrap();
    }
    let flags = format!("--tcp-address {address} --http-address {address} --topic orders");
    for command in ["run", "sweep", "find-max"] {
        let words =
            "the topic orders has messages already (3 wait, 0 are in flight, 0 are deferred)";
        check_refused(&format!("{command} {flags}"), 2, words);
    }
    let out_text = out.to_string_lossy();
    let line = format!("run {flags} --allow-messages --messages 200 --via pub --out {out_text}");
    let args: Vec<&str> = line.split(' ').collect();
    let (code, stdout, stderr) = text(&program(&args).output().unwrap());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let ledger = saved(&out).ledger;
    assert!(ledger.is_clean() && ledger.foreign >= 3, "{ledger:?}");
    assert_eq!((ledger.sent, ledger.received), (200, 200));
    assert_eq!(sink.stop().unwrap().finished, 200);
}

#[test]
fn an_interrupted_run_leaves_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("interrupted.json");
    let sink = echo(Faults::default());
    let args = ["--rate", "1000", "--via", "pub"];
    let child = start(&sink, &out, &args, has_published);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (code, stdout, stderr) = text(&child.wait_with_output().unwrap());
    drop(sink.stop());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("interrupted"), "{stdout}{stderr}");
    assert_eq!(saved(&out).ended, Ended::Interrupted);
}
