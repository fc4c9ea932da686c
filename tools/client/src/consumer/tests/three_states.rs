//! The three states of a message, with each filter and with memcached.
//!
//! A message has a copy on each of two nodes. The second copy comes while the first one is being handled. Then the
//! handler of the first copy fails, and its node dies.
//!
//! ```text
//!   three states   copy 2 is in progress: TOUCH   copy 1 fails      copy 2 is handled
//! ```

use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::SystemTime;

use futures_util::FutureExt;
use test_support::TIMEOUT;
use test_support::memcached::Memcached as Server;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::advance;

use super::*;
use crate::dedup::filters::{
    ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, Memcached, MemcachedOptions,
    MessageNumber, RoaringPair,
};
use crate::dedup::{AnyFilter, Dedup, DedupStats, Key};

const HOUR: Duration = Duration::from_secs(3600);
/// nsqd's limit of 180 s ends a message although it is touched.
const IDENTIFIED: &str = r#"{"max_rdy_count":2500,"msg_timeout":60000,"max_msg_timeout":180000}"#;
/// The time that passes at once: the longest interval between two checks of a copy that waits is 1 s.
const STEP: Duration = Duration::from_millis(500);

/// Keeps the virtual clock from jumping while memcached answers in real time: tokio's clock jumps only if no thread of
/// `spawn_blocking` runs. The thread ends when the sender is dropped.
fn hold_clock() -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    spawn_blocking(move || receiver.recv());
    sender
}

/// Waits by real time, because the virtual one stands still.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let end = std::time::Instant::now() + TIMEOUT;
    let mut future = pin!(future);
    loop {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(value) = polled {
            return value;
        }
        assert!(std::time::Instant::now() < end, "{what}");
        yield_now().await;
    }
}

/// A consumer of two nodes.
struct World {
    /// The node of the first copy, until it dies.
    one: Option<MockConnection>,
    /// The node of the second copy.
    two: MockConnection,
    consumer: Consumer,
    _servers: [MockServer; 2],
}

impl World {
    async fn new(dedup: &Dedup) -> World {
        let network = MockNetwork::new();
        let mut servers = [network.server("n1:4150"), network.server("n2:4150")];
        let builder = builder(&network, 10).nodes(servers.iter().map(MockServer::address));
        let consumer = builder.dedup(dedup.clone()).connect().await;
        let consumer = consumer.expect("complete");
        let mut nodes = Vec::new();
        for server in &mut servers {
            nodes.push(accept_with(server, IDENTIFIED).await);
        }
        // The second node gets its RDY.
        for _ in 0..20 {
            advance(MS(50)).await;
            yield_now().await;
        }
        World {
            two: nodes.pop().expect("two nodes"),
            one: nodes.pop(),
            consumer,
            _servers: servers,
        }
    }

    /// Delivers the first copy of a message.
    async fn deliver_first(&mut self, body: &str) -> Message {
        let one = self.one.as_mut().expect("the node lives");
        one.deliver(1, 1, body).await;
        self.next().await
    }

    async fn next(&mut self) -> Message {
        soon("a message", next(&mut self.consumer)).await
    }

    /// The next command of the second node that is no RDY.
    async fn answer(&mut self) -> String {
        loop {
            let command = soon("an answer", self.two.command()).await;
            let command = command.expect("open").to_string();
            if !command.starts_with("RDY") {
                return command;
            }
        }
    }

    fn stats(&self) -> DedupStats {
        self.consumer.control().stats().dedup.expect("a filter")
    }

    /// Waits until the second copy waits, or has gone back once more than `requeued` times. While the store is asked
    /// about the copy, neither is so.
    async fn settle(&self, requeued: u64) {
        let settled = async {
            while self.stats().waiting == 0 && self.stats().requeued == requeued {
                yield_now().await;
            }
        };
        soon("the copy waits", settled).await;
    }

    /// Lets time pass until the second copy goes back. Returns the answers of the copy, with their times in seconds.
    async fn pass_until_requeue(&mut self) -> Vec<(u64, String)> {
        let began = Instant::now();
        let mut answers = Vec::new();
        while self.stats().requeued == 0 {
            assert!(began.elapsed() < HOUR, "the copy stays: {answers:?}");
            advance(STEP).await;
            // The tasks see the new time, and their commands leave.
            for _ in 0..20 {
                yield_now().await;
            }
            self.settle(0).await;
            let seconds = began.elapsed().as_secs();
            while let Some(Some(command)) = self.two.command().now_or_never() {
                answers.push((seconds, command.to_string()));
            }
        }
        answers.retain(|(_, command)| !command.starts_with("RDY"));
        answers
    }
}

/// One handler succeeds, and both copies are gone then.
async fn handle_with_three_states(dedup: &Dedup) {
    let mut world = World::new(dedup).await;
    let first = world.deliver_first("7").await;
    world.two.deliver(2, 1, "7").await;
    world.settle(0).await;

    // The copy waits, with TOUCH, and goes back a quarter of the timeout before nsqd's limit of 180 s.
    let touch = "TOUCH 0000000000000002".to_owned();
    let expected = [30, 60, 90, 120, 150].map(|seconds| (seconds, touch.clone()));
    let mut answers = world.pass_until_requeue().await;
    let requeue = answers.pop();
    assert_eq!(answers, expected);
    assert_eq!(requeue, Some((165, req(2, 90_000))));

    // The copy comes again, and waits again. Then the node of the first copy dies, and its handler fails.
    world.two.deliver(2, 2, "7").await;
    world.settle(1).await;
    world.one = None;
    drop(first);
    let second = world.next().await;
    assert_eq!((second.attempts(), &second.body()[..]), (2, &b"7"[..]));
    second.finish();
    assert_eq!(world.answer().await, fin(2), "the second copy is gone");
}

/// Each filter for an hour, and memcached if the machine has it.
fn filters(server: Option<&Server>) -> Vec<(&'static str, AnyFilter)> {
    let hasher = KeyHasher::new([3; 16]);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.expect("a clock after 1970");
    let forgetful = ForgetfulOptions {
        filters: 5,
        window: HOUR,
        rate: 10.0,
        false_positives_max: 1e-6,
        hasher,
    };
    let inverse = InverseBloom::with_hasher(10_000, hasher).expect("slots");
    let forgetful = ForgetfulBloom::new(forgetful, now).expect("sizes");
    let roaring = RoaringPair::new(10_000, 1).expect("sizes");
    let mut filters: Vec<(&str, AnyFilter)> = vec![
        ("inverse Bloom", inverse.into()),
        ("forgetful Bloom", forgetful.into()),
        ("Roaring pair", roaring.into()),
    ];
    if let Some(server) = server {
        // memcached has a clock of its own, and no lease must end while the test runs.
        let options = MemcachedOptions {
            lease: Some(HOUR),
            timeout: TIMEOUT,
            ..MemcachedOptions::new(&server.address())
        };
        let store = Memcached::new(options).expect("valid options");
        filters.push(("memcached", store.into()));
    }
    filters
}

#[tokio::test(start_paused = true)]
async fn three_states_lose_no_message() {
    let number = |body: &[u8]| {
        let number = std::str::from_utf8(body).ok()?.parse().ok()?;
        Some(MessageNumber { source: 0, number })
    };
    let server = Server::start();
    for (name, filter) in filters(server.as_ref()) {
        let _held = hold_clock();
        let dedup = Dedup::builder(Key::number_by(number), filter).build();
        let dedup = dedup.expect("complete");
        println!("{name}");
        handle_with_three_states(&dedup).await;
    }
}
