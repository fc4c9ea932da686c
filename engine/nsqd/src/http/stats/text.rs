//! `/stats` as text.

use super::{View, memory_fields, unix_seconds};
use crate::config::version_line;
use engine_rules::stats::{ClientStats, LatencyStats, PubCount, TopicStats};
use program::go_value::duration_text;
use program::local_time;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

impl View<'_> {
    /// The layout of the lines is nsqd's. The test shows it.
    pub(super) fn text(&self, now: SystemTime) -> String {
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
                channel.counters.requeue_count,
                channel.counters.timeout_count,
                channel.counters.message_count,
                latencies_text(&channel.e2e_processing_latency),
            )?;
            for client in channel.clients.iter().flatten() {
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
        match client.pub_counts.first() {
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
                client.counters.finish_count,
                client.counters.requeue_count,
                client.counters.message_count,
            ),
        }
    }
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
