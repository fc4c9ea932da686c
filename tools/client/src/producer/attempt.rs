//! [`Attempts`]: one publish, from node to node until it has a result.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::builder::Batching;
use super::command::{Bodies, Command};
use super::error::PublishError;
use super::inner::Inner;
use super::node::Node;
use super::pending::Answer;
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
        self.carry_out(command, on).await
    }

    /// Publishes within the timeout. `on` is the only node that may get the message, if there is one.
    pub(super) async fn carry_out(
        &self,
        command: Command<'_>,
        on: Option<&Address>,
    ) -> Result<Receipt, PublishError> {
        let numbering = &self.0.shared.numbering;
        let checked = numbering.check(command.number, command.count());
        checked.map_err(PublishError::Number)?;
        let Some(limit) = self.0.publish_timeout else {
            return self.try_nodes(&command, on, &Mutex::new(None)).await;
        };
        let given_to = Mutex::new(None);
        let done = timeout(limit, self.try_nodes(&command, on, &given_to)).await;
        done.unwrap_or_else(|_| {
            let node = given_to
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(node) = &node {
                self.0.failed(node);
            }
            Err(PublishError::Timeout { limit, node })
        })
    }

    /// Publishes to a node. If this node certainly does not have the message, publishes to the next one. `given_to` is
    /// the node that was given the command and has not answered.
    async fn try_nodes(
        &self,
        command: &Command<'_>,
        on: Option<&Address>,
        given_to: &Mutex<Option<Address>>,
    ) -> Result<Receipt, PublishError> {
        let inner = &self.0;
        let permits = Arc::clone(&inner.permits);
        let Ok(mut permit) = permits.acquire_owned().await else {
            return Err(PublishError::Stopped);
        };
        if on.is_none() {
            self.nodes_are_known().await?;
        }
        let mut attempts = Attempts {
            inner,
            command,
            batching: inner.batching,
            given_to,
        };
        // A node is tried twice if its connection was lost: perhaps it was lost long ago, unnoticed.
        let (mut tried, mut lost) = (Vec::new(), Vec::new());
        let mut failure = None;
        let mut _turn = None;
        loop {
            let picked = match on {
                Some(address) if tried.is_empty() => inner.pool().get(address),
                Some(_) => None,
                None => inner.pool().pick(Instant::now().into_std(), &tried),
            };
            let Some(node) = picked else {
                return Err(failure.unwrap_or_else(|| match on {
                    Some(address) => PublishError::UnknownNode(address.clone()),
                    None => PublishError::NoNode(None),
                }));
            };
            let (result, returned) = attempts.make(&node, permit).await;
            permit = returned;
            match result {
                Attempt::Stored => {
                    inner.pool().succeeded(&node.address);
                    return Ok(Receipt {
                        node: node.address.clone(),
                    });
                }
                Attempt::Alone => {
                    attempts.batching = None;
                    _turn = Some(inner.sent_alone.lock().await);
                }
                // An error with an unknown outcome stays what it is.
                Attempt::Failed(error) if error.permits_retry() && inner.is_closed() => {
                    return Err(PublishError::Stopped);
                }
                Attempt::Failed(error) if error.permits_retry() => {
                    let is_first_loss = matches!(error, PublishError::NotSent { .. })
                        && !lost.contains(&node.address);
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
}

/// The result of one attempt to publish.
enum Attempt {
    Stored,
    /// nsqd refused a command that had messages of other publishes too. Nothing is stored, and this publish has to be
    /// sent alone.
    Alone,
    Failed(PublishError),
}

/// The attempts of one publish.
struct Attempts<'a> {
    inner: &'a Inner,
    command: &'a Command<'a>,
    batching: Option<Batching>,
    given_to: &'a Mutex<Option<Address>>,
}

impl Attempts<'_> {
    /// Publishes to `node` and waits for the answer. Returns the permit too.
    async fn make(
        &self,
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
        let answering = match open.publish(self.command, self.batching, permit) {
            Ok(answering) => answering,
            Err(permit) => {
                // The next attempt needs a new connection.
                open.ended().await;
                let (node, error) = (address(), open.reason());
                return (
                    Attempt::Failed(PublishError::NotSent { node, error }),
                    permit,
                );
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
            Answer::NotSent(error) => {
                open.ended().await;
                Attempt::Failed(PublishError::NotSent { node, error })
            }
            Answer::ResendRefused(error) => {
                Attempt::Failed(PublishError::ResendRefused { node, error })
            }
            Answer::Lost(error) => Attempt::Failed(PublishError::Lost { node, error }),
            Answer::Refused { error, is_alone } => {
                let error = PublishError::Refused { node, error };
                // E_MPUB_FAILED may come in the middle of the messages. All other errors come before the first one.
                if !is_alone
                    && error.outcome() == crate::error::Outcome::NotStored
                    && !error.permits_retry()
                {
                    Attempt::Alone
                } else {
                    Attempt::Failed(error)
                }
            }
        };
        (attempt, permit)
    }

    fn set_given_to(&self, node: Option<Address>) {
        if self.inner.publish_timeout.is_some() {
            *self.given_to.lock().unwrap_or_else(PoisonError::into_inner) = node;
        }
    }
}
