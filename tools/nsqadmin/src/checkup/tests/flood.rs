//! Producers that have grown, and their usual rates.

use super::*;

/// A connection that publishes to the topic `t`.
#[derive(Clone, Copy)]
struct Producer {
    client: &'static str,
    port: i64,
    count: i64,
}

/// Publishes over connections of one host. Consumers keep up.
#[derive(Default)]
struct Flood {
    checker: Checker,
    step: i64,
    producers: Vec<Producer>,
    /// The messages of connections that have ended.
    ended: i64,
}

impl Flood {
    /// Begins with these connections, which publish at these rates for this time.
    fn begin(clients: &[(&'static str, i64)], seconds: i64, rates: &[(i64, i64)]) -> Flood {
        let mut flood = Flood::default();
        for (client, port) in clients {
            flood.connect(client, *port);
        }
        let checkup = flood.publish(seconds, rates);
        assert_eq!(sentences(&checkup), [""; 0]);
        flood
    }

    fn connect(&mut self, client: &'static str, port: i64) {
        self.producers.push(Producer {
            client,
            port,
            count: 0,
        });
    }

    fn disconnect(&mut self, port: i64) {
        let ended = self.producers.extract_if(.., |one| one.port == port);
        self.ended += ended.map(|one| one.count).sum::<i64>();
    }

    /// Publishes for this time at the rate of each connection, which is named by its port.
    fn publish(&mut self, seconds: i64, rates: &[(i64, i64)]) -> Checkup {
        let mut last = Checkup::default();
        for _ in 0..seconds / STEP {
            for (port, rate) in rates {
                for producer in self.producers.iter_mut().filter(|one| one.port == *port) {
                    producer.count += rate * STEP;
                }
            }
            let told = self.producers.iter().map(|one| {
                json!({"client_id": one.client, "hostname": "host-a", "connect_ts": one.port,
                    "remote_address": format!("10.0.0.1:{}", one.port), "pub_counts": [{"topic": "t", "count": one.count}]})
            });
            let told: Vec<Value> = told.collect();
            let count = self.ended + self.producers.iter().map(|one| one.count).sum::<i64>();
            let figures =
                json!({"count": count, "producers": told, "clients": [{"ready_count": 9}]});
            last = self.checker.check(round(self.step, &[("n:1", figures)]));
            self.step += 1;
        }
        last
    }
}

fn usual_of(checkup: &Checkup, port: i64) -> f64 {
    let address = format!("10.0.0.1:{port}");
    let listed = &checkup.producers["t"].listed;
    let found = listed.iter().find(|one| one.remote_address == address);
    found
        .expect("it is listed")
        .usual
        .expect("the topic is watched")
}

/// The row said "usual 27", then "usual 296", and after 94 seconds the topic was no longer in the list.
#[test]
fn a_flood_stays_in_the_list_for_some_minutes() {
    let mut flood = Flood::begin(&[("shop", 5)], 600, &[(5, 15)]);
    let checkup = flood.publish(5, &[(5, 1500)]);
    let expected = "1.5k/s arrive instead of the usual 15/s, and consumers keep up. \
                    A producer has grown: shop (host-a): 1.5k/s instead of the usual 15/s";
    assert_eq!(sentences(&checkup), [expected]);
    for minute in 1..=9 {
        let checkup = flood.publish(60, &[(5, 1500)]);
        assert_eq!(sentences(&checkup).len(), 1, "minute {minute}");
    }
    let checkup = flood.publish(120, &[(5, 1500)]);
    assert_eq!(sentences(&checkup), [""; 0], "it becomes the usual rate");
}

/// Programs of one host have one name. A steady rate of 6/s was shown as "usual 21/s", "103/s" and "136/s".
#[test]
fn a_flood_does_not_change_the_usual_rate_of_another_connection_of_the_same_host() {
    let clients = [("host-a", 5), ("host-a", 6)];
    let mut flood = Flood::begin(&clients, 600, &[(5, 6), (6, 9)]);
    let checkup = flood.publish(5, &[(5, 6), (6, 1500)]);
    let sentence = sentences(&checkup)[0].to_owned();
    let end = "A producer has grown: host-a (host-a) at n:1 from 10.0.0.1:6: 1.5k/s instead of the usual 9/s";
    assert!(sentence.ends_with(end), "{sentence}");
    let checkup = flood.publish(600, &[(5, 6), (6, 1500)]);
    assert!((usual_of(&checkup, 5) - 6.0).abs() < 0.1, "{checkup:?}");
    // The usual rate follows.
    let usual = usual_of(&checkup, 6);
    assert!((250.0..400.0).contains(&usual), "{usual}");
}

/// The name alone did not tell which of the host's programs was the new one.
#[test]
fn a_new_producer_is_named_with_its_node_and_its_address() {
    let mut flood = Flood::begin(&[("host-a", 5)], 300, &[(5, 15)]);
    flood.connect("host-a", 7);
    for _ in 0..5 {
        let checkup = flood.publish(60, &[(5, 15), (7, 1500)]);
        let sentence = sentences(&checkup)[0].to_owned();
        let end = "A producer has grown: host-a (host-a), new at n:1 from 10.0.0.1:7: 1.5k/s";
        assert!(sentence.ends_with(end), "{sentence}");
        assert!((usual_of(&checkup, 5) - 15.0).abs() < 0.1, "{checkup:?}");
    }
}

#[test]
fn a_producer_that_is_started_anew_keeps_its_usual_rate() {
    let clients = [("shop", 5), ("audit", 6)];
    let mut flood = Flood::begin(&clients, 300, &[(5, 200), (6, 3)]);
    flood.disconnect(5);
    flood.connect("shop", 8);
    let checkup = flood.publish(10, &[(8, 200), (6, 3)]);
    assert!((usual_of(&checkup, 8) - 200.0).abs() < 1.0, "{checkup:?}");
    assert_eq!(sentences(&checkup), [""; 0]);
}

/// The answers of one node came seconds after the time of their round, and the rates of the next round were too high: "A producer
/// has grown".
#[test]
fn a_node_that_answers_late_has_the_rates_of_its_own_time() {
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    // The rounds of steps 18 and 19 are answered 4.9 seconds late.
    for step in 0..=20 {
        let late = if (18..20).contains(&step) { 4_900 } else { 0 };
        let mut round = round(step, &[]);
        let answered = round.now.steady_millis + late;
        let count = answered / 10;
        round.add_node("n:1", &stats(&published(count, count)), None);
        let answer = crate::figures::Answered {
            steady_millis: answered,
            start_time: 0,
        };
        round.nodes.get_mut("n:1").expect("it answered").answered = answer;
        last = checker.check(round);
        let producers = &last.producers["t"];
        for rate in [producers.arrivals, producers.listed[0].rate] {
            let is_near = (99.0..=101.0).contains(&rate) || step == 0;
            assert!(is_near, "at step {step}: {rate}");
        }
        let shard = &last.nodes["n:1"].shards[&1];
        assert!(shard.arrivals < 101.0, "at step {step}: {shard:?}");
    }
    assert!(!sentences(&last).join("").contains("has grown"), "{last:?}");
}
