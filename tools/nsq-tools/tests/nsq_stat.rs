//! `nsq_stat` with real daemons: its lines, its errors, its end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tool::{self, Tool};
use test_support::daemon::Daemon;
use test_support::process::{Exit, run};
use test_support::{TIMEOUT, assert_like};

/// Flags of a tool that waits longer for its servers than by default, because they may wait for a busy machine.
const PATIENT: &str = "-http-client-connect-timeout=30s -http-client-request-timeout=30s";

const HEADING: &str = "\
------rate------+----------------depth----------------+--------------metadata---------------
ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients
";

fn nsq_stat(args: &str) -> Exit {
    run(&mut command(args), TIMEOUT)
}

fn command(args: &str) -> Command {
    tool::command("nsq_stat", args)
}

/// Starts the tool, whose lines the test reads.
fn start(command: &mut Command) -> Tool {
    Tool::of_command(command.stdout(Stdio::piped()))
}

/// Returns an nsqd with a channel that holds three messages.
fn nsqd_with_messages(lookupds: &[&Daemon]) -> Daemon {
    let nsqd = Daemon::nsqd_at(lookupds, &[]).with_messages("t", "c", &["1", "2", "3"]);
    nsqd.wait_for_figure("t", "c", "depth", 3);
    nsqd
}

#[test]
fn the_figures_of_all_nodes_are_summed() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nodes = [
        nsqd_with_messages(&[&lookupd]),
        nsqd_with_messages(&[&lookupd]),
    ];
    lookupd.wait_for_producers("t", 2);
    let expected = format!(
        "{HEADING}{}",
        "      0       0 |       6       6       0     0     0 |       0       0            6       0\n"
            .repeat(2)
    );
    let lookupd_flag = format!("-lookupd-http-address={}", lookupd.http);
    let nsqd_flags = nodes
        .each_ref()
        .map(|nsqd| format!("-nsqd-http-address={}", nsqd.http));
    for addresses in [lookupd_flag, nsqd_flags.join(" ")] {
        let began = Instant::now();
        let args = format!("-topic=t -channel c -count 2 -interval=500ms {addresses}");
        let exit = nsq_stat(&args);
        assert_eq!(
            (exit.code(), exit.stdout.as_str()),
            (0, expected.as_str()),
            "{exit}"
        );
        assert_eq!(exit.stderr, "");
        // Each of the three polls is followed by the interval.
        assert!(
            began.elapsed() >= Duration::from_millis(1500),
            "{:?}",
            began.elapsed()
        );
    }
}

#[test]
fn a_node_that_dies_is_named_and_counts_with_its_last_figures() {
    let mut nodes = [nsqd_with_messages(&[]), nsqd_with_messages(&[])];
    let flags = nodes
        .each_ref()
        .map(|nsqd| format!("-nsqd-http-address={}", nsqd.http));
    let args = format!("-topic=t -channel=c -interval=50ms {}", flags.join(" "));
    let mut tool = start(&mut command(&args));
    let mut lines = tool.lines();
    let first = lines.nth(2).unwrap();
    assert_like(&first, "      0       0 |       6       6 …");
    nodes[1].kill();
    tool.wait_for_log(&format!(
        " WARNING: nsqd {} does not answer, its last figures count - ",
        nodes[1].http
    ));
    for _ in 0..3 {
        let line = lines.next().unwrap();
        assert_like(&line, "      0       0 |       6       6 …");
    }
    nodes[1].restart();
    tool.wait_for_log(&format!("WARNING: {} answers again", nodes[1].http));
    tool.stop();
}

/// A pod whose name did not resolve yet ended the tool, if no other node had the channel.
#[test]
fn an_address_that_does_not_answer_at_the_start_is_waited_for() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
    for (flag, good) in [
        ("nsqd-http-address", nsqd.http),
        ("lookupd-http-address", lookupd.http),
    ] {
        let addresses =
            ["nope.invalid:1".to_owned(), good.to_string()].map(|it| format!("--{flag}={it}"));
        let channel = format!("-channel={flag}");
        let args = format!("-topic=late {channel} -count=1 -interval=50ms {PATIENT}");
        let mut tool = start(command(&args).args(&addresses));
        tool.wait_for_log("waiting for the addresses that do not answer");
        let log = tool.log();
        let warning = "WARNING: nope.invalid:1 does not answer - ";
        assert_eq!(
            (log.matches(warning).count(), log.lines().count()),
            (1, 2),
            "{log}"
        );
        nsqd.create_channel("late", flag);
        assert_eq!(tool.lines().count(), 3);
        assert_eq!(tool.wait().code(), Some(0));
        nsqd.post("/topic/delete?topic=late", b"")
            .expect_status(200);
        lookupd
            .post("/topic/delete?topic=late", b"")
            .expect_status(200);
    }
}

/// An nsqlookupd that did not know the topic counted as one that does not answer, and the tool waited for ever.
#[test]
fn a_channel_that_no_address_has_ends_the_tool() {
    let lookupds = [Daemon::nsqlookupd(&[]), Daemon::nsqlookupd(&[])];
    let nsqd = Daemon::nsqd_at(&[&lookupds[0]], &[]);
    nsqd.create_channel("t", "c");
    let addresses = lookupds.each_ref().map(|lookupd| lookupd.http.to_string());
    let addresses = addresses.map(|http| format!("--lookupd-http-address={http}"));
    lookupds[0].wait_for_producers("t", 1);
    let args = "-topic=t -channel=typo -count=1 -interval=50ms";
    let exit = nsq_stat(&format!("{args} {} {PATIENT}", addresses.join(" ")));
    assert_eq!(exit.status.code(), Some(1), "{exit}");
}

/// nsqd refuses plain HTTP then, and names its HTTPS port.
#[test]
fn an_nsqd_that_wants_https_is_asked_again() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let [certificate, key] = tool::certificate(directory.path());
    let (cert_flag, key_flag) = (
        format!("--tls-cert={certificate}"),
        format!("--tls-key={key}"),
    );
    let https = [
        "--tls-required=true",
        "--https-address=127.0.0.1:0",
        "--create=t/c",
    ];
    let nsqd = Daemon::nsqd(&[&[&*cert_flag, &*key_flag], &https[..]].concat());
    nsqd.get("/stats").expect_status(403);
    let address = format!("-nsqd-http-address={}", nsqd.http);
    let args = format!("-topic=t -channel=c -count=1 -interval=10ms {PATIENT} {address}");
    let exit = nsq_stat(&args);
    assert!(
        exit.code() == 1 && exit.stderr.contains("certificate"),
        "{exit}"
    );
    let exit = run(command(&args).env("SSL_CERT_FILE", &certificate), TIMEOUT);
    assert_eq!(exit.code(), 0, "{exit}");
    assert_eq!(exit.stdout.lines().count(), 3, "{exit}");
}

#[test]
fn every_signal_ends_the_tool_at_once() {
    let nsqd = nsqd_with_messages(&[]);
    let address = format!("--nsqd-http-address={}", nsqd.http);
    for signal in ["HUP", "INT", "TERM"] {
        let args = format!("-topic=t -channel=c -interval=1h {address}");
        let mut tool = start(&mut command(&args));
        // The first poll is followed by the heading.
        assert!(tool.lines().next().unwrap().starts_with("------rate"));
        assert_eq!(tool.end(signal).0, Some(0), "SIG{signal}");
    }
}
