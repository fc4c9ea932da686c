//! Connections that break at any byte. Nothing that was confirmed is lost or stored twice.

use std::collections::HashMap;

use super::*;
use crate::testing::Cut;
use crate::tests::outcomes::check_outcomes;

/// The cuts of a run. A tenth of them belongs to each seed.
const CUTS: u64 = 10_000;

fn random_cut(random: &mut fastrand::Rng) -> Cut {
    // The handshake takes 400 bytes to nsqd and 100 bytes back, an answer 10.
    let mut cut = Cut {
        sent: random.u64(0..3_000),
        lost: 0,
        received: random.u64(0..300),
    };
    match random.u8(0..4) {
        0 => cut.sent = u64::MAX,
        1 => cut.received = u64::MAX,
        2 => cut.lost = random.u64(0..500),
        _ => {}
    }
    cut
}

/// Publishes over connections that break, until there were `cuts` connections. Checks each result.
async fn check(seed: u64, cuts: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let network = MockNetwork::new();
    let brokers = ["a:1", "b:1"].map(|address| network.broker(address));
    for broker in &brokers {
        (0..cuts).for_each(|_| broker.cut_next(random_cut(&mut random)));
    }
    let producer = builder(&network, brokers.each_ref().map(MockBroker::address))
        .batching(random.bool())
        .permits(random.usize(1..20))
        .build()
        .unwrap();
    let mut results = HashMap::new();
    let mut number = 0_u64;
    while brokers.iter().map(MockBroker::connections).sum::<u64>() < cuts {
        let bodies: Vec<String> = (0..random.u64(1..12))
            .map(|_| {
                number += 1;
                format!("{number} {}", "x".repeat(random.usize(0..300)))
            })
            .collect();
        let publishes = bodies
            .iter()
            .map(|body| producer.publish("t", body.clone()));
        for (body, result) in bodies.iter().zip(join_all(publishes).await) {
            results.insert(Bytes::from(body.clone()), result);
        }
    }
    producer.close().await.unwrap();
    settle().await;
    let outcomes = check_outcomes(results, &brokers, seed);
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_confirmed_is_lost_or_doubled() {
    for seed in 0..10 {
        check(seed, CUTS / 10).await;
    }
}
