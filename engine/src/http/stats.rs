//! `/stats` and `/info`: a snapshot as JSON or as text.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine_core::stats::{
    ChannelStats, ClientStats, LatencyStats, MemoryStats, PubCount, StatsFilter, StatsSnapshot,
    TopicStats,
};
use http::StatusCode;

use super::{Broker, Info, health_text};
use crate::config::version_line;
use program::go_value::duration_text;
use program::http::{Query, Reply};
use program::local_time;
use program::version::NSQ_VERSION;
use wire::go_json::{JsonObject, push_array, push_float};

/// What a request for statistics asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    filter: StatsFilter,
    is_json: bool,
    include_memory: bool,
}

impl Wanted {
    pub(super) fn from_query(query: &Query<'_>) -> Wanted {
        Wanted {
            filter: StatsFilter {
                topic: query.get_filter("topic"),
                channel: query.get_filter("channel"),
                include_clients: query.get_switch("include_clients", true),
            },
            is_json: query.get("format") == Some("json"),
            include_memory: query.get_switch("include_mem", true),
        }
    }
}

/// A snapshot and what is shown beside it.
struct View<'a> {
    info: &'a Info,
    health: String,
    snapshot: StatsSnapshot,
    wanted: Wanted,
    /// The topic that is asked for does not exist. nsqd then shows no list, not an empty one.
    is_topic_unknown: bool,
}

pub(super) async fn stats<B: Broker>(broker: &B, wanted: Wanted) -> Reply {
    let mut snapshot = broker.stats(&wanted.filter).await;
    snapshot.sort();
    let is_topic_unknown = wanted.filter.topic.is_some() && snapshot.topics.is_empty();
    if wanted.filter.channel.is_some() {
        snapshot.topics.retain(|topic| !topic.channels.is_empty());
    }
    if !wanted.filter.include_clients || is_topic_unknown {
        snapshot.producers.clear();
    }
    let health = health_text(&broker.health());
    let view = View {
        info: broker.info(),
        health,
        snapshot,
        wanted,
        is_topic_unknown,
    };
    if view.wanted.is_json {
        Reply::json(StatusCode::OK, view.json())
    } else {
        Reply::text(view.text(SystemTime::now()))
    }
}

pub(super) fn info(info: &Info) -> Reply {
    let mut body = String::new();
    let mut object = JsonObject::new(&mut body);
    object.text("version", NSQ_VERSION);
    object.text("broadcast_address", &info.broadcast_address);
    object.text("hostname", &info.hostname);
    object.number("http_port", info.http_port);
    object.number("tcp_port", info.tcp_port);
    object.number("start_time", unix_seconds(info.start_time));
    object.number("max_heartbeat_interval", nanos(info.heartbeat_interval_max));
    object.number("max_output_buffer_size", info.output_buffer_bytes_max);
    object.number(
        "max_output_buffer_timeout",
        nanos(info.output_buffer_timeout_max),
    );
    object.number("max_deflate_level", info.deflate_level_max);
    object.text("topology_zone", &info.topology_zone);
    object.text("topology_region", &info.topology_region);
    object.end();
    Reply::json(StatusCode::OK, body)
}

fn unix_seconds(at: SystemTime) -> i64 {
    let seconds = at
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the one publish count that nsqd shows: that of the wanted topic, or of any topic if none is wanted.
fn shown_pub_count<'a>(client: &'a ClientStats, filter: &StatsFilter) -> Option<&'a PubCount> {
    client
        .pub_counts
        .iter()
        .find(|count| filter.wants_topic(&count.topic))
}

impl View<'_> {
    fn json(&self) -> String {
        let mut body = String::new();
        let mut object = JsonObject::new(&mut body);
        object.text("version", NSQ_VERSION);
        object.text("health", &self.health);
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
        object.boolean("paused", topic.paused);
        push_latency(
            object.key("e2e_processing_latency"),
            &topic.e2e_processing_latency,
        );
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
        object.number_unless_zero("zone_local_msg_count", client.zone_local_msg_count);
        object.number_unless_zero("region_local_msg_count", client.region_local_msg_count);
        object.number_unless_zero("global_msg_count", client.global_msg_count);
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
        object.text("tls_negotiated_protocol", &client.tls_negotiated_protocol);
        let is_mutual = client.tls_negotiated_protocol_is_mutual;
        object.boolean("tls_negotiated_protocol_is_mutual", is_mutual);
        object.end();
    }

    /// The layout of the lines is drawn in the specification (nsqd-http §8.3) and in the test.
    fn text(&self, now: SystemTime) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail; this keeps the lines below readable.
        let result = self.write_text(&mut out, now);
        result.expect("a String takes everything");
        out
    }

    fn write_text(&self, out: &mut String, now: SystemTime) -> std::fmt::Result {
        let uptime = now.duration_since(self.info.start_time).unwrap_or_default();
        writeln!(out, "{}", version_line())?;
        writeln!(
            out,
            "start_time {}",
            local_time::rfc3339(self.info.start_time)
        )?;
        writeln!(out, "uptime {}", duration_text(uptime))?;
        writeln!(out, "\nHealth: {}", self.health)?;
        if self.wanted.include_memory {
            writeln!(out, "\nMemory:")?;
            for (name, value) in memory_fields(&self.snapshot.memory) {
                writeln!(out, "   {name:<25}\t{value}")?;
            }
        }
        if self.snapshot.topics.is_empty() {
            writeln!(out, "\nTopics: None")?;
        } else {
            write!(out, "\nTopics:")?;
            for topic in &self.snapshot.topics {
                self.write_topic(out, topic, now)?;
            }
        }
        if self.snapshot.producers.is_empty() {
            writeln!(out, "\nProducers: None")?;
        } else {
            writeln!(out, "\nProducers:")?;
            for client in &self.snapshot.producers {
                write!(out, "   ")?;
                self.write_client(out, client, now)?;
            }
        }
        Ok(())
    }

    fn write_topic(
        &self,
        out: &mut String,
        topic: &TopicStats,
        now: SystemTime,
    ) -> std::fmt::Result {
        writeln!(
            out,
            "\n{}[{:<15}] depth: {:<5} be-depth: {:<5} msgs: {:<8} e2e%: {}",
            if topic.paused { "*P " } else { "   " },
            topic.topic_name,
            topic.depth,
            topic.backend_depth,
            topic.message_count,
            latencies_text(&topic.e2e_processing_latency),
        )?;
        for channel in &topic.channels {
            writeln!(
                out,
                "{}[{:<25}] depth: {:<5} be-depth: {:<5} inflt: {:<4} def: {:<4} re-q: {:<5} \
                 timeout: {:<5} msgs: {:<8} e2e%: {}",
                if channel.paused { "   *P " } else { "      " },
                channel.channel_name,
                channel.depth,
                channel.backend_depth,
                channel.in_flight_count,
                channel.deferred_count,
                channel.requeue_count,
                channel.timeout_count,
                channel.message_count,
                latencies_text(&channel.e2e_processing_latency),
            )?;
            for client in &channel.clients {
                write!(out, "        ")?;
                self.write_client(out, client, now)?;
            }
        }
        Ok(())
    }

    /// Writes the line of a client. As in nsqd, the layout depends on whether the client has published, not on the list
    /// that shows it.
    fn write_client(
        &self,
        out: &mut String,
        client: &ClientStats,
        now: SystemTime,
    ) -> std::fmt::Result {
        let port = client
            .remote_address
            .rsplit_once(':')
            .map_or("", |(_, port)| port);
        let id = format!("{}:{port} {}", client.hostname, client.user_agent);
        let seconds = unix_seconds(now).saturating_sub(client.connect_ts);
        let connected = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let connected = duration_text(connected);
        match shown_pub_count(client, &self.wanted.filter) {
            Some(PubCount { topic, count }) => writeln!(
                out,
                "[V2 {id:<21}] msgs: {count:<8} topics: {topic}={count} connected: {connected}"
            ),
            None => writeln!(
                out,
                "[V2 {id:<21}] state: {} inflt: {:<4} rdy: {:<4} fin: {:<8} re-q: {:<8} \
                 msgs: {:<8} connected: {connected}",
                client.state,
                client.in_flight_count,
                client.ready_count,
                client.finish_count,
                client.requeue_count,
                client.message_count,
            ),
        }
    }
}

/// The figures by their names, in the order in which they are shown.
pub(crate) fn memory_fields(memory: &MemoryStats) -> [(&'static str, u64); 9] {
    [
        ("heap_objects", memory.heap_objects),
        ("heap_idle_bytes", memory.heap_idle_bytes),
        ("heap_in_use_bytes", memory.heap_in_use_bytes),
        ("heap_released_bytes", memory.heap_released_bytes),
        ("gc_pause_usec_100", memory.gc_pause_usec_100),
        ("gc_pause_usec_99", memory.gc_pause_usec_99),
        ("gc_pause_usec_95", memory.gc_pause_usec_95),
        ("next_gc_bytes", memory.next_gc_bytes),
        ("gc_total_runs", memory.gc_total_runs),
    ]
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

fn latencies_text(latency: &LatencyStats) -> String {
    let values: Vec<String> = latency
        .percentiles
        .iter()
        .map(|percentile| latency_text(percentile.value))
        .collect();
    values.join(", ")
}

/// A latency in nanoseconds as the text stats show it: one decimal, thousands as the step.
fn latency_text(nanos: f64) -> String {
    if nanos > 1e9 {
        format!("{:.1}s", nanos / 1e9)
    } else if nanos > 1e6 {
        format!("{:.1}ms", nanos / 1e6)
    } else if nanos > 1e3 {
        format!("{:.1}us", nanos / 1e3)
    } else {
        format!("{nanos:.1}ns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies() {
        assert_eq!(latency_text(0.0), "0.0ns");
        assert_eq!(latency_text(1000.0), "1000.0ns");
        assert_eq!(latency_text(1001.0), "1.0us");
        assert_eq!(latency_text(102_215_749.0), "102.2ms");
        assert_eq!(latency_text(2.5e9), "2.5s");
    }
}
