//! [`Producer::flush`] and [`Producer::close`], and the publishes that stay without an answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::Producer;
use crate::address::Address;
use crate::error::ConnectionError;
use crate::event::Event;

/// The publishes whose outcome [`Producer::flush`] or [`Producer::close`] could not learn. Each of them may be stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnansweredError {
    /// The nodes of these publishes. There is at least one.
    pub nodes: Vec<Unanswered>,
}

/// The publishes to one node that have no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unanswered {
    /// The nsqd.
    pub node: Address,
    /// The number of publishes. A `publish_many` counts once.
    pub publishes: usize,
    /// The reason.
    pub reason: Arc<ConnectionError>,
}

impl fmt::Display for UnansweredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, unanswered) in self.nodes.iter().enumerate() {
            let Unanswered {
                node,
                publishes,
                reason,
            } = unanswered;
            let separator = if index == 0 { "" } else { "; " };
            let publishes = match publishes {
                1 => "1 publish".to_owned(),
                count => format!("{count} publishes"),
            };
            write!(
                f,
                "{separator}{publishes} to {node} may be stored: {reason}"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for UnansweredError {}

impl Producer {
    /// Waits until nsqd has answered all publishes that it was given so far, for
    /// [`flush_timeout`](super::ProducerBuilder::flush_timeout) at most. Later publishes do not wait.
    ///
    /// # Errors
    /// Publishes were lost with their connection, or have no answer in time. The latter go on: an answer may still come.
    pub async fn flush(&self) -> Result<(), UnansweredError> {
        let limit = self.0.shared.flush_timeout;
        let connections = self.0.connections();
        let flushing = connections.iter().map(async |(node, session)| {
            let unanswered = session.flush(limit).await;
            unanswered.map(|(publishes, reason)| Unanswered {
                node: node.address.clone(),
                publishes,
                reason,
            })
        });
        check(join_all(flushing).await)
    }

    /// Refuses further publishes, waits until nsqd has answered all publishes that it was given, and ends the
    /// connections. After [`flush_timeout`](super::ProducerBuilder::flush_timeout), the connections end in any case. The
    /// second call and the following ones return when the connections have ended.
    ///
    /// # Errors
    /// Publishes were lost with their connection, or had no answer in time. The future of each of them fails with
    /// [`PublishError::Lost`](super::PublishError::Lost), if it was not dropped.
    pub async fn close(&self) -> Result<(), UnansweredError> {
        let inner = &self.0;
        if !inner.is_closed.swap(true, Ordering::SeqCst) {
            let client = inner.shared.client.clone();
            inner.shared.events.emit(Event::Stopping { client });
        }
        // Publishes that wait for a permit fail.
        inner.permits.close();
        if let Some(discovery) = inner.discovery().take() {
            discovery.stop();
        }
        let nodes = inner.pool().all();
        nodes.iter().for_each(|node| node.retire());
        let limit = inner.shared.flush_timeout;
        let connections = inner.connections();
        let finishing = connections.iter().map(async |(node, session)| {
            let unanswered = session.finish(limit).await;
            unanswered.map(|(publishes, reason)| Unanswered {
                node: node.address.clone(),
                publishes,
                reason,
            })
        });
        check(join_all(finishing).await)
    }
}

/// Fails if a node has publishes without an answer.
fn check(results: Vec<Option<Unanswered>>) -> Result<(), UnansweredError> {
    let nodes: Vec<Unanswered> = results.into_iter().flatten().collect();
    match nodes.is_empty() {
        true => Ok(()),
        false => Err(UnansweredError { nodes }),
    }
}
