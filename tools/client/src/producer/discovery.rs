//! [`Discovery`]: the nodes of a producer that nsqlookupds name.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::Producer;
use super::error::PublishError;
use super::inner::Inner;
use crate::address::Address;
use crate::config::without_password;
use crate::event::Event;
use crate::lookupd::{Lookupd, LookupdError, NodeInfo};

/// Asks all nsqlookupds for their nodes, again and again. The task ends with the producer.
#[derive(Debug)]
pub(crate) struct Discovery {
    task: AbortHandle,
    /// The number of rounds, and the last error of the last round.
    rounds: watch::Receiver<(u64, Option<Arc<LookupdError>>)>,
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

impl Discovery {
    /// Starts the task. The first round begins at once.
    pub(crate) fn start(plan: Plan, inner: Weak<Inner>) -> Discovery {
        let (report, rounds) = watch::channel((0, None));
        let task = tokio::spawn(async move {
            loop {
                let (named, ignored, failures) = ask_all(&plan.lookupds).await;
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                for (lookupd, ignored) in ignored {
                    inner.shared.events.emit(Event::NodesIgnored {
                        client: inner.shared.client.clone(),
                        lookupd,
                        ignored,
                    });
                }
                let failure = failures.last().cloned();
                apply(&inner, &plan.fixed, named, failures);
                drop(inner);
                report.send_modify(|(rounds, last)| {
                    *rounds += 1;
                    *last = failure;
                });
                sleep(plan.interval.mul_f64(1.0 + plan.jitter * fastrand::f64())).await;
            }
        });
        Discovery {
            task: task.abort_handle(),
            rounds,
        }
    }

    /// Waits for the end of the first round. Returns the last error of the last round.
    pub(crate) async fn first_round(
        mut rounds: watch::Receiver<(u64, Option<Arc<LookupdError>>)>,
    ) -> Option<Arc<LookupdError>> {
        match rounds.wait_for(|(rounds, _)| *rounds > 0).await {
            Ok(found) => found.1.clone(),
            // The producer is closed.
            Err(_) => None,
        }
    }

    pub(crate) fn rounds(&self) -> watch::Receiver<(u64, Option<Arc<LookupdError>>)> {
        self.rounds.clone()
    }

    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Producer {
    /// Starts the discovery if there is one, and waits for its first answer if there is no node yet.
    pub(super) async fn nodes_are_known(&self) -> Result<(), PublishError> {
        let Some(plan) = &self.0.plan else {
            return Ok(());
        };
        let rounds = {
            let mut discovery = self.0.discovery();
            if self.0.is_closed() {
                return Err(PublishError::Stopped);
            }
            // The runtime in which it was started has ended.
            discovery.take_if(|discovery| discovery.task.is_finished());
            discovery
                .get_or_insert_with(|| Discovery::start(plan.clone(), Arc::downgrade(&self.0)))
                .rounds()
        };
        if self.0.pool().len() > 0 {
            return Ok(());
        }
        let failure = Discovery::first_round(rounds).await;
        match self.0.pool().len() {
            0 if self.0.is_closed() => Err(PublishError::Stopped),
            0 => Err(PublishError::NoNode(failure)),
            _ => Ok(()),
        }
    }
}

/// The union of the nodes that nsqlookupds name; the nsqlookupds of which nodes are ignored, with the numbers of these
/// nodes; and the failures.
type Answers = (
    BTreeSet<Address>,
    Vec<(String, usize)>,
    Vec<Arc<LookupdError>>,
);

/// Asks all nsqlookupds at the same time.
async fn ask_all(lookupds: &[Lookupd]) -> Answers {
    let mut asking = JoinSet::new();
    for lookupd in lookupds {
        let lookupd = lookupd.clone();
        asking.spawn(async move {
            let nodes = lookupd.first_nodes().await;
            (without_password(lookupd.address()).into_owned(), nodes)
        });
    }
    let (mut named, mut ignored, mut failures) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (lookupd, answer) in asking.join_all().await {
        match answer {
            Ok((nodes, further)) => {
                let valid = nodes.iter().filter_map(NodeInfo::valid_address);
                let before = nodes.len() + further;
                let valid: Vec<Address> = valid.collect();
                if before > valid.len() {
                    ignored.push((lookupd, before - valid.len()));
                }
                named.extend(valid);
            }
            Err(error) => failures.push(Arc::new(error)),
        }
    }
    (named, ignored, failures)
}

/// Adds new nodes. Removes the nodes that nobody names any more, if all nsqlookupds answered.
fn apply(
    inner: &Arc<Inner>,
    fixed: &[Address],
    named: BTreeSet<Address>,
    failures: Vec<Arc<LookupdError>>,
) {
    let is_complete = failures.is_empty();
    for error in failures {
        let client = inner.shared.client.clone();
        inner
            .shared
            .events
            .emit(Event::DiscoveryFailed { client, error });
    }
    let removed = inner.change_nodes(&named, |address| {
        !is_complete || named.contains(address) || fixed.contains(address)
    });
    for node in removed {
        node.retire();
    }
}

#[cfg(test)]
mod tests;
