//! [`Producer::publish_to`]: copies of one message on several nodes.

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::command::{Bodies, Command};
use super::error::{PublishError, ReplicationError};
use super::unconfirmed::Returning;
use super::{Producer, Receipt};
use crate::address::Address;

impl Producer {
    /// Publishes one message to `count` different nodes at the same time. If a node fails, another one takes its place.
    /// So the message may be stored once more than asked for, if the outcome at the failed node is unknown. Such a message
    /// is not sent again to the failed node, even if it has a number: another node is faster.
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
        let mut tried: Vec<Address> = Vec::new();
        let mut running = JoinSet::new();
        let (mut stored, mut failures) = (Vec::new(), Vec::new());
        // The copies that are not confirmed, until the caller gets to know.
        let mut untold: Vec<Returning> = Vec::new();
        if let Err(error) = self.0.shared.numbering.check(None, 1) {
            failures.push(PublishError::Number(error));
            return Err(ReplicationError {
                wanted: count,
                stored,
                failures,
            });
        }
        if let Err(error) = self.nodes_are_known().await {
            failures.push(error);
        }
        if self.0.pool.lock().len() < count {
            return Err(ReplicationError {
                wanted: count,
                stored,
                failures,
            });
        }
        loop {
            while stored.len() + running.len() < count {
                let Some(node) = self.0.pool.lock().pick(Instant::now().into_std(), &tried) else {
                    break;
                };
                tried.push(node.address.clone());
                let (producer, topic, body) = (self.clone(), topic.to_owned(), body.clone());
                running.spawn(async move {
                    let mut returning = None;
                    let published = async {
                        // If the outcome is unknown, another node takes the place of this one at once.
                        let command = Command {
                            is_resent: false,
                            ..Command::new(&topic, Bodies::One(body), producer.0.bytes_max)?
                        };
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
                Ok(receipt) => stored.push(receipt),
                Err(error) => failures.push(error),
            }
        }
        untold.into_iter().for_each(Returning::settle);
        if stored.len() >= count {
            Ok(stored)
        } else {
            Err(ReplicationError {
                wanted: count,
                stored,
                failures,
            })
        }
    }
}
