//! A consumer whose connections to a real nsqd break at random bytes. No message may be lost, and a message whose
//! `finish` resolved comes again only if its connection broke soon after.

use std::collections::HashMap;
use std::time::Duration;

use ringq_client::{Config, Consumer};
use test_support::TIMEOUT;
use test_support::cutting_proxy::CuttingProxy;
use test_support::daemon::Daemon;
use tokio::time::timeout;

/// The number of messages.
const MESSAGES: usize = 3000;
/// The most messages in flight.
const IN_FLIGHT: usize = 50;

/// Returns the bytes of each connection of a proxy: random numbers below these.
pub(crate) fn random_cuts(seed: u64, below: [u64; 2]) -> impl FnMut(u64) -> [u64; 2] {
    let mut random = fastrand::Rng::with_seed(seed);
    move |_| below.map(|below| random.u64(0..below))
}

#[derive(Default)]
struct Seen {
    deliveries: usize,
    /// True when a `finish` of this message resolved with success.
    is_confirmed: bool,
    deliveries_after_confirmation: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_lose_nothing_and_repeat_little() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let bodies: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    nsqd.post("/mpub?topic=t", bodies.join("\n").as_bytes())
        .expect_status(200);
    // A handshake takes about 500 bytes, and an answered message about 60.
    let proxy = CuttingProxy::start(nsqd.tcp, random_cuts(seed, [10_000, 20_000]));
    let config = Config {
        max_in_flight: IN_FLIGHT as u32,
        max_attempts: 0,
        // nsqd delivers the messages of a broken connection again after this time.
        msg_timeout: Duration::from_secs(1),
        lookupd_poll_interval: Duration::from_millis(10),
        ..Config::default()
    };
    let mut consumer = Consumer::builder("t", "c")
        .config(config)
        .node(proxy.address)
        .connect()
        .await
        .expect("complete");
    let mut seen: HashMap<String, Seen> = HashMap::new();
    let mut unconfirmed = MESSAGES;
    while unconfirmed > 0 {
        let done = timeout(TIMEOUT, consumer.next()).await;
        let message = done.expect("messages come");
        let message = message.expect("the consumer runs");
        let body = String::from_utf8_lossy(message.body()).into_owned();
        let entry = seen.entry(body).or_default();
        entry.deliveries += 1;
        entry.deliveries_after_confirmation += usize::from(entry.is_confirmed);
        if message.finish().await.is_ok() && !entry.is_confirmed {
            entry.is_confirmed = true;
            unconfirmed -= 1;
        }
    }
    let finishing = tokio::spawn(async move {
        while let Some(message) = consumer.next().await {
            message.finish();
        }
    });
    // nsqd agrees that nothing is left.
    nsqd.wait_for_answers("t", "c");
    finishing.abort();
    assert_eq!(seen.len(), MESSAGES);
    // The last connection is not broken.
    let cuts = proxy.connections() as usize - 1;
    let repeated: usize = seen
        .values()
        .map(|seen| seen.deliveries_after_confirmation)
        .sum();
    println!("{cuts} cuts, {repeated} repetitions after a confirmation");
    assert!(cuts > 3, "{cuts} cuts");
    assert!(
        repeated <= cuts * IN_FLIGHT,
        "{repeated} repetitions after {cuts} cuts"
    );
}
