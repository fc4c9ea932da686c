//! `--dedup` of all consuming tools, with real daemons: two nsqds have the same messages, and each is handled once.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::tool::consumed::texts;
use crate::tool::{Tool, command, expect_exit, script};
use test_support::daemon::Daemon;
use test_support::dead_port::DeadPort;
use test_support::http_server::{Answer, HttpServer};
use test_support::memcached::Memcached;
use test_support::process::run;
use test_support::tmpfs::Tmpfs;
use test_support::{TIMEOUT, wait_until};

const BODIES: [&str; 3] = [r#"{"id":1}"#, r#"{"id":2}"#, r#"{"id":3}"#];
/// Copies of the first and the last message, with other bytes around the value.
const COPIES: [&str; 2] = [r#"{"copy":true,"id":1}"#, r#"{"id": 3 }"#];
const DEDUP: &str = "--dedup=json:/id,slots=1000";

/// Two nsqds whose channel `c` of the topic `t` has the messages: the first one all, and the second one all and the
/// copies.
struct Source {
    nodes: [Daemon; 2],
}

impl Source {
    fn new() -> Source {
        let nodes = [(); 2].map(|()| Daemon::nsqd(&[]).with_messages("t", "c", &BODIES));
        nodes[1].publish("t", &COPIES);
        Source { nodes }
    }

    /// Starts a tool that consumes from both.
    fn start(&self, tool: &str, args: &str) -> Tool {
        Tool::start(tool, self.args(args))
    }

    /// Returns the arguments of a tool that consumes from both.
    fn args(&self, args: &str) -> String {
        let [first, second] = self.nodes.each_ref().map(|node| node.tcp);
        format!("--nsqd-tcp-address={first} --nsqd-tcp-address={second} {args}")
    }

    fn wait_for_answers(&self) {
        for node in &self.nodes {
            node.wait_for_answers("t", "c");
        }
    }
}

/// Returns the ids of bodies, in order.
fn ids(bodies: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<u64> {
    let id = |body: &str| {
        let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
        json["id"].as_u64().expect("a number")
    };
    let mut ids: Vec<u64> = bodies.into_iter().map(|body| id(body.as_ref())).collect();
    ids.sort_unstable();
    ids
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn wait_for_lines(path: &Path, count: usize) -> Vec<String> {
    let reached = wait_until(TIMEOUT, || lines(path).len() >= count);
    assert!(reached, "{:?}", lines(path));
    lines(path)
}

/// The filter learns of a message after its sync, and remembers over a restart.
#[test]
fn nsq_to_file_archives_each_message_once() {
    let source = Source::new();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.log");
    let output = format!("--output-dir={}", directory.path().display());
    let state = format!("--dedup-state={}", directory.path().join("state").display());
    let args = "--topic=t --channel=c --filename-format=<TOPIC>.log --sync-interval=100ms";
    let start = || source.start("nsq_to_file", &format!("{args} {output} {DEDUP} {state}"));
    let mut tool = start();
    tool.wait_for_log("inverse Bloom filter with 1000 slots, 16000 bytes of memory, new in");
    source.wait_for_answers();
    assert_eq!(ids(wait_for_lines(&path, 3)), [1, 2, 3]);
    tool.stop();
    let mut tool = start();
    tool.wait_for_log(", restored from");
    source.nodes[0].publish("t", &[COPIES[0], r#"{"id":4}"#, "no JSON"]);
    source.wait_for_answers();
    let found = wait_for_lines(&path, 5);
    assert_eq!(found.iter().filter(|line| *line == "no JSON").count(), 1);
    assert_eq!(
        ids(found.iter().filter(|line| *line != "no JSON")),
        [1, 2, 3, 4]
    );
    tool.wait_for_log("1 messages without a key so far");
    tool.stop();
}

/// Two tools with one state overwrote each other's filter in silence, and one with another key restored a filter that
/// knew none of its messages.
#[test]
fn a_state_belongs_to_one_tool_and_one_key() {
    let source = Source::new();
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state");
    let shown = state.display();
    let flag = format!("--dedup-state={shown}");
    let tail = |dedup: &'static str| {
        let args = format!("--topic=t --channel=c {dedup} {flag}");
        source.start("nsq_tail", &args)
    };
    let fails = |dedup: &'static str, expected: &str| {
        let mut tool = tail(dedup);
        assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
        assert!(tool.log().contains(expected), "{}", tool.log());
    };
    let mut first = tail(DEDUP);
    first.wait_for_log(", new in ");
    let used = format!(
        "--dedup-state: {shown} is used by process {}, ",
        first.pid()
    );
    fails(DEDUP, &used);
    source.wait_for_answers();
    first.stop();
    let other = format!(
        "--dedup-state: {shown} has a filter of the keys json:/id, and a filter of the keys body is wanted; "
    );
    fails("--dedup=body,slots=1000", &other);
    let mut next = tail(DEDUP);
    next.wait_for_log(", restored from ");
    next.stop();
    // A killed process keeps no lock.
    let next = tail(DEDUP);
    next.wait_for_log(", restored from ");
    drop(next);
    let mut next = tail(DEDUP);
    next.wait_for_log(", restored from ");
    next.stop();
}

/// After an update, a file may have a filter that ringq has no more.
#[test]
fn the_state_of_a_removed_filter_gives_a_warning_and_an_empty_filter() {
    let source = Source::new();
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state");
    let shown = state.display();
    // The head of a saved filter: its version and its name.
    std::fs::write(&state, b"RQDD\x03\0\x12time-limited-bloom...").expect("writable");
    let flag = format!("--dedup-state={shown}");
    let args = format!("--topic=t --channel=c {DEDUP} {flag}");
    let mut tool = source.start("nsq_tail", &args);
    tool.wait_for_log(", new in ");
    tool.wait_for_log(&format!(
        "WARNING: --dedup-state: {shown} has a filter that was removed, time-limited-bloom: the filter begins empty, \
         and a save replaces the file"
    ));
    source.wait_for_answers();
    tool.stop();
    let mut next = source.start("nsq_tail", &args);
    next.wait_for_log(", restored from ");
    next.stop();
}

/// A copy is not finished before the first copy is synced.
#[test]
fn nsq_to_file_finishes_no_copy_before_the_sync() {
    let mut source = Source::new();
    let directory = tempfile::tempdir().expect("a directory");
    let output = format!("--output-dir={}", directory.path().display());
    let args = format!(
        "--topic=t --channel=c {output} --filename-format=<TOPIC>.log --sync-interval=1h {DEDUP}"
    );
    let mut tool = source.start("nsq_to_file", &args);
    // The first message of a file is synced alone. Of the other ids, each node has a copy in flight.
    let in_flight = |node: &Daemon| {
        let channel = node.channel("t", "c").expect("the channel exists");
        channel["in_flight_count"].as_i64().expect("a number")
    };
    let waits = || source.nodes.iter().map(in_flight).sum::<i64>() >= 4;
    assert!(wait_until(TIMEOUT, waits));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(waits(), "nothing is finished before the sync");
    tool.signal("KILL");
    tool.wait();
    // The filter of the dead process is gone. After their restart, the nsqds deliver all messages again at once.
    source.nodes.iter_mut().for_each(Daemon::restart);
    let args = args.replace("=1h", "=100ms");
    let mut tool = source.start("nsq_to_file", &args);
    source.wait_for_answers();
    let mut found = ids(wait_for_lines(&directory.path().join("t.log"), 3));
    found.dedup();
    assert_eq!(found, [1, 2, 3]);
    tool.stop();
}

#[test]
fn nsq_to_nsq_copies_each_message_once() {
    let (source, destination) = (Source::new(), Daemon::nsqd(&[]));
    destination.create_channel("t", "c");
    let to = format!("--destination-nsqd-tcp-address={}", destination.tcp);
    let args = format!("--topic=t --channel=c {to} {DEDUP}");
    let mut tool = source.start("nsq_to_nsq", &args);
    source.wait_for_answers();
    tool.signal("TERM");
    tool.wait_for_log("3 messages were fresh, 5 were duplicates, 0 had no key");
    tool.wait();
    destination.wait_for_figure("t", "c", "depth", 3);
    assert_eq!(ids(texts(&destination, "t", 3)), [1, 2, 3]);
}

#[test]
fn nsq_to_http_makes_one_request_for_each_message() {
    let source = Source::new();
    let server = HttpServer::start(|_, _| Answer::status(200));
    let to = format!("--post=http://{}", server.address);
    let args = format!("--topic=t --channel=c {to} {DEDUP}");
    let mut tool = source.start("nsq_to_http", &args);
    source.wait_for_answers();
    tool.stop();
    let requests = server.wait_for(3);
    assert_eq!(
        ids(requests.iter().map(|request| request.text())),
        [1, 2, 3]
    );
}

#[test]
fn nsq_tail_prints_each_message_once() {
    let source = Source::new();
    let args = format!("--topic=t --channel=c -n=3 {DEDUP}");
    let exit = run(&mut command("nsq_tail", source.args(&args)), TIMEOUT);
    assert_eq!(ids(exit.stdout.lines()), [1, 2, 3]);
}

#[test]
fn nsq_forget_counts_each_message_once() {
    let source = Source::new();
    let args = format!(
        "--topic=t --channel=c --field=id --rate=0.000000001 --http-address=127.0.0.1:0 {DEDUP}"
    );
    let mut tool = source.start("nsq_forget", &args);
    let http = tool.wait_for_http();
    source.wait_for_answers();
    let target = "/dist?distribution=t";
    let answer = test_support::http::http(http, "GET", target, b"");
    assert_eq!(answer.json()["data"]["Z"], 3, "{}", answer.text());
    tool.stop();
}

/// Two clients have two channels: each gets every message, and each gets it once.
#[test]
fn the_channels_of_nsq_pubsub_have_their_own_messages() {
    let source = Source::new();
    for node in &source.nodes {
        node.create_channel("t", "d");
        node.publish("t", &[r#"{"id":4}"#]);
    }
    let args = format!("--http-address=127.0.0.1:0 {DEDUP}");
    let mut tool = source.start("nsq_pubsub", &args);
    let http = tool.wait_for_http();
    let stream = |channel: &str, count: usize| {
        let mut socket = TcpStream::connect(http).expect("it listens");
        let request = format!("GET /sub?topic=t&channel={channel} HTTP/1.1\r\nHost: h\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("it reads");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a time");
        let lines = BufReader::new(&socket)
            .lines()
            .map(|line| line.expect("a line"));
        let lines = lines.filter(|line| line.starts_with("{\"") && !line.contains("_heartbeat_"));
        (ids(lines.take(count)), socket)
    };
    let (first, _first) = stream("c", 4);
    assert_eq!(first, [1, 2, 3, 4]);
    let (second, _second) = stream("d", 1);
    assert_eq!(second, [4]);
    source.wait_for_answers();
    tool.stop();
}

/// Two processes share a channel of each node, and memcached.
#[test]
fn two_tools_share_their_filter_in_memcached() {
    let Some(memcached) = Memcached::start() else {
        return;
    };
    let (source, destination) = (Source::new(), Daemon::nsqd(&[]));
    destination.create_channel("t", "c");
    let to = format!("--destination-nsqd-tcp-address={}", destination.tcp);
    let dedup = format!(
        "--dedup=json:/id,filter=memcached,address={}",
        memcached.address()
    );
    let args = format!("--topic=t --channel=c {to} {dedup}");
    let program = "nsq_to_nsq";
    let mut tools = [source.start(program, &args), source.start(program, &args)];
    for number in 10..60 {
        let body = format!(r#"{{"id":{number}}}"#);
        for node in &source.nodes {
            node.publish("t", &[&body]);
        }
    }
    source.wait_for_answers();
    for tool in &mut tools {
        tool.stop();
    }
    destination.wait_for_figure("t", "c", "depth", 53);
    let expected: Vec<u64> = (1..=3).chain(10..60).collect();
    assert_eq!(ids(texts(&destination, "t", 53)), expected);
}

/// Nobody heard of a wrong address before the first message.
#[test]
fn memcached_that_does_not_answer_has_a_warning_at_the_start() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let dead = DeadPort::bind();
    let address = dead.address;
    for (option, meanwhile) in [
        ("", "messages wait until it answers"),
        (
            ",when-unavailable=handle",
            "messages are handled without the filter until it answers",
        ),
    ] {
        let dedup = format!("--dedup=body,filter=memcached,address={address}{option}");
        let node = format!("--nsqd-tcp-address={}", nsqd.tcp);
        let args = format!("--topic=t --channel=c {node} {dedup}");
        let mut tool = Tool::start("nsq_tail", &args);
        let line = tool.wait_for_log(meanwhile);
        assert!(line.contains(" WARNING: --dedup: memcached "), "{line}");
        tool.stop();
    }
}

#[test]
fn a_filter_that_may_drop_fresh_messages_warns_at_the_start() {
    let source = Source::new();
    let dedup = "--dedup=json:/id,filter=forgetful,window=1m,rate=100,false-positives=0.0001";
    let args = format!("--topic=t --channel=c {dedup}");
    let mut tool = source.start("nsq_tail", &args);
    tool.wait_for_log("forgetful Bloom filter for 60s at 100 messages per second, ");
    tool.wait_for_log("WARNING: filter=forgetful takes up to 0.0001 of the fresh messages");
    source.wait_for_answers();
    tool.stop();
}

#[test]
fn wrong_values_end_the_tools_with_advice() {
    let check = |args: &str, code: i32, advice: &str| {
        let args = format!("--topic=t --nsqd-tcp-address=127.0.0.1:1 {args}");
        expect_exit("nsq_tail", &args, code, advice);
    };
    check("--dedup=id", 2, "begin with body, or with json:");
    check(
        "--dedup=body,filter=time-limited,window=1m,rate=1",
        2,
        "there is no filter \"time-limited\": choose inverse, forgetful, roaring or memcached",
    );
    check("--dedup-state=file", 1, "--dedup-state needs --dedup");
    check(
        "--dedup=body --dedup-state=/no/such/directory/file",
        1,
        "--dedup-state: /no/such/directory/file: the saved state cannot be used: No such file or directory (os error 2); \
         the directory /no/such/directory is missing: make it, or choose another path\n",
    );
    check(
        "--dedup=",
        1,
        "--dedup has no value: write body, or json: and a pointer such as json:/id, or leave the flag out\n",
    );
    check(
        "--dedup=body --dedup-state=",
        1,
        "--dedup-state has no value: write the path of the filter's file, or leave the flag out\n",
    );
    check(
        "--dedup=body,filter=memcached,address=a:1 --dedup-state=file",
        1,
        "memcached keeps its own state",
    );
}

/// A part of the state kept the disk full after the end of the tool.
#[test]
fn a_disk_that_becomes_full_is_an_error_and_leaves_no_part_of_the_state() {
    let Some(disk) = Tmpfs::mount("64k") else {
        return;
    };
    let source = Source::new();
    let state = disk.path().join("state");
    let flag = format!("--dedup-state={}", state.display());
    let args = format!("--topic=t --channel=c {DEDUP} {flag}");
    let mut tool = source.start("nsq_tail", &args);
    tool.wait_for_log("inverse Bloom filter with 1000 slots");
    source.wait_for_answers();
    disk.fill("filler");
    tool.stop();
    let log = tool.log();
    let text = format!("the filter could not be saved in {}: ", state.display());
    assert!(
        log.contains(&text) && log.contains("; free some space"),
        "{log}"
    );
    let names = std::fs::read_dir(disk.path()).expect("readable");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let names: std::collections::BTreeSet<_> = names.collect();
    assert_eq!(
        names,
        ["filler", "state.lock"].map(Into::into).into(),
        "{log}"
    );
}

/// Without memory for the copy that is saved, the tool ended with SIGABRT.
#[test]
fn a_save_without_memory_is_an_error_and_ends_nothing() {
    let source = Source::new();
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state");
    // The filter takes 800 MB of 1.5 GB, and touches few pages.
    let args = format!(
        "--topic=t --channel=c --dedup=json:/id,slots=50000000 --dedup-state={}",
        state.display()
    );
    let limited = "ulimit -v 1500000; exec \"$0\" \"$@\"";
    let mut tool = Tool::quiet(&mut script(limited, "nsq_tail", &source.args(&args)));
    source.wait_for_answers();
    tool.stop();
    let log = tool.log();
    let text = format!(
        "the filter could not be saved in {}: the system refuses 800000000 bytes of memory for a snapshot of the \
         filter; duplicates may be handled",
        state.display()
    );
    assert!(log.contains(&text), "{log}");
}
