//! The start of tools that consume from several nsqds and topics, when one of the nsqds cannot be connected.

use std::net::TcpListener;
use std::time::Duration;

use crate::tool::Tool;
use crate::tool::consumed::consume;
use test_support::daemon::Daemon;
use test_support::wait_until;

/// Starts a tool with a good nsqd, and with one that never answers.
///
/// Each start of the tool cost the messages of the good nsqd an attempt, until they were given up.
fn check(program: &str, channel: &str, args: &str) {
    let nsqd = Daemon::nsqd(&[]).with_messages("t", channel, &["one"]);
    // The kernel accepts connections, and nobody answers on them.
    let mute = TcpListener::bind("127.0.0.1:0").expect("the system has a port");
    let mute_address = mute.local_addr().expect("the listener has an address");
    let args = format!(
        "--nsqd-tcp-address={} --nsqd-tcp-address={mute_address} {args}",
        nsqd.tcp
    );
    let mut tool = Tool::start(program, args);
    nsqd.wait_for_figure("t", channel, "client_count", 1);
    let is_sent = || nsqd.figure("t", channel, "in_flight_count") > 0;
    assert!(
        !wait_until(Duration::from_millis(500), is_sent),
        "{}",
        tool.log()
    );
    // The connections of the other nsqd end.
    drop(mute);
    assert_eq!(tool.wait().code(), Some(1), "{}", tool.log());
    let attempts = consume(&nsqd, "t", channel, 1, |message| message.attempts());
    assert_eq!(attempts, [1], "{}", tool.log());
}

#[test]
fn no_tool_takes_a_message_before_all_are_connected() {
    for [program, channel, args] in test_support::rows(
        "nsq_tail    | c           | --topic=t --topic=u --channel=c
         nsq_to_http | nsq_to_http | --topic=t --topic=u --post=http://127.0.0.1:1/
         nsq_to_nsq  | nsq_to_nsq  | --topic=t --topic=u --destination-nsqd-tcp-address=127.0.0.1:1
         nsq_forget  | c           | --topic=t --channel=c --field=country --rate=1e-12 --http-address=127.0.0.1:0",
    ) {
        check(program, channel, args);
    }
}
