//! [`Producer::publish_numbered`] and the like: messages that the application numbers.

use std::time::Duration;

use bytes::Bytes;

use super::command::Bodies;
use super::{Producer, PublishError, Receipt};
use crate::address::Address;

/// Messages that the application numbers, for producers that were built with
/// [`publisher_id`](super::ProducerBuilder::publisher_id).
///
/// A number belongs to a message of a topic: a row, or a line of a file. A message that is published again, even by a
/// later run of the program, has the same number, and nsqd does not store it again. Numbers count upwards, with few
/// gaps: nsqd surely recognises the last 1,024 numbers, and all earlier ones back to the last gap. The numbers of rows
/// and lines are better than offsets in bytes.
///
/// nsqds do not know each other's numbers. So the messages of one source belong to one nsqd: the producer has one node,
/// or the application chooses the node of each source.
///
/// ```
/// # use ringq_client::testing::MockNetwork;
/// use ringq_client::{Producer, PublisherId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let network = MockNetwork::new();
/// # let nsqd = network.broker("127.0.0.1:4150");
/// # nsqd.take_numbers(true);
/// # let node = nsqd.address();
/// // The program draws an id once, and keeps it beside the source.
/// let id: PublisherId = "9f86d081884c7d65".parse()?;
/// let producer = Producer::builder()
///     .node(node) // "127.0.0.1:4150"
/// #    .connector(network)
///     .publisher_id(id)
///     .build()?;
/// producer.publish_numbered("orders", 17, "row 17").await?;
/// // The program was killed before it could note row 17, and starts again.
/// producer.publish_numbered("orders", 17, "row 17").await?;
/// # assert_eq!(nsqd.published("orders"), ["row 17"]);
/// # Ok(())
/// # }
/// ```
impl Producer {
    /// Publishes one message with its number.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_numbered(
        &self,
        topic: &str,
        number: u64,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        self.submit(topic, Bodies::One(body.into()), Some(number), None)
            .await
    }

    /// Publishes one message with its number to `node`, which must be one of the producer's nodes, and to no other.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_numbered_on(
        &self,
        node: &Address,
        topic: &str,
        number: u64,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        self.submit(topic, Bodies::One(body.into()), Some(number), Some(node))
            .await
    }

    /// Publishes several messages by one command. Message i, counted from 0, has the number `first` + i. nsqd judges each
    /// message by its number. They have one outcome together.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_many_numbered(
        &self,
        topic: &str,
        first: u64,
        bodies: impl IntoIterator<Item = Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Many(bodies.into_iter().collect());
        self.submit(topic, bodies, Some(first), None).await
    }

    /// Publishes several messages by one command to `node`, as [`Producer::publish_many_numbered`] does.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_many_numbered_on(
        &self,
        node: &Address,
        topic: &str,
        first: u64,
        bodies: impl IntoIterator<Item = Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Many(bodies.into_iter().collect());
        self.submit(topic, bodies, Some(first), Some(node)).await
    }

    /// Publishes one message with its number that nsqd delivers after `delay`, as
    /// [`Producer::publish_deferred`] does.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_deferred_numbered(
        &self,
        topic: &str,
        delay: Duration,
        number: u64,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Deferred(delay, body.into());
        self.submit(topic, bodies, Some(number), None).await
    }
}
