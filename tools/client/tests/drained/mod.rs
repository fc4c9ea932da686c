//! [`drain`]: the messages of a channel, to the last one.

use std::time::Duration;

use bytes::Bytes;
use ringq_client::{Address, Config, Consumer};
use test_support::TIMEOUT;
use tokio::time::timeout;

/// Reads the messages of `t/c`, until none has come for a second and at least `count` have come.
pub(crate) async fn drain(nodes: &[Address], count: usize, config: Config) -> Vec<Bytes> {
    let config = Config {
        max_in_flight: 1000,
        ..config
    };
    let builder = Consumer::builder("t", "c").nodes(nodes.iter().cloned());
    let mut consumer = builder
        .config(config)
        .connect()
        .await
        .expect("nsqd is there");
    let mut bodies = Vec::new();
    loop {
        let limit = if bodies.len() < count {
            TIMEOUT
        } else {
            Duration::from_secs(1)
        };
        match timeout(limit, consumer.next()).await {
            Ok(Some(message)) => {
                bodies.push(message.body().clone());
                message.finish().await.expect("the connection lives");
            }
            Ok(None) => panic!("the consumer ended"),
            Err(_) if bodies.len() < count => panic!("{} of {count} messages came", bodies.len()),
            Err(_) => break,
        }
    }
    consumer.control().shutdown().await;
    bodies
}
