//! One publish, from node to node until it has a result, and copies of one message on several nodes.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::command::{Bodies, Command};
use super::error::{PublishError, ReplicationError};
use super::node::Node;
use super::pending::{Answer, Cause};
use super::permits::Permit;
use super::{Producer, Receipt};
use crate::address::Address;

impl Producer {
    /// Publishes within the timeout. `number` is the one that the application gave the first message. `on` is the only
    /// node that may get the message, if there is one.
    pub(super) async fn submit(
        &self,
        topic: &str,
        bodies: Bodies,
        number: Option<u64>,
        on: Option<&Address>,
    ) -> Result<Receipt, PublishError> {
        let command = Command {
            number,
            ..Command::new(topic, bodies, self.0.bytes_max)?
        };
        let numbering = &self.0.shared.numbering;
        let checked = numbering.check(number, command.count());
        checked.map_err(PublishError::Number)?;
        let given_to = Mutex::new(None);
        let attempts = Attempts {
            producer: self,
            command: &command,
            may_join: self.0.is_batching,
            given_to: &given_to,
            permit: None,
        };
        let Some(limit) = self.0.publish_timeout else {
            return attempts.run(on).await;
        };
        let done = timeout(limit, attempts.run(on)).await;
        done.unwrap_or_else(|_| {
            let node = given_to.lock().clone();
            if let Some(node) = &node {
                self.0.failed(node);
            }
            Err(PublishError::Timeout { limit, node })
        })
    }

    /// Publishes one message to `count` different nodes at the same time. If a node fails, another one takes its place.
    /// So the message may be stored once more than asked for, if the outcome at the failed node is unknown.
    ///
    /// # Errors
    /// The error says which nodes have the message. With fewer than `count` nodes, nothing is sent.
    pub async fn publish_to(
        &self,
        count: usize,
        topic: &str,
        body: impl Into<Bytes>,
    ) -> Result<Vec<Receipt>, ReplicationError> {
        let body = body.into();
        let mut failed = ReplicationError {
            wanted: count,
            stored: Vec::new(),
            failures: Vec::new(),
        };
        failed.failures.extend(self.nodes_are_known().await.err());
        if self.0.pool.lock().len() < count {
            return Err(failed);
        }
        let mut tried: Vec<Address> = Vec::new();
        let mut running = JoinSet::new();
        loop {
            while failed.stored.len() + running.len() < count {
                let Some(node) = self.0.pool.lock().pick(Instant::now().into_std(), &tried) else {
                    break;
                };
                tried.push(node.address.clone());
                let (producer, topic, body) = (self.clone(), topic.to_owned(), body.clone());
                running.spawn(async move {
                    let (body, node) = (Bodies::One(body), Some(&node.address));
                    producer.submit(&topic, body, None, node).await
                });
            }
            let Some(joined) = running.join_next().await else {
                break;
            };
            // The task is neither aborted nor does it panic: only the end of the runtime stops it.
            match joined.unwrap_or(Err(PublishError::Stopped)) {
                Ok(receipt) => failed.stored.push(receipt),
                Err(error) => failed.failures.push(error),
            }
        }
        if failed.stored.len() >= count {
            Ok(failed.stored)
        } else {
            Err(failed)
        }
    }
}

/// The result of one attempt to publish.
enum Attempt {
    Stored,
    /// nsqd refused a command that had messages of other publishes too. Nothing is stored, and this publish has to be
    /// sent alone.
    Alone,
    /// nsqd refused a command before this one. The node works, and has not stored the message.
    Skipped,
    Failed(PublishError),
}

/// The attempts of one publish.
struct Attempts<'a> {
    producer: &'a Producer,
    command: &'a Command<'a>,
    /// True if the message may become a part of an MPUB with other publishes.
    may_join: bool,
    /// The node that was given the command and has not answered, for the timeout of the publish.
    given_to: &'a Mutex<Option<Address>>,
    /// The permit of the publish, while no node has the command.
    permit: Option<Permit>,
}

impl Attempts<'_> {
    /// Publishes to a node, and to the next one if this node certainly does not have the message. `on` is the only node
    /// that may get the message, if there is one.
    async fn run(mut self, on: Option<&Address>) -> Result<Receipt, PublishError> {
        let inner = &self.producer.0;
        // A publish after a close fails at once, even if no permit is free.
        if !inner.is_closed() {
            self.permit = Some(inner.permits.take().await);
        }
        if inner.is_closed() {
            return Err(PublishError::Stopped);
        }
        if on.is_none() {
            self.producer.nodes_are_known().await?;
        }
        // A node is tried twice if its connection was lost: perhaps it was lost long ago, unnoticed.
        let (mut tried, mut lost) = (Vec::new(), Vec::new());
        let mut failure = None;
        loop {
            let picked = match on {
                Some(address) if tried.is_empty() => inner.pool.lock().get(address),
                Some(_) => None,
                None => inner.pool.lock().pick(Instant::now().into_std(), &tried),
            };
            let Some(node) = picked else {
                return Err(failure.unwrap_or_else(|| match on {
                    Some(address) => PublishError::UnknownNode(address.clone()),
                    None => PublishError::NoNode(None),
                }));
            };
            match self.make(&node).await {
                Attempt::Stored => {
                    inner.pool.lock().succeeded(&node.address);
                    return Ok(Receipt {
                        node: node.address.clone(),
                    });
                }
                Attempt::Alone => self.may_join = false,
                Attempt::Skipped if inner.is_closed() => return Err(PublishError::Stopped),
                // Each further try needs another message that is refused, so they have an end.
                Attempt::Skipped => {}
                // An error with an unknown outcome stays what it is.
                Attempt::Failed(error) if error.permits_retry() && inner.is_closed() => {
                    return Err(PublishError::Stopped);
                }
                Attempt::Failed(error) if error.permits_retry() => {
                    let is_first_loss = error.is_loss_of_command() && !lost.contains(&node.address);
                    if is_first_loss {
                        lost.push(node.address.clone());
                    } else {
                        inner.failed(&node.address);
                        tried.push(node.address.clone());
                    }
                    failure = Some(error);
                }
                Attempt::Failed(error) => {
                    if matches!(error, PublishError::Lost { .. }) {
                        inner.failed(&node.address);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Publishes to `to` and waits for the answer.
    async fn make(&mut self, to: &Arc<Node>) -> Attempt {
        let node = to.address.clone();
        let connection = match to.connection().await {
            Ok(connection) => connection,
            Err(error) => return Attempt::Failed(PublishError::Connect { node, error }),
        };
        let permit = self.permit.take();
        let permit = permit.expect("a publish that is sent again has its permit back");
        let answering = match connection.publish(self.command, self.may_join, permit) {
            Ok(answering) => answering,
            Err(permit) => {
                self.permit = Some(permit);
                // The next attempt needs a new connection.
                let error = connection.ended().await;
                return if connection.session.has_refused() {
                    Attempt::Skipped
                } else {
                    Attempt::Failed(PublishError::NotSent { node, error })
                };
            }
        };
        self.set_given_to(Some(&node));
        let answer = answering.await;
        self.set_given_to(None);
        Attempt::Failed(match answer.expect("a pending publish is answered") {
            Answer::Stored => return Attempt::Stored,
            Answer::Refused(error) => PublishError::Refused { node, error },
            Answer::ResendRefused(error) => PublishError::ResendRefused { node, error },
            Answer::Lost(error) => PublishError::Lost { node, error },
            Answer::Again(cause, permit) => {
                self.permit = Some(permit);
                if matches!(cause, Cause::Skipped | Cause::NotSent(_)) {
                    connection.ended().await;
                }
                match cause {
                    Cause::Skipped => return Attempt::Skipped,
                    Cause::Alone => return Attempt::Alone,
                    Cause::NotSent(error) => PublishError::NotSent { node, error },
                    Cause::Declined(error) => PublishError::Refused { node, error },
                }
            }
        })
    }

    fn set_given_to(&self, node: Option<&Address>) {
        if self.producer.0.publish_timeout.is_some() {
            *self.given_to.lock() = node.cloned();
        }
    }
}
