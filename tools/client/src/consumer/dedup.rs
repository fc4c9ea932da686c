//! [`DedupTask`]: the messages of a consumer on their way through the filter, and the task that serves the copies that
//! wait.
//!
//! ```text
//!   connections ─► filter ─► fresh ─────────────► inbox ─► application ─► answer ─┐
//!                   │         ▲                                                   │ the claim ends
//!                   │         └─────────── copies that wait ◄── key ◄─────────────┘
//!                   ├─► in progress ─────────► │ └─► near nsqd's limit: REQ
//!                   └─► done ─► FIN
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval_at};

use super::connection::ConsumerConnection;
use super::inbox::Inbox;
use super::message::Message;
use super::ready::ConnectionId;
use super::state::{ConsumerState, Phase, now, wait_until};
use super::waiting_copies::{CheckInterval, Held, Limits, WaitingCopies, WaitingCopy};
use crate::dedup::{
    Claim, ClaimEnds, Count, Counters, Dedup, DedupReport, DedupStats, FilterAnswer, FilterKey,
    SaveResult, is_power_of_ten,
};
use crate::event::Event;

/// The intervals between checks at a filter of this process. Answers of this consumer wake its copies at once; only
/// those of other consumers with the same filter need a check.
const FILTER_CHECKS: CheckInterval = CheckInterval {
    first: Duration::from_millis(100),
    max: Duration::from_millis(100),
};

/// The intervals between checks at a store.
const STORE_CHECKS: CheckInterval = CheckInterval {
    first: Duration::from_millis(50),
    max: Duration::from_secs(1),
};

/// The cap for nsqd's limits and for the save interval, 30 days: adding a larger one to an `Instant` could overflow.
const LIMIT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// A copy that makes room for others comes again after a delay. These are the shortest and the longest one.
const RELIEF_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The part of a consumer that recognises messages.
pub(crate) struct DedupTask {
    dedup: Dedup,
    state: Arc<ConsumerState>,
    inbox: Arc<Inbox>,
    runtime: Handle,
    copies: Mutex<WaitingCopies<Message>>,
    claim_ends: Arc<ClaimEnds>,
    counters: Arc<Counters>,
    /// True while the store is unavailable.
    is_unavailable: AtomicBool,
    /// True when the filter is saved, after the end of the consumer.
    is_over: watch::Sender<bool>,
}

impl DedupTask {
    pub(crate) fn new(
        dedup: Dedup,
        state: Arc<ConsumerState>,
        inbox: Arc<Inbox>,
        runtime: Handle,
    ) -> DedupTask {
        let counters = Arc::default();
        DedupTask {
            dedup,
            state,
            inbox,
            runtime,
            copies: Mutex::new(WaitingCopies::new()),
            claim_ends: Arc::new(ClaimEnds::new(&counters)),
            counters,
            is_unavailable: AtomicBool::new(false),
            is_over: watch::Sender::new(false),
        }
    }

    /// Returns the numbers since the consumer was made.
    pub(crate) fn stats(&self) -> DedupStats {
        let waiting = self.copies.lock().len() as u64;
        self.counters.stats(waiting, self.dedup.bytes())
    }

    /// Returns the number of copies of a connection that wait, or about which the store is asked.
    pub(crate) fn waiting(&self, connection: &ConsumerConnection) -> usize {
        self.copies.lock().len_of(connection.id) + connection.checks()
    }

    /// Warns of each time of the filter that is shorter than the message timeout of a new connection.
    pub(crate) fn check_times(&self, connection: &ConsumerConnection) {
        for (name, time) in self.dedup.shorter_than(connection.msg_timeout) {
            self.report(DedupReport::ShorterThanTimeout {
                node: connection.node.clone(),
                name,
                time,
                msg_timeout: connection.msg_timeout,
            });
        }
    }

    /// Resolves when the consumer is over and its filter is saved.
    pub(crate) async fn over(&self) {
        let mut is_over = self.is_over.subscribe();
        // The sender is in `self`, so it cannot be lost.
        let _ = is_over.wait_for(|is_over| *is_over).await;
    }

    /// Keeps the messages that the application gets at once. Takes the others out of `messages`: a copy of a message
    /// that is done is finished, a copy of one in progress waits, and a store is asked first.
    pub(crate) fn keep_fresh(self: &Arc<DedupTask>, messages: &mut Vec<Message>) {
        let client = self.state.events.client();
        let scope = client.subscription().unwrap_or_default();
        let arrived = std::mem::take(messages);
        messages.reserve(arrived.len());
        for message in arrived {
            match self.dedup.key(scope, message.body()) {
                Some(key) if self.dedup.is_shared() => {
                    let waiting = WaitingCopy::new(now(), key, message, STORE_CHECKS);
                    self.begin_store_check(waiting);
                }
                Some(key) => messages.extend(self.decide(key, message)),
                None => {
                    self.count_without_key();
                    messages.push(message);
                }
            }
        }
    }

    fn count_without_key(&self) {
        let count = self.counters.add(Count::WithoutKey);
        if is_power_of_ten(count) {
            self.report(DedupReport::WithoutKey { count });
        }
    }

    fn report(&self, report: DedupReport) {
        let events = &self.state.events;
        events.emit(|client| Event::Dedup { client, report });
    }

    /// Asks the filter of this process about a message that has arrived. Returns a fresh message.
    fn decide(&self, key: FilterKey, message: Message) -> Option<Message> {
        match self.dedup.filter().begin(key, &self.claim_ends) {
            FilterAnswer::Fresh(claim) => Some(self.fresh(message, claim)),
            FilterAnswer::Done => {
                self.finish(&message);
                None
            }
            FilterAnswer::InProgress => {
                self.counters.add(Count::Waited);
                let waiting = WaitingCopy::new(now(), key, message, FILTER_CHECKS);
                self.wait(waiting);
                None
            }
        }
    }

    fn fresh(&self, message: Message, claim: Box<Claim>) -> Message {
        self.counters.add(Count::Fresh);
        message.delivery().set_claim(claim, &self.runtime);
        message
    }

    fn finish(&self, message: &Message) {
        self.counters.add(Count::Done);
        drop(message.delivery().finish_duplicate());
    }

    /// Lets a copy wait. The first copy may end at any time, so the waiting copy asks a filter of this process once
    /// more when it is among those that wait. A store is asked in intervals.
    fn wait(&self, waiting: WaitingCopy<Message>) {
        let key = waiting.key;
        waiting.copy.delivery().set_waited();
        let mut copies = self.copies.lock();
        copies.put(waiting);
        self.claim_ends.watch(true);
        drop(copies);
        if self.dedup.is_shared() {
            self.claim_ends.wake()
        } else {
            self.claim_ends.check_again(key)
        }
    }

    /// Gives a fresh message to the application, or back to nsqd if the application takes no more.
    fn deliver(&self, message: Message) {
        let from = message.connection();
        let mut messages = vec![message];
        self.inbox.push(from, &mut messages);
        for message in messages {
            message.delivery().give_back();
        }
    }

    /// Asks the filter again about copies whose first copy has an answer.
    fn handle_ended(self: &Arc<DedupTask>) {
        for key in self.claim_ends.take() {
            let copies = self.copies.lock().take(key);
            self.check_again(copies);
        }
    }

    /// Asks the filter or the store again about copies that waited.
    fn check_again(self: &Arc<DedupTask>, copies: Vec<WaitingCopy<Message>>) {
        for waiting in copies {
            if self.dedup.is_shared() {
                self.begin_store_check(waiting);
                continue;
            }
            match self.dedup.filter().begin(waiting.key, &self.claim_ends) {
                FilterAnswer::Fresh(claim) => {
                    let message = self.fresh(waiting.copy, claim);
                    self.deliver(message);
                }
                FilterAnswer::Done => self.finish(&waiting.copy),
                FilterAnswer::InProgress => self.copies.lock().put(waiting),
            }
        }
    }

    /// Carries out what is due for the copies that wait.
    fn handle_timeout(self: &Arc<DedupTask>, now: Instant) {
        let checks = self.check_interval();
        let mut copies = self.copies.lock();
        let connections = self.state.connections();
        let connections = connections
            .iter()
            .map(|(connection, ready)| (connection.id, connection.in_flight(), *ready));
        // While the store is unavailable, other messages would not be handled either.
        let relieved = if self.is_unavailable.load(Ordering::Relaxed) {
            Vec::new()
        } else {
            copies.relieve(now, connections)
        };
        let due = copies.handle_timeout(now, checks);
        // Copies that are being asked about may come back.
        self.claim_ends
            .watch(copies.len() > 0 || !due.check.is_empty());
        drop(copies);
        for message in due.gone {
            message.delivery().forget();
        }
        for message in due.requeue {
            self.requeue(&message, self.state.config.default_requeue_delay);
        }
        for message in relieved {
            let (shortest, longest) = RELIEF_DELAY;
            let delay = message.limits().timeout / 10;
            self.requeue(&message, delay.clamp(shortest, longest));
        }
        self.check_again(due.check);
    }

    fn requeue(&self, message: &Message, delay: Duration) {
        self.counters.add(Count::Requeued);
        let delay = delay.min(self.state.config.max_requeue_delay);
        drop(message.delivery().give_back_after(delay));
    }

    fn check_interval(&self) -> CheckInterval {
        if self.dedup.is_shared() {
            STORE_CHECKS
        } else {
            FILTER_CHECKS
        }
    }

    /// With a store, returns all waiting copies to nsqd: a consumer of another process can take them, and this one need
    /// not wait for the store or for a lease. With a filter of this process, the copies stay, because no other process
    /// knows the keys.
    fn handle_stop(&self) {
        if self.dedup.is_shared() {
            for message in self.copies.lock().take_all() {
                drop(message.delivery().give_back());
            }
        }
    }
}

impl Held for Message {
    fn touch(&self) {
        // A connection that is lost needs no touch.
        drop(self.delivery().touch());
    }

    fn is_gone(&self) -> bool {
        self.delivery().source.connection.is_lost()
    }

    fn may_go_back(&self) -> bool {
        self.delivery().may_go_back()
    }

    fn connection(&self) -> ConnectionId {
        self.delivery().source.connection.id
    }

    fn limits(&self) -> Limits {
        let delivery = self.delivery();
        let connection = &delivery.source.connection;
        Limits {
            delivered_at: delivery.delivered_at,
            timeout: connection.msg_timeout.min(LIMIT_MAX),
            timeout_max: connection.msg_timeout_max.min(LIMIT_MAX),
        }
    }
}

impl DedupTask {
    /// Asks the store about a message that has arrived, or about a copy that has waited: in a task, because the store
    /// takes its time.
    #[cfg(feature = "memcached")]
    fn begin_store_check(self: &Arc<DedupTask>, waiting: WaitingCopy<Message>) {
        use crate::dedup::WhenUnavailable;

        let task = Arc::clone(self);
        let delivery = waiting.copy.delivery();
        let (is_new, connection) = (!delivery.has_waited(), &delivery.source.connection);
        let (counted, msg_timeout) = (Arc::clone(&connection.checks), connection.msg_timeout);
        self.runtime.spawn(async move {
            let _counted = counted;
            let filter = task.dedup.filter();
            let request = filter.begin_shared(waiting.key, msg_timeout, &task.claim_ends);
            let answer = request.await;
            task.set_availability(answer.as_ref().err().map(ToString::to_string));
            match answer {
                Ok(FilterAnswer::Fresh(claim)) => {
                    let message = task.fresh(waiting.copy, claim);
                    task.deliver(message);
                    return;
                }
                Ok(FilterAnswer::Done) => return task.finish(&waiting.copy),
                Ok(FilterAnswer::InProgress) if is_new => {
                    task.counters.add(Count::Waited);
                }
                Ok(FilterAnswer::InProgress) => {}
                Err(_) => {
                    task.counters.add(Count::FailedCheck);
                    if task.dedup.when_store_unavailable() == WhenUnavailable::Handle {
                        return task.deliver(waiting.copy);
                    }
                }
            }
            if task.state.phase() != Phase::Running {
                drop(waiting.copy.delivery().give_back())
            } else {
                task.wait(waiting)
            }
        });
    }

    /// States that the store is unavailable, or answers again.
    #[cfg(feature = "memcached")]
    fn set_availability(&self, error: Option<String>) {
        let was_unavailable = self.is_unavailable.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_unavailable => self.report(DedupReport::StoreUnavailable { error }),
            None if was_unavailable => self.report(DedupReport::StoreAvailable),
            _ => {}
        }
    }

    #[cfg(not(feature = "memcached"))]
    fn begin_store_check(self: &Arc<DedupTask>, _waiting: WaitingCopy<Message>) {
        unreachable!("without a store, no filter is outside of this process");
    }
}

/// The saves while the consumer runs (`save_interval`), apart from the one at its end. One of them runs at a time: a
/// disk that hangs would keep a thread and a snapshot of the filter for each.
#[derive(Default)]
struct IntervalSaves {
    last: Option<JoinHandle<()>>,
    is_reported: bool,
}

impl IntervalSaves {
    /// Begins a save, if the last one has ended. The filter is not saved if another consumer with this filter saves it,
    /// or has begun to save it a short time ago.
    fn begin(&mut self, task: &Arc<DedupTask>) {
        if self.last.as_ref().is_some_and(|last| !last.is_finished()) {
            if let (false, Some(path)) = (self.is_reported, task.dedup.state_file()) {
                let path = path.to_owned();
                task.report(DedupReport::SaveDelayed { path });
            }
            self.is_reported = true;
            return;
        }
        self.is_reported = false;
        let task = Arc::clone(task);
        self.last = Some(tokio::spawn(async move {
            if let Some(saved) = task.dedup.save_if_due(&task.runtime).await {
                task.report_save(saved);
            }
        }));
    }
}

impl DedupTask {
    /// Saves the filter at the end.
    async fn save(&self) {
        if self.dedup.state_file().is_some() {
            self.report_save(self.dedup.save_or_join(&self.runtime).await);
        }
    }

    fn report_save(&self, saved: SaveResult) {
        let Some(path) = self.dedup.state_file() else {
            return;
        };
        let path = path.to_owned();
        self.report(match saved {
            Ok(()) => DedupReport::Saved { path },
            Err(error) => DedupReport::SaveFailed { path, error },
        });
    }
}

/// The longest interval between two looks for connections that are stalled.
const LOOK: Duration = Duration::from_millis(250);

/// Serves the copies that wait until the end of the consumer, and saves the filter.
pub(crate) async fn serve_waiting_copies(task: Arc<DedupTask>) {
    let ending = Ending(&task);
    let mut phase = task.state.watch_phase();
    let mut seen = Phase::Running;
    // Without a save interval, the timer is never used.
    let every = task.dedup.save_interval().unwrap_or(LIMIT_MAX);
    let every = every.min(LIMIT_MAX);
    let mut saves = interval_at(tokio::time::Instant::now() + every, every);
    saves.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interval_saves = IntervalSaves::default();
    while seen != Phase::Stopped {
        let change = async {
            // The sender is in the state, so the phase cannot be lost.
            let phase = phase.wait_for(|phase| *phase != seen).await;
            phase.map_or(Phase::Stopped, |phase| *phase)
        };
        let next = task.copies.lock().next_timeout();
        let next = next.map(|at| at.min(now() + LOOK));
        tokio::select! {
            biased;
            phase = change => {
                seen = phase;
                task.handle_stop();
            }
            () = task.claim_ends.changed() => task.handle_ended(),
            () = wait_until(next) => task.handle_timeout(now()),
            _ = saves.tick(), if task.dedup.save_interval().is_some() => interval_saves.begin(&task),
        }
    }
    for message in task.copies.lock().take_all() {
        message.delivery().forget();
    }
    let stats = task.stats();
    task.report(DedupReport::ConsumerStopped { stats });
    task.save().await;
    drop(ending);
}

/// Ends the consumer for the application, also if the runtime drops the task.
struct Ending<'a>(&'a DedupTask);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.inbox.close();
        self.0.is_over.send_replace(true);
    }
}
