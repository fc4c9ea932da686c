//! The endpoints of live figures: present ones, their past, and a stream of events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;
use wire::go_json::to_string;
use wire::json_object;

use super::{Endpoint, Reply, Request};
use crate::cluster::Refusal;
use crate::collector::{Collector, STREAMS_MAX};
use crate::history::{Key, TIERS};
use crate::live::Snapshot;

/// Time without an event after which a comment keeps a stream alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The state of a stream of events.
struct Events {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The snapshot that the client knows.
    known: Option<Arc<Snapshot>>,
    /// Counts the stream while it is open.
    _permit: OwnedSemaphorePermit,
}

impl Collector {
    /// Answers an endpoint of live figures.
    pub(super) fn answer(
        &self,
        endpoint: Endpoint,
        segments: &[String],
        request: &Request,
    ) -> Result<Reply, Refusal> {
        let snapshot = || self.snapshots.borrow();
        Ok(Reply::json(match endpoint {
            Endpoint::LiveTopics => {
                let checkup = self.checkup();
                snapshot().topics(&checkup)
            }
            Endpoint::LiveAttention => {
                let message = snapshot().message.clone();
                self.checkup().attention(&message, self.next_checkup())
            }
            Endpoint::LiveNodes => {
                let checkup = self.checkup();
                snapshot().nodes(&checkup)
            }
            Endpoint::LiveNode => {
                let node = self.checkup().node(&segments[0]);
                node.ok_or_else(|| Refusal::not_found("NODE_NOT_FOUND"))?
            }
            Endpoint::LiveTopic => {
                let checkup = self.checkup();
                let topic = snapshot().topic(&segments[0], &checkup);
                topic.ok_or_else(|| Refusal::not_found("TOPIC_NOT_FOUND"))?
            }
            Endpoint::LiveHistory => history(self, request)?,
            Endpoint::LiveEvents => return self.events(),
            _ => snapshot().changes(None),
        }))
    }

    fn events(&self) -> Result<Reply, Refusal> {
        let permit = self.streams.clone().try_acquire_owned();
        let permit = permit.map_err(|_| {
            let why = format!("at most {STREAMS_MAX} streams of events are open");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
        })?;
        let mut snapshots = self.snapshots.clone();
        snapshots.mark_changed();
        let events = Events {
            snapshots,
            known: None,
            _permit: permit,
        };
        let frames = stream::unfold(events, next_event);
        Ok(Reply::events(StreamBody::new(frames).boxed_unsync()))
    }
}

/// Waits for a snapshot that the client does not know, and returns what differs. A client that reads
/// slowly misses the snapshots in between.
async fn next_event(mut events: Events) -> Option<(Result<Frame<Bytes>, Infallible>, Events)> {
    let text = match timeout(KEEP_ALIVE, events.snapshots.changed()).await {
        Err(_) => ": still here\n\n".to_owned(),
        // The collector has ended, and with it the process.
        Ok(Err(_)) => return None,
        Ok(Ok(())) => {
            let snapshot = events.snapshots.borrow_and_update().clone();
            let changes = snapshot.changes(events.known.as_deref());
            events.known = Some(snapshot);
            format!("event: figures\ndata: {changes}\n\n")
        }
    };
    Some((Ok(Frame::data(Bytes::from(text))), events))
}

/// Answers `/api/live/history?topic=T[&channel=C]`, `?node=N` and `?all=true`, with `step=1`, `10` or
/// `60`. `kept_since` is the time before which points were dropped because there was no room.
fn history(collector: &Collector, request: &Request) -> Result<String, Refusal> {
    let query = request.parsed_query()?;
    let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
    let is_all = query.get("all") == Some("true");
    let key = match (text("node"), text("topic"), text("channel")) {
        (node, topic, _) if !node.is_empty() && topic.is_empty() => Key::Node(node),
        (_, topic, channel) if !topic.is_empty() && channel.is_empty() => Key::Topic(topic),
        (_, topic, channel) if !topic.is_empty() => Key::Channel(topic, channel),
        (node, _, _) if node.is_empty() && is_all => Key::All,
        _ => return Err(Refusal::bad("MISSING_ARG_TOPIC_OR_NODE")),
    };
    let step = query.get("step").unwrap_or("1");
    let tier = TIERS.iter().position(|tier| tier.step.to_string() == step);
    let tier = tier.ok_or_else(|| Refusal::bad("INVALID_ARG_STEP"))?;
    let now = Timestamp::now().as_second();
    let history = collector.history.lock();
    let points = history.points(&key, tier, now);
    let kept_since = history.kept_since(now);
    let has_left_out = history.has_left_out;
    drop(history);
    let (start, points) = points.ok_or_else(|| {
        let full = has_left_out.then_some("HISTORY_FULL");
        Refusal::not_found(full.unwrap_or("HISTORY_NOT_FOUND"))
    })?;
    // A gap is null, and so is a rate that is not known.
    let figures = points.iter().map(Option::as_ref);
    Ok(to_string(&json_object! {
        start,
        step: TIERS[tier].step,
        #[serde(flatten)]
        kept_since: kept_since.map(|since| json_object! { kept_since: since }),
        depth: figures.clone().map(|it| Some(it?.depth)).collect::<Vec<_>>(),
        rate: figures.clone().map(|it| it?.rate).collect::<Vec<_>>(),
        oldest_seconds: figures.map(|it| Some(seconds(it?.oldest_ms))).collect::<Vec<_>>(),
    }))
}

#[allow(clippy::cast_precision_loss)] // An age needs no more.
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}
