//! `nsqtop` with real daemons, in a pseudo-terminal and without one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use crate::tool::command;
use crate::tool::pty::Pty;
use test_support::daemon::{Daemon, send_signal};
use test_support::process::run;
use test_support::{TIMEOUT, wait_until};

fn nsqtop(args: impl AsRef<str>) -> Command {
    command("nsqtop", args)
}

/// A consumer that takes messages and does not answer.
struct Consumer(TcpStream);

impl Consumer {
    fn new(nsqd: &Daemon, topic: &str, channel: &str, ready: u32) -> Consumer {
        let mut stream = TcpStream::connect(nsqd.tcp).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let commands = format!("  V2SUB {topic} {channel}\nRDY {ready}\n");
        stream.write_all(commands.as_bytes()).unwrap();
        let mut ok = [0; 10];
        stream.read_exact(&mut ok).unwrap();
        assert_eq!(&ok[8..], b"OK");
        Consumer(stream)
    }

    fn set_ready(&mut self, ready: u32) {
        self.0
            .write_all(format!("RDY {ready}\n").as_bytes())
            .unwrap();
    }
}

/// Two nodes: `orders/billing` with a consumer that is stuck, and `orders/audit` without consumers.
fn cluster() -> (Daemon, [Daemon; 2], Consumer) {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nodes = ["2", "1"].map(|shards| {
        let latency = "--e2e-processing-latency-percentile=0.99,0.5";
        Daemon::nsqd_at(&[&lookupd], &[&format!("--shards={shards}"), latency])
    });
    nodes[0].create_channel("orders", "billing");
    nodes[0].create_channel("orders", "audit");
    let bodies = vec!["message"; 20];
    nodes[0].publish("orders", &bodies);
    let consumer = Consumer::new(&nodes[0], "orders", "billing", 5);
    nodes[0].wait_for_figure("orders", "billing", "in_flight_count", 5);
    let both = || {
        let nodes = lookupd.get("/nodes").json();
        nodes["producers"]
            .as_array()
            .is_some_and(|nodes| nodes.len() == 2)
    };
    assert!(wait_until(TIMEOUT, both));
    (lookupd, nodes, consumer)
}

#[test]
fn the_plain_table_names_what_limits_each_channel() {
    let (lookupd, nodes, _consumer) = cluster();
    let lookupd_flag = format!("--lookupd-http-address={}", lookupd.http);
    let table = |args: &str| {
        let args = format!("{lookupd_flag} --interval=300ms {args}");
        let exit = run(&mut nsqtop(args), TIMEOUT);
        assert_eq!((exit.code(), exit.stderr.as_str()), (0, ""), "{exit}");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        exit.stdout.lines().map(words).collect::<Vec<_>>()
    };
    let channels = table("--once");
    assert_eq!(
        channels[0],
        "CHANNEL IN/S OUT/S DEPTH INFLT DEFER REQ/S E2E AGE CONNS DOCTOR"
    );
    let audit = "No consumers: 20 messages wait and 0/s arrive; start a consumer";
    assert!(
        channels[1].starts_with("orders/audit 0 0 20 0 0 "),
        "{channels:#?}"
    );
    assert!(channels[1].ends_with(audit), "{channels:#?}");
    let billing =
        "Stuck: none of the 5 messages in flight was finished; see what the handlers wait for";
    assert!(
        channels[2].starts_with("orders/billing 0 0 15 5 0 "),
        "{channels:#?}"
    );
    assert!(channels[2].ends_with(billing), "{channels:#?}");
    // Without a terminal, the table is plain in any case.
    let nodes_table = table("--view=nodes --sort=-shards");
    let shards: Vec<&str> = nodes_table
        .iter()
        .map(|line| line.split(' ').nth(2).unwrap())
        .collect();
    assert_eq!(shards, ["SHARDS", "1", "2"], "{nodes_table:#?}");
    let shards = table("--view=shards");
    assert_eq!(shards.len(), 2, "{shards:#?}");
    assert!(shards[1].contains(" 1 0 0 35 5 0 1"), "{shards:#?}");
    let filtered = table("--filter=AUDIT --topic=orders");
    assert_eq!(filtered.len(), 2, "{filtered:#?}");
    assert_eq!(table("--topic=nothing").len(), 1);
    assert_eq!(table("--channel=billing --view=topics").len(), 2);
    let clients = table("--view=clients");
    assert!(
        clients[1].contains(" orders/billing 5 5 0 0 0 "),
        "{clients:#?}"
    );
    let _ = nodes;
}

#[test]
fn a_plain_table_without_nodes_is_an_error() {
    let nsqd = Daemon::nsqd(&[]);
    let flag = format!("--nsqd-http-address={}", nsqd.http);
    let address = nsqd.http;
    drop(nsqd);
    let exit = run(&mut nsqtop(format!("--once {flag}")), TIMEOUT);
    let text = format!("ERROR: {address} gives no figures: connect: connection refused\n");
    assert_eq!((exit.code(), exit.stdout.as_str()), (1, ""), "{exit}");
    assert!(exit.stderr.contains(&text), "{exit}");
    let lookupd = Daemon::nsqlookupd(&[]);
    let flag = format!("--lookupd-http-address={}", lookupd.http);
    let exit = run(&mut nsqtop(format!("--once {flag}")), TIMEOUT);
    assert_eq!(exit.code(), 1, "{exit}");
    assert!(
        exit.stderr
            .ends_with("ERROR: no nsqlookupd knows an nsqd\n"),
        "{exit}"
    );
}

#[test]
fn the_terminal_shows_the_cluster_and_obeys_keys() {
    let (lookupd, mut nodes, mut consumer) = cluster();
    let flag = format!("--lookupd-http-address={}", lookupd.http);
    let mut top = Pty::start(&mut nsqtop(format!("--interval=200ms {flag}")));
    top.wait_for(&[
        "2 nodes",
        "orders/audit",
        "No consumers: 20 messages wait",
        "q quit",
    ]);
    assert!(top.is_raw() && top.is_alternate_screen());
    top.press("j");
    top.wait_for(&["Stuck: none of the 5 messages in flight was finished"]);
    // A consumer in backoff.
    consumer.set_ready(0);
    top.wait_for(&["Backoff: 1 of 1 connections have RDY 0"]);
    top.press("/audit\r");
    top.wait_for(&["filter: audit", "No consumers: 20 messages wait"]);
    assert!(!top.text().contains("orders/billing"), "{}", top.text());
    top.press_escape();
    top.wait_for(&["orders/billing"]);
    top.press(" ");
    top.wait_for(&["PAUSED"]);
    nodes[0].publish("orders", &["more"]);
    nodes[0].wait_for_figure("orders", "audit", "depth", 21);
    std::thread::sleep(Duration::from_millis(600));
    assert!(!top.text().contains("21 messages wait"), "{}", top.text());
    top.press(" k");
    top.wait_for(&["21 messages wait"]);
    top.press("2");
    top.wait_for(&["TOPIC ", "orders "]);
    top.press("\r");
    top.wait_for(&["only orders/", "orders/billing"]);
    top.press_escape();
    top.press("3");
    top.wait_for(&["READS, WRITES", "127.0.0.1"]);
    top.press("4");
    top.wait_for(&["SHARDS", &nodes[1].http.to_string()]);
    top.press("?");
    top.wait_for(&["age of the oldest message that is not finished"]);
    top.press("?");
    // A node that dies is named, and the others are still shown.
    nodes[1].kill();
    top.wait_for(&["1 node "]);
    top.press("q");
    let (status, text) = top.wait();
    assert_eq!(status.code(), Some(0), "{text}");
}

#[test]
fn a_node_that_does_not_answer_is_named_on_the_screen() {
    let mut nsqd = Daemon::nsqd(&[]);
    let flag = format!("--nsqd-http-address={}", nsqd.http);
    let mut top = Pty::start(&mut nsqtop(format!("--interval=100ms {flag}")));
    top.wait_for(&["1 node "]);
    nsqd.kill();
    let problem = format!(
        "{} gives no figures: connect: connection refused",
        nsqd.http
    );
    top.wait_for(&["0 nodes  1 away", &problem]);
    top.press("4");
    top.wait_for(&[" away"]);
    nsqd.restart();
    top.wait_for(&["1 node "]);
    top.press("\x03");
    assert_eq!(top.wait().0.code(), Some(0));
}

#[test]
fn signals_restore_the_terminal() {
    let nsqd = Daemon::nsqd(&[]);
    let flag = format!("--nsqd-http-address={}", nsqd.http);
    for signal in ["TERM", "INT", "HUP"] {
        let top = Pty::start(&mut nsqtop(&flag));
        top.wait_for(&["1 node "]);
        assert!(top.is_raw() && top.is_alternate_screen());
        send_signal(top.child.id(), signal);
        assert_eq!(top.wait().0.code(), Some(0), "SIG{signal}");
    }
}

/// SIGQUIT printed a line into the drawing, and ended the tool with code 0.
#[test]
fn sigquit_restores_the_terminal_and_kills_the_tool() {
    let nsqd = Daemon::nsqd(&[]);
    let flag = format!("--nsqd-http-address={}", nsqd.http);
    let directory = tempfile::tempdir().unwrap();
    // The system may write a core file into the working directory.
    let mut command = nsqtop(&flag);
    let top = Pty::start(command.current_dir(directory.path()));
    top.wait_for(&["1 node "]);
    send_signal(top.child.id(), "QUIT");
    let (status, text) = top.wait();
    assert_eq!(status.signal(), Some(3), "{status}");
    assert!(!text.contains("QUIT"), "{text}");
}

#[test]
fn control_z_gives_the_terminal_back_until_the_tool_goes_on() {
    let nsqd = Daemon::nsqd(&[]);
    let flag = format!("--nsqd-http-address={}", nsqd.http);
    let mut top = Pty::start(&mut nsqtop(&flag));
    for stop in ["key", "signal"] {
        top.wait_for(&["1 node ", "q quit"]);
        match stop {
            "key" => top.press("\x1a"),
            _ => send_signal(top.child.id(), "TSTP"),
        }
        let stat = format!("/proc/{}/stat", top.child.id());
        let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
        assert!(wait_until(TIMEOUT, is_stopped), "{stop}");
        let is_restored = || !top.is_alternate_screen() && !top.hides_caret() && !top.is_raw();
        assert!(wait_until(TIMEOUT, is_restored), "{stop}");
        send_signal(top.child.id(), "CONT");
        top.wait_for(&["1 node ", "q quit"]);
        assert!(top.is_raw() && top.is_alternate_screen());
    }
    top.press("q");
    assert_eq!(top.wait().0.code(), Some(0));
}

/// The test runs itself in a terminal, with a drawing that panics.
#[test]
fn a_panic_restores_the_terminal() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--ignored",
        "--exact",
        "nsqtop::panics_while_it_draws",
        "--nocapture",
    ]);
    // A backtrace would move the panic's text off the screen.
    command.env("RUST_BACKTRACE", "0");
    let top = Pty::start(&mut command);
    let (status, text) = top.wait();
    assert_ne!(status.code(), Some(0));
    assert!(text.contains("the drawing fails"), "{text}");
}

#[test]
#[ignore = "it is a part of a_panic_restores_the_terminal, which runs it in a terminal"]
fn panics_while_it_draws() {
    let shown = nsq_tools::nsqtop::terminal::in_terminal(|terminal| {
        let drawn = terminal.draw(|_| panic!("the drawing fails"));
        drawn.map(drop).map_err(|error| error.to_string())
    });
    assert_eq!(shown, Ok(()));
}
