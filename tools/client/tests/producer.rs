//! The producer with real nsqds and nsqlookupds.

#[path = "../../../wire/upgrade/tests/certificates/mod.rs"]
mod certificates;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::closed::wait_for_close;
use crate::cuts::random_cuts;
use crate::drained::drain;
use bytes::Bytes;
use futures_util::future::join_all;
use ringq_client::{Address, Config, Outcome, Producer, ProducerBuilder, PublishError};
use test_support::TIMEOUT;
use test_support::cutting_proxy::CuttingProxy;
use test_support::daemon::Daemon;
use test_support::http_server::HttpServer;
use tokio::time::{sleep, timeout};

fn node(daemon: &Daemon) -> Address {
    daemon.tcp.into()
}

fn producer(daemon: &Daemon) -> Producer {
    let builder = Producer::builder().node(node(daemon));
    builder.build().expect("the settings are right")
}

fn sorted(mut bodies: Vec<Bytes>) -> Vec<Bytes> {
    bodies.sort();
    bodies
}

#[tokio::test]
async fn each_kind_of_publish_reaches_a_consumer() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let producer = producer(&nsqd);
    producer.ping().await.expect("nsqd is there");
    let receipt = producer.publish("t", "1").await.expect("nsqd stores it");
    assert_eq!(*receipt.node(), node(&nsqd));
    let bodies = ["2", "3"].map(Bytes::from);
    let done = producer.publish_many("t", bodies).await;
    done.expect("nsqd stores them");
    let delay = Duration::from_secs(6);
    let done = producer.publish_deferred("t", delay, "4").await;
    done.expect("nsqd stores it");
    nsqd.wait_for_figure("t", "c", "deferred_count", 1);
    let together = ["5", "6", "7"].map(|body| producer.publish("t", body));
    for result in join_all(together).await {
        result.expect("nsqd stores it");
    }
    let bodies = drain(&[node(&nsqd)], 7, Config::default()).await;
    assert_eq!(sorted(bodies), ["1", "2", "3", "4", "5", "6", "7"]);
    producer.close().await.unwrap();
}

#[tokio::test]
async fn refusals_have_the_text_of_nsqd_and_publishing_goes_on() {
    let nsqd = Daemon::nsqd(&["--max-msg-size=10"]);
    let producer = producer(&nsqd);
    let done = producer.publish("t", "12345678901").await;
    let error = done.expect_err("too long");
    assert_eq!(
        error.to_string(),
        "E_BAD_MESSAGE PUB message too big 11 > 10"
    );
    assert_eq!(error.outcome(), Outcome::NotStored);
    // One bad message does not spoil those that were sent with it.
    let together = ["1", "12345678901", "3"].map(|body| producer.publish("t", body));
    let results = join_all(together).await;
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Refused { .. })));
    nsqd.create_channel("t", "c");
    let bodies = drain(&[node(&nsqd)], 2, Config::default()).await;
    assert_eq!(sorted(bodies), ["1", "3"]);
}

#[tokio::test]
async fn an_http_port_is_recognised() {
    let nsqd = Daemon::nsqd(&[]);
    let builder = Producer::builder().node(nsqd.http);
    let producer = builder.build().expect("the settings are right");
    let error = producer.publish("t", "1").await.expect_err("it is HTTP");
    let text = error.to_string();
    assert!(text.contains("a nsqd TCP endpoint is required"), "{text}");
}

/// nsqd had closed the connection while the process stood still. The next publish was written into it, and its outcome was
/// unknown.
#[tokio::test]
async fn a_publish_after_a_pause_of_the_process_goes_to_the_next_connection() {
    let mut nsqd = Daemon::nsqd(&[]);
    let producer = producer(&nsqd);
    for round in 0..5 {
        producer.publish("t", "1").await.expect("nsqd stores it");
        // The runtime has one thread, which does not look at its sockets meanwhile.
        nsqd.restart();
        wait_for_close(nsqd.tcp);
        let published = producer.publish("t", "2").await;
        published.unwrap_or_else(|error| panic!("round {round}: {error}"));
        nsqd.restart();
        wait_for_close(nsqd.tcp);
        producer.ping().await.expect("nsqd is there");
    }
}

/// nsqd took nothing for 2 s, and the connection ended with publishes whose outcome was unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_of_nsqd_ends_no_connection() {
    let nsqd = Daemon::nsqd(&[]);
    let producer = producer(&nsqd);
    producer.publish("t", "first").await.expect("nsqd is there");
    nsqd.signal("STOP");
    // More than the buffers of the sockets hold.
    let body = Bytes::from(vec![b'x'; 1 << 20]);
    let publishing: Vec<_> = (0..48)
        .map(|_| {
            let (producer, body) = (producer.clone(), body.clone());
            tokio::spawn(async move { producer.publish("t", body).await })
        })
        .collect();
    sleep(Duration::from_secs(2)).await;
    nsqd.signal("CONT");
    for published in join_all(publishing).await {
        published.expect("no panic").expect("nsqd stores it");
    }
}

#[tokio::test]
async fn unix_sockets_work() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let socket = directory.path().join("nsqd.sock");
    let flag = format!("--unix-socket={}", socket.display());
    let nsqd = Daemon::nsqd(&[&flag]);
    nsqd.create_channel("t", "c");
    let address = Address::Unix(socket);
    let builder = Producer::builder().node(address.clone());
    let producer = builder.build().expect("the settings are right");
    producer.publish("t", "1").await.expect("nsqd stores it");
    assert_eq!(drain(&[address], 1, Config::default()).await, ["1"]);
}

/// The answer of an auth server to the secret `sesame`.
const GRANT: &str = r#"{"ttl":3600,"identity":"me","identity_url":"","authorizations":[{"topic":".*","channels":[".*"],"permissions":["subscribe","publish"]}]}"#;

/// Publishes and consumes through the upgrades that `change` configures.
async fn check_upgrades(change: impl Fn(&mut Config)) {
    let auth = HttpServer::start(|request, _| match request.target() {
        it if it.contains("secret=sesame") => GRANT.into(),
        _ => r#"{"ttl":3600,"authorizations":[]}"#.into(),
    });
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    certificates::write(directory.path());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let flags = [
        format!("--tls-cert={}", path("server.pem")),
        format!("--tls-key={}", path("server-key.pem")),
        format!("--tls-root-ca-file={}", path("ca.pem")),
        "--tls-client-auth-policy=require-verify".to_owned(),
        "--tls-required=tcp-https".to_owned(),
        "--https-address=127.0.0.1:0".to_owned(),
        format!("--auth-http-address={}", auth.address),
    ];
    let nsqd = Daemon::nsqd(&flags.each_ref().map(String::as_str));
    nsqd.create_channel("t", "c");
    let mut config = Config {
        auth_secret: "sesame".into(),
        tls_v1: true,
        ..Config::default()
    };
    for (option, file) in [
        ("tls_root_ca_file", "ca.pem"),
        ("tls_cert", "client.pem"),
        ("tls_key", "client-key.pem"),
    ] {
        config.set(option, &path(file)).expect("it was made above");
    }
    change(&mut config);
    let build = |config: &Config| {
        let builder = Producer::builder().node(node(&nsqd)).config(config.clone());
        builder.build().expect("the settings are right")
    };
    let producer = build(&config);
    let bodies: Vec<Bytes> = (0..200_usize)
        .map(|index| format!("{index:03} {}", "body ".repeat(index * 10)).into())
        .collect();
    for body in &bodies[..100] {
        let done = producer.publish("t", body.clone()).await;
        done.expect("nsqd stores it");
    }
    let rest = bodies[100..].iter().cloned();
    let done = producer.publish_many("t", rest).await;
    done.expect("nsqd stores them");
    let received = drain(&[node(&nsqd)], bodies.len(), config.clone()).await;
    assert_eq!(sorted(received), bodies);

    let wrong = Config {
        auth_secret: "wrong".into(),
        ..config.clone()
    };
    let done = build(&wrong).publish("t", "1").await;
    let error = done.expect_err("no permission");
    let text = error.to_string();
    assert!(text.contains("auth failed - E_UNAUTHORIZED"), "{text}");
    let none = Config {
        auth_secret: String::new(),
        ..config.clone()
    };
    let error = build(&none).publish("t", "1").await.expect_err("no secret");
    assert!(error.to_string().contains("Auth Required"), "{error}");
    let mut stranger = config.clone();
    stranger.tls.root_certificates = None;
    stranger.tls.cert = None;
    stranger.tls.key = None;
    stranger.tls.insecure_skip_verify = true;
    let done = build(&stranger).publish("t", "1").await;
    let error = done.expect_err("no certificate");
    assert_eq!(error.outcome(), Outcome::NotStored, "{error}");
}

#[tokio::test]
async fn tls_with_snappy_and_auth_works() {
    check_upgrades(|config| config.snappy = true).await;
}

#[tokio::test]
async fn tls_with_deflate_and_auth_works() {
    check_upgrades(|config| {
        config.deflate = true;
        config.deflate_level = 9;
        // Without authorities of its own, the client would refuse nsqd's certificate.
        config.tls.root_certificates = None;
        config.tls.insecure_skip_verify = true;
    })
    .await;
}

#[tokio::test]
async fn compression_works_without_tls() {
    for option in ["snappy", "deflate"] {
        let nsqd = Daemon::nsqd(&[]);
        nsqd.create_channel("t", "c");
        let mut config = Config::default();
        config.set(option, "true").expect("it is an option");
        let builder = Producer::builder().node(node(&nsqd)).config(config.clone());
        let producer = builder.build().expect("the settings are right");
        let body = Bytes::from("x".repeat(300_000));
        let done = producer.publish("t", body.clone()).await;
        done.expect("nsqd stores it");
        assert_eq!(drain(&[node(&nsqd)], 1, config).await, [body]);
    }
}

#[tokio::test]
async fn nodes_are_found_and_their_loss_is_survived() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let mut first = Daemon::nsqd_at(&[&lookupd], &[]);
    let second = Daemon::nsqd_at(&[&lookupd], &[]);
    for nsqd in [&first, &second] {
        nsqd.create_channel("t", "c");
    }
    let config = Config {
        lookupd_poll_interval: Duration::from_millis(100),
        ..Config::default()
    };
    let builder = || -> ProducerBuilder {
        let lookupd = lookupd.http.to_string();
        Producer::builder().lookupd(lookupd).config(config.clone())
    };
    let producer = builder().build().expect("the settings are right");
    // An nsqd registers in the background.
    let both = BTreeSet::from([node(&first), node(&second)]);
    let found = timeout(TIMEOUT, async {
        while producer.nodes().into_iter().collect::<BTreeSet<_>>() != both {
            // Before the first nsqd has registered, no node is known.
            let _ = producer.ping().await;
            sleep(Duration::from_millis(50)).await;
        }
    });
    found.await.expect("both nodes are found");
    let done = producer.publish_to(2, "t", "both").await;
    let receipts = done.expect("there are two nodes");
    let reached: BTreeSet<Address> = receipts
        .iter()
        .map(|receipt| receipt.node().clone())
        .collect();
    assert_eq!(reached, both);
    first.kill();
    let mut confirmed = vec![Bytes::from("both")];
    for index in 0..50 {
        let body = Bytes::from(format!("{index:02}"));
        match producer.publish("t", body.clone()).await {
            Ok(receipt) => {
                assert_eq!(*receipt.node(), node(&second));
                confirmed.push(body);
            }
            // The publish during which the connection broke.
            Err(error) => assert_eq!(error.outcome(), Outcome::Unknown, "{error}"),
        }
    }
    assert!(confirmed.len() > 45, "{} publishes", confirmed.len());
    let received = drain(&[node(&second)], confirmed.len(), Config::default()).await;
    assert_eq!(sorted(received), sorted(confirmed));
}

/// Connections break at any byte. What was confirmed is stored once. What was refused is not stored. `RINGQ_TEST_CUTS` sets
/// another number of connections.
#[tokio::test]
async fn cut_connections_lose_and_double_nothing_confirmed() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let proxy = CuttingProxy::start(nsqd.tcp, random_cuts(7, [1500, 600]));
    let builder = Producer::builder().node(proxy.address);
    let producer = builder.permits(8).build().expect("the settings are right");
    let connections = std::env::var("RINGQ_TEST_CUTS").map_or(1000, |number| {
        number.parse().expect("RINGQ_TEST_CUTS is a number")
    });
    let mut results = BTreeMap::new();
    let mut number = 0;
    while proxy.connections() < connections {
        let bodies: Vec<Bytes> = (0..10)
            .map(|_| {
                number += 1;
                Bytes::from(format!("{number:05}"))
            })
            .collect();
        let publishes = bodies
            .iter()
            .map(|body| producer.publish("t", body.clone()));
        for (body, result) in bodies.iter().zip(join_all(publishes).await) {
            results.insert(body.clone(), result);
        }
    }
    let confirmed = results.values().filter(|result| result.is_ok()).count();
    assert!(confirmed > 100, "{confirmed} of {number}");
    let mut stored: BTreeMap<Bytes, u32> = BTreeMap::new();
    let depth = nsqd.figure("t", "c", "depth") as usize;
    for body in drain(&[node(&nsqd)], depth, Config::default()).await {
        *stored.entry(body).or_default() += 1;
    }
    for (body, result) in results {
        let copies = stored.remove(&body).unwrap_or(0);
        match result {
            Ok(_) => assert_eq!(copies, 1, "{body:?} was confirmed"),
            Err(error) if error.outcome() == Outcome::Unknown => assert!(copies <= 1),
            Err(error) => assert_eq!(copies, 0, "{body:?}: {error}"),
        }
    }
    assert!(stored.is_empty(), "{stored:?}");
}
