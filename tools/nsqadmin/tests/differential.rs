//! Sends the same requests to the original nsqadmin and to ours (`test_support::differential`). Both
//! ask a cluster of our own daemons in the same state.

use crate::consumer;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::consumer::Consumer;
use crate::support::{Admin, PATIENT, create_topic};
use test_support::daemon::Daemon;
use test_support::differential::{self, Addresses, Frame, Suite, Words, replace_behind};
use test_support::{TIMEOUT, wait_until};

/// A flag of the cases: the admin asks the nsqds, and no nsqlookupds.
const DIRECT: &str = "--direct";

/// A flag of the cases: both nsqds also have the topic `busy` with messages in each state and two consumers.
const BUSY: &str = "--busy";
/// A flag of a group in which the deadlines of nsqadmin's requests are the default ones.
const DEFAULT_DEADLINES: &str = "--default-deadlines";

/// A flag of the cases: the second nsqd has ended, and so has the second nsqlookupd.
const ONE_DOWN: &str = "--one-down";

#[test]
fn ours_answers_what_the_original_answered() {
    differential::run::<NoClient>(&Suite {
        package: "nsqadmin",
        cases: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential"),
        original: "NSQADMIN_ORIGINAL",
        normal,
        start: &start,
    });
}

/// Two nsqlookupds, two nsqds with the same topics, and the admin.
struct Cluster {
    admin: Admin,
    nsqds: [Daemon; 2],
    _lookupds: [Daemon; 2],
    /// They close their connections when the cluster ends.
    _consumers: Vec<Consumer>,
}

impl differential::Daemon for Cluster {
    fn addresses(&self) -> Addresses {
        Addresses {
            // The cases have no client, and name the first nsqd as nsqadmin does.
            tcp: self.nsqds[0].http,
            http: self.admin.http,
        }
    }
}

fn start(
    flags: &[String],
    program: Option<&Path>,
) -> Result<Box<dyn differential::Daemon>, String> {
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let mut lookupds = [(); 2].map(|()| Daemon::nsqlookupd(&[]));
    let at: Vec<&Daemon> = lookupds.iter().collect();
    let mut nsqds =
        [(); 2].map(|()| Daemon::nsqd_at(&at, &["--e2e-processing-latency-percentile=1.0,0.99"]));
    for nsqd in &nsqds {
        nsqd.create_channel("shared", "archive");
        nsqd.create_channel("shared", "work");
        nsqd.publish("shared", &["one", "two"]);
        nsqd.wait_for_figure("shared", "work", "depth", 2);
    }
    let mut consumers = Vec::new();
    if has(BUSY) {
        for nsqd in &nsqds {
            consumers.extend(consumer::keep_busy(nsqd));
        }
        for lookupd in &lookupds {
            wait_for_channels(lookupd, "busy", 1);
        }
    }
    for lookupd in &lookupds {
        wait_for_channels(lookupd, "shared", 2);
        create_topic(lookupd, "inactive");
        lookupd
            .post("/channel/create?topic=inactive&channel=ch", b"")
            .expect_status(200);
    }
    let mut all: Vec<String> = if has(DIRECT) {
        nsqds
            .iter()
            .map(|nsqd| format!("--nsqd-http-address={}", nsqd.http))
            .collect()
    } else {
        at.iter()
            .map(|lookupd| format!("--lookupd-http-address={}", lookupd.http))
            .collect()
    };
    if !has(DEFAULT_DEADLINES) {
        all.extend(PATIENT.map(str::to_owned));
    }
    let is_ours = |flag: &str| [DIRECT, BUSY, ONE_DOWN, DEFAULT_DEADLINES].contains(&flag);
    all.extend(flags.iter().filter(|flag| !is_ours(flag)).cloned());
    if has(ONE_DOWN) {
        nsqds[1].kill();
        lookupds[1].kill();
        lookupds[0].wait_for_producers("shared", 1);
    }
    let admin = Admin::try_start(&all, program)?;
    Ok(Box::new(Cluster {
        admin,
        nsqds,
        _lookupds: lookupds,
        _consumers: consumers,
    }))
}

/// Waits until an nsqlookupd knows both nsqds and so many channels of a topic.
fn wait_for_channels(lookupd: &Daemon, topic: &str, count: usize) {
    lookupd.wait_for_producers(topic, 2);
    let target = format!("/channels?topic={topic}");
    let channel_count = || {
        lookupd.get(&target).json()["channels"]
            .as_array()
            .map(Vec::len)
    };
    assert!(
        wait_until(TIMEOUT, || channel_count() == Some(count)),
        "{topic}"
    );
}

/// The cases speak HTTP only.
struct NoClient;

impl differential::Client for NoClient {
    fn connect(_: SocketAddr) -> NoClient {
        NoClient
    }

    fn connect_without_magic(_: SocketAddr) -> NoClient {
        NoClient
    }

    fn try_send(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::Error::other("the cases of nsqadmin speak HTTP only"))
    }

    fn close_write(&mut self) {}

    fn set_read_timeout(&mut self, _: Duration) {}

    fn next_frame(&mut self, _: &mut Words) -> io::Result<Option<Frame>> {
        Ok(None)
    }
}

/// Headers that the original does not have. docs/reference/differences-nsqadmin.md lists them, and the other tests
/// check them.
const ADDED_HEADERS: [&str; 5] = [
    "cache-control",
    "content-security-policy",
    "referrer-policy",
    "vary",
    "x-content-type-options",
];

/// Replaces each value that differs from run to run by a name in braces, and removes what the
/// original at hand lacks: ages, the counts of deliveries, and the headers above.
fn normal(text: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    if text.starts_with("HTTP/1.1 ") {
        let is_kept = |part: &&str| {
            let name = part.split(':').next().unwrap_or_default();
            !ADDED_HEADERS.contains(&name)
        };
        let parts: Vec<&str> = text.split(" | ").filter(is_kept).collect();
        return parts.join(" | ");
    }
    let mut text = replace_behind(text, "127.0.0.1:", "{port}", is_digit);
    text = replace_behind(&text, "127.0.0.1%3A", "{port}", is_digit);
    text = replace_behind(&text, "_port\":", "{port}", is_digit);
    let host = program::hostname();
    text = text.replace(
        &format!("\"hostname\":\"{host}\""),
        "\"hostname\":\"{host}\"",
    );
    // Latencies that are 0 are compared.
    for key in ["connect_ts", "connected"] {
        text = replace_behind(&text, &format!("\"{key}\":"), "{time}", is_digit);
    }
    for key in ["average", "max", "min", "value"] {
        text = hide_times(&text, &format!("\"{key}\":"));
    }
    for key in [
        "oldest_unfinished_ms",
        "delivery_msg_count",
        "zone_local_msg_count",
        "region_local_msg_count",
        "global_msg_count",
    ] {
        let mark = format!("\"{key}\":");
        text = replace_behind(&text, &mark, "", is_digit).replace(&format!("{mark},"), "");
    }
    text
}

/// Replaces the numbers behind a mark that are not 0.
fn hide_times(text: &str, mark: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || "+-.e".contains(c);
    let mut parts = text.split(mark);
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(is_number);
        let number = &part[..part.len() - rest.len()];
        hidden.push_str(mark);
        hidden.push_str(if matches!(number, "0" | "") {
            number
        } else {
            "{ns}"
        });
        hidden.push_str(rest);
    }
    hidden
}
