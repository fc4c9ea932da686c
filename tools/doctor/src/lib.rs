//! The doctor: says what limits a channel, which number to change to what, and whether the oldest message fails again and
//! again.
//!
//! [`diagnose`] is a pure function of two samples of a channel over all nodes. The reasoning is
//! Little's law: if `W` messages are in flight and `X` are finished each second, a message is in
//! flight for `S = W / X` seconds. Consumers that may have `R` messages in flight together (the sum
//! of their RDY) therefore finish at most `R / S` messages each second. If more than that arrive, the
//! backlog grows until `R` is raised or `S` falls.
//!
//! ```text
//!   /stats ─► ChannelSample ─┐
//!   /stats ─► ChannelSample ─┴─► Flow (rates, S, R) ─► Limit ─► one sentence
//! ```
//!
//! The crate asks nobody: nsqadmin and nsqtop hand it the samples. A new diagnosis is a variant of `Limit`, its rule in
//! [`diagnose`], and its sentence.

#![forbid(unsafe_code)]

mod diagnosis;
mod flow;
mod sample;
mod sentence;

use std::time::Duration;

pub use diagnosis::{Change, Diagnosis, Limit, Paused, Saturation, Setting, Unreached};
pub use flow::Flow;
pub use flow::grown;
pub use sample::{ChannelSample, NodeSample, Pause, sum, uptime};
pub use sentence::{duration, short};

/// The part by which a proposed number exceeds what the present arrivals need.
const HEADROOM: f64 = 1.25;

/// The time in flight up to which the round trip counts for more than the handler.
const ROUND_TRIP_SECONDS: f64 = 0.02;

/// The RDY of one consumer above which a higher RDY only makes messages wait in the consumer.
const READY_ENOUGH: f64 = 100.0;

/// The part of RDY that is in use when consumers take all that they may.
const SATURATED: f64 = 0.9;

/// A backlog that consumers take in this time counts for nothing.
const BACKLOG_SECONDS: f64 = 1.0;

/// The part of the arrivals by which the backlog may grow and still counts as stable: two samples
/// never match to the message.
const GROWTH: f64 = 0.05;

/// The part of the deliveries that may time out, or be requeued, before the doctor speaks of it.
const TIMEOUTS: f64 = 0.05;
const REQUEUES: f64 = 0.1;

/// The failed deliveries from which a message fails again and again.
const FAILURES: i64 = 2;

/// The age in milliseconds below which a failing message is not named: it may be finished in a moment.
const FAILING_MILLIS: i64 = 10_000;

/// The part of the time by which the age of the oldest message grows if it is the same message in both samples.
const SAME_MESSAGE: f64 = 0.5;

/// Says what limits a channel. `before` and `after` are samples that were taken `elapsed` apart.
pub fn diagnose(before: &ChannelSample, after: &ChannelSample, elapsed: Duration) -> Diagnosis {
    let diagnosis = of_all(before, after, elapsed);
    let has_consumers = !matches!(
        diagnosis.limit,
        Limit::NoConsumers { .. } | Limit::DeadLetters { .. } | Limit::Paused(_)
    );
    Diagnosis {
        oldest_failed: has_consumers
            .then(|| oldest_failed(before, after, elapsed))
            .flatten(),
        ..diagnosis
    }
}

/// Returns the failed deliveries of the oldest message, if it fails again and again, and its age has grown by at least half of
/// the time, so that it is probably the message of the earlier sample.
fn oldest_failed(before: &ChannelSample, after: &ChannelSample, elapsed: Duration) -> Option<i64> {
    let running = after.nodes.iter().filter(|(_, node)| !node.is_stopped());
    let (name, node) = running.max_by_key(|(_, node)| node.oldest_ms)?;
    let (age, earlier) = (node.oldest_ms?, before.nodes.get(name)?.oldest_ms?);
    let has_grown = age.saturating_sub(earlier) as f64 >= elapsed.as_millis() as f64 * SAME_MESSAGE;
    let is_failing = node.oldest_failed >= FAILURES && age >= FAILING_MILLIS;
    (has_grown && is_failing).then_some(node.oldest_failed)
}

fn of_all(before: &ChannelSample, after: &ChannelSample, elapsed: Duration) -> Diagnosis {
    let mut paused = pauses(after);
    if paused.is_empty() {
        return of_running(before, after, elapsed);
    }
    // Somebody wanted the pause. What is wrong at the other nodes comes first.
    let is_running = |node: &str| !after.is_stopped_at(node);
    let (before, after) = (before.only(is_running), after.only(is_running));
    let flow = Flow::between(&before, &after, elapsed);
    let has_work = flow.depth > 0 || flow.in_flight > 0.0 || flow.arrivals > 0.0;
    let rest = of_running(&before, &after, elapsed);
    if has_work && rest.is_problem() {
        return Diagnosis { paused, ..rest };
    }
    let first = paused.remove(0);
    Diagnosis {
        paused,
        ..Diagnosis::of(Limit::Paused(first))
    }
}

/// Says what limits a channel that is not paused.
fn of_running(before: &ChannelSample, after: &ChannelSample, elapsed: Duration) -> Diagnosis {
    let flow = Flow::between(before, after, elapsed);
    if flow.connections == 0 {
        return Diagnosis::of(without_consumers(after, &flow));
    }
    if after.awaits_consumers() {
        let is_known = |node: &str| !after.may_be_unknown(node);
        let (before, after) = (before.only(is_known), after.only(is_known));
        return of_running(&before, &after, elapsed);
    }
    let Some(unreached) = nodes_without_consumers(after) else {
        return of_reached(before, after, elapsed);
    };
    // The finding about more messages comes first: a handful at one node must not hide a long backlog elsewhere.
    let is_reached = |node: &str| !unreached.nodes.iter().any(|name| name == node);
    let (before, after) = (before.only(is_reached), after.only(is_reached));
    let rest = of_reached(&before, &after, elapsed);
    if rest.is_problem() && after.taken_or_waiting() > unreached.depth {
        Diagnosis {
            only_node: None,
            unreached: Some(unreached),
            ..rest
        }
    } else {
        Diagnosis::of(Limit::UnreachedNodes(unreached))
    }
}

/// Says what limits a channel that has consumers at every node with messages.
fn of_reached(before: &ChannelSample, after: &ChannelSample, elapsed: Duration) -> Diagnosis {
    let flow = Flow::between(before, after, elapsed);
    if flow.ready == 0 {
        return Diagnosis::of(Limit::Backoff {
            without_ready: flow.connections,
            connections: flow.connections,
        });
    }
    if let Some(limit) = fails(&flow) {
        let change = match limit {
            Limit::TimesOut { .. } => fewer_in_flight(&flow),
            _ => None,
        };
        return Diagnosis {
            change,
            ..Diagnosis::of(limit)
        };
    }
    if !has_backlog(&flow) {
        let is_idle = flow.arrivals == 0.0 && flow.finishes == 0.0 && flow.in_flight == 0.0;
        return Diagnosis::of(if is_idle && flow.depth == 0 {
            Limit::Idle {
                deferred: flow.deferred,
                has_consumers: true,
            }
        } else {
            Limit::KeepsUp {
                arrivals: flow.arrivals,
                capacity: flow.capacity(),
            }
        });
    }
    if let Some(diagnosis) = connections_without_ready(after, &flow) {
        return diagnosis;
    }
    let is_behind = |node: &str| after.has_backlog_at(node);
    let part = Flow::between(&before.only(is_behind), &after.only(is_behind), elapsed);
    Diagnosis {
        only_node: only_node_behind(after),
        ..of_consumers(&part, &flow)
    }
}

/// Returns the pauses of a channel, and then those of its topic, which stop the channel, too.
fn pauses(after: &ChannelSample) -> Vec<Paused> {
    let of_channel = |node: &NodeSample| Some((node.pause.clone()?, node.depth));
    let of_topic = |node: &NodeSample| Some((node.topic_pause.clone()?, node.topic_depth));
    let (nodes, all) = (|| after.nodes.values(), after.nodes.len());
    let found = [
        Paused::new(false, nodes().filter_map(of_channel).collect(), all),
        Paused::new(true, nodes().filter_map(of_topic).collect(), all),
    ];
    found.into_iter().flatten().collect()
}

/// Returns the limit of a channel without consumers.
fn without_consumers(after: &ChannelSample, flow: &Flow) -> Limit {
    let is_idle = flow.depth == 0 && flow.deferred == 0 && flow.arrivals == 0.0;
    match (is_idle, after.dead_letters_of.clone()) {
        (true, _) => Limit::Idle {
            deferred: 0,
            has_consumers: false,
        },
        (false, Some(from)) => Limit::DeadLetters {
            from,
            depth: flow.depth,
        },
        (false, None) => Limit::NoConsumers {
            depth: flow.depth,
            deferred: flow.deferred,
            arrivals: flow.arrivals,
        },
    }
}

/// Returns the nodes with messages and without consumers, if there are some.
fn nodes_without_consumers(after: &ChannelSample) -> Option<Unreached> {
    let lacks_consumers = |node: &NodeSample| node.ready.is_empty() && node.depth > 0;
    let found: Vec<_> = after
        .nodes
        .iter()
        .filter(|(_, node)| lacks_consumers(node))
        .collect();
    (!found.is_empty()).then(|| Unreached {
        nodes: found.iter().map(|(name, _)| (*name).clone()).collect(),
        depth: sum(found.iter().map(|(_, node)| node.depth)),
    })
}

/// Returns the way in which messages fail, if many do.
fn fails(flow: &Flow) -> Option<Limit> {
    let deliveries = flow.finishes + flow.requeues + flow.timeouts;
    if flow.timeouts > TIMEOUTS * deliveries {
        return Some(Limit::TimesOut {
            timeouts: flow.timeouts,
        });
    }
    (flow.requeues > REQUEUES * deliveries).then_some(Limit::Fails {
        requeues: flow.requeues,
        finishes: flow.finishes,
    })
}

/// Proposes a smaller number in flight: what is finished before it times out, with headroom. Messages
/// that wait inside a consumer age there.
fn fewer_in_flight(flow: &Flow) -> Option<Change> {
    let from = flow.ready_per_consumer()?;
    let part_in_time = flow.finishes / (flow.finishes + flow.timeouts);
    let to = (from as f64 * part_in_time / HEADROOM).floor().max(1.0) as u64;
    (to < from).then_some(Change {
        what: Setting::MaxInFlight,
        from,
        to,
    })
}

/// Returns true if more messages wait than consumers take within a moment.
fn has_backlog(flow: &Flow) -> bool {
    let is_long = flow.depth as f64 > flow.finishes * BACKLOG_SECONDS;
    let grows = flow.growth > flow.arrivals * GROWTH && flow.depth > flow.ready;
    flow.depth > 0 && (is_long || grows)
}

/// Returns the diagnosis for a backlog while some connections have RDY 0.
fn connections_without_ready(after: &ChannelSample, flow: &Flow) -> Option<Diagnosis> {
    let ready = || after.ready();
    let without_ready = ready().filter(|ready| *ready == 0).count();
    if without_ready == 0 {
        return None;
    }
    let nodes = after.nodes.values().filter(|node| !node.ready.is_empty());
    let nodes = nodes.count();
    let has_failed = flow.requeues > 0.0 || flow.timeouts > 0.0;
    let rotates = nodes > 1 && !has_failed && ready().all(|ready| ready <= 1);
    let (limit, change) = if rotates {
        let change = flow.ready_per_consumer().map(|from| Change {
            what: Setting::MaxInFlight,
            from,
            to: nodes as u64,
        });
        (Limit::FewerInFlightThanNodes { nodes }, change)
    } else {
        let limit = Limit::Backoff {
            without_ready,
            connections: flow.connections,
        };
        (limit, None)
    };
    Some(Diagnosis {
        change,
        ..Diagnosis::of(limit)
    })
}

/// Returns the diagnosis for a backlog while all consumers take messages. `part` is the flow of the
/// nodes with a backlog.
fn of_consumers(part: &Flow, whole: &Flow) -> Diagnosis {
    if part.finishes > part.arrivals * (1.0 + GROWTH) && part.growth < 0.0 {
        return Diagnosis::of(Limit::CatchesUp {
            depth: part.depth,
            seconds: part.depth as f64 / (part.finishes - part.arrivals),
        });
    }
    if part.in_flight < SATURATED * part.ready as f64 {
        return Diagnosis::of(Limit::ReadsSlowly {
            in_flight: part.in_flight.round() as i64,
            ready: part.ready,
        });
    }
    let (Some(seconds), Some(ready)) = (part.seconds_in_flight(), whole.ready_per_consumer())
    else {
        return Diagnosis::of(Limit::Stuck {
            in_flight: part.in_flight.round() as i64,
        });
    };
    let saturation = Saturation {
        arrivals: part.arrivals,
        finishes: part.finishes,
        seconds_in_flight: seconds,
        consumers: whole.consumers,
    };
    let factor = (part.arrivals / part.finishes).max(1.0) * HEADROOM;
    let raised = |from: u64| ((from as f64 * factor).ceil() as u64).max(from + 1);
    let is_low = seconds < ROUND_TRIP_SECONDS && (ready as f64) < READY_ENOUGH;
    let (limit, what, from) = if is_low {
        (Limit::ReadyTooLow(saturation), Setting::MaxInFlight, ready)
    } else {
        (
            Limit::HandlerTooSlow(saturation),
            Setting::Consumers,
            whole.consumers,
        )
    };
    Diagnosis {
        change: Some(Change {
            what,
            from,
            to: raised(from),
        }),
        ..Diagnosis::of(limit)
    }
}

/// Returns the node with a backlog, if the channel is on several nodes and only one has a backlog.
fn only_node_behind(after: &ChannelSample) -> Option<String> {
    let mut behind = after.nodes.keys().filter(|node| after.has_backlog_at(node));
    match (behind.next(), behind.next()) {
        (Some(node), None) if after.nodes.len() > 1 => Some(node.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
