//! `nsq_tail` with real daemons.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::tool::{self, Tool};
use test_support::daemon::Daemon;
use test_support::process::{Exit, run};
use test_support::{TIMEOUT, wait_until};

fn command(nsqd: &Daemon, args: &str) -> Command {
    tool::command("nsq_tail", format!("-nsqd-tcp-address={} {args}", nsqd.tcp))
}

fn nsq_tail(nsqd: &Daemon, args: &str) -> Exit {
    run(&mut command(nsqd, args), TIMEOUT)
}

/// Returns an nsqd whose channels `t/c` and `u/c` have these messages.
fn nsqd_with(bodies: &[(&str, &str)]) -> Daemon {
    let nsqd = Daemon::nsqd(&[]);
    for topic in ["t", "u"] {
        nsqd.create_channel(topic, "c");
    }
    for (topic, body) in bodies {
        nsqd.publish(topic, &[body]);
    }
    nsqd
}

#[test]
fn the_number_counts_the_messages_of_all_topics() {
    let bodies = [
        ("t", "1"),
        ("t", "2\n2"),
        ("t", ""),
        ("u", "3"),
        ("u", "4"),
        ("u", "5"),
    ];
    // nsqd refuses an empty message.
    let bodies: Vec<_> = bodies
        .into_iter()
        .filter(|(_, body)| !body.is_empty())
        .collect();
    let nsqd = nsqd_with(&bodies);
    let exit = nsq_tail(&nsqd, "-topic=t -topic=u -channel=c -n=4 -print-topic");
    assert_eq!(exit.code(), 0, "{exit}");
    let mut printed = 0;
    for (topic, body) in &bodies {
        printed += exit.stdout.matches(&format!("{topic} | {body}\n")).count();
    }
    assert_eq!(printed, 4, "{exit}");
    // One message is left in one of the channels.
    let depth = |topic| {
        nsqd.channel(topic, "c")
            .and_then(|channel| channel["depth"].as_i64())
    };
    let left = || depth("t").zip(depth("u")).is_some_and(|(t, u)| t + u == 1);
    assert!(wait_until(TIMEOUT, left), "{exit}");
}

/// An ephemeral channel drops messages that nobody takes, and nsqd sent none while another nsqd did not answer.
#[test]
fn an_ephemeral_channel_takes_messages_at_once() {
    let nsqd = nsqd_with(&[]);
    // Its kernel takes the connection, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = silent
        .local_addr()
        .map(|at| format!("-nsqd-tcp-address={at}"));
    let silent = silent.expect("it listens");
    let check = |channel: &str, ready_count: i64| {
        let channel_flag = format!("-channel={channel}");
        let args = format!("-topic=t {channel_flag} -max-in-flight=7 {silent}");
        let mut tool = Tool::of_command(&mut command(&nsqd, &args));
        let channel = channel.replace('#', "%23");
        let ready = || nsqd.channel("t", &channel)?["clients"][0]["ready_count"].as_i64();
        let has_it = || ready() == Some(ready_count);
        assert!(wait_until(TIMEOUT, has_it), "{:?} {}", ready(), tool.log());
        tool.stop();
    };
    check("look#ephemeral", 7);
    // Messages of other channels would count an attempt.
    check("c", 0);
}

#[test]
fn each_topic_has_a_line_at_the_start() {
    let nsqd = nsqd_with(&[]);
    let address = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let args = format!("-topic=t -topic=u -channel=c {address}");
    let mut tool = Tool::start("nsq_tail", &args);
    for topic in ["t", "u"] {
        nsqd.wait_for_figure(topic, "c", "client_count", 1);
    }
    tool.stop();
    for topic in ["t", "u"] {
        let line = format!("Adding consumer for topic: {topic}\n");
        assert_eq!(tool.log().matches(&line).count(), 1, "{}", tool.log());
    }
}

#[test]
fn a_channel_is_invented_and_disappears() {
    let nsqd = nsqd_with(&[]);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("out");
    let address = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let output = fs::File::create(&path).expect("the directory is writable");
    let mut tool =
        Tool::of_command(tool::command("nsq_tail", format!("-topic=t {address}")).stdout(output));
    let line = tool.wait_for_log("connected");
    let channel = line
        .split_once("[t/")
        .and_then(|(_, rest)| rest.split_once(']'));
    let channel = channel
        .map(|(channel, _)| channel.to_owned())
        .expect("the line names it");
    assert!(
        channel.starts_with("tail") && channel.ends_with("#ephemeral"),
        "{line}"
    );
    let channel = channel.replace('#', "%23");
    assert!(nsqd.channel("t", &channel).is_some());
    nsqd.publish("t", &["a", "b"]);
    // Lines are flushed at once.
    let printed = || fs::read_to_string(&path).is_ok_and(|text| text == "a\nb\n");
    assert!(wait_until(TIMEOUT, printed), "{}", tool.log());
    tool.stop();
    let gone = || nsqd.channel("t", &channel).is_none();
    assert!(wait_until(TIMEOUT, gone), "{}", tool.log());
}

#[test]
fn messages_that_cannot_be_printed_are_not_finished() {
    let nsqd = nsqd_with(&[("t", "1"), ("t", "2")]);
    let mut command = command(&nsqd, "-topic=t -channel=c");
    let (reader, writer) = std::io::pipe().expect("the system has pipes");
    drop(reader);
    let mut tool = Tool::of_command(command.stdout(writer));
    assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
    tool.wait_for_log("ERROR: failed to write to os.Stdout - broken pipe");
    nsqd.wait_for_figure("t", "c", "depth", 2);
}

/// A signal had no effect while the pipe behind the tool was full.
#[test]
fn a_signal_ends_the_tool_although_nobody_reads_its_output() {
    let nsqd = nsqd_with(&[]);
    let body = "x".repeat(100_000);
    nsqd.publish("t", &[&*body; 5]);
    let mut command = command(&nsqd, "-topic=t -channel=c");
    let mut tool = Tool::of_command(command.stdout(Stdio::piped()));
    nsqd.wait_for_figure("t", "c", "in_flight_count", 5);
    tool.stop();
    // No message was printed as a whole, so nsqd has all of them again, and at once.
    nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
    nsqd.wait_for_figure("t", "c", "depth", 5);
}
