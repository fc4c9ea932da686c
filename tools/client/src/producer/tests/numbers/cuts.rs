//! Connections that break at random bytes.

use super::*;
use crate::testing::Cut;

/// Publishes over connections that break at random bytes. Every publish must be confirmed and stored once.
async fn check(seed: u64, cuts: u64) -> u64 {
    let network = MockNetwork::new();
    let brokers = ["a:1", "b:1"].map(|address| network.broker(address));
    brokers.iter().for_each(|broker| broker.take_numbers(true));
    let mut random = fastrand::Rng::with_seed(seed);
    for broker in &brokers {
        for _ in 0..cuts {
            broker.cut_next(Cut {
                sent: random.u64(0..2000),
                lost: random.u64(0..1000),
                received: random.u64(0..500),
            });
        }
    }
    let producer = numbering(&network, brokers.each_ref().map(MockBroker::address))
        .batching(random.bool())
        .permits(random.usize(1..40))
        .resend_limit(Duration::from_secs(3600))
        .build()
        .unwrap();
    let mut confirmed = BTreeSet::new();
    let mut number = 0_u64;
    while brokers.iter().map(MockBroker::connections).sum::<u64>() < cuts {
        let bodies: Vec<String> = (0..random.u64(1..12))
            .map(|_| {
                number += 1;
                format!("{number} {}", "x".repeat(random.usize(0..100)))
            })
            .collect();
        let publishes = bodies.iter().map(async |body| {
            let topic = ["t", "u"][body.len() % 2];
            // A publish that no nsqd took is tried again, as a program would.
            loop {
                match producer.publish(topic, body.clone()).await {
                    Ok(_) => break,
                    Err(error) => assert_eq!(
                        error.outcome(),
                        Outcome::NotStored,
                        "seed {seed}: {body:?} {error}"
                    ),
                }
            }
        });
        join_all(publishes).await;
        confirmed.extend(bodies);
    }
    producer.close().await.unwrap();
    settle().await;
    let mut stored = Vec::new();
    for broker in &brokers {
        for topic in ["t", "u"] {
            let bodies = broker.published(topic).into_iter();
            stored.extend(bodies.map(|body| String::from_utf8(body.to_vec()).unwrap()));
        }
    }
    stored.sort();
    let confirmed: Vec<String> = confirmed.into_iter().collect();
    assert_eq!(stored, confirmed, "seed {seed}");
    brokers.iter().map(MockBroker::duplicates).sum()
}

#[tokio::test(start_paused = true)]
async fn each_message_is_stored_once_however_often_connections_break() {
    let mut duplicates = 0;
    for seed in 0..10 {
        duplicates += check(seed, 500).await;
    }
    assert!(duplicates > 100, "{duplicates} messages came again");
}
