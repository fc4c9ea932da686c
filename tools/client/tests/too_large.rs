//! Numbered messages that nsqd refuses because they are too large: nsqd ends the connection before it has read them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ringq_client::{Config, Outcome, Producer, PublishError};
use test_support::daemon::Daemon;
use tokio::time::timeout;

/// Larger than the buffers of a connection, so that nsqd resets the connection while the producer still writes.
const LARGE_BYTES: usize = 24 << 20;
/// Far longer than a refusal takes, also on a busy machine, and far below the resend limit.
const LIMIT: Duration = Duration::from_secs(120);
const RESEND_LIMIT: Duration = Duration::from_secs(1200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_holds_up_no_other() {
    let nsqd = Daemon::nsqd(&["--dedup=t=publisher"]);
    nsqd.create_channel("t", "c");
    let snappy = Config {
        snappy: true,
        ..Config::default()
    };
    for config in [Config::default(), snappy] {
        let builder = Producer::builder().node(nsqd.tcp).number_messages();
        let builder = builder.resend_limit(RESEND_LIMIT).config(config);
        check(&builder.build().expect("the settings are right")).await;
    }
}

/// Publishes what nsqd refuses, and small messages at the same time. Each has to get its own answer soon.
async fn check(producer: &Producer) {
    // Random bytes, so that no compression makes them short.
    let large: Bytes = std::iter::repeat_with(|| fastrand::u8(..))
        .take(LARGE_BYTES)
        .collect();
    for round in 0..10 {
        let small = join_all((0..20).map(|_| producer.publish("t", "small")));
        let refused = async {
            match round % 2 {
                0 => producer.publish("t", large.clone()).await,
                // Each of the messages is small enough, and the batch is larger than `--max-body-size`.
                _ => {
                    let parts = (0..6).map(|part| large.slice(part << 20..(part + 1) << 20));
                    producer.publish_many("t", parts).await
                }
            }
        };
        let answered = timeout(LIMIT, async { tokio::join!(refused, small) }).await;
        let (refused, stored) = answered.expect("nobody waits for the resend limit");
        let refused = refused.expect_err("nsqd takes 1 MiB, and 5 MiB together");
        assert!(matches!(refused, PublishError::Refused { .. }), "{refused}");
        assert_eq!(refused.outcome(), Outcome::NotStored, "{refused}");
        for result in stored {
            result.expect("a small message is stored");
        }
    }
}
