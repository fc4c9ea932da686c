//! A stand-in for an nsqd whose figures are as large as possible: beyond 2^53, no number of JavaScript is exact.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use test_support::http_server::{Answer, HttpServer};

/// Starts the stand-in. It has the topic `huge` with the channel `archive`, a consumer, a producer and a message.
pub(crate) fn start() -> HttpServer {
    // Counters that jump up and down have rates as large as themselves.
    let is_high = AtomicBool::new(false);
    HttpServer::start(move |request, _| match request.path() {
        "/info" => info().into(),
        "/stats" if is_high.fetch_xor(true, Ordering::Relaxed) => stats(i64::MAX).into(),
        "/stats" => stats(0).into(),
        "/metrics" => METRICS.into(),
        "/topic/peek" | "/channel/peek" => messages().into(),
        _ => Answer::not_found(),
    })
}

const METRICS: &str = "nsqd_data_path_size_bytes 9223372036854775807\n\
                       nsqd_data_path_available_bytes 9223372036854775807\n\
                       nsqd_shard_cpu_seconds_total{shard=\"0\"} 1\n\
                       nsqd_shard_connections{shard=\"0\"} 9223372036854775807\n";

fn info() -> Value {
    json!({"version": "1.3.0", "broadcast_address": "hostile", "http_port": 4151})
}

fn stats(counter: i64) -> Value {
    const MAX: i64 = i64::MAX;
    let latency = json!({"count": MAX, "percentiles": [
        {"quantile": 0.99, "value": 9.2e18},
        {"quantile": 9.2e18, "value": 9.2e18},
    ]});
    let client = json!({
        "client_id": "c", "hostname": "h", "remote_address": "10.0.0.9:1", "user_agent": "u", "connect_ts": i64::MIN,
        "in_flight_count": MAX, "ready_count": MAX, "finish_count": counter, "requeue_count": MAX, "message_count": counter,
        "sample_rate": MAX,
    });
    let mut producer = client.clone();
    producer["pub_counts"] = json!([{"topic": "huge", "count": counter}]);
    let channel = json!({
        "channel_name": "archive", "depth": MAX, "backend_depth": MAX, "in_flight_count": MAX, "deferred_count": MAX,
        "message_count": counter, "requeue_count": counter, "timeout_count": counter, "client_count": MAX, "clients": [client],
        "zone_local_msg_count": MAX, "region_local_msg_count": MAX, "global_msg_count": MAX, "paused": true,
        "pause_until_ms": MAX, "undo_until_ms": MAX, "undo_message_count": MAX, "oldest_unfinished_ms": MAX,
        "e2e_processing_latency": latency,
    });
    let topic = json!({
        "topic_name": "huge", "depth": MAX, "backend_depth": MAX, "message_count": counter, "message_bytes": MAX, "paused": true,
        "pause_until_ms": MAX, "undo_until_ms": MAX, "undo_message_count": MAX, "oldest_unfinished_ms": MAX, "shard": 0,
        "channels": [channel], "e2e_processing_latency": latency,
        "dedup_duplicate_count": counter, "dedup_publisher_count": MAX, "dedup_publisher_count_max": MAX,
        "dedup_publisher_evicted_count": counter, "dedup_unchecked_count": counter, "dedup_unverified_count": MAX,
        "dedup_keyless_count": MAX, "dedup_unremembered_count": MAX, "dedup_key_count": MAX, "dedup_key_count_max": MAX,
        "dedup_memory_bytes": MAX, "dedup_memory_bytes_max": MAX, "dedup_memory_refused_count": counter, "dedup_reach_ms": MAX,
    });
    json!({"health": "OK", "topics": [topic], "producers": [producer]})
}

fn messages() -> Value {
    const MAX: i64 = i64::MAX;
    let message = json!({
        "id": "0123456789abcdef", "state": "requeued", "attempts": MAX, "timestamp": MAX, "times_out_at": MAX, "delivered_at": MAX,
        "deferred_until": MAX, "defer_ms": MAX, "client_id": "c", "body_bytes": MAX, "encoding": "text", "body": "hello",
    });
    json!({"messages": [message], "scanned_messages": MAX, "scanned_bytes": MAX, "next": "x"})
}
