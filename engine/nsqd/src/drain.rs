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

use engine_rules::{Drain, DrainStep, Level, Owed};
use futures_channel::oneshot;
use program::{log, log_at, log_info};
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

/// Starts the thread, and returns the switch for it. A drain may take `timeout`; `None`: as long as it takes. `end` ends the
/// process.
///
/// # Errors
/// No thread could be started.
pub(crate) fn start(
    shards: impl DrainedShards,
    timeout: Option<Duration>,
    end: impl FnOnce() + Send + 'static,
) -> io::Result<DrainSwitch> {
    let (sender, orders) = channel();
    let switch = DrainSwitch {
        orders: sender,
        is_draining: Arc::default(),
    };
    let is_draining = switch.is_draining.clone();
    // The end of the process does not wait for this thread.
    Builder::new().name("drain".to_owned()).spawn(move || {
        if run(&orders, &is_draining, &shards, timeout) {
            end();
        }
    })?;
    Ok(switch)
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

/// Follows the orders. Returns true when a drain is over, and false when the process ends for another reason.
fn run(
    orders: &Receiver<Order>,
    is_draining: &AtomicBool,
    shards: &impl DrainedShards,
    timeout: Option<Duration>,
) -> bool {
    let start = Instant::now();
    let mut drain: Option<Drain> = None;
    let mut look_at = start;
    loop {
        let order = match drain {
            None => orders.recv().map_err(RecvTimeoutError::from),
            Some(_) => orders.recv_timeout(look_at.saturating_duration_since(Instant::now())),
        };
        match order {
            Ok(order) => {
                if is_draining.swap(order.is_draining, Ordering::Relaxed) != order.is_draining {
                    follow(&order, shards);
                }
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
                let (Some(owed), Some(drain)) = (shards.owed(), &mut drain) else {
                    return false;
                };
                let DrainStep { is_over, line } = drain.look(start.elapsed(), &owed);
                if let Some((level, line)) = line {
                    log_at!(log_level(level), "DRAIN: {line}");
                }
                if is_over {
                    return true;
                }
            }
        }
    }
}

fn follow(order: &Order, shards: &impl DrainedShards) {
    let source = order.source;
    if order.is_draining {
        log_info!("DRAIN: begins ({source})")
    } else {
        log_info!("DRAIN: taken back ({source}), publishes are taken again")
    }
    shards.set_draining(order.is_draining);
}

/// Returns the level of the program's log for a line of the core, which knows no log.
pub(crate) fn log_level(level: Level) -> log::Level {
    match level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warning => log::Level::Warn,
        Level::Error => log::Level::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;
    use parking_lot::Mutex;

    /// Shards that owe what the test says. Each call is noted.
    #[derive(Clone, Default)]
    struct Fake {
        owed: Arc<Mutex<u64>>,
        calls: Arc<Mutex<Vec<bool>>>,
    }

    impl DrainedShards for Fake {
        fn set_draining(&self, is_draining: bool) {
            self.calls.lock().push(is_draining);
        }

        fn owed(&self) -> Option<Owed> {
            let mut owed = Owed::default();
            owed.waiting += *self.owed.lock();
            Some(owed)
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    /// Starts the thread. The receiver hears of the end.
    fn start(owed: u64, timeout: Option<Duration>) -> (Fake, DrainSwitch, Receiver<()>) {
        let fake = Fake::default();
        *fake.owed.lock() = owed;
        let (sender, ended) = channel();
        let end = move || sender.send(()).expect("the test waits");
        let switch = super::start(fake.clone(), timeout, end).expect("a thread");
        (fake, switch, ended)
    }

    #[test]
    fn a_drain_ends_when_nothing_is_owed() {
        let (fake, switch, ended) = start(1, None);
        block_on(switch.set(true, "test")).expect("it runs");
        assert!(switch.is_draining());
        assert!(ended.recv_timeout(LOOK_EVERY * 4).is_err());
        *fake.owed.lock() = 0;
        ended.recv_timeout(LONG).expect("it ends");
        assert!(block_on(switch.set(false, "test")).is_err(), "too late");
        assert_eq!(*fake.calls.lock(), [true]);
    }

    #[test]
    fn a_drain_is_taken_back() {
        let (fake, switch, ended) = start(1, None);
        for is_draining in [true, true, false, false] {
            block_on(switch.set(is_draining, "test")).expect("it runs");
            assert_eq!(switch.is_draining(), is_draining);
        }
        *fake.owed.lock() = 0;
        assert!(ended.recv_timeout(LOOK_EVERY * 4).is_err());
        assert_eq!(*fake.calls.lock(), [true, false]);
    }

    #[test]
    fn a_drain_ends_when_its_time_is_over() {
        let (_, switch, ended) = start(1, Some(Duration::from_millis(300)));
        block_on(switch.set(true, "test")).expect("it runs");
        ended.recv_timeout(LONG).expect("it ends");
    }

    #[test]
    fn the_thread_ends_without_switches() {
        let (_, switch, ended) = start(0, None);
        drop(switch);
        assert!(ended.recv_timeout(LONG).is_err());
    }
}
