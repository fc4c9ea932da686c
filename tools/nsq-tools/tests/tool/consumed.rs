//! The messages of a channel, as a consumer gets them.

use ringq_client::{Config, Consumer, Message};
use test_support::TIMEOUT;
use test_support::daemon::Daemon;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Consumes `count` messages of the channel `c`, and returns their bodies in the order of arrival.
/// Panics if fewer come.
pub fn bodies(nsqd: &Daemon, topic: &str, count: usize) -> Vec<Vec<u8>> {
    consume(nsqd, topic, "c", count, |message| message.body().to_vec())
}

/// Consumes `count` messages of a channel, and returns what `read` makes of each, in the order of arrival. Panics if
/// fewer come.
pub fn consume<T>(
    nsqd: &Daemon,
    topic: &str,
    channel: &str,
    count: usize,
    read: impl Fn(&Message) -> T,
) -> Vec<T> {
    let runtime = Runtime::new().expect("the system has threads");
    runtime.block_on(async {
        let consumer = Consumer::builder(topic, channel)
            .node(nsqd.tcp)
            .config(Config {
                max_in_flight: 1000,
                ..Config::default()
            })
            .connect();
        let mut consumer = consumer.await.expect("nsqd can be reached");
        let mut found = Vec::new();
        while found.len() < count {
            let message = timeout(TIMEOUT, consumer.next()).await;
            let Ok(Some(message)) = message else {
                panic!("only {} of {count} messages came", found.len());
            };
            found.push(read(&message));
            message.finish();
        }
        found
    })
}

/// Consumes messages as [`bodies`] does, and returns them as text.
pub fn texts(nsqd: &Daemon, topic: &str, count: usize) -> Vec<String> {
    let bodies = bodies(nsqd, topic, count).into_iter();
    let texts = bodies.map(|body| String::from_utf8(body).expect("the test sends text"));
    texts.collect()
}
