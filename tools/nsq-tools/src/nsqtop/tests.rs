//! A small cluster for the tests of this module: two nodes, two topics, three channels.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::sample::{NodeFigures, Sample};
use super::state::{Start, State};
use super::views::View;
use crate::cluster::Failure;

/// The wall clock of the first sample.
const UNIX_SECONDS: i64 = 1_700_000_000;

/// Returns two samples that are two seconds apart.
///
/// - `orders/billing` on both nodes: one slow consumer, 100 in and 10 out a second.
/// - `orders/audit` on the first node: no consumer.
/// - `quiet/archive#ephemeral` on the second node, which is NSQ's own nsqd: paused.
pub(super) fn samples() -> [Sample; 2] {
    [sample(0), sample(2)]
}

/// Returns the second sample of [`samples`] with a node that does not answer.
pub(super) fn sample_with_failure() -> Sample {
    let mut sample = sample(2);
    sample.failures.push(Failure {
        address: "c:4151".to_owned(),
        why: "Get \"http://c:4151/stats\": dial tcp c:4151: connect: connection refused".to_owned(),
    });
    sample
}

/// Returns the state that shows a view of samples.
pub(super) fn state(view: View, samples: impl IntoIterator<Item = Sample>) -> State {
    let sort = view.usual_sort();
    let filter = String::new();
    let mut state = State::new(Start { view, sort, filter });
    for sample in samples {
        state.add_sample(sample);
    }
    state
}

fn sample(second: i64) -> Sample {
    let node = |stats: Value, shards| NodeFigures {
        stats: serde_json::from_value(stats).expect("the figures have the form of /stats"),
        shards,
    };
    let a = json!({
        "version": "1.3.0", "health": "OK", "start_time": UNIX_SECONDS - 7200,
        "topics": [{
            "topic_name": "orders", "depth": 0, "message_count": 1000 + 100 * second, "shard": 3,
            "message_bytes": 100_000 + 10_000 * second,
            "channels": [
                {
                    "channel_name": "billing", "depth": 500 + 90 * second, "in_flight_count": 1,
                    "deferred_count": 3, "message_count": 1000 + 100 * second, "client_count": 1,
                    "oldest_unfinished_ms": 4500,
                    "e2e_processing_latency": {"count": 9, "percentiles": [
                        {"quantile": 0.99, "value": 250_000_000.0}, {"quantile": 0.5, "value": 1e6}]},
                    "clients": [client("billing-1", 10 * second)],
                },
                {
                    "channel_name": "audit", "depth": 1000 + 100 * second,
                    "message_count": 1000 + 100 * second, "oldest_unfinished_ms": 60_000,
                },
            ],
        }, {"topic_name": "other", "message_count": 5 * second, "depth": 2, "shard": 3}],
        "producers": [{
            "client_id": "shop", "remote_address": "10.0.0.9:5000", "connect_ts": UNIX_SECONDS - 60,
            "pub_counts": [{"topic": "orders", "count": 1000 + 100 * second}],
        }],
    });
    let b = json!({
        "version": "1.2.1", "health": "NOK - disk full", "start_time": UNIX_SECONDS - 86_400 * 12,
        "topics": [
            {
                "topic_name": "orders", "message_count": 50, "message_bytes": 500,
                "channels": [{
                    "channel_name": "billing", "message_count": 50, "client_count": 1,
                    "e2e_processing_latency": {"count": 0, "percentiles": [
                        {"quantile": 0.99, "value": 0.0}]},
                    "clients": [client("billing-1", 0)],
                }],
            },
            {
                "topic_name": "quiet", "message_count": 7,
                "channels": [{"channel_name": "archive#ephemeral", "depth": 7, "paused": true}],
            },
        ],
        "producers": null,
    });
    Sample {
        at: Duration::from_secs(u64::try_from(10 + second).expect("a positive number")),
        unix_seconds: UNIX_SECONDS + second,
        nodes: BTreeMap::from([
            ("a:4151".to_owned(), node(a, Some(4))),
            ("b:4151".to_owned(), node(b, None)),
        ]),
        failures: Vec::new(),
        lookupd_failures: Vec::new(),
    }
}

fn client(id: &str, finished: i64) -> Value {
    json!({
        "client_id": id, "hostname": format!("{id}.example"), "remote_address": "10.0.0.1:40000",
        "ready_count": 1, "in_flight_count": 1, "message_count": finished + 1,
        "finish_count": finished, "connect_ts": UNIX_SECONDS - 600, "tls": true,
        "user_agent": "go-nsq/1.1.0\u{1b}[31m",
    })
}
