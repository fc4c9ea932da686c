//! [`Task`]: the life of one nsqd of a consumer.
//!
//! ```text
//!   fixed       connect ─► receive ─► delay ─┐      for ever: the delay grows up to lookupd_poll_interval
//!                  ▲─────────────────────────┘
//!   discovered  connect ─► receive ─► end           discovery makes a new task if the node is still listed
//! ```

use std::future::pending;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, sleep_until};

use super::{ConsumerShared, FirstResultSender, NodeOrigin};
use crate::address::Address;
use crate::consumer::receiver::Receiver;
use crate::consumer::touching::Touching;
use crate::error::ConnectionError;
use crate::event::{Client, Event};
use crate::hub::{Phase, now};
use crate::line::Line;
use crate::link::Link;
use crate::message::delivery::Source;
use crate::reconnect::Delay;

/// One task's part of the state of [`ConsumerShared`]. Removes the entry when the task ends, also when the runtime
/// drops it.
pub(super) struct Task {
    pub(super) shared: Arc<ConsumerShared>,
    pub(super) node: Address,
    pub(super) origin: NodeOrigin,
    pub(super) task_number: u64,
    pub(super) removal: oneshot::Receiver<()>,
    pub(super) phase: watch::Receiver<Phase>,
}

impl Task {
    /// Connects, receives, and connects again, until the node is not wanted any more.
    pub(super) async fn run(mut self, mut first: Option<FirstResultSender>) {
        let max = self.shared.hub.config.lookupd_poll_interval;
        let mut delay = Delay::new(max, fastrand::u64(..));
        loop {
            self.emit(|client, node| Event::Connecting { client, node });
            let Some(opened) = self.open().await else {
                return;
            };
            let retry_in = match opened {
                Ok(link) => {
                    let connected_at = now();
                    let Some(retries) = self.receive(link, &mut first).await else {
                        return;
                    };
                    delay.lived(now().duration_since(connected_at));
                    retries.then(|| delay.next())
                }
                Err(error) => {
                    let error = Arc::new(error);
                    let is_final = self.origin == NodeOrigin::FixedOrFail && first.is_some();
                    let retries = self.origin != NodeOrigin::Discovered && !is_final;
                    let retry_in = retries.then(|| delay.next());
                    self.emit(|client, node| Event::ConnectFailed {
                        client,
                        node,
                        error: Arc::clone(&error),
                        retry_in,
                    });
                    if is_final && let Some(first) = first.take() {
                        drop(self);
                        // The caller may have gone away.
                        let _ = first.send(Err(error));
                        return;
                    }
                    retry_in
                }
            };
            let Some(retry_in) = retry_in else { return };
            tokio::select! {
                biased;
                () = self.ended() => return,
                () = sleep(retry_in) => {}
            }
        }
    }

    fn emit(&self, event: impl FnOnce(Client, Address) -> Event) {
        let hub = &self.shared.hub;
        hub.events
            .emit(event(hub.client.clone(), self.node.clone()));
    }

    /// Ready when the application removed the node, or stopped the consumer.
    async fn ended(&mut self) {
        tokio::select! {
            _ = &mut self.removal => {}
            _ = self.phase.wait_for(|phase| *phase != Phase::Running) => {}
        }
    }

    /// Opens a connection. Returns `None` if the node is not wanted any more.
    async fn open(&mut self) -> Option<Result<Link, ConnectionError>> {
        let shared = Arc::clone(&self.shared);
        let node = self.node.clone();
        tokio::select! {
            biased;
            () = self.ended() => None,
            opened = Link::open(&*shared.connector, &node, Arc::clone(&shared.settings)) => Some(opened),
        }
    }

    /// Receives until the connection is over. Returns true if the node is to be connected again, and `None` if it is
    /// not wanted any more.
    async fn receive(&mut self, link: Link, first: &mut Option<FirstResultSender>) -> Option<bool> {
        let shared = Arc::clone(&self.shared);
        let hub = &shared.hub;
        let negotiated = Arc::new(link.negotiated().clone());
        let line = hub.add_line(&self.node, &negotiated, link.outbox())?;
        let registered = Registered {
            shared: Arc::clone(&shared),
            line,
        };
        let line = &registered.line;
        shared.state.lock().missing.remove(&self.node);
        self.emit(|client, node| Event::Connected {
            client,
            node,
            negotiated,
        });
        hub.report_truncation(line, hub.max_in_flight());
        #[cfg(feature = "dedup")]
        if let Some(sieve) = &shared.sieve {
            sieve.check_times(line);
        }
        if let Some(first) = first.take() {
            // The caller may have gone away.
            let _ = first.send(Ok(()));
        }
        let (error, is_removed) = self.drive(link, line).await;
        let is_wanted = !is_removed && hub.phase() == Phase::Running;
        if is_wanted && self.origin == NodeOrigin::Discovered {
            shared.state.lock().missing.insert(self.node.clone());
        }
        // The last connection ends the consumer, and a program may exit then. So the event comes first.
        self.emit(|client, node| Event::Disconnected {
            client,
            node,
            error: error.map(Arc::new),
        });
        drop(registered);
        is_wanted.then_some(self.origin != NodeOrigin::Discovered)
    }

    /// Moves bytes until the connection is over. Returns the reason, and true if the application removed the node.
    async fn drive(&mut self, link: Link, line: &Arc<Line>) -> (Option<ConnectionError>, bool) {
        let shared = Arc::clone(&self.shared);
        let source = Arc::new(Source {
            hub: Arc::clone(&shared.hub),
            line: Arc::clone(line),
        });
        let touching = shared
            .auto_touch
            .map(|auto| Arc::new(Touching::new(auto, line.msg_timeout)));
        let inbox = Arc::clone(&shared.inbox);
        let mut receiver = Receiver::new(source, inbox, touching.clone());
        #[cfg(feature = "dedup")]
        receiver.set_sieve(shared.sieve.clone());
        let mut run = std::pin::pin!(link.run(&mut receiver));
        let (mut is_removed, mut abort_at) = (false, None);
        loop {
            let touch = async {
                match &touching {
                    Some(touching) => sleep_until(touching.next_timeout(now()).into()).await,
                    None => pending().await,
                }
            };
            let abort = async {
                match abort_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                ended = &mut run => return (ended, is_removed),
                () = touch => {
                    if let Some(touching) = &touching {
                        touching.handle_timeout(now());
                    }
                }
                _ = &mut self.removal, if !is_removed => {
                    shared.hub.retire_line(line);
                    is_removed = true;
                    // `None`: the limit is too long for an `Instant`, so the connection is never aborted.
                    abort_at = tokio::time::Instant::now().checked_add(shared.drain_limit);
                }
                () = abort => line.abort(),
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let entry = state.entries.get(&self.node);
        if entry.is_some_and(|entry| entry.task_number == self.task_number) {
            state.entries.remove(&self.node);
        }
        let is_missing = state.missing.contains(&self.node);
        drop(state);
        if is_missing {
            self.shared.lost.notify_one();
        }
    }
}

/// A connection that takes part in the flow control, until this value is dropped.
struct Registered {
    shared: Arc<ConsumerShared>,
    line: Arc<Line>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let is_last = self.shared.hub.remove_line(&self.line);
        // Nobody can answer these messages any more.
        let lost = self.shared.inbox.remove(self.line.id);
        lost.iter().for_each(|message| message.delivery().forget());
        if is_last {
            self.shared.end();
        }
    }
}
