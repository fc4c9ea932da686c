//! The drain of the process. One thread begins the drain, asks all shards what is still owed, and ends the process when
//! nothing is. The thread also takes the drain back, if an operator wants that.
//!
//! ```text
//!   SIGTERM, PUT /config/drain ──► DrainSwitch ──► thread "drain" ──► all shards: refuse publishes, or take them again
//!                                                     │   ▲
//!                                                     │   └── what is owed, every 250 ms
//!                                                     └──► the end of the process
//! ```
//!
//! The thread follows one order after the other. So all shards are in the same state when an order is answered.

use crate::log_level::log_level;
use engine_rules::{Drain, DrainStep, Level, Owed};
use futures_channel::oneshot;
use program::{log_at, log_info};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The time between two looks at what is owed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The shards, as the drain sees them.
pub(crate) trait DrainedShards: Send + 'static {
    /// Makes all shards refuse publishes, or take them again. Returns when all do.
    fn set_draining(&self, is_draining: bool);
    /// Returns what all shards owe. `None`: a shard has stopped.
    fn owed(&self) -> Option<Owed>;
}

/// Switches the drain on and off. Clones switch the same drain.
#[derive(Clone)]
pub(crate) struct DrainSwitch {
    orders: Sender<Order>,
    is_draining: Arc<AtomicBool>,
}

/// The thread's end of the switch, before the thread starts.
pub(crate) struct DrainOrders {
    orders: Receiver<Order>,
    is_draining: Arc<AtomicBool>,
}

/// An order to begin the drain, or to take it back.
struct Order {
    is_draining: bool,
    /// The text that says where the order comes from.
    source: &'static str,
    done: oneshot::Sender<()>,
}

/// The process ends, so its drain cannot be switched any more.
#[derive(Debug)]
pub(crate) struct Ending;

/// Returns a switch, and the end of the switch that the thread reads.
pub(crate) fn switch() -> (DrainSwitch, DrainOrders) {
    let (sender, orders) = channel();
    let is_draining = Arc::<AtomicBool>::default();
    let switch = DrainSwitch {
        orders: sender,
        is_draining: is_draining.clone(),
    };
    (
        switch,
        DrainOrders {
            orders,
            is_draining,
        },
    )
}

impl DrainSwitch {
    /// Returns whether a drain is under way.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Begins a drain, or takes it back. Returns when all shards have followed. `source` is for the log.
    ///
    /// # Errors
    /// The process ends.
    pub(crate) async fn set(&self, is_draining: bool, source: &'static str) -> Result<(), Ending> {
        let (done, is_done) = oneshot::channel();
        let order = Order {
            is_draining,
            source,
            done,
        };
        self.orders.send(order).map_err(|_| Ending)?;
        is_done.await.map_err(|_| Ending)
    }
}

impl DrainOrders {
    /// Starts the thread. A drain may take `timeout`; `None`: as long as it takes. `end` ends the process.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        self,
        shards: impl DrainedShards,
        timeout: Option<Duration>,
        end: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let thread = Builder::new().name("drain".to_owned());
        // The end of the process does not wait for this thread.
        let run = move || {
            if self.run(&shards, timeout) {
                end();
            }
        };
        thread.spawn(run).map(drop)
    }

    /// Returns true when a drain is over, and false when the process ends for another reason.
    fn run(&self, shards: &impl DrainedShards, timeout: Option<Duration>) -> bool {
        let start = Instant::now();
        let mut drain: Option<Drain> = None;
        let mut look_at = start;
        loop {
            let order = match drain {
                None => self.orders.recv().map_err(RecvTimeoutError::from),
                Some(_) => {
                    let wait = look_at.saturating_duration_since(Instant::now());
                    self.orders.recv_timeout(wait)
                }
            };
            match order {
                Ok(order) => {
                    self.follow(order.is_draining, order.source, shards);
                    if !order.is_draining {
                        drain = None;
                    } else if drain.is_none() {
                        drain = Some(Drain::begin(start.elapsed(), timeout));
                        // The answer to the order leaves before the end of a process that owes nothing.
                        look_at = Instant::now() + LOOK_EVERY;
                    }
                    // The operator may have closed the connection.
                    let _ = order.done.send(());
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {
                    look_at = Instant::now() + LOOK_EVERY;
                    let Some(owed) = shards.owed() else {
                        return false;
                    };
                    let step = drain.as_mut().map(|it| it.look(start.elapsed(), &owed));
                    match step {
                        Some(DrainStep::End(level, line)) => {
                            log(level, &line);
                            return true;
                        }
                        Some(DrainStep::GoOn(Some((level, line)))) => log(level, &line),
                        Some(DrainStep::GoOn(None)) | None => {}
                    }
                }
            }
        }
    }

    fn follow(&self, is_draining: bool, source: &str, shards: &impl DrainedShards) {
        if self.is_draining.swap(is_draining, Ordering::Relaxed) == is_draining {
            return;
        }
        if is_draining {
            log_info!("DRAIN: begins ({source})")
        } else {
            log_info!("DRAIN: taken back ({source}), publishes are taken again")
        }
        shards.set_draining(is_draining);
    }
}

fn log(level: Level, line: &str) {
    log_at!(log_level(level), "DRAIN: {line}");
}

#[cfg(test)]
mod tests;
