//! Connections to nsqd come from the address of the option `local_addr`.

use std::net::SocketAddr;

use ringq_client::{Address, Config, Consumer, Producer};
use tokio::net::TcpListener;

/// Linux gives every address of 127.0.0.0/8 to the loopback interface.
const LOCAL: &str = "127.0.0.2";

fn config(local_addr: &str) -> Config {
    let mut config = Config::default();
    config.set("local_addr", local_addr).expect("an address");
    config
}

async fn listen() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let address = address.to_string().parse().expect("an address");
    (listener, address)
}

/// Returns the address from which the next connection comes, and closes the connection.
async fn next_peer(listener: &TcpListener) -> String {
    let (_, peer) = listener.accept().await.expect("a connection");
    peer.ip().to_string()
}

#[tokio::test]
async fn a_producer_and_a_consumer_connect_from_it() {
    for (local_addr, expected) in [("127.0.0.2:0", LOCAL), (":0", "127.0.0.1")] {
        let (listener, node) = listen().await;
        let producer = Producer::builder().node(node.clone());
        let producer = producer.config(config(local_addr)).build().expect("built");
        let publishing = producer.publish("t", "one");
        // The server closes the connection, so the publish fails.
        let (published, peer) = tokio::join!(publishing, next_peer(&listener));
        published.expect_err("nobody answers");
        assert_eq!(peer, expected, "a producer with {local_addr}");

        let consumer = Consumer::builder("t", "c").node(node);
        let connecting = tokio::spawn(consumer.config(config(local_addr)).connect());
        assert_eq!(
            next_peer(&listener).await,
            expected,
            "a consumer with {local_addr}"
        );
        connecting.abort();
    }
}

#[tokio::test]
async fn an_address_of_the_other_family_says_so() {
    let (_listener, node) = listen().await;
    let producer = Producer::builder().node(node.clone());
    let producer = producer.config(config("[::1]:0")).build().expect("built");
    let error = producer.publish("t", "one").await.expect_err("refused");
    let text = format!("{error:?}");
    let expected = format!("{node} has no address of the same family as local_addr [::1]:0");
    assert!(text.contains(&expected), "{text}");
}
