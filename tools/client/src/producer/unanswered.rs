//! [`Producer::flush`] and [`Producer::close`], and the publishes that stay without an answer.

use std::fmt;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::Producer;
use super::session::Session;
use super::unconfirmed::{Mark, Unanswered};
use crate::event::Event;

/// The publishes that [`Producer::flush`] or [`Producer::close`] cannot confirm. Some of them may be stored: the future
/// of each publish tells, if it was not dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnansweredError {
    /// The nodes of these publishes. There is at least one.
    pub nodes: Vec<Unanswered>,
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
            let (publishes, are) = match publishes {
                1 => ("1 publish".to_owned(), "is"),
                count => (format!("{count} publishes"), "are"),
            };
            write!(
                f,
                "{separator}{publishes} to {node} {are} not confirmed: {reason}"
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
    /// Publishes were lost with their connection, are to be sent again, or have no answer in time. The latter go on: an
    /// answer may still come. Lost publishes whose futures were dropped count too, until a flush has told them.
    pub async fn flush(&self) -> Result<(), UnansweredError> {
        let limit = self.0.shared.flush_timeout;
        let begun = self.0.begin(Session::begin_flush);
        let flushing = begun.sessions.into_iter();
        let flushing = flushing.map(async |(node, session, flushing)| {
            let unanswered = session.flush(flushing, limit).await;
            unanswered.map(|(publishes, reason)| Unanswered {
                node: node.address.clone(),
                publishes,
                reason,
            })
        });
        let unanswered = join_all(flushing).await.into_iter().flatten();
        self.check(begun.mark, begun.returning.into_iter().chain(unanswered))
    }

    /// Refuses further publishes, waits until nsqd has answered all publishes that it was given, and ends the
    /// connections. After [`flush_timeout`](super::ProducerBuilder::flush_timeout), the connections end in any case. The
    /// second call and the following ones return when the connections have ended.
    ///
    /// # Errors
    /// Publishes were lost with their connection, were to be sent again, or had no answer in time. The future of each of
    /// them fails with [`PublishError::Lost`](super::PublishError::Lost) or
    /// [`PublishError::Stopped`](super::PublishError::Stopped), if it was not dropped.
    pub async fn close(&self) -> Result<(), UnansweredError> {
        let inner = &self.0;
        if !inner.is_closed.swap(true, Ordering::SeqCst) {
            let client = inner.shared.client.clone();
            inner.shared.events.emit(Event::Stopping { client });
        }
        // Publishes that wait for a permit fail.
        inner.permits.close();
        if let Some(discovery) = inner.discovery.lock().take() {
            discovery.stop();
        }
        inner.nodes().iter().for_each(|node| node.retire());
        let limit = inner.shared.flush_timeout;
        let begun = inner.begin(Session::begin_finish);
        let finishing = begun.sessions.into_iter();
        let finishing = finishing.map(async |(node, session, finishing)| {
            let unanswered = session.finish(finishing, limit).await;
            unanswered.map(|(publishes, reason)| Unanswered {
                node: node.address.clone(),
                publishes,
                reason,
            })
        });
        let unanswered = join_all(finishing).await.into_iter().flatten();
        self.check(begun.mark, begun.returning.into_iter().chain(unanswered))
    }

    /// Ends the flush that began at `mark`. Fails if a node has unconfirmed publishes: `found`, or those that were
    /// forgotten.
    fn check(
        &self,
        mark: Mark,
        found: impl Iterator<Item = Unanswered>,
    ) -> Result<(), UnansweredError> {
        let forgotten = self.0.shared.unconfirmed.tell_forgotten(mark);
        let mut nodes: Vec<Unanswered> = Vec::new();
        for found in found.chain(forgotten) {
            match nodes.iter_mut().find(|known| known.node == found.node) {
                _ if found.publishes == 0 => {}
                Some(known) => known.publishes += found.publishes,
                None => nodes.push(found),
            }
        }
        if nodes.is_empty() {
            Ok(())
        } else {
            Err(UnansweredError { nodes })
        }
    }
}
