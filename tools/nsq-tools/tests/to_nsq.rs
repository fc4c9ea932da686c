//! `to_nsq` with real nsqds.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::tool::consumed::texts;
use crate::tool::pty::Pty;
use crate::tool::{Tool, command, script};
use test_support::cutting_proxy::CuttingProxy;
use test_support::daemon::Daemon;
use test_support::{TIMEOUT, assert_like, wait_until};

/// Starts an nsqd with the topic `t` and a channel that keeps its messages.
fn nsqd(args: &[&str]) -> Daemon {
    let nsqd = Daemon::nsqd(args);
    nsqd.create_channel("t", "c");
    nsqd
}

fn start(args: impl AsRef<str>) -> Tool {
    Tool::start("to_nsq", args)
}

/// Runs the tool with this input until its end. Returns its exit code and its log.
fn publish(args: &str, input: &[u8]) -> (i32, String) {
    let mut tool = start(args);
    let mut stdin = tool.stdin();
    // A tool that ends early does not read its input.
    let _ = stdin.write_all(input);
    drop(stdin);
    let status = tool.wait();
    (status.code().expect("no signal"), tool.log())
}

fn address(nsqd: &Daemon) -> String {
    format!("-nsqd-tcp-address={}", nsqd.tcp)
}

fn depth(nsqd: &Daemon) -> i64 {
    nsqd.figure("t", "c", "depth")
}

#[test]
fn every_destination_gets_all_records_in_order() {
    let nsqds = [nsqd(&[]), nsqd(&[])];
    let addresses = nsqds.each_ref().map(address);
    let records: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let input = records.join("\n");
    let args = format!(
        "-topic=t {} {} {}",
        addresses[0], addresses[1], addresses[0]
    );
    let (code, log) = publish(&args, input.as_bytes());
    assert_eq!(code, 0, "{log}");
    for nsqd in &nsqds {
        assert_eq!(depth(nsqd), 20_000);
        // One consumer of one nsqd gets them in the order of the log.
        assert!(texts(nsqd, "t", 20_000) == records);
    }
}

#[test]
fn a_rate_limits_the_records() {
    let nsqd = nsqd(&[]);
    let began = Instant::now();
    let args = format!("-topic=t {} -rate=10", address(&nsqd));
    let (code, log) = publish(&args, "x\n".repeat(25).as_bytes());
    let time = began.elapsed();
    assert_eq!((code, depth(&nsqd)), (0, 25), "{log}");
    assert_like(&log, "…Throttling messages rate to max:10/second…");
    // 2.4 s, and what a busy machine needs for the start.
    assert!(time >= Duration::from_millis(2400), "{time:?}");
    assert!(time < Duration::from_secs(20), "{time:?}");
}

#[test]
fn a_signal_ends_the_tool_while_its_input_is_open() {
    for signal in ["TERM", "INT"] {
        let nsqd = nsqd(&[]);
        let mut tool = start(format!("-topic=t {}", address(&nsqd)));
        let mut stdin = tool.stdin();
        stdin.write_all(b"one\ntwo\nthr").expect("the tool reads");
        assert!(wait_until(TIMEOUT, || depth(&nsqd) == 2));
        tool.signal(signal);
        assert_eq!(tool.wait().code(), Some(0), "{}", tool.log());
        // The last record had no end yet.
        assert_eq!(texts(&nsqd, "t", 2), ["one", "two"]);
        assert_eq!(depth(&nsqd), 0);
        drop(stdin);
    }
}

/// The tool was silent for 30 s, and then ended with code 0 without its records.
#[test]
fn a_stop_waits_30_seconds_for_confirmations_and_then_fails() {
    let mute = TcpListener::bind("127.0.0.1:0").expect("the system has a port");
    let address = mute.local_addr().expect("the listener has an address");
    let mut tool = start(format!("-topic=t -nsqd-tcp-address={address}"));
    let mut stdin = tool.stdin();
    stdin.write_all(b"one\ntwo\n").expect("the tool reads");
    tool.wait_for_log("connecting to nsqd");
    let stopped = Instant::now();
    tool.signal("TERM");
    tool.wait_for_log("stopping: waiting up to 30s for the confirmation of 1 record");
    assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
    assert!(
        stopped.elapsed() >= Duration::from_secs(30),
        "{}",
        tool.log()
    );
    let log = tool.log();
    let why =
        "stopping: nsqd did not confirm the last records within 30 seconds, so they may be lost";
    assert!(log.lines().any(|line| line.ends_with(why)), "{log}");
}

#[test]
fn the_first_failure_ends_the_tool() {
    let nsqd = nsqd(&["--max-msg-size=10"]);
    let args = format!("-topic=t {}", address(&nsqd));
    let (code, log) = publish(&args, b"one\n12345678901\n");
    assert_eq!(code, 1, "{log}");
    // A line of the client may follow. Its lines about the failure have the level ERR.
    let why = " E_BAD_MESSAGE PUB message too big 11 > 10";
    let is_reason = |line: &str| line.ends_with(why) && !line.contains(" ERR ");
    assert!(log.lines().any(is_reason), "{log}");
    assert!(
        log.contains("nsqd has confirmed 1 record; 1 record failed, nsqd has not answered 0 records behind it, and the rest of the input was not sent"),
        "{log}"
    );
    assert_eq!(texts(&nsqd, "t", 1), ["one"]);
}

/// The line about the progress counted a failed record, and there was none.
#[test]
fn an_input_that_cannot_be_read_fails_no_record() {
    let nsqd = nsqd(&[]);
    let mut command = command("to_nsq", format!("-topic=t {}", address(&nsqd)));
    let directory = File::open(env!("CARGO_MANIFEST_DIR")).expect("the directory of the crate");
    let mut tool = Tool::of_command(command.stdin(directory).stdout(Stdio::null()));
    assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
    let log = tool.log();
    assert_like(&log, "…cannot read standard input: Is a directory…");
    assert!(
        log.contains("nsqd has confirmed 0 records and has not answered 0 records, and the rest of the input was not sent"),
        "{log}"
    );
}

#[test]
fn a_killed_destination_ends_the_tool_without_a_false_confirmation() {
    let mut nsqd = nsqd(&["--sync-every=1"]);
    let mut tool = start(format!("-topic=t {}", address(&nsqd)));
    let mut stdin = tool.stdin();
    let writer = std::thread::spawn(move || {
        let mut count = 0_u64;
        // The pipe breaks when the tool ends.
        while writeln!(stdin, "{count}").is_ok() {
            count += 1;
            if count.is_multiple_of(500) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    assert!(wait_until(TIMEOUT, || depth(&nsqd) > 3000));
    nsqd.kill();
    assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
    writer.join().expect("the writer does not panic");
    let line = tool.wait_for_log(" nsqd has confirmed ");
    let confirmed = line
        .split(' ')
        .nth(5)
        .and_then(|text| text.parse::<usize>().ok());
    let confirmed = confirmed.expect("a number");
    assert!(confirmed > 500, "{line}");
    nsqd.restart();
    // All confirmed records are there, in order, and none twice.
    let found = texts(&nsqd, "t", confirmed);
    let expected: Vec<String> = (0..confirmed).map(|n| n.to_string()).collect();
    assert!(found == expected);
}

/// Answers were lost with their connections, so records that nsqd had came a second time.
#[test]
fn numbered_records_are_stored_once_although_connections_break() {
    let nsqd = nsqd(&["--dedup=t=publisher"]);
    let records: Vec<String> = (10_000..30_000).map(|n| n.to_string()).collect();
    // A connection takes more than the 2,000 records that are on their way: about 25 bytes each, and 10 for each answer.
    let proxy = CuttingProxy::start(nsqd.tcp, |before| match before % 2 {
        0 => [100_000, u64::MAX],
        _ => [u64::MAX, 45_000],
    });
    let address = format!("-nsqd-tcp-address={}", proxy.address);
    let args = format!("-topic=t {address} -number-messages");
    let (code, log) = publish(&args, records.join("\n").as_bytes());
    assert_eq!(code, 0, "{log}");
    assert!(proxy.connections() > 3, "{log}");
    assert_eq!(depth(&nsqd), 20_000);
    let stats = nsqd.get("/stats?format=json&topic=t").json();
    let duplicates = stats["topics"][0]["dedup_duplicate_count"].as_u64();
    assert!(duplicates.is_some_and(|count| count > 0), "{stats}");
    let mut found = texts(&nsqd, "t", 20_000);
    found.sort();
    assert!(found == records);
}

/// Returns the number of confirmed records in the line with the progress.
fn shown(terminal: &Pty) -> usize {
    let text = terminal.text();
    let number = text
        .lines()
        .find_map(|line| line.split_once(" messages ("))
        .and_then(|(number, _)| number.trim().replace(',', "").parse().ok());
    number.unwrap_or(0)
}

/// Kills the tool while nsqd takes nothing more, and then nsqd: only what was confirmed is certain to be there.
#[test]
fn records_that_a_killed_tool_has_shown_as_confirmed_are_stored_once() {
    const RECORDS: usize = 20_000;
    let mut nsqd = nsqd(&["--dedup=t=publisher", "--sync-every=1"]);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let records: Vec<String> = (0..RECORDS).map(|number| number.to_string()).collect();
    let address = address(&nsqd);
    let with_records_from = |first: usize, flags: &str| {
        let input = directory.path().join("records");
        std::fs::write(&input, records[first..].join("\n")).expect("the directory is writable");
        let redirect = format!("exec \"$0\" \"$@\" < {}", input.display());
        let args = format!("-topic=t {address} -number-messages {flags}");
        script(&redirect, "to_nsq", &args)
    };
    let mut terminal = Pty::start(&mut with_records_from(0, "-rate=2000"));
    assert!(wait_until(TIMEOUT, || shown(&terminal) > 0));
    nsqd.signal("STOP");
    let confirmed = shown(&terminal);
    terminal.child.kill().expect("the tool runs");
    assert_eq!(terminal.child.wait().expect("it ends").code(), None);
    nsqd.restart();
    let stored = usize::try_from(depth(&nsqd)).expect("not negative");
    assert!(
        (confirmed..RECORDS).contains(&stored),
        "{confirmed} confirmed, {stored} stored"
    );
    // A run with the rest completes what the killed one has begun.
    let mut rest = with_records_from(stored, "");
    let mut tool = Tool::of_command(rest.stdout(Stdio::null()));
    assert_eq!(tool.wait().code(), Some(0), "{}", tool.log());
    assert_eq!(depth(&nsqd), RECORDS as i64);
    assert!(texts(&nsqd, "t", RECORDS) == records);
}

#[test]
fn an_nsqd_that_takes_no_numbers_is_told() {
    let nsqd = nsqd(&[]);
    let args = format!("-topic=t {} -number-messages", address(&nsqd));
    let (code, log) = publish(&args, b"one\n");
    assert_eq!((code, depth(&nsqd)), (0, 1), "{log}");
    let line = format!(
        "WARNING: {} takes no numbers, so --number-messages has no effect: ",
        nsqd.tcp
    );
    assert_eq!(log.matches(&line).count(), 1, "{log}");
    // Without the flag, nobody asked for numbers.
    let (_, log) = publish(&args.replace("-number-messages", ""), b"one\n");
    assert!(!log.contains("WARNING"), "{log}");
}

#[test]
fn nsqlookupds_name_the_destinations() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut nsqds = [
        Daemon::nsqd_at(&[&lookupd], &[]),
        Daemon::nsqd_at(&[&lookupd], &[]),
    ];
    for nsqd in &nsqds {
        nsqd.create_channel("t", "c");
    }
    lookupd.wait_for_producers("t", 2);
    let args = format!("-topic=t -lookupd-http-address={}", lookupd.http);
    let (code, log) = publish(&args, "x\n".repeat(100).as_bytes());
    assert_eq!(code, 0, "{log}");
    // Each record went to one nsqd.
    assert_eq!(depth(&nsqds[0]) + depth(&nsqds[1]), 100);
    // A dead nsqd, of which the nsqlookupd still knows, is left out.
    let alive = depth(&nsqds[1]);
    nsqds[0].kill();
    let (code, log) = publish(&args, "x\n".repeat(100).as_bytes());
    assert_eq!((code, depth(&nsqds[1])), (0, alive + 100), "{log}");
}

/// `to_nsq` once sent each record only after the confirmation of the one before. Here an nsqd
/// confirms the first record, and the next ones when all of them have come.
#[test]
fn records_do_not_wait_for_the_confirmations_of_earlier_ones() {
    const RECORDS: usize = 500;
    let listener = TcpListener::bind("127.0.0.1:0").expect("the system has a port");
    let address = listener.local_addr().expect("the listener has an address");
    let nsqd = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("the tool connects");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut output = socket.try_clone().expect("a second handle");
        let mut input = BufReader::new(socket);
        let mut magic = [0; 4];
        input.read_exact(&mut magic).expect("the magic comes");
        let mut command = || {
            let mut line = String::new();
            input.read_line(&mut line).expect("a command comes in time");
            let mut length = [0; 4];
            input.read_exact(&mut length).expect("the length comes");
            let mut body = vec![0; u32::from_be_bytes(length) as usize];
            input.read_exact(&mut body).expect("the body comes");
            (line, String::from_utf8(body).expect("a text"))
        };
        let ok = [0, 0, 0, 6, 0, 0, 0, 0, b'O', b'K'];
        assert_eq!(command().0, "IDENTIFY\n");
        output.write_all(&ok).expect("the tool reads");
        for records in [0..1, 1..RECORDS] {
            for number in records.clone() {
                assert_eq!(command(), ("PUB t\n".to_owned(), number.to_string()));
            }
            for _ in records {
                output.write_all(&ok).expect("the tool reads");
            }
        }
    });
    let input: String = (0..RECORDS).map(|number| format!("{number}\n")).collect();
    let args = format!("-topic=t -nsqd-tcp-address={address}");
    let (code, log) = publish(&args, input.as_bytes());
    nsqd.join().expect("all records came");
    assert_eq!(code, 0, "{log}");
}
