//! Monitoring programs against the broker: KEDA's scaler, telegraf's nsq input, exporters for
//! Prometheus, Datadog's check, nsqadmin, and Grafana's board over statsd. Some of them find the
//! broker by our nsqlookupd.
//!
//! telegraf's input itself runs here. The other programs are rebuilt from their sources: the test
//! sends their requests with their headers over one connection, and decodes the answers into their
//! types. A field that a program reads must be there, although Go takes a missing field for zero.
//! docs/reference/differences.md lists the programs and their versions.

mod datadog;
mod exporters;
mod grafana;
mod keda;
mod lookup;
mod nsqadmin;
mod prometheus;
mod telegraf;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{Broker, Client, Response, TIMEOUT, parse_http, wait_until};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const HOUR_MS: u64 = 3_600_000;

/// The headers of a request by Go's HTTP client, in its order.
const GO: [&str; 2] = ["User-Agent: Go-http-client/1.1", "Accept-Encoding: gzip"];
/// The headers of a request by Python's `requests`, in its order.
const PYTHON: [&str; 4] = [
    "User-Agent: python-requests/2.11.1",
    "Accept-Encoding: gzip, deflate",
    "Accept: */*",
    "Connection: keep-alive",
];

/// A broker in the middle of its work.
///
/// | topic | channel | state |
/// |---|---|---|
/// | live#ephemeral | | 2 messages wait in the topic |
/// | orders | audit | paused: 9 messages wait, 1 is deferred |
/// | orders | billing | 4 wait, 3 are in flight to `worker-7`, 2 are deferred, 1 is finished |
/// | returns | refunds | 1 message waits after a timeout in the hands of `slow` |
struct Scene {
    broker: Broker,
    consumer: Client,
    slow: Client,
    _producer: Client,
}

impl Scene {
    fn start(extra_args: &[&str]) -> Scene {
        let broker = Broker::start(2, extra_args);
        for target in [
            "/topic/create?topic=live%23ephemeral",
            "/topic/create?topic=orders",
            "/channel/create?topic=orders&channel=audit",
            "/channel/create?topic=orders&channel=billing",
            "/channel/pause?topic=orders&channel=audit",
        ] {
            broker.admin(target);
        }

        let mut producer = broker.client();
        producer.identify(r#"{"client_id":"shop-1","hostname":"shop-1.local"}"#);
        producer.publish_many("live#ephemeral", &["one", "two"]);
        producer.publish_many("orders", &["12345678"; 9]);
        producer.publish_deferred("orders", HOUR_MS, b"deferred");

        let mut consumer = broker.client();
        consumer.identify(
            r#"{"client_id":"worker-7","hostname":"worker-7.local","user_agent":"billing/2.1"}"#,
        );
        consumer.subscribe("orders", "billing");
        consumer.ready(5);
        let taken: Vec<_> = (0..5).map(|_| consumer.message().id).collect();
        consumer.ready(3);
        consumer.finish(&taken[0]);
        consumer.requeue(&taken[1], HOUR_MS);

        // A machine that stands still between the message and RDY 0 has two timeouts. Then it is done again.
        let slow = (0..10).find_map(|_| {
            let mut slow = broker.client();
            slow.identify(r#"{"client_id":"slow","hostname":"slow.local","msg_timeout":1000}"#);
            slow.subscribe("returns", "refunds");
            slow.ready(1);
            producer.publish("returns", b"late");
            slow.message();
            slow.ready(0);
            let refunds = || broker.channel("returns", "refunds");
            let is_over = || {
                let refunds = refunds();
                refunds["clients"][0]["ready_count"] == 0 && refunds["in_flight_count"] == 0
            };
            assert!(wait_until(TIMEOUT, is_over), "{:#}", refunds());
            let is_right = refunds()["timeout_count"] == 1;
            if !is_right {
                broker.admin("/topic/delete?topic=returns");
            }
            is_right.then_some(slow)
        });
        let slow = slow.expect("a message times out once");

        let scene = Scene {
            broker,
            consumer,
            slow,
            _producer: producer,
        };
        scene.settle();
        scene
    }

    /// Waits until the statistics show everything that the clients did.
    fn settle(&self) {
        let mut last = Value::Null;
        let settled = wait_until(TIMEOUT, || {
            last = self.broker.stats();
            let channel =
                |topic: usize, channel: usize| &last["topics"][topic]["channels"][channel];
            let billing = &channel(1, 1)["clients"][0];
            channel(1, 0)["message_count"] == 10
                && billing["finish_count"] == 1
                && billing["requeue_count"] == 1
                && billing["ready_count"] == 3
                && channel(1, 1)["deferred_count"] == 2
                && channel(2, 0)["timeout_count"] == 1
                && channel(2, 0)["clients"][0]["ready_count"] == 0
        });
        assert!(settled, "{last:#}");
    }
}

/// One connection of a program that polls the broker again and again.
struct Poller {
    stream: TcpStream,
    address: SocketAddr,
    headers: Vec<&'static str>,
}

impl Poller {
    fn connect(broker: &Broker, headers: &[&'static str]) -> Poller {
        Poller::connect_to(broker.http_addr(), headers)
    }

    fn connect_to(address: SocketAddr, headers: &[&'static str]) -> Poller {
        let stream = TcpStream::connect(address).expect("a daemon listens");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("longer than nothing");
        Poller {
            stream,
            address,
            headers: headers.to_vec(),
        }
    }

    fn ask(&mut self, target: &str) -> Response {
        let mut head = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for header in &self.headers {
            head += header;
            head += "\r\n";
        }
        head += "\r\n";
        self.stream.write_all(head.as_bytes()).expect("it is open");
        let mut answer = Vec::new();
        loop {
            // The broker keeps the connection, so the answer's length tells the end.
            if let Ok(response) = parse_http(&answer, false) {
                return response;
            }
            let mut piece = [0; 4096];
            let bytes = self.stream.read(&mut piece).expect("an answer");
            assert!(bytes > 0, "the connection ended inside an answer");
            answer.extend_from_slice(&piece[..bytes]);
        }
    }

    /// Asks for JSON that a program decodes into `T`. An answer must not be compressed, and must
    /// keep the connection open.
    fn decode<T: DeserializeOwned>(&mut self, target: &str) -> T {
        let response = self.ask(target).expect_status(200);
        assert_eq!(response.header("content-encoding"), None);
        assert_ne!(response.header("connection"), Some("close"));
        let kind = response.header("content-type");
        assert_eq!(kind, Some("application/json; charset=utf-8"));
        match serde_json::from_slice(&response.body) {
            Ok(value) => value,
            Err(error) => panic!("{target}: {error}: {}", response.text()),
        }
    }
}

/// The end-to-end latency of a topic or channel. The Go programs have the same types.
#[derive(Deserialize)]
struct Latency {
    count: i64,
    percentiles: Option<Vec<BTreeMap<String, f64>>>,
}

impl Latency {
    fn all(&self, key: &str) -> Vec<f64> {
        let percentiles = self.percentiles.iter().flatten();
        percentiles.map(|percentile| percentile[key]).collect()
    }
}

fn now_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_secs()).expect("small")
}
