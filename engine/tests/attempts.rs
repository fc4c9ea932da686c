//! The attempts of a message: REQs that do not count.

mod support;

use support::{Broker, Client, Message, MessageId, TIMEOUT, wait_until};

/// Connects a consumer of the channel `t/ch`, for one message at a time.
fn consumer(broker: &Broker, identify: &str) -> Client {
    let mut client = Client::connect(broker.tcp_addr());
    client.identify(identify);
    client.subscribe("t", "ch");
    client.ready(1);
    client
}

fn requeue_uncounted(client: &mut Client, id: &MessageId) {
    let id = std::str::from_utf8(id).expect("digits");
    client.send(format!("REQ {id} 0 uncounted\n").as_bytes());
}

/// Sends the last REQ of a client, which gets no further message. It is REQ number `count` of the channel.
fn give_back(broker: &Broker, mut client: Client, id: &MessageId, count: u64) {
    client.ready(0);
    requeue_uncounted(&mut client, id);
    let is_back = || {
        let stats = broker.channel_stats("t", "ch").expect("it is there");
        stats["requeue_count"] == count && stats["depth"] == 1
    };
    assert!(wait_until(TIMEOUT, is_back));
}

fn attempts(message: &Message) -> (u16, &[u8]) {
    (message.attempts, &message.body)
}

#[test]
fn an_uncounted_requeue_takes_its_attempt_back() {
    let mut broker = Broker::start(2, &[]);
    let mut client = Client::connect(broker.tcp_addr());
    let plain = client.identify(r#"{"feature_negotiation":true}"#);
    let mut client = Client::connect(broker.tcp_addr());
    let asks = r#"{"feature_negotiation":true,"req_uncounted":true}"#;
    let agreed = client.identify(asks);
    assert_eq!(agreed, plain.replace('}', r#","req_uncounted":true}"#));

    let mut client = consumer(&broker, asks);
    Client::connect(broker.tcp_addr()).publish("t", b"one");
    for expected in [1, 1, 1] {
        let message = client.message();
        assert_eq!(attempts(&message), (expected, &b"one"[..]));
        requeue_uncounted(&mut client, &message.id);
    }
    let message = client.message();
    client.requeue(&message.id, 0);
    let message = client.message();
    assert_eq!(message.attempts, 2);
    requeue_uncounted(&mut client, &message.id);
    let message = client.message();
    assert_eq!(message.attempts, 2);
    give_back(&broker, client, &message.id, 6);

    // A client that did not ask: the third parameter means nothing.
    let mut client = consumer(&broker, r#"{"feature_negotiation":true}"#);
    let message = client.message();
    requeue_uncounted(&mut client, &message.id);
    let message = client.message();
    assert_eq!(message.attempts, 3);
    give_back(&broker, client, &message.id, 8);

    // The attempts that count survive a restart.
    broker.sigterm_and_wait();
    broker.restart();
    let mut client = consumer(&broker, asks);
    let message = client.message();
    assert_eq!(attempts(&message), (4, &b"one"[..]));
    client.finish(&message.id);
}

#[test]
fn an_unknown_option_of_req_is_refused() {
    let broker = Broker::start(1, &[]);
    let asks = r#"{"feature_negotiation":true,"req_uncounted":true}"#;
    let mut client = consumer(&broker, asks);
    Client::connect(broker.tcp_addr()).publish("t", b"one");
    let message = client.message();
    let id = std::str::from_utf8(&message.id).expect("digits");
    client.send(format!("REQ {id} 0 free\n").as_bytes());
    client.expect_error("E_INVALID REQ unknown option free");
    client.expect_close();
}
