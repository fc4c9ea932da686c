//! Producers whose messages have numbers, with a real nsqd that is killed, over connections that break at random bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cuts::random_cuts;
use crate::drained::drain;
use bytes::Bytes;
use futures_util::future::join_all;
use ringq_client::{
    Config, Outcome, Producer, ProducerBuilder, PublishError, PublisherId, Receipt,
};
use test_support::cutting_proxy::CuttingProxy;
use test_support::daemon::Daemon;
use tokio::time::sleep;

/// The bounds of the bytes of a connection, to nsqd and back. A handshake takes about 500 bytes each way.
const CUTS: [u64; 2] = [4000, 1500];
/// The tasks that publish at the same time.
const TASKS: usize = 50;
/// Far longer than nsqd needs to start again, also on a busy machine.
const RESEND_LIMIT: Duration = Duration::from_secs(300);

/// Publishes until the message is certainly stored. Returns the number of tries with an unknown outcome.
async fn persist<F>(publish: impl Fn() -> F) -> usize
where
    F: Future<Output = Result<Receipt, PublishError>>,
{
    let mut unknown = 0;
    loop {
        match publish().await {
            Ok(_) => return unknown,
            Err(error) => unknown += usize::from(error.outcome() == Outcome::Unknown),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// The increments of a counter, one message each, through a proxy that cuts connections.
struct Counter {
    nsqd: Daemon,
    increments: usize,
    kills: usize,
}

/// The result of a [`Counter`].
struct Counted {
    nsqd: Daemon,
    /// The tries with an unknown outcome.
    unknown: usize,
    connections: u64,
    /// The messages of the channel.
    bodies: Vec<Bytes>,
}

impl Counter {
    /// Publishes all increments. Kills nsqd and starts it again in between.
    async fn run(self, change: impl Fn(ProducerBuilder) -> ProducerBuilder) -> Counted {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut nsqd = self.nsqd;
        nsqd.create_channel("t", "c");
        let proxy = CuttingProxy::start(nsqd.tcp, random_cuts(seed, CUTS));
        // One command for each increment, so that there are many answers to lose.
        let builder = Producer::builder().node(proxy.address).batching(false);
        let builder = change(builder);
        let producer = builder.build().expect("the settings are right");
        let confirmed = Arc::new(AtomicUsize::new(0));
        let (increments, kills) = (self.increments, self.kills);
        let killing = tokio::task::spawn_blocking({
            let confirmed = Arc::clone(&confirmed);
            move || {
                for kill in 1..=kills {
                    let at = increments * kill / (kills + 1);
                    while confirmed.load(Ordering::Relaxed) < at {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    nsqd.restart();
                }
                nsqd
            }
        });
        let tasks = (0..TASKS).map(async |task| {
            let mut unknown = 0;
            for increment in (task..increments).step_by(TASKS) {
                let body = format!("{increment:05}");
                unknown += persist(|| producer.publish("t", body.clone())).await;
                confirmed.fetch_add(1, Ordering::Relaxed);
            }
            unknown
        });
        let unknown = join_all(tasks).await.into_iter().sum();
        let nsqd = killing.await.expect("nsqd starts again");
        producer.close().await.expect("all publishes are answered");
        let depth = nsqd.figure("t", "c", "depth") as usize;
        let count = increments.max(depth);
        let bodies = drain(&[nsqd.tcp.into()], count, Config::default()).await;
        Counted {
            nsqd,
            unknown,
            connections: proxy.connections(),
            bodies,
        }
    }
}

/// Returns a figure of the topic `t`.
fn topic_figure(nsqd: &Daemon, figure: &str) -> u64 {
    let stats = nsqd.get("/stats?format=json&topic=t");
    let stats = stats.expect_status(200).json();
    let figure = stats["topics"][0][figure].as_u64();
    figure.expect("a figure is a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_exact_over_cuts_and_kills() {
    let increments = 10_000;
    let counter = Counter {
        nsqd: Daemon::nsqd(&["--dedup=t=publisher"]),
        increments,
        kills: 3,
    };
    let counted = counter
        .run(|builder| builder.number_messages().resend_limit(RESEND_LIMIT))
        .await;
    assert_eq!(counted.unknown, 0, "the producer learns each outcome");
    let mut bodies = counted.bodies;
    bodies.sort();
    let expected: Vec<String> = (0..increments).map(|body| format!("{body:05}")).collect();
    assert_eq!(bodies.len(), increments, "the total");
    assert_eq!(bodies, expected);
    let duplicates = topic_figure(&counted.nsqd, "dedup_duplicate_count");
    println!(
        "{} connections, {duplicates} duplicates since the last kill",
        counted.connections
    );
    assert!(counted.connections > 50, "{}", counted.connections);
    assert!(duplicates > 0, "a message came again");
    assert_eq!(topic_figure(&counted.nsqd, "dedup_unchecked_count"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_rule_the_counter_is_at_least_the_total() {
    let increments = 2_000;
    let counter = Counter {
        nsqd: Daemon::nsqd(&[]),
        increments,
        kills: 1,
    };
    let counted = counter.run(ProducerBuilder::number_messages).await;
    let total = counted.bodies.len();
    println!("{total} messages, {} unknown outcomes", counted.unknown);
    assert!(counted.unknown > 0, "the program tries again by itself");
    assert!(total > increments, "some increments count twice");
    assert!(total <= increments + counted.unknown, "{total}");
    let distinct: std::collections::BTreeSet<Bytes> = counted.bodies.into_iter().collect();
    assert_eq!(distinct.len(), increments, "none is lost");
}

#[tokio::test]
async fn a_program_that_starts_again_repeats_its_rows_without_harm() {
    let mut nsqd = Daemon::nsqd(&["--dedup=t=publisher"]);
    nsqd.create_channel("t", "c");
    let id = PublisherId::random().expect("the system has randomness");
    let rows = async |nsqd: &Daemon, rows: std::ops::Range<u64>| {
        let builder = Producer::builder().node(nsqd.tcp).publisher_id(id);
        let producer = builder.build().expect("the settings are right");
        let publishes = rows.map(|row| {
            let body = format!("{row:03}");
            producer.publish_numbered("t", row, body)
        });
        for result in join_all(publishes).await {
            result.expect("nsqd has the row");
        }
        producer.close().await.expect("all rows are answered");
    };
    rows(&nsqd, 0..100).await;
    // The program did not note how far it came.
    rows(&nsqd, 40..150).await;
    nsqd.restart();
    rows(&nsqd, 90..200).await;
    let mut bodies = drain(&[nsqd.tcp.into()], 200, Config::default()).await;
    bodies.sort();
    let expected: Vec<String> = (0..200).map(|row| format!("{row:03}")).collect();
    assert_eq!(bodies, expected);
}
