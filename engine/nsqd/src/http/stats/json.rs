//! `/stats?format=json`.

use super::{View, memory_fields, shown_pub_count, unix_seconds};
use engine_rules::stats::{
    ChannelStats, ClientStats, LatencyStats, MemoryStats, PauseStats, TopicStats, UndoStats,
};
use program::version::NSQ_VERSION;
use wire::go_json::{JsonObject, push_array, push_float, push_string};

impl View<'_> {
    pub(super) fn json(&self) -> String {
        let mut body = String::new();
        let mut object = JsonObject::new(&mut body);
        object.text("version", NSQ_VERSION);
        object.text("health", &self.health);
        // nsqd has no such field. It is left out, like others, when it says nothing.
        if self.is_draining {
            object.boolean("draining", true);
        }
        object.number("start_time", unix_seconds(self.info.start_time));
        let out = object.key("topics");
        if self.is_topic_unknown {
            out.push_str("null");
        } else {
            push_array(out, &self.snapshot.topics, |out, topic| {
                self.push_topic(out, topic)
            });
        }
        if self.wanted.include_memory {
            push_memory(object.key("memory"), &self.snapshot.memory);
        }
        let out = object.key("producers");
        if self.snapshot.producers.is_empty() {
            out.push_str("null");
        } else {
            self.push_clients(out, &self.snapshot.producers);
        }
        object.end();
        body
    }

    fn push_topic(&self, out: &mut String, topic: &TopicStats) {
        let mut object = JsonObject::new(out);
        object.text("topic_name", &topic.topic_name);
        push_array(object.key("channels"), &topic.channels, |out, channel| {
            self.push_channel(out, channel);
        });
        object.number("depth", topic.depth);
        object.number("backend_depth", topic.backend_depth);
        object.number("message_count", topic.message_count);
        object.number("message_bytes", topic.message_bytes);
        object.number_unless_zero("unclaimed_dropped_count", topic.unclaimed_dropped_count);
        object.boolean("paused", topic.paused);
        push_latency(
            object.key("e2e_processing_latency"),
            &topic.e2e_processing_latency,
        );
        // The keys below are not nsqd's, and come last.
        object.number("oldest_unfinished_ms", topic.oldest_unfinished_ms);
        object.number("shard", topic.shard);
        object.number_unless_zero("refused_count", topic.refused_count);
        push_pause(&mut object, &topic.pause);
        push_undo(&mut object, topic.undo.as_ref());
        if let Some(numbers) = &topic.numbers {
            object.number("dedup_duplicate_count", numbers.duplicate_count);
            object.number("dedup_unchecked_count", numbers.unchecked_count);
            object.number("dedup_publisher_count", numbers.publisher_count);
            object.number("dedup_publisher_count_max", numbers.publisher_count_max);
            object.number("dedup_publisher_evicted_count", numbers.evicted_count);
        }
        if let Some(keys) = &topic.keys {
            object.number("dedup_duplicate_count", keys.duplicate_count);
            object.number("dedup_unverified_count", keys.unverified_count);
            object.number("dedup_keyless_count", keys.keyless_count);
            object.number("dedup_unremembered_count", keys.unremembered_count);
            object.number("dedup_key_count", keys.key_count);
            object.number("dedup_key_count_max", keys.key_count_max);
            object.number("dedup_memory_bytes", keys.memory_bytes);
            object.number("dedup_memory_bytes_max", keys.memory_bytes_max);
            object.number("dedup_memory_refused_count", keys.memory_refused_count);
            object.number("dedup_reach_ms", keys.reach_ms);
        }
        object.end();
    }

    fn push_channel(&self, out: &mut String, channel: &ChannelStats) {
        let mut object = JsonObject::new(out);
        object.text("channel_name", &channel.channel_name);
        object.number("depth", channel.depth);
        object.number("backend_depth", channel.backend_depth);
        object.number("in_flight_count", channel.in_flight_count);
        object.number("deferred_count", channel.deferred_count);
        object.number("message_count", channel.message_count);
        object.number_unless_zero("zone_local_msg_count", channel.zone_local_msg_count);
        object.number_unless_zero("region_local_msg_count", channel.region_local_msg_count);
        object.number_unless_zero("global_msg_count", channel.global_msg_count);
        object.number("requeue_count", channel.requeue_count);
        object.number("timeout_count", channel.timeout_count);
        object.number("client_count", channel.client_count);
        let clients = object.key("clients");
        if self.wanted.filter.include_clients {
            self.push_clients(clients, &channel.clients);
        } else {
            clients.push_str("null");
        }
        object.boolean("paused", channel.paused);
        push_latency(
            object.key("e2e_processing_latency"),
            &channel.e2e_processing_latency,
        );
        // The keys below are not nsqd's, and come last.
        object.number("oldest_unfinished_ms", channel.oldest_unfinished_ms);
        object.number_unless_zero("oldest_failed_attempts", channel.oldest_failed_attempts);
        push_pause(&mut object, &channel.pause);
        push_undo(&mut object, channel.undo.as_ref());
        if let Some(disk) = &channel.disk {
            object.number("disk_bytes", disk.bytes);
            object.number("disk_alone_bytes", disk.alone_bytes);
            push_array(
                object.key("disk_shared_with"),
                &disk.shared_with,
                |out, name| {
                    push_string(out, name);
                },
            );
            object.number("disk_shared_count", disk.shared_count);
            object.boolean("disk_shared_with_topic", disk.is_shared_with_topic);
        }
        if let Some(dead) = &channel.dead_letters {
            object.text("dead_letter_topic", &dead.topic);
            object.number("dead_letter_count", dead.count);
            object.number("dead_letter_waiting_count", dead.waiting_count);
        }
        object.end();
    }

    fn push_clients(&self, out: &mut String, clients: &[ClientStats]) {
        push_array(out, clients, |out, client| self.push_client(out, client));
    }

    fn push_client(&self, out: &mut String, client: &ClientStats) {
        let mut object = JsonObject::new(out);
        object.text("client_id", &client.client_id);
        object.text("hostname", &client.hostname);
        object.text("version", "V2");
        object.text("remote_address", &client.remote_address);
        object.number("state", client.state);
        object.number("ready_count", client.ready_count);
        object.number("in_flight_count", client.in_flight_count);
        object.number("message_count", client.message_count);
        object.number("finish_count", client.finish_count);
        object.number("requeue_count", client.requeue_count);
        object.number("connect_ts", client.connect_ts);
        object.number("sample_rate", client.sample_rate);
        object.boolean("deflate", client.deflate);
        object.boolean("snappy", client.snappy);
        object.text("user_agent", &client.user_agent);
        if client.authed {
            object.boolean("authed", true);
        }
        object.text_unless_empty("auth_identity", &client.auth_identity);
        object.text_unless_empty("auth_identity_url", &client.auth_identity_url);
        object.text("topology_zone", &client.topology_zone);
        object.text("topology_region", &client.topology_region);
        if let Some(shown) = shown_pub_count(client, &self.wanted.filter) {
            push_array(object.key("pub_counts"), [shown], |out, shown| {
                let mut object = JsonObject::new(out);
                object.text("topic", &shown.topic);
                object.number("count", shown.count);
                object.end();
            });
        }
        object.boolean("tls", client.tls);
        object.text("tls_cipher_suite", &client.tls_cipher_suite);
        object.text("tls_version", &client.tls_version);
        // nsqd negotiates no protocol, and yet calls it mutual on every TLS connection.
        object.text("tls_negotiated_protocol", "");
        object.boolean("tls_negotiated_protocol_is_mutual", client.tls);
        object.end();
    }
}

/// Writes the terms of a pause, as far as there are some.
fn push_pause(object: &mut JsonObject<'_>, pause: &PauseStats) {
    object.number_unless_zero("pause_until_ms", pause.until_ms);
    object.text_unless_empty("pause_note", &pause.note);
    object.text_unless_empty("paused_by", &pause.by);
}

fn push_undo(object: &mut JsonObject<'_>, undo: Option<&UndoStats>) {
    if let Some(undo) = undo {
        object.number("undo_until_ms", undo.until_ms);
        object.number("undo_message_count", undo.message_count);
        object.number("undo_disk_bytes", undo.disk_bytes);
    }
}

fn push_memory(out: &mut String, memory: &MemoryStats) {
    let mut object = JsonObject::new(out);
    for (name, value) in memory_fields(memory) {
        object.number(name, value);
    }
    object.end();
}

fn push_latency(out: &mut String, latency: &LatencyStats) {
    let mut object = JsonObject::new(out);
    object.number("count", latency.count);
    let out = object.key("percentiles");
    if latency.percentiles.is_empty() {
        out.push_str("null");
    } else {
        push_array(out, &latency.percentiles, |out, percentile| {
            let mut object = JsonObject::new(out);
            push_float(object.key("quantile"), percentile.quantile);
            push_float(object.key("value"), percentile.value);
            object.end();
        });
    }
    object.end();
}
