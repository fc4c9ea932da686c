//! The times for which a store or a filter knows a message, and the message timeout of the connection.

use test_support::memcached::FakeMemcached;

use super::*;
use crate::dedup::filters::{
    ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, Memcached, MemcachedOptions,
};
use crate::dedup::{AnyFilter, Dedup, Key};

const SECOND: Duration = Duration::from_secs(1);

fn by_body(filter: impl Into<AnyFilter>) -> Dedup {
    let dedup = Dedup::builder(Key::body(), filter).build();
    dedup.expect("complete")
}

fn memcached(address: &str, lease: Option<Duration>, window: Duration) -> Memcached {
    let options = MemcachedOptions {
        lease,
        window,
        timeout: 20 * SECOND,
        ..MemcachedOptions::new(address)
    };
    Memcached::new(options).expect("valid options")
}

/// A consumer with this filter, and its connection, after the answer to SUB.
async fn subscribed(
    network: &MockNetwork,
    dedup: Dedup,
    log: &Log,
    msg_timeout_ms: u64,
) -> (Consumer, MockServer, MockConnection) {
    let mut server = network.server("n1:4150");
    let consumer = builder(network, 5)
        .node(server.address())
        .dedup(dedup)
        .events(log.callback())
        .connect()
        .await
        .expect("complete");
    let nsqd = identified(&mut server, msg_timeout_ms).await;
    (consumer, server, nsqd)
}

async fn identified(server: &mut MockServer, msg_timeout_ms: u64) -> MockConnection {
    let answer = format!(r#"{{"max_rdy_count":2500,"msg_timeout":{msg_timeout_ms}}}"#);
    let mut nsqd = accept_with(server, &answer).await;
    nsqd.expect("RDY 5").await;
    nsqd
}

/// The lease was a number of its own. If it was shorter than the timeout, two consumers handled a message at the same
/// time, and if it was longer, the message of a consumer that died waited for the rest.
#[tokio::test]
async fn a_lease_is_the_message_timeout_that_the_connection_negotiated() {
    let server = FakeMemcached::start();
    for (lease, msg_timeout_ms, life) in [
        (None, 90_000, 91),
        (None, 1500, 3),
        (Some(20 * SECOND), 1500, 21),
    ] {
        let dedup = by_body(memcached(&server.address(), lease, 3600 * SECOND));
        let network = MockNetwork::new();
        let (mut consumer, _server, mut nsqd) =
            subscribed(&network, dedup, &Log::default(), msg_timeout_ms).await;
        nsqd.deliver(1, 1, "a").await;
        let message = next(&mut consumer).await;
        assert_eq!(
            server.take_lives(),
            [life],
            "{lease:?}, {msg_timeout_ms} ms"
        );
        message.finish();
        nsqd.expect(&fin(1)).await;
        assert_eq!(server.take_lives(), [3601]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_that_is_shorter_than_the_message_timeout_is_reported_for_each_connection() {
    let nowhere = "unix:///nobody/listens";
    let forgetful = |window| {
        let options = ForgetfulOptions {
            filters: 5,
            window,
            rate: 10.0,
            false_positives_max: 0.01,
            hasher: KeyHasher::new([0; 16]),
        };
        ForgetfulBloom::new(options, Duration::ZERO).expect("sizes")
    };
    let (lease, window) = (
        "the lease of 59s is shorter than the message timeout of 60s",
        "the window of 59s is shorter than the message timeout of 60s",
    );
    let cases: [(AnyFilter, &[&str]); 6] = [
        (memcached(nowhere, None, 60 * SECOND).into(), &[]),
        (memcached(nowhere, None, 59 * SECOND).into(), &[window]),
        (
            memcached(nowhere, Some(59 * SECOND), 3600 * SECOND).into(),
            &[lease],
        ),
        (
            memcached(nowhere, Some(59 * SECOND), 59 * SECOND).into(),
            &[lease, window],
        ),
        (forgetful(59 * SECOND).into(), &[window]),
        (InverseBloom::new(100).expect("slots").into(), &[]),
    ];
    for (filter, warnings) in cases {
        let (network, log) = (MockNetwork::new(), Log::default());
        let (_consumer, mut server, nsqd) =
            subscribed(&network, by_body(filter), &log, 60_000).await;
        let check = |connections: usize| {
            assert_eq!(log.count("is shorter"), warnings.len() * connections);
            for warning in warnings {
                let line = format!("(n1:4150) deduplication: {warning}");
                log.expect(&line, connections);
            }
            assert_eq!(log.count("WRN"), warnings.len() * connections);
        };
        check(1);
        drop(nsqd);
        let _nsqd = identified(&mut server, 60_000).await;
        check(2);
    }
}
