//! Client libraries that find our nsqds by our nsqlookupds: pynsq, gnsq, nsqjs and go-nsq, from their registries (see
//! `interop.rs`). Each consumer starts before its topic exists, and gets a message from each of two nsqds. One of the
//! nsqds is registered at only one of the nsqlookupds.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use crate::ringq_lookupd::Lookupd;
use crate::support::{Broker, TIMEOUT, go_program, node_program, python_program};

/// A consumer, which ends when it is dropped.
struct Consumer {
    child: Child,
    bodies: Receiver<String>,
}

impl Consumer {
    fn start(mut command: Command) -> Consumer {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is installed");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, bodies) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test has all that it waits for.
                let _ = sender.send(line);
            }
        });
        Consumer { child, bodies }
    }

    /// Waits until each of these bodies has come at least once.
    fn expect(&self, bodies: &[&str]) {
        let mut missing: BTreeSet<String> = bodies.iter().map(|&body| body.to_owned()).collect();
        let deadline = Instant::now() + TIMEOUT;
        while !missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.bodies.recv_timeout(left) {
                Ok(body) => missing.remove(&body),
                Err(error) => panic!("{missing:?} are missing: {error}"),
            };
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Both calls fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `prefix` stands before an address of an nsqlookupd.
fn check(program: Option<Command>, prefix: &str) {
    let Some(mut program) = program else {
        return;
    };
    let lookupds = [0; 2].map(|_| Lookupd::local(&[]));
    let flags = lookupds.each_ref().map(Lookupd::flag);
    let broadcast = "--broadcast-address=127.0.0.1";
    let first = Broker::start(1, &[&flags[0], &flags[1], broadcast]);
    let second = Broker::start(1, &[&flags[1], broadcast]);
    for lookupd in &lookupds {
        program.arg("--lookupd");
        program.arg(format!("{prefix}{}", lookupd.server.http_address()));
    }
    program.args(["--topic", "orders#ephemeral", "--channel", "billing"]);
    let consumer = Consumer::start(program);
    // The poll of a topic that nobody has gets 404.
    for broker in [&first, &second] {
        let body = broker.tcp_addr().to_string();
        let answer = broker.post("/pub?topic=orders%23ephemeral", body.as_bytes());
        answer.expect_status(200);
    }
    let bodies = [&first, &second].map(|broker| broker.tcp_addr().to_string());
    consumer.expect(&bodies.each_ref().map(String::as_str));
}

#[test]
fn pynsq_finds_brokers() {
    let program = python_program("discovery.py").map(|mut program| {
        program.args(["--library", "pynsq"]);
        program
    });
    check(program, "http://");
}

#[test]
fn gnsq_finds_brokers() {
    let program = python_program("discovery.py").map(|mut program| {
        program.args(["--library", "gnsq"]);
        program
    });
    check(program, "");
}

#[test]
fn nsqjs_finds_brokers() {
    check(node_program("discovery.js"), "");
}

#[test]
fn go_nsq_finds_brokers() {
    check(go_program("consumer", "1.21"), "");
}
