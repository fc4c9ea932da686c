//! [`Depth`]: what waits in the daemon, from `/stats`.

use serde::Deserialize;

use crate::http::Admin;

/// Messages of a run's topics that the daemon has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Waiting in channels, and in topics without one.
    pub depth: u64,
    /// In flight.
    pub in_flight: u64,
    /// Deferred.
    pub deferred: u64,
}

impl Depth {
    /// Nothing waits at all.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Depth::default()
    }
}

#[derive(Deserialize)]
struct Stats {
    #[serde(default)]
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
struct Topic {
    topic_name: String,
    #[serde(default)]
    depth: u64,
    #[serde(default)]
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    #[serde(default)]
    depth: u64,
    #[serde(default)]
    in_flight_count: u64,
    #[serde(default)]
    deferred_count: u64,
}

/// Asks for the topics whose names begin with `prefix`; only for that one if `single`.
///
/// # Errors
/// When the daemon does not answer, or not with statistics.
pub fn ask(admin: &Admin, prefix: &str, single: bool) -> Result<Depth, String> {
    let mut path = "/stats?format=json&include_clients=false&include_mem=false".to_string();
    if single {
        path.push_str("&topic=");
        path.push_str(prefix);
    }
    parse(&admin.get(&path)?, prefix)
}

fn parse(body: &[u8], prefix: &str) -> Result<Depth, String> {
    let stats: Stats =
        serde_json::from_slice(body).map_err(|error| format!("/stats is no JSON: {error}"))?;
    let mut sum = Depth::default();
    for topic in stats
        .topics
        .iter()
        .filter(|t| t.topic_name.starts_with(prefix))
    {
        sum.depth += topic.depth;
        for channel in &topic.channels {
            sum.depth += channel.depth;
            sum.in_flight += channel.in_flight_count;
            sum.deferred += channel.deferred_count;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_s_topics_are_summed() {
        let body = br#"{"version":"1.3.0","topics":[
            {"topic_name":"b_1","depth":5,"channels":[
                {"depth":7,"in_flight_count":2,"deferred_count":1,"clients":null},
                {"depth":1,"in_flight_count":0,"deferred_count":0}]},
            {"topic_name":"other","depth":100,"channels":[]}],"producers":null}"#;
        let expected = Depth {
            depth: 13,
            in_flight: 2,
            deferred: 1,
        };
        assert_eq!(parse(body, "b_"), Ok(expected));
        assert!(parse(b"hello", "b_").is_err());
    }
}
