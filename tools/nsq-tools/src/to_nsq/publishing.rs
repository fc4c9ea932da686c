//! [`Publishing`]: the records that are on their way, in the order of the input.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{FutureExt, ready, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use program::log_warn;
use ringq_client::{Address, Event, Producer, PublishError};
use tokio::task::unconstrained;
use tokio::time::{self, sleep};

use super::config::{Config, Targets};
use crate::consuming::log_event;
use crate::process::Figures;

/// The most records without a confirmation.
const UNCONFIRMED_MAX: usize = 2000;

/// The longest time without a confirmation in which the connections count as open. A connection may
/// end while the input is idle, and its end may be noticed late.
const OPEN_WITHOUT_CONFIRMATION_MAX: Duration = Duration::from_millis(100);

/// The time after its first failure for which a publish is tried again.
const RETRY_TIME_MAX: Duration = Duration::from_secs(30);

/// The delay after the first retry that failed. Each further failure doubles the delay.
const DELAY_MIN: Duration = Duration::from_millis(100);

/// The longest delay between two tries.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The future of one record. The result is the node that has the record, if the producer chose it.
type Publish = Pin<Box<dyn Future<Output = Result<Option<Address>, PublishError>> + Send>>;

/// The records that are not confirmed yet, and the producer that sends them.
///
/// Records leave in the order of the calls of [`Publishing::publish`]. A publish takes its place in
/// the output of a connection when it is polled first, if the connection is open. Three rules keep
/// this true:
///
/// * The call itself polls the publish first.
/// * A record goes alone while its publish may have to connect: at the beginning, after a lost
///   connection, and after an idle time. If the producer chooses the nodes, records go alone until one
///   of them comes to a node that has had one before. By then the producer has been round all nodes.
/// * A connection that ends while several records are on their way is a failure. The producer would
///   send again those that have not left, in any order. `--number-messages` takes this: the producer sends
///   all of them again, and further records wait until these are confirmed. A record that no nsqd has is tried
///   again here, see [`Connections::insist`].
pub(super) struct Publishing {
    pub(super) producer: Producer,
    topic: String,
    /// Empty if the producer chooses one of the nodes that nsqlookupds name.
    addresses: Vec<Address>,
    unconfirmed: FuturesUnordered<Publish>,
    proof: Proof,
    /// The figures, which stay up to date.
    pub(super) counts: Arc<Counts>,
    connections: Arc<Connections>,
}

/// The confirmations that show that the connections are open.
#[derive(Debug, Default)]
struct Proof {
    /// The nodes that have confirmed a record, if the producer chooses them.
    nodes: Vec<Address>,
    is_complete: bool,
    /// The time of the last confirmation.
    last: Option<Instant>,
}

impl Proof {
    /// Takes a confirmation, and the node that the producer chose.
    fn add(&mut self, node: Option<Address>, now: Instant) {
        self.last = Some(now);
        match node {
            Some(node) if !self.nodes.contains(&node) => self.nodes.push(node),
            _ => self.is_complete = true,
        }
    }

    /// Forgets the confirmations that are too old.
    fn expire(&mut self, now: Instant) {
        let is_recent = |last| now.saturating_duration_since(last) < OPEN_WITHOUT_CONFIRMATION_MAX;
        if !self.last.is_some_and(is_recent) {
            *self = Proof::default();
        }
    }
}

/// The figures of a [`Publishing`], for the line at a terminal.
#[derive(Debug, Default)]
pub(super) struct Counts {
    confirmed: AtomicU64,
    unconfirmed: AtomicU64,
    /// The records whose publish failed.
    failed: AtomicU64,
    /// The failures of connections, and the errors that nsqds sent.
    errors: AtomicU64,
}

impl Counts {
    /// Returns the figures at this moment.
    pub(super) fn figures(&self) -> Figures {
        let [confirmed, unconfirmed, errors] = [&self.confirmed, &self.unconfirmed, &self.errors]
            .map(|count| count.load(Ordering::Relaxed));
        Figures::of_transfer(confirmed, unconfirmed, errors)
    }
}

impl Publishing {
    /// Returns a publishing to the nsqds of the command line. Connections are made by the first
    /// record.
    ///
    /// # Errors
    /// An address is wrong. The error is the reason for the user.
    pub(super) fn new(config: &Config) -> Result<Publishing, String> {
        let connections = Arc::<Connections>::default();
        let of_events = Arc::clone(&connections);
        let numbers_messages = config.flags.numbers_messages;
        let counts = Arc::<Counts>::default();
        let errors = Arc::clone(&counts);
        // Each record has its own PUB: nsqd refuses a whole MPUB because of one record in it.
        let mut builder = Producer::builder()
            .config(config.client.clone())
            .permits(UNCONFIRMED_MAX * config.targets.count())
            .batching(false)
            .events(move |event| {
                log_event(&event);
                of_events.learn(&event, numbers_messages);
                if is_error(&event) {
                    errors.errors.fetch_add(1, Ordering::Relaxed);
                }
            });
        if numbers_messages {
            builder = builder.number_messages();
        }
        let mut addresses = Vec::new();
        match &config.targets {
            Targets::All(nsqds) => {
                addresses.clone_from(nsqds);
                builder = builder.nodes(nsqds.iter().cloned());
            }
            Targets::AnyOf(lookupds) => {
                for lookupd in lookupds {
                    builder = builder.lookupd(lookupd);
                }
            }
        }
        Ok(Publishing {
            producer: builder.build().map_err(|error| error.to_string())?,
            topic: config.flags.topic.clone(),
            addresses,
            unconfirmed: FuturesUnordered::new(),
            proof: Proof::default(),
            counts,
            connections,
        })
    }

    /// Returns true if a further record may be published now.
    pub(super) fn has_room(&self) -> bool {
        let limit = if self.proof.is_complete {
            UNCONFIRMED_MAX
        } else {
            1
        };
        self.unconfirmed.len() < limit && !self.connections.is_retrying()
    }

    /// Returns true if a record is not confirmed yet.
    pub(super) fn is_busy(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// Sends a record behind all earlier ones.
    pub(super) fn publish(&mut self, record: Bytes) {
        if self.unconfirmed.is_empty() {
            self.proof.expire(Instant::now());
            if self.connections.take_loss().is_some() {
                self.proof = Proof::default();
            }
        }
        let (producer, topic) = (self.producer.clone(), self.topic.clone());
        let (addresses, connections) = (self.addresses.clone(), Arc::clone(&self.connections));
        // Without a limit to its work, the first poll takes the place in the output. The runtime's
        // limit would let a publish yield in front of it.
        let mut publish: Publish = Box::pin(unconstrained(async move {
            match addresses.as_slice() {
                [] => {
                    let publish = || producer.publish(&topic, record.clone());
                    let receipt = connections.insist(publish).await?;
                    Ok(Some(receipt.node().clone()))
                }
                addresses => {
                    let publishes = addresses.iter().map(|address| {
                        connections.insist(|| producer.publish_on(address, &topic, record.clone()))
                    });
                    try_join_all(publishes).await.map(|_| None)
                }
            }
        }));
        // The set polls the publish again, with a waker of its own.
        let mut context = Context::from_waker(Waker::noop());
        self.unconfirmed
            .push(match publish.poll_unpin(&mut context) {
                Poll::Ready(result) => Box::pin(ready(result)),
                Poll::Pending => publish,
            });
        self.counts.unconfirmed.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the next confirmation. Returns `None` if there is no record without one. Dropping
    /// the future loses nothing.
    ///
    /// # Errors
    /// A record was not confirmed. The error is the text for the user.
    pub(super) async fn next(&mut self) -> Option<Result<(), String>> {
        let result = poll_fn(|cx| match self.unconfirmed.poll_next_unpin(cx) {
            Poll::Ready(result) => Poll::Ready(result.map(|result| {
                result.map_err(|error| {
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                    error.to_string()
                })
            })),
            // The record's own result says more than the loss. With numbers, the loss holds further records back.
            Poll::Pending
                if self.unconfirmed.len() == 1 && !self.connections.has_only_numbering_nsqds() =>
            {
                Poll::Pending
            }
            Poll::Pending => match self.connections.take_loss() {
                Some(_) if self.connections.has_only_numbering_nsqds() => {
                    // Further records wait until those on their way are confirmed.
                    self.proof = Proof::default();
                    Poll::Pending
                }
                Some(why) => Poll::Ready(Some(Err(format!(
                    "the connection ended before nsqd confirmed all records: {why}"
                )))),
                None => Poll::Pending,
            },
        })
        .await?;
        Some(result.map(|node| {
            self.counts.confirmed.fetch_add(1, Ordering::Relaxed);
            self.counts.unconfirmed.fetch_sub(1, Ordering::Relaxed);
            self.proof.add(node, Instant::now());
        }))
    }

    /// Returns the number of records without a confirmation, in words.
    pub(super) fn unconfirmed_text(&self) -> String {
        records(self.unconfirmed.len() as u64)
    }

    /// Returns the line that says how far the input came, for the end after a failure. The failure may be that of the
    /// input or of a connection. Then no record failed.
    pub(super) fn progress(&self) -> String {
        let confirmed = records(self.counts.confirmed.load(Ordering::Relaxed));
        let open = self.unconfirmed_text();
        match self.counts.failed.load(Ordering::Relaxed) {
            0 => format!(
                "nsqd has confirmed {confirmed} and has not answered {open}, and the rest of the input was not sent"
            ),
            failed => format!(
                "nsqd has confirmed {confirmed}; {} failed, nsqd has not answered {open} behind it, and the rest of the \
                 input was not sent",
                records(failed)
            ),
        }
    }
}

/// Returns a number of records in words.
fn records(count: u64) -> String {
    match count {
        1 => "1 record".to_owned(),
        count => format!("{count} records"),
    }
}

/// Returns true for an event that counts as an error in the line at a terminal.
fn is_error(event: &Event) -> bool {
    matches!(
        event,
        Event::ConnectFailed { .. }
            | Event::Disconnected { error: Some(_), .. }
            | Event::ErrorFrame { .. }
    )
}

/// The state of the producer's connections, as the events tell it, and the publishes of numbered records that are tried
/// again, because nsqd is away, exits or is drained.
///
/// These publishes have their turns one after the other. So an outage costs one attempt to connect per delay, however many
/// records wait.
#[derive(Debug, Default)]
struct Connections {
    /// The reason why the last connection that ended has ended.
    lost: Mutex<Option<String>>,
    /// True if an nsqd was connected that takes the numbers of the records.
    has_numbers: AtomicBool,
    /// True if an nsqd was connected that takes no numbers, although the records have some.
    lacks_numbers: AtomicBool,
    /// The publishes that are being tried again, or wait for their turn.
    retry_count: AtomicUsize,
    retry_turn: tokio::sync::Mutex<()>,
}

impl Connections {
    /// Takes an event. With `numbers_messages`, warns once of an nsqd that takes no numbers.
    fn learn(&self, event: &Event, numbers_messages: bool) {
        match event {
            Event::Connected { negotiated, .. } if numbers_messages && negotiated.publisher_id => {
                self.has_numbers.store(true, Ordering::Relaxed);
            }
            Event::Connected { node, .. } if numbers_messages => {
                let is_known = self.lacks_numbers.swap(true, Ordering::Relaxed);
                if !is_known {
                    log_warn!(
                        "{node} takes no numbers, so --number-messages has no effect: start our nsqd with \
                         --dedup=TOPIC=publisher"
                    );
                }
            }
            Event::Disconnected {
                node,
                error: Some(error),
                ..
            } => *self.lost.lock() = Some(format!("{node}: {error}")),
            _ => {}
        }
    }

    /// Returns true if all nsqds that were connected recognise numbered records that they have, and there was one.
    fn has_only_numbering_nsqds(&self) -> bool {
        self.has_numbers.load(Ordering::Relaxed) && !self.lacks_numbers.load(Ordering::Relaxed)
    }

    /// Returns the reason why a connection has ended since the last call.
    fn take_loss(&self) -> Option<String> {
        self.lost.lock().take()
    }

    /// Returns true if a publish is being tried again.
    fn is_retrying(&self) -> bool {
        self.retry_count.load(Ordering::Relaxed) > 0
    }

    /// Publishes. If no nsqd has the record, and the nsqds take numbers, tries again for [`RETRY_TIME_MAX`].
    ///
    /// Without numbers, the first failure is the result, as in NSQ's to_nsq.
    ///
    /// # Errors
    /// The last error of `publish`.
    async fn insist<T, F>(&self, mut publish: impl FnMut() -> F) -> Result<T, PublishError>
    where
        F: Future<Output = Result<T, PublishError>>,
    {
        let error = match publish().await {
            Err(error) if self.permits_retry(&error) => error,
            result => return result,
        };
        let ends_at = time::Instant::now() + RETRY_TIME_MAX;
        let _counted = self.begin(&error);
        let _turn = self.retry_turn.lock().await;
        let mut delay = DELAY_MIN;
        loop {
            match publish().await {
                Err(error)
                    if self.permits_retry(&error) && time::Instant::now() + delay <= ends_at => {}
                result => return result,
            }
            sleep(delay).await;
            delay = (delay * 2).min(DELAY_MAX);
        }
    }

    fn permits_retry(&self, error: &PublishError) -> bool {
        error.permits_retry() && self.has_only_numbering_nsqds()
    }

    /// Counts a publish. Warns of the first one of an outage.
    fn begin(&self, error: &PublishError) -> Counted<'_> {
        if self.retry_count.fetch_add(1, Ordering::Relaxed) == 0 {
            let seconds = RETRY_TIME_MAX.as_secs();
            log_warn!("trying again for up to {seconds} seconds: {error}");
        }
        Counted(&self.retry_count)
    }
}

/// Counts a publish that is tried again, until the end of its future.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
