//! A producer and a consumer of two nsqds, whose connections break at random bytes.
//!
//! nsqd does not confirm a FIN, so a FIN that was written may be lost with its connection. The client's promise is about
//! later signs of life: nsqd carries the commands of a connection out in order, and never has more than RDY messages in
//! flight on it. So when `n` messages have come over a connection, nsqd has carried out at least the first `n - RDY`
//! answers of this connection. A message that was finished by one of these answers never comes again.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::*;
use crate::producer::{Producer, PublishError, Receipt};
use crate::testing::{Cut, MockBroker};
use crate::tests::outcomes::check_outcomes;

/// The cuts of all runs together.
const CUTS: u64 = 10_000;
/// The runs, each with its seed.
const SEEDS: u64 = 10;
/// The `max_in_flight` of the consumer, and so the highest RDY of a connection.
const IN_FLIGHT: usize = 10;
/// The most messages that the application keeps before it answers one of them.
const KEPT: usize = 4;

/// One connection of the consumer: the node, and the number of connections to the node before.
type Place = (Address, u64);

/// Cuts connections, and counts what became of them.
struct Cutter {
    network: MockNetwork,
    random: fastrand::Rng,
    cuts_left: u64,
    /// The connections that broke.
    broken: u64,
    /// The connections of the consumer to each node.
    connected: HashMap<Address, u64>,
}

impl Cutter {
    fn handle(&mut self, event: &Event, is_consumer: bool) {
        match event {
            Event::Connecting { node, .. } if self.cuts_left > 0 => {
                self.cuts_left -= 1;
                let cut = self.random_cut();
                self.network.cut_next(node, cut);
            }
            Event::Connected { node, .. } if is_consumer => {
                *self.connected.entry(node.clone()).or_default() += 1;
            }
            Event::ConnectFailed { .. } | Event::Disconnected { error: Some(_), .. } => {
                self.broken += 1;
            }
            _ => {}
        }
    }

    /// A handshake takes about 500 bytes, and a message with its answer about 100.
    fn random_cut(&mut self) -> Cut {
        let mut cut = Cut {
            sent: self.random.u64(0..2_000),
            lost: self.random.u64(0..300),
            received: self.random.u64(0..4_000),
        };
        match self.random.u8(0..4) {
            0 => cut.sent = u64::MAX,
            1 => cut.received = u64::MAX,
            _ => {}
        }
        cut
    }
}

/// The messages of one connection that the application got, and its answers.
#[derive(Default)]
struct Handled {
    received: usize,
    answers: usize,
}

/// A `finish` that resolved with `Ok`.
struct Confirmed {
    place: Place,
    /// The number of answers of the connection up to this one.
    index: usize,
}

#[derive(Default)]
struct Application {
    connections: HashMap<Place, Handled>,
    deliveries: HashMap<Bytes, usize>,
    confirmed: HashMap<Bytes, Vec<Confirmed>>,
    /// The confirmed answers whose message came again.
    repeated: Vec<(Bytes, Confirmed)>,
}

impl Application {
    fn take(&mut self, message: &Message, place: &Place) {
        self.connections.entry(place.clone()).or_default().received += 1;
        *self.deliveries.entry(message.body().clone()).or_default() += 1;
        for confirmed in self.confirmed.remove(message.body()).into_iter().flatten() {
            assert_eq!(confirmed.place.0, place.0, "{message:?}");
            assert!(
                confirmed.place.1 < place.1,
                "the connection lives: {message:?}"
            );
            self.repeated.push((message.body().clone(), confirmed));
        }
    }

    async fn answer(&mut self, message: Message, place: Place, finishes: bool) {
        let handled = self.connections.entry(place.clone()).or_default();
        handled.answers += 1;
        let index = handled.answers;
        if !finishes {
            // The future need not be awaited, and a lost connection requeues the message as well.
            message.requeue_without_backoff(Requeue::After(MS(5)));
        } else if message.finish().await.is_ok() {
            let confirmed = self.confirmed.entry(message.body().clone()).or_default();
            confirmed.push(Confirmed { place, index });
        }
    }

    /// Takes messages until the consumer has stopped. Answers them in a random order.
    async fn run(mut self, mut consumer: Consumer, cutter: Arc<Mutex<Cutter>>, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut kept: Vec<(Message, Place)> = Vec::new();
        loop {
            match timeout(MS(20), consumer.next()).await {
                Ok(Some(message)) => {
                    let node = message.node().clone();
                    let connections = cutter.lock().connected[&node];
                    let place = (node, connections);
                    self.take(&message, &place);
                    kept.push((message, place));
                }
                Ok(None) => return self,
                Err(_) if kept.is_empty() => continue,
                Err(_) => {}
            }
            if random.usize(..KEPT) < kept.len() {
                let (message, place) = kept.swap_remove(random.usize(..kept.len()));
                self.answer(message, place, random.u8(..8) > 0).await;
            }
        }
    }

    /// Checks that no answer that nsqd must have carried out was in vain.
    fn check(&self, seed: u64) {
        for (body, Confirmed { place, index }) in &self.repeated {
            let received = self.connections[place].received;
            assert!(
                index + IN_FLIGHT > received,
                "seed {seed}: {body:?} came again: answer {index} of {place:?}, which brought {received} messages"
            );
        }
    }
}

/// Publishes until all cuts are made. Returns the result of each publish.
async fn publish(
    producer: &Producer,
    cutter: &Mutex<Cutter>,
    cuts: u64,
    seed: u64,
) -> HashMap<Bytes, Result<Receipt, PublishError>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut results = HashMap::new();
    while cutter.lock().broken < cuts {
        let bodies: Vec<Bytes> = (0..random.usize(1..8))
            .map(|index| {
                let text = format!(
                    "{} {}",
                    results.len() + index,
                    "x".repeat(random.usize(..60))
                );
                Bytes::from(text)
            })
            .collect();
        // The clock stands still while a task is busy.
        sleep(MS(1)).await;
        let publishes = bodies
            .iter()
            .map(|body| producer.publish("t", body.clone()));
        let published = join_all(publishes).await;
        results.extend(bodies.into_iter().zip(published));
    }
    results
}

/// Settings with which a client notices soon that its output is lost, and connects again soon.
fn hasty() -> Config {
    Config {
        max_in_flight: IN_FLIGHT as u32,
        max_attempts: 0,
        read_timeout: MS(500),
        heartbeat_interval: Some(MS(200)),
        lookupd_poll_interval: MS(100),
        ..Config::default()
    }
}

/// Returns the repeated and all confirmed answers.
async fn check(seed: u64, cuts: u64) -> (usize, usize) {
    let network = MockNetwork::new();
    let brokers = ["a:1", "b:1"].map(|address| network.broker(address));
    let nodes = brokers.each_ref().map(MockBroker::address);
    let cutter = Arc::new(Mutex::new(Cutter {
        network: network.clone(),
        random: fastrand::Rng::with_seed(seed),
        cuts_left: cuts,
        broken: 0,
        connected: HashMap::new(),
    }));
    let watch = |is_consumer| {
        let cutter = Arc::clone(&cutter);
        move |event: Event| cutter.lock().handle(&event, is_consumer)
    };
    let consumer = Consumer::builder("t", "c")
        .config(hasty())
        .nodes(nodes.clone())
        .connector(network.clone())
        .events(watch(true))
        .connect()
        .await
        .expect("complete");
    let producer = Producer::builder()
        .nodes(nodes)
        .config(hasty())
        .connector(network)
        .events(watch(false))
        .build()
        .expect("complete");
    let control = consumer.control();
    let application = Application::default().run(consumer, Arc::clone(&cutter), seed);
    let application = tokio::spawn(application);
    let results = publish(&producer, &cutter, cuts, seed).await;
    let done = producer.close().await;
    done.expect("no connection breaks any more");
    while brokers
        .iter()
        .any(|broker| broker.depth("t", "c") != (0, 0))
    {
        sleep(MS(100)).await;
    }
    control.shutdown().await;
    let application = application.await.expect("the consumer has stopped");
    application.check(seed);
    check_outcomes(results, &brokers, seed);
    for body in brokers.iter().flat_map(|broker| broker.published("t")) {
        let is_delivered = application.deliveries.contains_key(&body);
        assert!(is_delivered, "seed {seed}: {body:?} is lost");
    }
    let repeated = application.repeated.len();
    let kept: usize = application.confirmed.values().map(Vec::len).sum();
    (repeated, repeated + kept)
}

#[tokio::test(start_paused = true)]
async fn answers_that_nsqd_must_have_count_and_nothing_is_lost() {
    let (mut repeated, mut confirmed) = (0, 0);
    for seed in 0..SEEDS {
        let (again, all) = check(seed, CUTS / SEEDS).await;
        repeated += again;
        confirmed += all;
    }
    println!("{CUTS} cuts: {repeated} of {confirmed} confirmed messages came again");
    // The cuts hit answers too, and the promise is about far more answers than the cuts could hit.
    assert!(
        repeated > 0 && confirmed > 2 * CUTS as usize,
        "{repeated} of {confirmed}"
    );
}
