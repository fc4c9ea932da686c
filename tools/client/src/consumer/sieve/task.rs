//! The task of a [`Sieve`], from the beginning to the end of its consumer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::interval_saves::IntervalSaves;
use super::{LIMIT_MAX, Sieve};
use crate::dedup::DedupReport;
use crate::hub::{Phase, now};

/// The longest interval between two looks for connections that are stalled.
const LOOK: Duration = Duration::from_millis(250);

/// Serves the copies that wait until the end of the consumer, and saves the filter.
pub(crate) async fn serve_waiting_copies(sieve: Arc<Sieve>) {
    let ending = Ending(&sieve);
    let mut phase = sieve.hub.watch_phase();
    let mut seen = Phase::Running;
    // Without a save interval, the timer is never used.
    let every = sieve.dedup.save_interval().unwrap_or(LIMIT_MAX);
    let every = every.min(LIMIT_MAX);
    let mut saves = interval_at(tokio::time::Instant::now() + every, every);
    saves.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interval_saves = IntervalSaves::default();
    while seen != Phase::Stopped {
        let change = async {
            // The sender is in the hub, so the phase cannot be lost.
            let phase = phase.wait_for(|phase| *phase != seen).await;
            phase.map_or(Phase::Stopped, |phase| *phase)
        };
        let next = sieve.copies.lock().next_timeout();
        let timeout = async {
            match next {
                Some(at) => sleep_until(at.min(now() + LOOK).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            phase = change => {
                seen = phase;
                sieve.handle_stop();
            }
            () = sieve.claim_ends.changed() => sieve.handle_ended(),
            () = timeout => sieve.handle_timeout(now()),
            _ = saves.tick(), if sieve.dedup.save_interval().is_some() => interval_saves.begin(&sieve),
        }
    }
    for message in sieve.copies.lock().take_all() {
        message.delivery().forget();
    }
    let stats = sieve.stats();
    sieve.report(DedupReport::ConsumerStopped { stats });
    sieve.save().await;
    drop(ending);
}

/// Ends the consumer, also if the runtime drops the task.
struct Ending<'a>(&'a Sieve);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
