//! Discovery with an nsqlookupd over real sockets and a real clock.

use super::*;
use crate::tests::mock_lookupd::MockLookupd;

/// Waits until the nsqlookupd was asked this often.
async fn wait_for_requests(lookupd: &MockLookupd, count: usize) {
    let asked = async {
        while lookupd.seen().targets.len() < count {
            tokio::time::sleep(MS(1)).await;
        }
    };
    let result = timeout(MS(30_000), asked).await;
    assert!(result.is_ok(), "{:?}", lookupd.seen());
}

#[tokio::test]
async fn the_connection_to_a_nsqlookupd_lives_from_poll_to_poll() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let lookupd = MockLookupd::start(&server.address()).await;
    let config = Config {
        lookupd_poll_interval: MS(20),
        ..config(9)
    };
    let _consumer = builder(&network, 9)
        .config(config)
        .lookupd(lookupd.address())
        .connect()
        .await
        .expect("complete");
    let _nsqd = accept(&mut server).await;
    wait_for_requests(&lookupd, 5).await;
    let seen = lookupd.seen();
    assert_eq!(seen.connections, 1, "{seen:?}");
    assert!(
        seen.targets
            .iter()
            .all(|target| target == "/lookup?topic=t"),
        "{seen:?}"
    );
}

/// The next poll is a minute away.
#[tokio::test]
async fn the_first_nsqlookupd_is_asked_at_once_and_a_later_one_at_the_next_poll() {
    let network = MockNetwork::new();
    let (mut fixed, mut found) = (network.server("n1:4150"), network.server("n2:4150"));
    let lookupds = [
        MockLookupd::start(&found.address()).await,
        MockLookupd::start(&found.address()).await,
    ];
    let consumer = connected(builder(&network, 4).node(fixed.address())).await;
    let mut nsqd = accept(&mut fixed).await;
    nsqd.expect("RDY 4").await;
    let control = consumer.control();
    let began_at = Instant::now();
    control
        .add_lookupd(lookupds[0].address())
        .expect("an address");
    wait_for_requests(&lookupds[0], 1).await;
    let _found = accept(&mut found).await;
    control
        .add_lookupd(lookupds[1].address())
        .expect("an address");
    tokio::time::sleep(MS(300)).await;
    assert!(began_at.elapsed() < MS(50_000), "a poll may have been due");
    let asked = lookupds
        .each_ref()
        .map(|lookupd| lookupd.seen().targets.len());
    assert_eq!(asked, [1, 0]);
}
