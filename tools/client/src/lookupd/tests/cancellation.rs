//! Each request is polled n times and dropped, for each n until it ends. The next request must get its own answer.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Instant;

use super::*;
use crate::tests::mock_lookupd::MockLookupd;

/// The polls after which each request has ended.
const POLLS_MAX: usize = 200;

/// Polls a future up to `times` times, with time for the sockets between two polls. Returns true if the future ended.
async fn ends_within<F: Future>(future: F, times: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        let mut cx = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut cx).is_ready() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

/// Waits until nsqlookupd has no open connection.
async fn wait_for_the_end_of_connections(mock: &MockLookupd) {
    let began_at = Instant::now();
    while mock.seen().open > 0 {
        assert!(
            began_at.elapsed() < Duration::from_secs(30),
            "{:?}",
            mock.seen()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The request that is dropped.
#[derive(Clone, Copy, Debug)]
enum Request {
    Lookup,
    Topics,
    Nodes,
}

impl Request {
    async fn ask(self, lookupd: &Lookupd) {
        let answered = match self {
            Request::Lookup => lookupd.lookup("dropped").await.map(drop),
            Request::Topics => lookupd.topics().await.map(drop),
            Request::Nodes => lookupd.nodes().await.map(drop),
        };
        answered.expect("an answer");
    }
}

#[tokio::test]
async fn a_request_may_be_dropped_at_each_await() {
    let node: Address = "n1:4150".parse().expect("an address");
    for request in [Request::Lookup, Request::Topics, Request::Nodes] {
        let mut times = 0;
        loop {
            let mock = MockLookupd::start(&node).await;
            let lookupd = Lookupd::new(mock.address(), &Config::default()).expect("an address");
            let has_ended = ends_within(request.ask(&lookupd), times).await;
            let found = lookupd.lookup("kept").await.expect("an answer");
            assert_eq!(found.expect("known").channels, ["kept"], "{times} polls");
            assert_eq!(lookupd.topics().await.expect("an answer"), ["t"]);
            let nodes = lookupd.nodes().await.expect("an answer");
            assert_eq!(nodes[0].tcp_address(), node.to_string());
            drop(lookupd);
            wait_for_the_end_of_connections(&mock).await;
            if has_ended {
                break;
            }
            times += 1;
            assert!(times < POLLS_MAX, "{request:?} does not end");
        }
        assert!(times >= 2, "{request:?}: {times} polls reach no await");
    }
}
