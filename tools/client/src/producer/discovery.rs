//! [`Discovery`]: the nodes of a producer that nsqlookupds name.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nsq_http::NodeInfo;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::error::PublishError;
use super::{Inner, Producer};
use crate::address::Address;
use crate::config::without_password;
use crate::event::Event;
use crate::lookupd::{Lookupd, LookupdError};
use crate::reconnect::Delay;

/// Asks all nsqlookupds for their nodes, again and again. The task ends with the producer.
#[derive(Debug)]
pub(crate) struct Discovery {
    task: AbortHandle,
    progress: watch::Receiver<Progress>,
}

/// The progress of a discovery.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// True when a node was found, or when each nsqlookupd has answered or failed.
    has_result: bool,
    /// The failure of an nsqlookupd at its last question.
    failure: Option<Arc<LookupdError>>,
}

/// The settings of a discovery.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) lookupds: Vec<Lookupd>,
    /// The nodes that the application named: they stay in any case.
    pub(crate) fixed: Vec<Address>,
    pub(crate) interval: Duration,
    /// The largest random addition to the interval, as a fraction of it.
    pub(crate) jitter: f64,
}

/// An answer of an nsqlookupd: its nodes, and the number of the others, which are ignored.
type Answer = Result<(Vec<NodeInfo>, usize), LookupdError>;

/// One nsqlookupd.
struct Source {
    lookupd: Lookupd,
    /// The last answer. `None` before the first one.
    answer: Option<Result<BTreeSet<Address>, Arc<LookupdError>>>,
    /// The time to the next question, while there is a reason to ask soon.
    soon: Delay,
}

impl Discovery {
    /// Starts the task. The first questions leave at once.
    pub(crate) fn start(plan: Plan, inner: Weak<Inner>) -> Discovery {
        let (report, progress) = watch::channel(Progress::default());
        let task = tokio::spawn(ask_for_ever(plan, inner, report));
        Discovery {
            task: task.abort_handle(),
            progress,
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Producer {
    /// Starts the discovery if there is one, and waits for its first node if there is no node yet.
    pub(super) async fn nodes_are_known(&self) -> Result<(), PublishError> {
        let Some(plan) = &self.0.plan else {
            return Ok(());
        };
        let mut progress = {
            let mut discovery = self.0.discovery.lock();
            if self.0.is_closed() {
                return Err(PublishError::Stopped);
            }
            // The runtime in which it was started has ended.
            discovery.take_if(|discovery| discovery.task.is_finished());
            discovery
                .get_or_insert_with(|| Discovery::start(plan.clone(), Arc::downgrade(&self.0)))
                .progress
                .clone()
        };
        if self.0.pool.lock().len() > 0 {
            return Ok(());
        }
        let found = progress.wait_for(|progress| progress.has_result).await;
        // Without a result, the producer is closed.
        let failure = found.ok().and_then(|found| found.failure.clone());
        match self.0.pool.lock().len() {
            0 if self.0.is_closed() => Err(PublishError::Stopped),
            0 => Err(PublishError::NoNode(failure)),
            _ => Ok(()),
        }
    }
}

/// Asks each nsqlookupd by itself, so that none waits for another one. An nsqlookupd that failed is asked again soon,
/// and so are all of them while none of them names a node.
async fn ask_for_ever(plan: Plan, inner: Weak<Inner>, report: watch::Sender<Progress>) {
    let source = |lookupd: &Lookupd| Source {
        lookupd: lookupd.clone(),
        answer: None,
        soon: Delay::new(plan.interval, fastrand::u64(..)),
    };
    let mut sources: Vec<Source> = plan.lookupds.iter().map(source).collect();
    let emptied = Notify::new();
    let first = sources.iter().enumerate();
    let mut asking: FuturesUnordered<_> = first
        .map(|(index, source)| ask(index, source.lookupd.clone(), Duration::ZERO, &emptied))
        .collect();
    let mut is_emptiness_reported = false;
    while let Some((index, answer)) = asking.next().await {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let has_failed = answer.is_err();
        sources[index].take(&inner, answer);
        let was_empty = inner.pool.lock().len() == 0;
        let is_any_named = apply(&inner, &plan.fixed, &sources);
        let is_empty = inner.pool.lock().len() == 0;
        let is_first_round_over = sources.iter().all(|source| source.answer.is_some());
        let is_known_empty = is_empty && is_first_round_over;
        if is_known_empty && !is_emptiness_reported {
            let events = &inner.shared.events;
            events.emit(|client| Event::NoNode { client });
        }
        is_emptiness_reported = is_known_empty;
        drop(inner);
        report.send_modify(|progress| {
            progress.has_result |= !is_empty || is_first_round_over;
            progress.failure = sources.iter().rev().find_map(Source::failure);
        });
        if is_empty && !was_empty {
            emptied.notify_waiters();
        }
        let source = &mut sources[index];
        let delay = if has_failed || is_empty || !is_any_named {
            source.soon.next()
        } else {
            source.soon.reset();
            plan.interval.mul_f64(1.0 + plan.jitter * fastrand::f64())
        };
        asking.push(ask(index, source.lookupd.clone(), delay, &emptied));
    }
}

/// Asks an nsqlookupd after `delay`, or when `emptied` says that the producer has no node any more.
async fn ask(index: usize, lookupd: Lookupd, delay: Duration, emptied: &Notify) -> (usize, Answer) {
    tokio::select! {
        () = sleep(delay) => {}
        () = emptied.notified() => {}
    }
    (index, lookupd.first_nodes().await)
}

impl Source {
    /// Keeps the answer, and reports what is wrong with it.
    fn take(&mut self, inner: &Inner, answer: Answer) {
        let events = &inner.shared.events;
        self.answer = Some(match answer {
            Ok((nodes, further)) => {
                let valid: Vec<Address> = nodes.iter().filter_map(Address::of_node).collect();
                let ignored = nodes.len() + further - valid.len();
                if ignored > 0 {
                    events.emit(|client| Event::NodesIgnored {
                        client,
                        lookupd: without_password(self.lookupd.address()).into_owned(),
                        ignored,
                    });
                }
                Ok(valid.into_iter().collect())
            }
            Err(error) => {
                let error = Arc::new(error);
                events.emit(|client| Event::DiscoveryFailed {
                    client,
                    error: Arc::clone(&error),
                });
                Err(error)
            }
        });
    }

    fn failure(&self) -> Option<Arc<LookupdError>> {
        match &self.answer {
            Some(Err(error)) => Some(Arc::clone(error)),
            _ => None,
        }
    }
}

/// Adds new nodes. Removes the nodes that nobody names any more, if all nsqlookupds have answered. While no node is
/// named at all, nodes with a connection stay: an nsqlookupd that has just started knows no nsqd. Returns true if a
/// node is named.
fn apply(inner: &Inner, fixed: &[Address], sources: &[Source]) -> bool {
    let answers = sources.iter().map(|source| source.answer.as_ref());
    let is_complete = answers.clone().all(|answer| matches!(answer, Some(Ok(_))));
    let named = answers.filter_map(|answer| answer?.as_ref().ok());
    let named: BTreeSet<Address> = named.flatten().cloned().collect();
    let removed = inner.change_nodes(&named, |node| {
        !is_complete
            || named.contains(&node.address)
            || fixed.contains(&node.address)
            || (named.is_empty() && node.is_connected())
    });
    removed.iter().for_each(|node| node.retire());
    !named.is_empty()
}

#[cfg(test)]
mod tests;
