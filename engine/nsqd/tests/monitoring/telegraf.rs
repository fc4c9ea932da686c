//! telegraf's input, from its Go module. Its own HTTP client asks the broker.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::Scene;
use crate::support::{TIMEOUT, go_program, run};

#[test]
fn telegraf_gathers_servers_topics_channels_and_clients() {
    let Some(mut telegraf) = go_program("telegraf", "1.25.5") else {
        return;
    };
    let scene = Scene::start(&[]);
    let host = scene.broker.http_addr().to_string();
    telegraf.arg(format!("http://{host}"));
    let exit = run(&mut telegraf, TIMEOUT);
    assert!(exit.status.success(), "{exit}");
    let printed: Vec<Value> = exit
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object per line"))
        .collect();

    let line = |name: &str, tags: Value, fields: Value| {
        let mut tags = tags;
        tags["server_host"] = json!(host);
        tags["server_version"] = json!("1.3.0");
        json!({"name": name, "tags": tags, "fields": fields})
    };
    let topic = |name: &str, depth: u64, messages: u64, channels: u64| {
        let fields = json!({"depth": depth, "backend_depth": 0, "message_count": messages,
            "channel_count": channels});
        line("nsq_topic", json!({"topic": name}), fields)
    };
    let channel = |topic: &str, name: &str, fields: Value| {
        line(
            "nsq_channel",
            json!({"topic": topic, "channel": name}),
            fields,
        )
    };
    let client =
        |topic: &str, channel: &str, id: &str, agent: &str, from: SocketAddr, fields: Value| {
            let tags = json!({"topic": topic, "channel": channel, "client_id": id,
            "client_hostname": format!("{id}.local"), "client_version": "V2",
            "client_address": from.to_string(), "client_user_agent": agent, "client_tls": "false",
            "client_snappy": "false", "client_deflate": "false"});
            line("nsq_client", tags, fields)
        };
    let expected = [
        line(
            "nsq_server",
            json!({}),
            json!({"server_count": 1, "topic_count": 3}),
        ),
        topic("live#ephemeral", 2, 2, 0),
        topic("orders", 0, 10, 2),
        channel(
            "orders",
            "audit",
            json!({"depth": 9, "backend_depth": 0, "inflight_count": 0, "deferred_count": 1,
                "message_count": 10, "requeue_count": 0, "timeout_count": 0, "client_count": 0}),
        ),
        channel(
            "orders",
            "billing",
            json!({"depth": 4, "backend_depth": 0, "inflight_count": 3, "deferred_count": 2,
                "message_count": 10, "requeue_count": 1, "timeout_count": 0, "client_count": 1}),
        ),
        client(
            "orders",
            "billing",
            "worker-7",
            "billing/2.1",
            scene.consumer.local_addr(),
            json!({"ready_count": 3, "inflight_count": 3, "message_count": 5, "finish_count": 1,
                "requeue_count": 1}),
        ),
        topic("returns", 0, 1, 1),
        channel(
            "returns",
            "refunds",
            json!({"depth": 1, "backend_depth": 0, "inflight_count": 0, "deferred_count": 0,
                "message_count": 1, "requeue_count": 0, "timeout_count": 1, "client_count": 1}),
        ),
        client(
            "returns",
            "refunds",
            "slow",
            "",
            scene.slow.local_addr(),
            json!({"ready_count": 0, "inflight_count": 0, "message_count": 1, "finish_count": 0,
                "requeue_count": 0}),
        ),
    ];
    assert_eq!(printed, expected);
}
