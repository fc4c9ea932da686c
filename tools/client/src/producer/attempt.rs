//! [`Attempts`]: one publish, from node to node until it has a result.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use super::builder::Batching;
use super::command::{Bodies, Command};
use super::entry::Answer;
use super::error::PublishError;
use super::inner::Inner;
use super::node::Node;
use super::unconfirmed::Returning;
use super::{Producer, Receipt};
use crate::address::Address;

impl Producer {
    /// Publishes within the timeout. `number` is the one that the application gave the first message.
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

    /// Publishes within the timeout. `on` is the only node that may get the message, if there is one. A publish that
    /// failed and is not confirmed is left in `returning`, which was `None`.
    pub(super) async fn carry_out(
        &self,
        command: Command<'_>,
        on: Option<&Address>,
        returning: &mut Option<Returning>,
    ) -> Result<Receipt, PublishError> {
        let numbering = &self.0.shared.numbering;
        let checked = numbering.check(command.number, command.count());
        checked.map_err(PublishError::Number)?;
        let watched = Watched::default();
        let trying = self.try_nodes(&command, on, &watched, returning);
        let Some(limit) = self.0.publish_timeout else {
            return trying.await;
        };
        let done = timeout(limit, trying).await;
        done.unwrap_or_else(|_| {
            let node = watched.given_to.lock().clone();
            if let Some(node) = &node {
                self.0.failed(node);
            }
            Err(PublishError::Timeout { limit, node })
        })
    }

    /// Publishes to a node. If this node certainly does not have the message, publishes to the next one.
    async fn try_nodes(
        &self,
        command: &Command<'_>,
        on: Option<&Address>,
        watched: &Watched,
        returning: &mut Option<Returning>,
    ) -> Result<Receipt, PublishError> {
        let inner = &self.0;
        let permits = Arc::clone(&inner.permits);
        let Ok(permit) = permits.acquire_owned().await else {
            return Err(PublishError::Stopped);
        };
        if on.is_none() {
            self.nodes_are_known().await?;
        }
        let mut attempts = Attempts {
            inner,
            command,
            batching: inner.batching,
            watched,
            returning,
        };
        attempts.run(on, permit).await
    }
}

/// The part of a publish that its timeout looks at.
#[derive(Default)]
struct Watched {
    /// The node that was given the command and has not answered.
    given_to: Mutex<Option<Address>>,
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
    inner: &'a Inner,
    command: &'a Command<'a>,
    batching: Option<Batching>,
    watched: &'a Watched,
    /// The publish, from the end of a connection that did not confirm it until it is sent again.
    returning: &'a mut Option<Returning>,
}

impl Attempts<'_> {
    /// Publishes to a node, and to the next one if this node certainly does not have the message. `on` is the only node
    /// that may get the message, if there is one.
    async fn run(
        &mut self,
        on: Option<&Address>,
        mut permit: OwnedSemaphorePermit,
    ) -> Result<Receipt, PublishError> {
        let inner = self.inner;
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

    /// Publishes to `node` and waits for the answer. Returns the permit too.
    async fn make(
        &mut self,
        node: &Arc<Node>,
        permit: OwnedSemaphorePermit,
    ) -> (Attempt, OwnedSemaphorePermit) {
        let address = || node.address.clone();
        let open = match node.connection().await {
            Ok(open) => open,
            Err(error) => {
                let node = address();
                return (
                    Attempt::Failed(PublishError::Connect { node, error }),
                    permit,
                );
            }
        };
        let published = open.publish(self.command, self.batching, permit, self.returning);
        let answering = match published {
            Ok(answering) => answering,
            Err(permit) => {
                // The next attempt needs a new connection.
                open.ended().await;
                let attempt = if open.session().has_refused() {
                    Attempt::Skipped
                } else {
                    Attempt::Failed(PublishError::NotSent {
                        node: address(),
                        error: open.reason(),
                    })
                };
                return (attempt, permit);
            }
        };
        self.set_given_to(Some(address()));
        let Ok((answer, permit)) = answering.await else {
            unreachable!("a pending publish is always answered");
        };
        self.set_given_to(None);
        let node = address();
        let attempt = match answer {
            Answer::Stored => Attempt::Stored,
            Answer::Skipped(returning) => {
                *self.returning = Some(returning);
                open.ended().await;
                Attempt::Skipped
            }
            Answer::NotSent(error, returning) => {
                *self.returning = Some(returning);
                open.ended().await;
                Attempt::Failed(PublishError::NotSent { node, error })
            }
            Answer::ResendRefused(error, returning) => {
                *self.returning = Some(returning);
                Attempt::Failed(PublishError::ResendRefused { node, error })
            }
            Answer::Lost(error, returning) => {
                *self.returning = Some(returning);
                Attempt::Failed(PublishError::Lost { node, error })
            }
            Answer::Refused(error) => Attempt::Failed(PublishError::Refused { node, error }),
            Answer::Declined(error, returning) => {
                *self.returning = Some(returning);
                Attempt::Failed(PublishError::Refused { node, error })
            }
            Answer::Alone(returning) => {
                *self.returning = Some(returning);
                Attempt::Alone
            }
        };
        (attempt, permit)
    }

    fn set_given_to(&self, node: Option<Address>) {
        if self.inner.publish_timeout.is_some() {
            *self.watched.given_to.lock() = node;
        }
    }
}
