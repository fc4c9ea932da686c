//! An idle broker with a thousand topics uses less than 1 % of a core and less than 100 MB of
//! resident memory, and causes no I/O wait.
//!
//! To run this test alone with its figures:
//!
//!     cargo test --release -p nsqd --test idle -- --nocapture

mod support;

use std::time::Duration;

use crate::support::{
    Broker, Client, Confinement, TIMEOUT, cpu_percent, has_io_uring, io_args, kernel, kernel_lacks,
    not_tested, rss, wait_until, whole_machine,
};

const TOPICS: usize = 1_000;
/// The number of topics that also have a consumer, which has finished its message and waits for the
/// next one.
const CONSUMED: usize = 5;
const SHARDS: usize = 2;

/// The time after the creation of the topics in which the remaining work ends: metadata, syncs, and
/// the freeing of buffers.
const SETTLE: Duration = Duration::from_secs(5);
const MEASURE: Duration = Duration::from_secs(5);

/// The largest part of one core, in percent.
const CPU_PERCENT_MAX: f64 = 1.0;
const RSS_BYTES_MAX: u64 = 100_000_000;

#[test]
fn a_thousand_idle_topics_cost_almost_nothing() {
    let _machine = whole_machine();
    let broker = Broker::start(SHARDS, &[]);
    for number in 0..TOPICS {
        let topic = format!("idle-{number}");
        broker.create(&topic, "channel");
        broker
            .post(&format!("/pub?topic={topic}"), b"one message")
            .expect_status(200);
    }
    let consumers: Vec<Client> = (0..CONSUMED)
        .map(|number| consume_one(&broker, number))
        .collect();
    let depths_are_right = wait_until(TIMEOUT, || {
        let stats = broker.stats();
        let topics = stats["topics"].as_array().expect("topics is an array");
        let depths = topics
            .iter()
            .filter_map(|topic| topic["channels"][0]["depth"].as_u64());
        topics.len() == TOPICS && depths.sum::<u64>() == (TOPICS - CONSUMED) as u64
    });
    assert!(
        depths_are_right,
        "each topic but {CONSUMED} holds its message in its channel"
    );

    std::thread::sleep(SETTLE);
    let percent = cpu_percent(broker.pid(), || std::thread::sleep(MEASURE));
    let rss = rss(broker.pid());
    eprintln!("idle with {TOPICS} topics: {percent:.2} % of a core, {rss:?}");
    assert!(percent < CPU_PERCENT_MAX, "{percent:.2} % of a core");
    assert!(
        rss.total_bytes < RSS_BYTES_MAX,
        "resident while idle: {rss:?}"
    );
    drop(consumers);
}

/// Starts a consumer that takes and finishes the one message of its topic and stays connected.
fn consume_one(broker: &Broker, number: usize) -> Client {
    let mut client = broker.consumer(&format!("idle-{number}"), "channel", 10);
    assert_eq!(client.take().body, b"one message");
    client
}

/// Returns the microseconds in which some task of this machine waited for I/O, and those in which
/// all tasks did.
fn io_stalls() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/pressure/io").ok()?;
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.rsplit_once("total=")?.1.parse().ok()
    };
    Some([total("some")?, total("full")?])
}

/// Returns the ticks of 10 ms in which processors were idle while a task waited for I/O.
fn io_wait_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").expect("Linux has it");
    let line = text.lines().next().expect("the sum comes first");
    line.split_whitespace()
        .nth(5)
        .and_then(|ticks| ticks.parse().ok())
        .expect("a number")
}

/// Waits for a window of time in which this machine had next to no I/O wait. Other programs may use
/// the disk, so one quiet window is enough.
///
/// # Errors
/// No window was quiet. The error has three parts of the quietest windows: the time in which some
/// task waited, the time in which all tasks waited, and the time in which processors were idle
/// while a task waited.
fn quiet_window(timeout: Duration) -> Result<(), [f64; 3]> {
    const WINDOW: Duration = Duration::from_millis(500);
    const PART_MAX: f64 = 0.1;
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let window_us = WINDOW.as_micros() as f64;
    let mut least = [1.0f64; 3];
    let is_quiet = wait_until(timeout, || {
        let read = || (io_stalls().unwrap_or_default(), io_wait_ticks());
        let (stalls_before, ticks_before) = read();
        std::thread::sleep(WINDOW);
        let (stalls, ticks) = read();
        let parts = [
            (stalls[0] - stalls_before[0]) as f64 / window_us,
            (stalls[1] - stalls_before[1]) as f64 / window_us,
            // The kernel may correct this counter downwards.
            ticks.saturating_sub(ticks_before) as f64 * 10_000.0 / window_us / processors,
        ];
        if parts.iter().sum::<f64>() < least.iter().sum() {
            least = parts;
        }
        parts.iter().all(|part| *part < PART_MAX)
    });
    eprintln!("least of all windows: some, full, I/O wait: {least:.3?}");
    if is_quiet { Ok(()) } else { Err(least) }
}

/// Returns true if a kernel may count the waits of an idle broker as I/O wait. Before Linux 6.15,
/// the kernel counts waits in a ring.
fn counts_waits(kernel: (u32, u32), is_in_ring: bool) -> bool {
    is_in_ring && kernel < (6, 15)
}

/// Returns true if the brokers of this run wait in rings.
fn may_wait_in_ring() -> bool {
    match (io_args().as_deref(), Confinement::of_this_run()) {
        (Some("--io=epoll"), _) | (_, Confinement::LikeContainer) => false,
        _ => has_io_uring(),
    }
}

/// Regression: the test was also skipped with epoll, where the version of the kernel does not
/// matter.
#[test]
fn only_waits_in_a_ring_depend_on_the_kernel() {
    assert!(counts_waits((6, 14), true));
    assert!(!counts_waits((6, 15), true));
    assert!(!counts_waits((5, 10), false));
}

/// The kernel counts a wait in a ring as I/O wait unless the broker asks it not to. If it counts
/// the wait, every window shows at least 50 % I/O wait.
#[test]
fn an_idle_broker_is_no_busy_disk() {
    let _machine = whole_machine();
    if counts_waits(kernel(), may_wait_in_ring()) {
        return kernel_lacks("the kernel (before 6.15) counts each wait in a ring as I/O wait");
    }
    if io_stalls().is_none() {
        return kernel_lacks("the kernel has no /proc/pressure/io");
    }
    let broker = Broker::start(SHARDS, &[]);
    broker.get("/ping").expect_status(200);
    let Err(least) = quiet_window(TIMEOUT) else {
        return;
    };
    drop(broker);
    if quiet_window(TIMEOUT).is_err() {
        return not_tested("another program on this machine always waits for I/O or in a ring");
    }
    panic!("an idle broker causes I/O wait: {least:?}");
}
