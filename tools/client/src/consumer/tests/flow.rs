//! RDY and backoff: the traces of the specification, exact on the virtual clock.

use super::*;
use crate::testing::MockBroker;

fn backoff_config(max_in_flight: u32, multiplier: u64) -> Config {
    Config {
        max_in_flight,
        backoff_multiplier: MS(multiplier),
        max_backoff_duration: MS(1000),
        default_requeue_delay: MS(10_000),
        ..Config::default()
    }
}

/// A consumer whose backoff has this multiplier.
async fn failing(max_in_flight: u32, multiplier: u64) -> Ready {
    let config = backoff_config(max_in_flight, multiplier);
    ready_with(max_in_flight, |builder| builder.config(config)).await
}

#[tokio::test(start_paused = true)]
async fn the_backoff_goes_up_level_by_level_and_down_again() {
    let (_server, mut nsqd, mut consumer) = failing(200, 50).await;
    nsqd.deliver(1, 1, "").await;
    let mut begin = None;
    // The times of the RDY 1, in milliseconds since the first message was handled.
    for (number, expected) in [100, 300, 700, 1500, 2300, 3100, 3500, 3700, 3800]
        .into_iter()
        .enumerate()
    {
        let number = number as u64 + 1;
        let message = next(&mut consumer).await;
        let begin = *begin.get_or_insert(Instant::now());
        if number <= 6 {
            message.requeue(Requeue::Automatic);
            expect(&mut nsqd, &["RDY 0", &req(number, 10_000)]).await;
        } else {
            message.finish();
            expect(&mut nsqd, &["RDY 0", &fin(number)]).await;
        }
        nsqd.expect("RDY 1").await;
        assert_eq!(begin.elapsed().as_millis(), expected, "message {number}");
        nsqd.deliver(number + 1, 1, "").await;
    }
    next(&mut consumer).await.finish();
    expect(&mut nsqd, &["RDY 200", &fin(10)]).await;
    nsqd.deliver(11, 1, "").await;
    next(&mut consumer).await.finish();
    nsqd.expect(&fin(11)).await;
    expect_silence(&mut nsqd, MS(10_000)).await;
}

#[tokio::test(start_paused = true)]
async fn handlers_meet_the_backoff_too() {
    let (_server, mut nsqd, consumer) = failing(5, 10).await;
    let control = consumer.control();
    let running = tokio::spawn(consumer.run(
        5,
        async |message: Message| match &message.body()[..] {
            b"good" => Ok(()),
            _ => Err("bad"),
        },
    ));
    for number in 1..=3 {
        nsqd.deliver(number, 1, "good").await;
        nsqd.expect(&fin(number)).await;
    }
    nsqd.deliver(4, 1, "bad").await;
    expect(&mut nsqd, &["RDY 0", &req(4, 10_000), "RDY 1"]).await;
    nsqd.deliver(5, 1, "bad").await;
    expect(&mut nsqd, &["RDY 0", &req(5, 10_000), "RDY 1"]).await;
    assert_eq!(control.stats().backoff_level, 2);
    nsqd.deliver(6, 1, "good").await;
    expect(&mut nsqd, &["RDY 0", &fin(6), "RDY 1"]).await;
    nsqd.deliver(7, 1, "good").await;
    expect(&mut nsqd, &["RDY 5", &fin(7)]).await;
    let stats = control.stats();
    assert_eq!(
        (stats.finished, stats.requeued, stats.backoff_level),
        (5, 2, 0)
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_requeue_without_backoff_neither_begins_nor_ends_one() {
    let (_server, mut nsqd, mut consumer) = failing(1, 10).await;
    nsqd.deliver(1, 1, "").await;
    next(&mut consumer)
        .await
        .requeue_without_backoff(Requeue::After(MS(5)));
    nsqd.expect(&req(1, 5)).await;
    nsqd.deliver(2, 1, "").await;
    next(&mut consumer).await.requeue(Requeue::After(MS(0)));
    expect(&mut nsqd, &["RDY 0", &req(2, 0), "RDY 1"]).await;
    nsqd.deliver(3, 1, "").await;
    next(&mut consumer)
        .await
        .requeue_without_backoff(Requeue::Automatic);
    expect(&mut nsqd, &["RDY 0", &req(3, 10_000), "RDY 1"]).await;
    nsqd.deliver(4, 1, "").await;
    next(&mut consumer).await.finish();
    // The share is 1, which is in force already.
    nsqd.expect(&fin(4)).await;
    expect_silence(&mut nsqd, MS(10_000)).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_made_during_a_backoff_is_tested() {
    let (mut server, mut nsqd, mut consumer) = failing(5, 50).await;
    nsqd.deliver(1, 1, "").await;
    next(&mut consumer).await.requeue(Requeue::Automatic);
    expect(&mut nsqd, &["RDY 0", &req(1, 10_000)]).await;
    nsqd.close();
    let mut nsqd = accept(&mut server).await;
    nsqd.expect("RDY 1").await;
    nsqd.deliver(2, 1, "").await;
    next(&mut consumer).await.finish();
    expect(&mut nsqd, &["RDY 5", &fin(2)]).await;
}

/// The RDY of several servers, as they arrive.
struct Servers {
    connections: Vec<MockConnection>,
    ready: Vec<u32>,
}

impl Servers {
    async fn accept(servers: &mut [MockServer]) -> Servers {
        let mut connections = Vec::new();
        for server in servers {
            connections.push(accept(server).await);
        }
        let ready = vec![0; connections.len()];
        Servers { connections, ready }
    }

    /// Takes the commands that come within `time`, each of which must be RDY. The sum never exceeds `max` for longer than
    /// a command needs.
    async fn read(&mut self, time: Duration, max: u32) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            tokio::time::sleep(MS(100)).await;
            for (nsqd, ready) in self.connections.iter_mut().zip(&mut self.ready) {
                while let Ok(command) = timeout(MS(0), nsqd.command()).await {
                    match command {
                        Some(crate::testing::Received::Rdy(count)) => *ready = count,
                        Some(other) => panic!("RDY is expected: {other}"),
                        None => break,
                    }
                }
            }
            assert!(self.ready.iter().sum::<u32>() <= max, "{:?}", self.ready);
        }
    }
}

fn servers(network: &MockNetwork, count: usize) -> Vec<MockServer> {
    (1..=count)
        .map(|index| network.server(&format!("n{index}:4150")))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn shares_are_fair_and_follow_the_maximum_and_losses() {
    let network = MockNetwork::new();
    let mut all = servers(&network, 4);
    let nodes = all.iter().map(MockServer::address);
    let consumer = connected(builder(&network, 10).nodes(nodes)).await;
    let mut servers = Servers::accept(&mut all).await;
    servers.read(MS(1000), 10).await;
    assert_eq!(servers.ready, [2, 2, 2, 2]);
    let control = consumer.control();
    control.set_max_in_flight(4);
    servers.read(MS(1000), 4).await;
    assert_eq!(servers.ready, [1, 1, 1, 1]);
    control.set_max_in_flight(60);
    servers.read(MS(1000), 60).await;
    assert_eq!(servers.ready, [15, 15, 15, 15]);
    // A node that is lost and stays away leaves its part to the others at once.
    for server in &all[2..] {
        server.refuse(true);
    }
    servers.connections.truncate(2);
    servers.ready.truncate(2);
    servers.read(MS(1000), 60).await;
    assert_eq!(servers.ready, [30, 30]);
    assert_eq!(
        control
            .stats()
            .nodes
            .iter()
            .map(|node| node.ready)
            .sum::<u32>(),
        60
    );
}

/// While nodes came one after the other, 83 messages were in flight of 40.
#[tokio::test(start_paused = true)]
async fn nodes_that_come_later_do_not_exceed_the_maximum() {
    let network = MockNetwork::new();
    let brokers: Vec<_> = (1..=4)
        .map(|index| network.broker(&format!("n{index}:4150")))
        .collect();
    for broker in &brokers {
        (0..200).for_each(|_| broker.publish("t", "x"));
    }
    let builder = builder(&network, 40).node(brokers[0].address());
    let mut consumer = connected(builder).await;
    let control = consumer.control();
    for broker in &brokers[1..] {
        control.add_node(broker.address()).await.expect("it is new");
        tokio::time::sleep(MS(1000)).await;
        assert_eq!(control.stats().in_flight, 40);
    }
    // The messages of all nodes come when there is room for them.
    for _ in 0..800 {
        let message = next(&mut consumer).await;
        let in_flight = control.stats().in_flight;
        assert!(in_flight <= 40, "{in_flight}");
        message.finish();
    }
}

/// A turn passed to another node while the message of the first one was being handled: 2 of 1 were in flight.
#[tokio::test(start_paused = true)]
async fn a_turn_begins_when_the_message_of_the_last_one_is_answered() {
    let network = MockNetwork::new();
    let brokers = [network.broker("n1:4150"), network.broker("n2:4150")];
    for broker in &brokers {
        (0..10).for_each(|_| broker.publish("t", "x"));
    }
    let nodes = brokers.iter().map(MockBroker::address);
    let mut consumer = connected(builder(&network, 1).nodes(nodes)).await;
    let control = consumer.control();
    for _ in 0..20 {
        let message = next(&mut consumer).await;
        // 30 s is the default low_rdy_timeout.
        tokio::time::sleep(MS(40_000)).await;
        assert_eq!(control.stats().in_flight, 1);
        message.finish();
    }
}

#[tokio::test(start_paused = true)]
async fn scarce_rdy_goes_round() {
    let network = MockNetwork::new();
    let mut all = servers(&network, 4);
    let nodes = all.iter().map(MockServer::address);
    let config = Config {
        max_in_flight: 2,
        rdy_redistribute_interval: MS(1000),
        low_rdy_idle_timeout: MS(2000),
        ..Config::default()
    };
    let builder = builder(&network, 2).config(config).nodes(nodes);
    let _consumer = connected(builder).await;
    let mut servers = Servers::accept(&mut all).await;
    let mut turns = [0; 4];
    for _ in 0..60 {
        servers.read(MS(1000), 2).await;
        for (turn, ready) in turns.iter_mut().zip(&servers.ready) {
            *turn += ready;
        }
    }
    // Half of the time each.
    assert!(
        turns.iter().all(|turn| (20..=40).contains(turn)),
        "{turns:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_consumer_is_starved_when_a_connection_has_its_fill() {
    let (_server, mut nsqd, mut consumer) = ready(10).await;
    let control = consumer.control();
    let mut held = Vec::new();
    for number in 1..=8 {
        assert!(!control.is_starved(), "{number}");
        nsqd.deliver(number, 1, "").await;
        held.push(next(&mut consumer).await);
    }
    // 85 % of 10, rounded down, is 8.
    assert!(control.is_starved());
    held.pop().expect("a message").finish();
    assert!(!control.is_starved());
    assert_eq!(control.stats().in_flight, 7);
}

/// Another connection that has room does not help the messages of a full one.
#[tokio::test(start_paused = true)]
async fn one_full_connection_starves_a_consumer_of_two() {
    let network = MockNetwork::new();
    let mut servers = [network.server("n1:4150"), network.server("n2:4150")];
    let mut consumer = builder(&network, 1)
        .config(config(10))
        .nodes(servers.iter().map(MockServer::address))
        .connect()
        .await
        .expect("complete");
    let control = consumer.control();
    let mut nsqds = Vec::new();
    for server in &mut servers {
        nsqds.push(accept(server).await);
    }
    for nsqd in &mut nsqds {
        while nsqd.command().await.expect("open").to_string() != "RDY 5" {}
    }
    let mut held = Vec::new();
    for number in 1..=4 {
        assert!(!control.is_starved(), "{number}");
        nsqds[1].deliver(number, 1, "").await;
        held.push(next(&mut consumer).await);
    }
    // 4 of 10 messages are in flight, and 4 of the 5 of one connection.
    assert!(control.is_starved());
    held.pop().expect("a message").finish();
    assert!(!control.is_starved());
}

/// A connection that closes brings no more messages, whatever the application answers.
#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_starves_nobody() {
    let (server, mut nsqd, mut consumer) = ready(2).await;
    let control = consumer.control();
    nsqd.deliver(1, 1, "").await;
    let held = next(&mut consumer).await;
    assert!(control.is_starved());
    control.remove_node(&server.address()).expect("a node");
    nsqd.expect("CLS").await;
    assert!(!control.is_starved());
    held.finish();
    nsqd.expect(&fin(1)).await;

    let (_server, mut nsqd, mut consumer) = ready(2).await;
    let control = consumer.control();
    nsqd.deliver(1, 1, "").await;
    let held = next(&mut consumer).await;
    let stopping = tokio::spawn(async move { control.shutdown().await });
    nsqd.expect("CLS").await;
    assert!(consumer.control().is_starved());
    nsqd.respond("CLOSE_WAIT").await;
    nsqd.heartbeat().await;
    nsqd.expect("NOP").await;
    assert!(!consumer.control().is_starved());
    held.finish();
    nsqd.expect(&fin(1)).await;
    stopping.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn events_tell_when_a_backoff_begins_grows_and_ends() {
    let changes = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&changes);
    let events = move |event| {
        let change = match event {
            Event::BackoffEntered { level, period, .. } => Some((level, period)),
            Event::BackoffLeft { .. } => None,
            _ => return,
        };
        keep.lock().push(change);
    };
    let set = |builder: ConsumerBuilder| builder.config(backoff_config(5, 50)).events(events);
    let (_server, mut nsqd, mut consumer) = ready_with(5, set).await;
    let control = consumer.control();
    let mut levels = Vec::new();
    // Two failures, and two messages that succeed.
    for number in 1..=4 {
        nsqd.deliver(number, 1, "").await;
        let message = next(&mut consumer).await;
        match number {
            1 | 2 => message.requeue(Requeue::Automatic),
            _ => message.finish(),
        };
        levels.push(control.stats().backoff_level);
        if number < 4 {
            nsqd.expect("RDY 0").await;
            while nsqd.command().await.expect("it is open").to_string() != "RDY 1" {}
        }
    }
    assert_eq!(levels, [1, 2, 1, 0]);
    let changes = changes.lock().clone();
    let entered = |level, ms| Some((level, MS(ms)));
    assert_eq!(
        changes,
        [entered(1, 100), entered(2, 200), entered(1, 100), None]
    );
}
