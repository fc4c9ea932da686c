//! Handshake, heartbeats, errors, losses and reconnection.

use super::*;
use test_support::assert_like;

#[tokio::test(start_paused = true)]
async fn a_consumer_subscribes_receives_and_stops() {
    let (server, mut nsqd, mut consumer) = ready(30).await;
    nsqd.heartbeat().await;
    nsqd.expect("NOP").await;
    nsqd.deliver(1, 1, "body").await;
    let message = next(&mut consumer).await;
    assert_eq!((&message.body()[..], message.attempts()), (&b"body"[..], 1));
    assert_eq!(message.timestamp(), std::time::UNIX_EPOCH + MS(1000));
    assert_eq!((message.topic(), message.node()), ("t", &server.address()));
    message.finish().await.expect("the connection lives");
    nsqd.expect(&fin(1)).await;
    nsqd.fail("E_FIN_FAILED FIN 0000000000000001 failed ID not in flight")
        .await;
    nsqd.deliver(2, 1, "more").await;
    next(&mut consumer).await.finish();
    nsqd.expect(&fin(2)).await;

    let control = consumer.control();
    let stopping = tokio::spawn(async move { control.shutdown().await });
    close(&mut nsqd).await;
    drop(nsqd);
    stopping.await.expect("no panic");
    assert!(consumer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn rdy_never_exceeds_what_nsqd_accepts() {
    for (answer, expected, warnings) in [
        ("OK", "RDY 2500", 1),
        (r#"{"max_rdy_count":100}"#, "RDY 100", 1),
        (r#"{"max_rdy_count":3000}"#, "RDY 3000", 0),
    ] {
        let network = MockNetwork::new();
        let mut server = network.server("n1:4150");
        let log = Log::default();
        let builder = builder(&network, 3000).node(server.address());
        let _consumer = connected(builder.events(log.callback())).await;
        let mut nsqd = accept_with(&mut server, answer).await;
        nsqd.expect(expected).await;
        tokio::task::yield_now().await;
        log.expect("truncation possible", warnings);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_when_max_in_flight_grows_again() {
    let (_server, mut nsqd, consumer) = ready(5).await;
    let control = consumer.control();
    control.set_max_in_flight(0);
    nsqd.expect("RDY 0").await;
    control.set_max_in_flight(5);
    nsqd.expect("RDY 5").await;
    assert_eq!(control.max_in_flight(), 5);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_are_answered_while_a_handler_works() {
    let (_server, mut nsqd, consumer) = ready(5).await;
    let running = tokio::spawn(consumer.run(1, async |_message: Message| {
        tokio::time::sleep(MS(10_000)).await;
        Ok::<(), String>(())
    }));
    for number in 1..=3 {
        nsqd.deliver(number, 1, "").await;
    }
    for _ in 0..9 {
        tokio::time::sleep(MS(1000)).await;
        let asked_at = Instant::now();
        nsqd.heartbeat().await;
        nsqd.expect("NOP").await;
        assert!(asked_at.elapsed() < MS(10));
    }
    nsqd.expect(&fin(1)).await;
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_refused_subscription_is_reported() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    let refusing = tokio::spawn(async move {
        let mut nsqd = server.accept().await;
        nsqd.handshake().await;
        nsqd.expect("SUB t c").await;
        nsqd.fail("E_SUB_FAILED channel consumers for t:c exceeds limit of 1")
            .await;
        server
    });
    let address: Address = "n1:4150".parse().expect("an address");
    let builder = builder(&network, 1)
        .node(address)
        .retry_first_connection(false);
    let done = builder.connect().await;
    let error = done.expect_err("nsqd refuses").to_string();
    assert_like(&error, "…failed to SUB - E_SUB_FAILED channel consumers…");
    // The consumer does not try again.
    let mut server = refusing.await.expect("no panic");
    assert!(timeout(MS(100_000), server.accept()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_node_is_an_error_or_tried_again() {
    let network = MockNetwork::new();
    let mut server = network.server("n1:4150");
    server.refuse(true);
    let once = builder(&network, 1)
        .node(server.address())
        .retry_first_connection(false);
    let done = once.connect().await;
    let error = done.expect_err("nobody listens").to_string();
    assert_like(&error, "…(n1:4150) error connecting to nsqd…");

    let log = Log::default();
    let patient = builder(&network, 1)
        .node(server.address())
        .events(log.callback());
    let consumer = patient.connect().await.expect("it tries again");
    tokio::time::sleep(MS(600_000)).await;
    // The delays grow to 60 s: 0.1, 0.2, ... 51.2, 60, 60 ... of which a random half is left out.
    let attempts = log.count("error connecting to nsqd");
    assert!((17..30).contains(&attempts), "{attempts}");
    server.refuse(false);
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 1").await;
    let again = consumer.control().add_node(server.address()).await;
    assert_eq!(
        again.expect_err("it is there").to_string(),
        "already connected: n1:4150"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_is_connected_again_without_waiting_for_handlers() {
    let (mut server, mut nsqd, mut consumer) = ready(5).await;
    nsqd.deliver(1, 1, "handled").await;
    nsqd.deliver(2, 1, "waits").await;
    let slow = next(&mut consumer).await;
    nsqd.close();
    let lost_at = Instant::now();
    let mut nsqd = accept(&mut server).await;
    assert!(lost_at.elapsed() <= MS(101), "{:?}", lost_at.elapsed());
    nsqd.expect("RDY 5").await;
    // The old connection is gone. So is the message that nobody had taken.
    assert!(slow.finish().await.is_err());
    nsqd.deliver(2, 2, "again").await;
    let message = next(&mut consumer).await;
    assert_eq!(
        (&message.body()[..], message.attempts()),
        (&b"again"[..], 2)
    );
    message.finish();
    nsqd.expect(&fin(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_ends_each_connection_is_tried_ever_more_seldom() {
    let (mut server, _consumer) = one_server(config(5)).await;
    let begin = Instant::now();
    for _ in 0..20 {
        accept(&mut server).await.close();
    }
    assert!(begin.elapsed() > MS(300_000), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn wrong_names_and_options_are_refused() {
    let network = MockNetwork::new();
    let check = async |builder: ConsumerBuilder, expected: &str| {
        let error = builder.connect().await.expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let node = || "n1:4150".parse::<Address>().expect("an address");
    check(
        Consumer::builder("a b", "c").node(node()),
        "invalid topic name: \"a b\" is not 1 to 64 characters of ",
    )
    .await;
    check(
        Consumer::builder("t", "").node(node()),
        "invalid channel name: \"\" is not 1 to 64 characters of ",
    )
    .await;
    check(Consumer::builder("t", "c"), "a consumer needs the address").await;
    check(
        Consumer::builder("t", "c").lookupd("localhost"),
        "nsqlookupd localhost: missing port: write host:port, ",
    )
    .await;
    let config = Config {
        heartbeat_interval: Some(MS(70_000)),
        ..Config::default()
    };
    check(
        Consumer::builder("t", "c").node(node()).config(config),
        "HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s",
    )
    .await;
    let twice = builder(&network, 1).nodes([node(), node()]);
    check(twice, "already connected: n1:4150").await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_node_gets_cls_and_is_forgotten() {
    let network = MockNetwork::new();
    let (mut one, mut two) = (network.server("n1:4150"), network.server("n2:4150"));
    let nodes = [one.address(), two.address()];
    let mut consumer = connected(builder(&network, 10).nodes(nodes)).await;
    let mut nsqd_one = accept(&mut one).await;
    let mut nsqd_two = accept(&mut two).await;
    nsqd_two.expect("RDY 5").await;
    nsqd_one.deliver(1, 1, "slow").await;
    let message = next(&mut consumer).await;
    let control = consumer.control();
    control.remove_node(&one.address()).expect("it is there");
    let unknown = control.remove_node(&one.address()).expect_err("it is gone");
    assert_eq!(unknown.to_string(), "not connected: n1:4150");
    // The message in flight counts until it is answered.
    nsqd_two.expect("RDY 9").await;
    while nsqd_one.command().await.expect("it is open").to_string() != "CLS" {}
    nsqd_one.respond("CLOSE_WAIT").await;
    // The message in flight is still answered.
    expect_silence(&mut nsqd_one, MS(1000)).await;
    message.finish();
    nsqd_one.expect(&fin(1)).await;
    nsqd_two.expect("RDY 10").await;
    assert_eq!(nsqd_one.command().await, None);
    drop(nsqd_one);
    assert!(timeout(MS(100_000), one.accept()).await.is_err());
}
