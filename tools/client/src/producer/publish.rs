//! One publish, from node to node until it has a result, and copies of one message on several nodes.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::command::{Batching, Bodies, Command};
use super::error::{PublishError, ReplicationError};
use super::node::Node;
use super::pending::{Answer, Cause};
use super::unconfirmed::Returning;
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
            is_resent: true,
            ..Command::new(topic, bodies, self.0.bytes_max)?
        };
        let mut returning = None;
        let result = self.carry_out(command, on, &mut returning).await;
        // The caller gets to know the outcome.
        if let Some(returning) = returning {
            returning.settle();
        }
        result
    }

    /// Publishes within the timeout. A publish that failed and is not confirmed is left in `returning`, which was
    /// `None`.
    async fn carry_out(
        &self,
        command: Command<'_>,
        on: Option<&Address>,
        returning: &mut Option<Returning>,
    ) -> Result<Receipt, PublishError> {
        let numbering = &self.0.shared.numbering;
        let checked = numbering.check(command.number, command.count());
        checked.map_err(PublishError::Number)?;
        let given_to = Mutex::new(None);
        let mut attempts = Attempts {
            producer: self,
            command: &command,
            batching: self.0.batching,
            given_to: &given_to,
            returning,
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
    /// So the message may be stored once more than asked for, if the outcome at the failed node is unknown. Such a
    /// message is not sent again to the failed node, even if it has a number: another node is faster.
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
        if let Err(error) = self.0.shared.numbering.check(None, 1) {
            failed.failures.push(PublishError::Number(error));
            return Err(failed);
        }
        failed.failures.extend(self.nodes_are_known().await.err());
        if self.0.pool.lock().len() < count {
            return Err(failed);
        }
        let mut tried: Vec<Address> = Vec::new();
        let mut running = JoinSet::new();
        // The copies that are not confirmed, until the caller gets to know.
        let mut untold: Vec<Returning> = Vec::new();
        loop {
            while failed.stored.len() + running.len() < count {
                let Some(node) = self.0.pool.lock().pick(Instant::now().into_std(), &tried) else {
                    break;
                };
                tried.push(node.address.clone());
                let (producer, topic, body) = (self.clone(), topic.to_owned(), body.clone());
                running.spawn(async move {
                    let mut returning = None;
                    let published = async {
                        // If the outcome is unknown, another node takes the place of this one at once.
                        let command =
                            Command::new(&topic, Bodies::One(body), producer.0.bytes_max)?;
                        let node = Some(&node.address);
                        producer.carry_out(command, node, &mut returning).await
                    };
                    (published.await, returning)
                });
            }
            let Some(joined) = running.join_next().await else {
                break;
            };
            // The task is neither aborted nor does it panic: only the end of the runtime stops it.
            let (published, returning) = joined.unwrap_or((Err(PublishError::Stopped), None));
            untold.extend(returning);
            match published {
                Ok(receipt) => failed.stored.push(receipt),
                Err(error) => failed.failures.push(error),
            }
        }
        untold.into_iter().for_each(Returning::settle);
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
    batching: Option<Batching>,
    /// The node that was given the command and has not answered, for the timeout of the publish.
    given_to: &'a Mutex<Option<Address>>,
    /// The publish, from the end of a connection that did not confirm it until it is sent again.
    returning: &'a mut Option<Returning>,
}

impl Attempts<'_> {
    /// Publishes to a node, and to the next one if this node certainly does not have the message. `on` is the only node
    /// that may get the message, if there is one.
    async fn run(&mut self, on: Option<&Address>) -> Result<Receipt, PublishError> {
        let inner = &self.producer.0;
        let Ok(mut permit) = Arc::clone(&inner.permits).acquire_owned().await else {
            return Err(PublishError::Stopped);
        };
        if on.is_none() {
            self.producer.nodes_are_known().await?;
        }
        // A node is tried twice if its connection was lost: perhaps it was lost long ago, unnoticed.
        let (mut tried, mut lost) = (Vec::new(), Vec::new());
        let mut failure = None;
        // The node to which this publish may send its message alone, with the node's lock.
        let mut turn: Option<(Arc<Node>, OwnedMutexGuard<()>)> = None;
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
            turn = turn.filter(|(of, _)| Arc::ptr_eq(of, &node));
            let (result, returned) = self.make(&node, permit).await;
            permit = returned;
            match result {
                Attempt::Stored => {
                    inner.pool.lock().succeeded(&node.address);
                    return Ok(Receipt {
                        node: node.address.clone(),
                    });
                }
                Attempt::Alone => {
                    self.batching = None;
                    // The lock is not for the same publish twice.
                    if turn.is_none() {
                        let lock = Arc::clone(&node.sent_alone).lock_owned().await;
                        turn = Some((node, lock));
                    }
                }
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

    /// Publishes to `to` and waits for the answer. Returns the permit too.
    async fn make(
        &mut self,
        to: &Arc<Node>,
        permit: OwnedSemaphorePermit,
    ) -> (Attempt, OwnedSemaphorePermit) {
        let node = to.address.clone();
        let connection = match to.connection().await {
            Ok(connection) => connection,
            Err(error) => {
                let failed = PublishError::Connect { node, error };
                return (Attempt::Failed(failed), permit);
            }
        };
        let published = connection.publish(self.command, self.batching, permit, self.returning);
        let answering = match published {
            Ok(answering) => answering,
            Err(permit) => {
                // The next attempt needs a new connection.
                let error = connection.ended().await;
                let attempt = if connection.session.has_refused() {
                    Attempt::Skipped
                } else {
                    Attempt::Failed(PublishError::NotSent { node, error })
                };
                return (attempt, permit);
            }
        };
        self.set_given_to(Some(&node));
        let Ok((answer, permit)) = answering.await else {
            unreachable!("a pending publish is always answered");
        };
        self.set_given_to(None);
        let cause = match answer {
            Answer::Stored => return (Attempt::Stored, permit),
            Answer::Refused(error) => {
                let failed = PublishError::Refused { node, error };
                return (Attempt::Failed(failed), permit);
            }
            Answer::Returned(cause, returning) => {
                *self.returning = Some(returning);
                cause
            }
        };
        if matches!(cause, Cause::Skipped | Cause::NotSent(_)) {
            connection.ended().await;
        }
        let failed = match cause {
            Cause::Skipped => return (Attempt::Skipped, permit),
            Cause::Alone => return (Attempt::Alone, permit),
            Cause::NotSent(error) => PublishError::NotSent { node, error },
            Cause::ResendRefused(error) => PublishError::ResendRefused { node, error },
            Cause::Lost(error) => PublishError::Lost { node, error },
            Cause::Declined(error) => PublishError::Refused { node, error },
        };
        (Attempt::Failed(failed), permit)
    }

    fn set_given_to(&self, node: Option<&Address>) {
        if self.producer.0.publish_timeout.is_some() {
            *self.given_to.lock() = node.cloned();
        }
    }
}
