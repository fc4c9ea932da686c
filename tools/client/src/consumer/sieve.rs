//! [`Sieve`]: the messages of a consumer on their way through the filter.
//!
//! ```text
//!   connections ─► sort ─► fresh ───────────────► inbox ─► application ─► answer ─┐
//!                   │        ▲                                                    │ the claim ends
//!                   │        └───────────────── room ◄──────── key ◄──────────────┘
//!                   ├─► in progress ──────────► │ └─► near nsqd's limit: REQ
//!                   └─► done ─► FIN
//! ```

mod asking;
mod saving;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use asking::Asked;
use saving::Saving;

use super::inbox::Inbox;
use super::room::{Asking, Held, Limits, Room, Waiting};
use crate::dedup::{
    Answer, Claim, Count, Counters, Dedup, DedupReport, DedupStats, Ended, FilterKey,
    is_power_of_ten,
};
use crate::event::Event;
use crate::hub::{Hub, Phase, now};
use crate::line::Line;
use crate::message::Message;
use crate::ready::ConnectionId;

/// The intervals of questions to a filter of this process. Answers of this consumer wake its copies at once; only those of
/// other consumers with the same filter need a question.
const ASK_FILTER: Asking = Asking {
    first: Duration::from_millis(100),
    max: Duration::from_millis(100),
};

/// The intervals of questions to a store.
const ASK_STORE: Asking = Asking {
    first: Duration::from_millis(50),
    max: Duration::from_secs(1),
};

/// The longest interval between two looks for connections that are stalled.
const LOOK: Duration = Duration::from_millis(250);

/// The longest limit of nsqd, and the longest interval between saves, that count: a longer one may end at no time at all.
const LIMIT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// A copy that makes room for others comes again after a delay. These are the shortest and the longest one.
const RELIEF_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

impl Held for Message {
    fn touch(&self) {
        // A connection that is lost needs no touch.
        drop(self.delivery().touch());
    }

    fn is_gone(&self) -> bool {
        self.delivery().source.line.is_lost()
    }

    fn may_make_room(&self) -> bool {
        self.delivery().may_make_room()
    }

    fn connection(&self) -> ConnectionId {
        self.delivery().source.line.id
    }

    fn limits(&self) -> Limits {
        let delivery = self.delivery();
        let line = &delivery.source.line;
        Limits {
            delivered_at: delivery.delivered_at,
            timeout: line.msg_timeout.min(LIMIT_MAX),
            timeout_max: line.msg_timeout_max.min(LIMIT_MAX),
        }
    }
}

/// The part of a consumer that recognises messages.
pub(crate) struct Sieve {
    dedup: Dedup,
    hub: Arc<Hub>,
    inbox: Arc<Inbox>,
    runtime: Handle,
    room: Mutex<Room<Message>>,
    ended: Arc<Ended>,
    counters: Counters,
    /// True while the store does not answer.
    is_failing: AtomicBool,
    /// True when the filter is saved, after the end of the consumer.
    is_over: watch::Sender<bool>,
}

impl Sieve {
    pub(crate) fn new(dedup: Dedup, hub: Arc<Hub>, inbox: Arc<Inbox>, runtime: Handle) -> Sieve {
        Sieve {
            dedup,
            hub,
            inbox,
            runtime,
            room: Mutex::new(Room::new()),
            ended: Arc::default(),
            counters: Counters::default(),
            is_failing: AtomicBool::new(false),
            is_over: watch::Sender::new(false),
        }
    }

    fn room(&self) -> MutexGuard<'_, Room<Message>> {
        // No section of the lock can be left half done by a panic.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers since the consumer was made.
    pub(crate) fn stats(&self) -> DedupStats {
        let waiting = self.room().len() as u64;
        let mut stats = self.counters.stats(waiting, self.dedup.bytes());
        stats.store_failures += self.ended.failures();
        stats
    }

    /// Returns the number of copies of a connection that wait, or about which the store is asked.
    pub(crate) fn waiting(&self, line: &Line) -> usize {
        self.room().len_of(line.id) + line.questions()
    }

    /// Warns of each time of the filter that is shorter than the message timeout of a new connection.
    pub(crate) fn check_times(&self, line: &Line) {
        for (name, time) in self.dedup.shorter_than(line.msg_timeout) {
            self.report(DedupReport::ShorterThanTimeout {
                node: line.node.clone(),
                name,
                time,
                msg_timeout: line.msg_timeout,
            });
        }
    }

    /// Resolves when the consumer is over and its filter is saved.
    pub(crate) async fn over(&self) {
        let mut is_over = self.is_over.subscribe();
        // The sender is in `self`, so it cannot be lost.
        let _ = is_over.wait_for(|is_over| *is_over).await;
    }

    /// Keeps in `messages` those that the application gets at once. The filter finishes, holds back or asks about the
    /// others.
    pub(crate) fn sort(self: &Arc<Sieve>, messages: &mut Vec<Message>) {
        let scope = self.hub.client.subscription().unwrap_or_default();
        let arrived = std::mem::take(messages);
        messages.reserve(arrived.len());
        for message in arrived {
            match self.dedup.key(scope, message.body()) {
                Some(key) if self.dedup.is_shared() => {
                    let waiting = Waiting::new(now(), key, message, ASK_STORE);
                    self.ask_store(Asked::Arrived(waiting));
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
        let client = self.hub.client.clone();
        self.hub.events.emit(Event::Dedup { client, report });
    }

    /// Asks the filter of this process about a message that has arrived. Returns a fresh message.
    fn decide(&self, key: FilterKey, message: Message) -> Option<Message> {
        match self.dedup.begin(key, &self.ended) {
            Answer::Fresh(claim) => Some(self.fresh(message, claim)),
            Answer::Done => {
                self.finish(&message);
                None
            }
            Answer::InProgress => {
                self.counters.add(Count::Waited);
                let waiting = Waiting::new(now(), key, message, ASK_FILTER);
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
        // The answer is on its way without being awaited.
        drop(message.delivery().finish_duplicate());
    }

    /// Lets a copy wait. Its twin may end at any time, so the copy asks a filter of this process once more when it is in
    /// the room. A store is asked in intervals.
    fn wait(&self, waiting: Waiting<Message>) {
        let key = waiting.key;
        waiting.copy.delivery().set_waited();
        let mut room = self.room();
        room.put(waiting);
        self.ended.watch(true);
        drop(room);
        match self.dedup.is_shared() {
            true => self.ended.wake(),
            false => self.ended.push(key),
        }
    }

    /// Gives a fresh message to the application, or back to nsqd if the application takes no more.
    fn deliver(&self, message: Message) {
        let from = message.connection();
        let mut messages = vec![message];
        self.inbox.push(from, &mut messages);
        for message in messages {
            // The answer is on its way without being awaited.
            message.delivery().give_back();
        }
    }

    /// Asks the filter again about copies whose twin has an answer.
    fn handle_ended(self: &Arc<Sieve>) {
        for key in self.ended.take() {
            let copies = self.room().take(key);
            match self.dedup.is_shared() {
                true => copies
                    .into_iter()
                    .for_each(|waiting| self.ask_store(Asked::Again(waiting))),
                false => self.ask_again(copies),
            }
        }
    }

    fn ask_again(&self, copies: Vec<Waiting<Message>>) {
        for waiting in copies {
            match self.dedup.begin(waiting.key, &self.ended) {
                Answer::Fresh(claim) => {
                    let message = self.fresh(waiting.copy, claim);
                    self.deliver(message);
                }
                Answer::Done => self.finish(&waiting.copy),
                Answer::InProgress => self.room().put(waiting),
            }
        }
    }

    /// Carries out what is due in the room.
    fn handle_timeout(self: &Arc<Sieve>, now: Instant) {
        let asking = self.asking();
        let mut room = self.room();
        let lines = self.hub.lines();
        let lines = lines
            .iter()
            .map(|(line, ready)| (line.id, line.in_flight(), *ready));
        // While the store fails, other messages would not be handled either.
        let relieved = match self.is_failing.load(Ordering::Relaxed) {
            true => Vec::new(),
            false => room.relieve(now, lines),
        };
        let due = room.handle_timeout(now, asking);
        // Copies that are being asked about may come back.
        self.ended.watch(room.len() > 0 || !due.ask.is_empty());
        drop(room);
        for message in due.gone {
            message.delivery().forget();
        }
        for message in due.requeue {
            self.requeue(&message, self.hub.config.default_requeue_delay);
        }
        for message in relieved {
            let (shortest, longest) = RELIEF_DELAY;
            let delay = message.limits().timeout / 10;
            self.requeue(&message, delay.clamp(shortest, longest));
        }
        if self.dedup.is_shared() {
            for waiting in due.ask {
                self.ask_store(Asked::Again(waiting));
            }
        } else {
            self.ask_again(due.ask);
        }
    }

    fn requeue(&self, message: &Message, delay: Duration) {
        self.counters.add(Count::Requeued);
        // The answer is on its way without being awaited.
        let delay = delay.min(self.hub.config.max_requeue_delay);
        drop(message.delivery().give_back_after(delay));
    }

    fn asking(&self) -> Asking {
        match self.dedup.is_shared() {
            true => ASK_STORE,
            false => ASK_FILTER,
        }
    }

    /// With a store, gives all copies that wait back to nsqd, because the consumers of other processes can take them.
    /// Otherwise the end would wait for the store, or for the lease of another process. Without a store, the copies stay:
    /// the filter of another process would not know them.
    fn handle_stop(&self) {
        if self.dedup.is_shared() {
            for message in self.room().take_all() {
                // The answer is on its way without being awaited.
                drop(message.delivery().give_back());
            }
        }
    }

    /// Ends the consumer for the application, after the filter is saved.
    fn end(&self) {
        self.inbox.close();
        self.is_over.send_replace(true);
    }
}

/// Serves the room until the end of the consumer, and saves the filter.
pub(crate) async fn serve_room(sieve: Arc<Sieve>) {
    let ending = Ending(&sieve);
    let mut phase = sieve.hub.watch_phase();
    let mut seen = Phase::Running;
    // A very long interval ends at no time.
    let every = sieve.dedup.save_interval().unwrap_or(LIMIT_MAX);
    let every = every.min(LIMIT_MAX);
    let mut saves = interval_at(tokio::time::Instant::now() + every, every);
    saves.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut saving = Saving::default();
    while seen != Phase::Stopped {
        let change = async {
            // The sender is in the hub, so the phase cannot be lost.
            let phase = phase.wait_for(|phase| *phase != seen).await;
            phase.map_or(Phase::Stopped, |phase| *phase)
        };
        let next = sieve.room().next_timeout();
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
            () = sieve.ended.changed() => sieve.handle_ended(),
            () = timeout => sieve.handle_timeout(now()),
            _ = saves.tick(), if sieve.dedup.save_interval().is_some() => saving.begin(&sieve),
        }
    }
    for message in sieve.room().take_all() {
        message.delivery().forget();
    }
    let stats = sieve.stats();
    sieve.report(DedupReport::Ended { stats });
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
