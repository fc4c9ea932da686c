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

use super::{FirstResult, Kind, Nodes};
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

/// One task's part of the state of [`Nodes`]. Removes the entry when the task ends, also when the runtime drops it.
pub(super) struct Task {
    pub(super) nodes: Arc<Nodes>,
    pub(super) node: Address,
    pub(super) kind: Kind,
    pub(super) generation: u64,
    pub(super) removal: oneshot::Receiver<()>,
    pub(super) phase: watch::Receiver<Phase>,
}

impl Task {
    /// Connects, receives, and connects again, until the node is not wanted any more.
    pub(super) async fn run(mut self, mut first: Option<FirstResult>) {
        let max = self.nodes.hub.config.lookupd_poll_interval;
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
                    let is_final = self.kind == Kind::FixedOrFail && first.is_some();
                    let retries = self.kind != Kind::Discovered && !is_final;
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
        let hub = &self.nodes.hub;
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
        let nodes = Arc::clone(&self.nodes);
        let node = self.node.clone();
        tokio::select! {
            biased;
            () = self.ended() => None,
            opened = Link::open(&*nodes.connector, &node, Arc::clone(&nodes.settings)) => Some(opened),
        }
    }

    /// Receives until the connection is over. Returns true if the node is to be connected again, and `None` if it is not
    /// wanted any more.
    async fn receive(&mut self, link: Link, first: &mut Option<FirstResult>) -> Option<bool> {
        let nodes = Arc::clone(&self.nodes);
        let hub = &nodes.hub;
        let negotiated = Arc::new(link.negotiated().clone());
        let line = hub.add_line(&self.node, &negotiated, link.outbox())?;
        let registered = Registered {
            nodes: Arc::clone(&nodes),
            line,
        };
        let line = &registered.line;
        nodes.state().missing.remove(&self.node);
        self.emit(|client, node| Event::Connected {
            client,
            node,
            negotiated,
        });
        hub.report_truncation(line, hub.max_in_flight());
        #[cfg(feature = "dedup")]
        if let Some(sieve) = &nodes.sieve {
            sieve.check_times(line);
        }
        if let Some(first) = first.take() {
            // The caller may have gone away.
            let _ = first.send(Ok(()));
        }
        let (error, is_removed) = self.drive(link, line).await;
        let is_wanted = !is_removed && hub.phase() == Phase::Running;
        if is_wanted && self.kind == Kind::Discovered {
            nodes.state().missing.insert(self.node.clone());
        }
        // The last connection ends the consumer, and a program may exit then. So the event comes first.
        self.emit(|client, node| Event::Disconnected {
            client,
            node,
            error: error.map(Arc::new),
        });
        drop(registered);
        is_wanted.then_some(self.kind != Kind::Discovered)
    }

    /// Moves bytes until the connection is over. Returns the reason, and true if the application removed the node.
    async fn drive(&mut self, link: Link, line: &Arc<Line>) -> (Option<ConnectionError>, bool) {
        let nodes = Arc::clone(&self.nodes);
        let source = Arc::new(Source {
            hub: Arc::clone(&nodes.hub),
            line: Arc::clone(line),
        });
        let touching = nodes
            .auto_touch
            .map(|auto| Arc::new(Touching::new(auto, line.msg_timeout)));
        let inbox = Arc::clone(&nodes.inbox);
        let mut receiver = Receiver::new(source, inbox, touching.clone());
        #[cfg(feature = "dedup")]
        receiver.sort_by(nodes.sieve.clone());
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
                    nodes.hub.retire_line(line);
                    is_removed = true;
                    // A very long limit ends at no time.
                    abort_at = tokio::time::Instant::now().checked_add(nodes.drain_limit);
                }
                () = abort => line.abort(),
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.nodes.state();
        let entry = state.entries.get(&self.node);
        if entry.is_some_and(|entry| entry.generation == self.generation) {
            state.entries.remove(&self.node);
        }
        let is_missing = state.missing.contains(&self.node);
        drop(state);
        if is_missing {
            self.nodes.lost.notify_one();
        }
    }
}

/// A connection that takes part in the flow control, until this value is dropped.
struct Registered {
    nodes: Arc<Nodes>,
    line: Arc<Line>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let is_last = self.nodes.hub.remove_line(&self.line);
        // Nobody can answer these messages any more.
        let lost = self.nodes.inbox.remove(self.line.id);
        lost.iter().for_each(|message| message.delivery().forget());
        if is_last {
            self.nodes.end();
        }
    }
}
