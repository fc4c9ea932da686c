//! [`Publishing`]: the records that are on their way, in the order of the input.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use ringq_client::{Address, Producer, PublishError};

use super::config::{Config, Targets};
use crate::consuming::log_event;

/// The most records without a confirmation.
const UNCONFIRMED_MAX: usize = 2000;

/// The future of one record.
type Publish = Pin<Box<dyn Future<Output = Result<(), PublishError>> + Send>>;

/// The records that are not confirmed yet, and the producer that sends them.
///
/// Records leave in the order of the calls of [`Publishing::publish`]: a publish takes its place in
/// the output of a connection when it is polled first, and [`Publishing::next`] polls new publishes
/// in their order. The first record goes alone, because its publish makes the connections.
pub(super) struct Publishing {
    producer: Producer,
    topic: String,
    /// Empty if the producer chooses one of the nodes that nsqlookupds name.
    addresses: Vec<Address>,
    unconfirmed: FuturesUnordered<Publish>,
    confirmed: u64,
}

impl Publishing {
    /// Returns a publishing to the nsqds of the command line. Connections are made by the first
    /// record.
    ///
    /// # Errors
    /// An address is wrong. The error is the reason for the user.
    pub(super) fn new(config: &Config) -> Result<Publishing, String> {
        let mut builder = Producer::builder()
            .config(config.client.clone())
            .permits(UNCONFIRMED_MAX * config.targets.count())
            .events(|event| log_event(&event));
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
            topic: config.topic.clone(),
            addresses,
            unconfirmed: FuturesUnordered::new(),
            confirmed: 0,
        })
    }

    /// Returns true if a further record may be published now.
    pub(super) fn has_room(&self) -> bool {
        let max = match self.confirmed {
            0 => 1,
            _ => UNCONFIRMED_MAX,
        };
        self.unconfirmed.len() < max
    }

    /// Returns true if a record is not confirmed yet.
    pub(super) fn is_busy(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// Adds a record. It is on its way after the next call of [`Publishing::next`].
    pub(super) fn publish(&self, record: Bytes) {
        let (producer, topic) = (self.producer.clone(), self.topic.clone());
        let addresses = self.addresses.clone();
        self.unconfirmed.push(Box::pin(async move {
            match addresses.as_slice() {
                [] => producer.publish(&topic, record).await.map(drop),
                [address] => producer.publish_on(address, &topic, record).await.map(drop),
                addresses => {
                    let publishes = addresses
                        .iter()
                        .map(|address| producer.publish_on(address, &topic, record.clone()));
                    try_join_all(publishes).await.map(drop)
                }
            }
        }));
    }

    /// Waits for the next confirmation. Returns `None` if there is no record without one. Dropping
    /// the future loses nothing.
    ///
    /// # Errors
    /// A record was not confirmed. The error is the text for the user.
    pub(super) async fn next(&mut self) -> Option<Result<(), String>> {
        let result = self.unconfirmed.next().await?;
        self.confirmed += u64::from(result.is_ok());
        Some(result.map_err(|error| error.to_string()))
    }

    /// Returns the line that says how far the input came, for the end after a failure.
    pub(super) fn progress(&self) -> String {
        let (confirmed, open) = (self.confirmed, self.unconfirmed.len());
        format!(
            "{confirmed} records are confirmed, and {open} behind the failed one have no answer"
        )
    }

    /// Closes the connections. Records without a confirmation are waited for.
    pub(super) async fn close(self) {
        self.producer.close().await;
    }
}
