//! [`Sieve`]: the messages of a consumer on their way through the filter.
//!
//! ```text
//!   connections ─► sieve ─► fresh ──────────────► inbox ─► application ─► answer ─┐
//!                   │        ▲                                                    │ the claim ends
//!                   │        └──────────── copies that wait ◄── key ◄─────────────┘
//!                   ├─► in progress ──────────► │ └─► near nsqd's limit: REQ
//!                   └─► done ─► FIN
//! ```

mod held;
mod interval_saves;
mod store_checks;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(super) use task::serve_waiting_copies;

use store_checks::StoreCheck;

use super::inbox::Inbox;
use super::waiting_copies::{CheckInterval, Held, WaitingCopies, WaitingCopy};
use crate::dedup::{
    Claim, ClaimEnds, Count, Counters, Dedup, DedupReport, DedupStats, FilterAnswer, FilterKey,
    is_power_of_ten,
};
use crate::event::Event;
use crate::hub::{Hub, now};
use crate::line::Line;
use crate::message::Message;

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
pub(crate) struct Sieve {
    dedup: Dedup,
    hub: Arc<Hub>,
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

impl Sieve {
    pub(crate) fn new(dedup: Dedup, hub: Arc<Hub>, inbox: Arc<Inbox>, runtime: Handle) -> Sieve {
        let counters = Arc::default();
        Sieve {
            dedup,
            hub,
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
    pub(crate) fn waiting(&self, line: &Line) -> usize {
        self.copies.lock().len_of(line.id) + line.checks()
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

    /// Keeps the messages that the application gets at once. Takes the others out of `messages`: a copy of a message
    /// that is done is finished, a copy of one in progress waits, and a store is asked first.
    pub(crate) fn keep_fresh(self: &Arc<Sieve>, messages: &mut Vec<Message>) {
        let scope = self.hub.client.subscription().unwrap_or_default();
        let arrived = std::mem::take(messages);
        messages.reserve(arrived.len());
        for message in arrived {
            match self.dedup.key(scope, message.body()) {
                Some(key) if self.dedup.is_shared() => {
                    let waiting = WaitingCopy::new(now(), key, message, STORE_CHECKS);
                    self.begin_store_check(StoreCheck::Arrived(waiting));
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
        match self.dedup.begin(key, &self.claim_ends) {
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
    fn handle_ended(self: &Arc<Sieve>) {
        for key in self.claim_ends.take() {
            let copies = self.copies.lock().take(key);
            if self.dedup.is_shared() {
                copies
                    .into_iter()
                    .for_each(|waiting| self.begin_store_check(StoreCheck::Again(waiting)))
            } else {
                self.check_again(copies)
            }
        }
    }

    fn check_again(&self, copies: Vec<WaitingCopy<Message>>) {
        for waiting in copies {
            match self.dedup.begin(waiting.key, &self.claim_ends) {
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
    fn handle_timeout(self: &Arc<Sieve>, now: Instant) {
        let checks = self.check_interval();
        let mut copies = self.copies.lock();
        let lines = self.hub.lines();
        let lines = lines
            .iter()
            .map(|(line, ready)| (line.id, line.in_flight(), *ready));
        // While the store is unavailable, other messages would not be handled either.
        let relieved = if self.is_unavailable.load(Ordering::Relaxed) {
            Vec::new()
        } else {
            copies.relieve(now, lines)
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
            self.requeue(&message, self.hub.config.default_requeue_delay);
        }
        for message in relieved {
            let (shortest, longest) = RELIEF_DELAY;
            let delay = message.limits().timeout / 10;
            self.requeue(&message, delay.clamp(shortest, longest));
        }
        if self.dedup.is_shared() {
            for waiting in due.check {
                self.begin_store_check(StoreCheck::Again(waiting));
            }
        } else {
            self.check_again(due.check);
        }
    }

    fn requeue(&self, message: &Message, delay: Duration) {
        self.counters.add(Count::Requeued);
        let delay = delay.min(self.hub.config.max_requeue_delay);
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

    /// Ends the consumer for the application, after the filter is saved.
    fn end(&self) {
        self.inbox.close();
        self.is_over.send_replace(true);
    }
}
