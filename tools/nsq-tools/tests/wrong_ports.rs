//! Each tool with the address of another port than the flag means: the error says what the port is, and which port is
//! meant.

use std::io::Write;

use crate::tool::Tool;
use test_support::daemon::Daemon;

const NSQD: &str = "a nsqd TCP endpoint is required: this address belongs to an HTTP server (nsqd has TCP on port 4150";
const LOOKUPD_TCP: &str = "a nsqd TCP endpoint is required: this address is the TCP port of an nsqlookupd (nsqd has TCP on port 4150";
const LOOKUPD: &str = "an nsqlookupd HTTP endpoint is required: this address does not speak HTTP (nsqlookupd has HTTP on port 4161";
const NOT_HTTP: &str = "choose the server's HTTP port (nsqd: 4151 by default, nsqlookupd: 4161)";
const NO_LOOKUPD: &str = "so it is not that of an nsqlookupd (nsqlookupd has HTTP on port 4161";

/// Runs a tool until its log has the text.
fn check(tool: &str, args: &str, address: &str, expected: &str) {
    let mut tool = Tool::start(tool, format!("{args} {address}"));
    // to_nsq connects for its first record only. The other tools read no input.
    let _ = tool.stdin().write_all(b"record\n");
    tool.wait_for_log(expected);
}

#[test]
fn every_tool_says_which_port_is_meant() {
    let (lookupd, nsqd) = (Daemon::nsqlookupd(&[]), Daemon::nsqd(&[]));
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let output = format!("-output-dir={}", directory.path().display());
    let destination = format!("-destination-nsqd-tcp-address={}", nsqd.tcp);
    let tools = [
        ("nsq_tail", ""),
        ("nsq_to_file", &output),
        ("nsq_to_http", "-post=http://127.0.0.1:1/"),
        ("nsq_to_nsq", &destination),
        (
            "nsq_forget",
            "-channel=c -field=f -http-address=127.0.0.1:0",
        ),
        ("to_nsq", ""),
    ];
    let not_lookupd = format!("-lookupd-http-address={}", nsqd.http);
    let http_of_nsqd = format!("-nsqd-tcp-address={}", nsqd.http);
    let tcp_of_lookupd = format!("-nsqd-tcp-address={}", lookupd.tcp);
    let http_of_lookupd = format!("-nsqd-tcp-address={}", lookupd.http);
    for (tool, args) in tools {
        let args = format!("-topic=t {args}");
        check(tool, &args, &http_of_nsqd, NSQD);
        check(tool, &args, &http_of_lookupd, NSQD);
        check(tool, &args, &tcp_of_lookupd, LOOKUPD_TCP);
        for tcp in [nsqd.tcp, lookupd.tcp] {
            check(
                tool,
                &args,
                &format!("-lookupd-http-address={tcp}"),
                LOOKUPD,
            );
        }
        check(tool, &args, &not_lookupd, NO_LOOKUPD);
    }
    let tcp = format!("-lookupd-http-address={}", lookupd.tcp);
    let pattern = format!("-topic-pattern=t {output}");
    check("nsq_to_file", &pattern, &tcp, LOOKUPD);
    for (tool, args) in [("nsq_stat", "-topic=t -channel=c"), ("nsqtop", "-once")] {
        check(tool, args, &tcp, NOT_HTTP);
        check(tool, args, &not_lookupd, NO_LOOKUPD);
    }
}

#[test]
fn an_endpoint_that_does_not_speak_http_is_named() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    nsqd.publish("t", &["a"]);
    let source = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let post = format!("-post=http://{}", nsqd.tcp);
    let expected = format!(
        "(http://{}: this address does not speak HTTP: choose the port of an HTTP server (nsqd has HTTP on port 4151 by \
         default, and TCP on port 4150))",
        nsqd.tcp
    );
    let args = format!("-topic=t -channel=c {source}");
    check("nsq_to_http", &args, &post, &expected);
}

#[test]
fn a_destination_that_speaks_http_is_named() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    nsqd.publish("t", &["a"]);
    let source = format!("-nsqd-tcp-address={}", nsqd.tcp);
    let destination = format!("-destination-nsqd-tcp-address={}", nsqd.http);
    let args = format!("-topic=t -channel=c {source}");
    check("nsq_to_nsq", &args, &destination, NSQD);
}
