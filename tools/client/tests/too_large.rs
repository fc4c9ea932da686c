//! Numbered messages that nsqd refuses because they are too large: nsqd ends the connection before it has read them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ringq_client::{Outcome, Producer, PublishError};
use test_support::daemon::Daemon;
use tokio::time::{Instant, timeout};

/// Larger than the buffers of a connection, so that nsqd resets the connection while the producer still writes.
const LARGE_BYTES: usize = 24 << 20;
/// Far longer than a refusal takes, also on a busy machine, and far below the resend limit.
const LIMIT: Duration = Duration::from_secs(120);
const RESEND_LIMIT: Duration = Duration::from_secs(1200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_holds_up_no_other() {
    let nsqd = Daemon::nsqd(&["--dedup=t=publisher"]);
    nsqd.create_channel("t", "c");
    let builder = Producer::builder().node(nsqd.tcp).number_messages();
    let builder = builder.resend_limit(RESEND_LIMIT);
    let producer = builder.build().expect("the settings are right");
    let large = Bytes::from(vec![b'x'; LARGE_BYTES]);
    for round in 0..10 {
        let began = Instant::now();
        let small = join_all((0..20).map(|_| producer.publish("t", "small")));
        let publishing = async { tokio::join!(producer.publish("t", large.clone()), small) };
        let (refused, stored) = timeout(LIMIT, publishing).await.expect("all are answered");
        let refused = refused.expect_err("nsqd takes 1 MiB");
        assert!(
            matches!(refused, PublishError::Refused { .. }),
            "round {round}: {refused}"
        );
        assert_eq!(refused.outcome(), Outcome::NotStored);
        for result in stored {
            result.expect("a small message is stored");
        }
        println!("round {round}: {refused} after {:?}", began.elapsed());
    }
}
