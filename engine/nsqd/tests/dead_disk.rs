//! The file system of a running broker fails: it is shut down, or the kernel makes it read-only
//! after an error. The broker then sends no more OK, reports the failure on `/ping`, answers every
//! client, uses almost no processor time, and does not flood its log.

use std::time::Duration;

use crate::support::{Broker, FrameType, Launch, LoopExt4, cpu_percent, wait_until};

/// The longest wait: enough for every due sync, checkpoint and retry on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which the test watches the broker on a dead disk.
const MEASURE: Duration = Duration::from_secs(2);
/// The most processor time that the broker may use in this time, in percent of a core. A busy loop would use ten times as
/// much on an idle machine.
const CPU_PERCENT_MAX: f64 = 10.0;
/// The most log lines in this time: a few operations are retried, each with at most one line per
/// second.
const LOG_LINES_MAX: usize = 20;

/// The ways in which a file system fails.
#[derive(Clone, Copy)]
enum Death {
    /// The file system stops, as after the loss of its device.
    ShutDown,
    /// The file system becomes read-only after an error, with `errors=remount-ro`.
    ReadOnly,
}

fn start(disk: &LoopExt4, flags: &[&str]) -> Broker {
    Launch::new(2, flags).at(disk.path()).start()
}

/// Publishes a message. Returns the error, if there is one.
fn refusal(broker: &Broker) -> Option<String> {
    let mut client = broker.client();
    client.set_read_timeout(TIMEOUT);
    client.command("PUB dead", b"later");
    let frame = client.frame_after_heartbeats();
    (frame.kind == FrameType::Error).then(|| frame.text())
}

/// Checks that the broker refuses to store messages and is idle.
fn expect_rest(broker: &Broker) {
    let ping = broker.get("/ping").expect_status(500);
    assert!(ping.text().starts_with("NOK - "), "{}", ping.text());
    broker.post("/pub?topic=dead", b"later").expect_status(503);
    // The lines of the failed sync have been read then.
    broker.wait_for_log("log is read-only since a failed sync");
    let lines = broker.log().lines().count();
    let percent = cpu_percent(broker.pid(), || std::thread::sleep(MEASURE));
    let more = broker.log().lines().count() - lines;
    eprintln!("dead_disk: {percent:.1} % of a core and {more} lines");
    assert!(percent < CPU_PERCENT_MAX, "{percent:.1} % of a core");
    assert!(more < LOG_LINES_MAX, "{more} lines:\n{}", broker.log());
}

/// Creates the topic and the channel, and publishes the message of [`expect_stored_message`].
fn store_message(broker: &Broker) {
    broker.create("dead", "channel");
    let mut client = broker.client();
    client.publish("dead", b"before");
}

fn expect_stored_message(broker: &Broker) {
    let mut consumer = broker.consumer("dead", "channel", 1);
    assert_eq!(consumer.message().body, b"before", "reads go on");
}

/// Checks that publishes get OK until the next sync fails, and not after that.
fn try_with_timeout(death: Death) {
    let Some(disk) = LoopExt4::mount() else {
        return;
    };
    let mut broker = start(&disk, &["--sync-timeout=200ms"]);
    store_message(&broker);
    die(&disk, death);
    let mut last = None;
    let is_refused = wait_until(TIMEOUT, || {
        last = refusal(&broker);
        last.is_some()
    });
    assert!(is_refused, "publishes are OK'd on a dead disk");
    let text = last.unwrap_or_default();
    assert!(text.starts_with("E_PUB_FAILED PUB failed "), "{text}");
    expect_rest(&broker);
    expect_stored_message(&broker);
    broker.sigterm();
    broker.wait();
}

/// Checks that the publish which waits for its sync gets an answer.
fn try_with_sync_every(death: Death) {
    let Some(disk) = LoopExt4::mount() else {
        return;
    };
    let mut broker = start(&disk, &["--sync-every=1"]);
    store_message(&broker);
    die(&disk, death);
    let text = refusal(&broker).expect("nothing can be synced");
    assert!(text.starts_with("E_PUB_FAILED PUB failed "), "{text}");
    // The broker does not create a channel that it cannot make durable, however often a client asks
    // for it.
    for _ in 0..2 {
        let mut consumer = broker.client();
        consumer.set_read_timeout(TIMEOUT);
        consumer.send(b"SUB dead new\n");
        let frame = consumer.frame_after_heartbeats();
        assert_eq!(frame.kind, FrameType::Error, "{}", frame.text());
    }
    expect_rest(&broker);
    expect_stored_message(&broker);
    broker.sigterm();
    broker.wait();
}

fn die(disk: &LoopExt4, death: Death) {
    match death {
        Death::ShutDown => disk.shut_down(),
        Death::ReadOnly => disk.fail(),
    }
}

#[test]
fn a_disk_that_is_shut_down_is_noticed_by_the_next_sync() {
    try_with_timeout(Death::ShutDown);
}

#[test]
fn a_disk_that_becomes_read_only_is_noticed_by_the_next_sync() {
    try_with_timeout(Death::ReadOnly);
}

#[test]
fn a_publish_that_waits_for_a_disk_that_is_shut_down_gets_an_error() {
    try_with_sync_every(Death::ShutDown);
}

#[test]
fn a_publish_that_waits_for_a_disk_that_becomes_read_only_gets_an_error() {
    try_with_sync_every(Death::ReadOnly);
}
