//! [`Ready`]: the distribution of `max_in_flight` over the connections of a consumer, as RDY counts. A state machine
//! without clock, task or I/O.
//!
//! ```text
//!   enough for all   each connection has floor(max / connections). Lower counts are sent before higher ones
//!   scarce           not every connection can have 1: `max` < connections, or messages in flight leave less. The turns go
//!                    round
//!   backoff          all have 0, or one of them has 1
//! ```
//!
//! nsqd keeps a RDY count until the next one, so a count is sent only when it changes.
//!
//! A count that is lowered takes no message back. So a connection *holds* as many of `max` as it has messages in
//! flight, if these are more than its count, and other connections get what is left. nsqd does not confirm RDY.
//! Messages that it sent under the earlier count may come for a while, so the connection holds that count for the
//! settle time.

use std::time::{Duration, Instant};

use crate::config::Config;

/// The time after which a connection with less than its share asks again. A change of another connection gives it RDY
/// at once if it has one; without this time, a connection could wait for ever.
const RETRY: Duration = Duration::from_secs(5);

/// The time for which messages under an earlier count are expected, beside the time that they may wait in nsqd's
/// buffer: the way to nsqd and back.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// One connection of a consumer. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A RDY count for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetReady {
    pub(crate) connection: ConnectionId,
    pub(crate) count: u32,
}

/// The RDY counts of one consumer.
///
/// Invariants: the sum of all counts is at most `max`, and at most 1 in backoff. No count is above the connection's own
/// maximum. No count grows while the connections hold `max`. Outside of backoff, if `max` is enough for a count of 1
/// each, and nothing else holds it, each connection has at least 1.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// The connections in the order of their numbers.
    connections: Vec<Connection>,
    /// The sum of all counts.
    total: u32,
    max: u32,
    is_backoff: bool,
    idle_timeout: Duration,
    hold_timeout: Duration,
    /// The time for which a connection holds the count that it had before.
    settle_time: Duration,
    random: fastrand::Rng,
}

#[derive(Clone, Debug)]
struct Connection {
    id: ConnectionId,
    count: u32,
    /// nsqd's `max_rdy_count`.
    count_max: u32,
    /// The time of the last message, or that of the connection's creation.
    active_at: Instant,
    /// The time at which the present count was set.
    set_at: Instant,
    /// The time at which the connection last went to 0. `None` if it never had any.
    held_until: Option<Instant>,
    retry_at: Option<Instant>,
    /// The messages that came and have no answer.
    in_flight: u32,
    /// Earlier counts, each with the time until which messages under it may come. The counts fall, and the times grow.
    earlier: Vec<(u32, Instant)>,
    /// True when nsqd was asked to send nothing more.
    is_leaving: bool,
}

impl Connection {
    /// Returns how many of `max` the connection holds.
    fn held(&self, now: Instant) -> u32 {
        let mut earlier = self.earlier.iter();
        let expected = earlier.find(|(_, until)| *until > now);
        let expected = expected.map_or(0, |(count, _)| *count);
        self.count.max(self.in_flight).max(expected)
    }

    /// Sets the count.
    fn set(&mut self, now: Instant, count: u32, settle_time: Duration) {
        if count < self.count {
            self.earlier
                .retain(|(earlier, until)| *until > now && *earlier > self.count);
            self.earlier.push((self.count, now + settle_time));
        }
        self.count = count;
        self.set_at = now;
        if count == 0 {
            self.held_until = Some(now);
        } else {
            self.retry_at = None;
        }
    }
}

/// Returns the count of each of `connections`.
pub(crate) fn fair_share(max: u32, connections: usize) -> u32 {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
    (max / connections).max(1).min(max)
}

impl Ready {
    pub(crate) fn new(config: &Config, seed: u64) -> Ready {
        Ready {
            connections: Vec::new(),
            total: 0,
            max: config.max_in_flight,
            is_backoff: false,
            idle_timeout: config.low_rdy_idle_timeout,
            hold_timeout: config.low_rdy_timeout,
            settle_time: config.output_buffer_timeout.unwrap_or_default() + ROUND_TRIP,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns `max_in_flight`.
    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    /// Returns the time for which a connection holds the count that it had before.
    pub(crate) fn settle_time(&self) -> Duration {
        self.settle_time
    }

    /// Returns the count of a connection, and 0 if it is unknown.
    pub(crate) fn count(&self, id: ConnectionId) -> u32 {
        self.find(id)
            .map_or(0, |index| self.connections[index].count)
    }

    /// Returns true if the connection was added, and neither retired nor removed.
    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.find(id)
            .is_some_and(|index| !self.connections[index].is_leaving)
    }

    /// Returns the number of connections that have a share.
    fn shares(&self) -> usize {
        let staying = self.connections.iter().filter(|found| !found.is_leaving);
        staying.count()
    }

    /// Returns how many of `max` all connections hold together.
    fn held(&self, now: Instant) -> u32 {
        let held = self.connections.iter().map(|found| found.held(now));
        held.fold(0, u32::saturating_add)
    }

    /// Returns the largest share, at most the fair one, that fits into `max` when each connection counts as its share
    /// or as its messages in flight, whichever is more. 0: not every connection can have 1.
    fn share_left(&self) -> u32 {
        let fair = fair_share(self.limit(), self.shares());
        let fits = |share: u32| {
            let parts = self.connections.iter().map(|found| {
                if found.is_leaving {
                    u64::from(found.in_flight)
                } else {
                    u64::from(share.min(found.count_max).max(found.in_flight))
                }
            });
            parts.sum::<u64>() <= u64::from(self.max)
        };
        // The largest share that fits lies in `low..high`.
        let (mut low, mut high) = if fits(fair) { (fair, fair) } else { (0, fair) };
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle
            } else {
                high = middle
            }
        }
        low
    }

    /// Returns true while a connection without RDY waits for some.
    fn has_waiting(&self) -> bool {
        let mut connections = self.connections.iter();
        connections.any(|found| found.count == 0 && found.count_max > 0)
    }

    /// Returns true while a connection gets less than its share because another one holds more than its own.
    pub(crate) fn is_short(&self) -> bool {
        let share = fair_share(self.limit(), self.shares());
        let mut connections = self.connections.iter();
        !self.is_backoff
            && self.total < self.max
            && connections.any(|found| found.count < share.min(found.count_max))
    }

    /// States how many messages of a connection have come and have no answer.
    pub(crate) fn set_in_flight(&mut self, id: ConnectionId, in_flight: u32) {
        if let Some(index) = self.find(id) {
            self.connections[index].in_flight = in_flight;
        }
    }

    fn find(&self, id: ConnectionId) -> Option<usize> {
        self.connections
            .binary_search_by_key(&id, |found| found.id)
            .ok()
    }

    /// Returns the sum of all counts.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Returns the largest sum that the present state allows.
    fn limit(&self) -> u32 {
        if self.is_backoff {
            self.max.min(1)
        } else {
            self.max
        }
    }

    /// Adds a connection, whose nsqd accepts counts up to `count_max`.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        id: ConnectionId,
        count_max: u32,
        out: &mut Vec<SetReady>,
    ) {
        let last = self.connections.last().map(|last| last.id);
        assert!(last < Some(id), "numbers grow");
        self.connections.push(Connection {
            id,
            count: 0,
            count_max,
            active_at: now,
            set_at: now,
            held_until: None,
            retry_at: None,
            in_flight: 0,
            earlier: Vec::new(),
            is_leaving: false,
        });
        self.share_out(now, out);
    }

    /// Lowers a connection to 0 whose nsqd is asked to send nothing more: RDY need not be sent. The others get its part
    /// when its messages are answered.
    pub(crate) fn retire(&mut self, now: Instant, id: ConnectionId, out: &mut Vec<SetReady>) {
        if let Some(index) = self.find(id) {
            let found = &mut self.connections[index];
            self.total -= found.count;
            found.set(now, 0, self.settle_time);
            found.count_max = 0;
            found.retry_at = None;
            found.is_leaving = true;
            self.share_out(now, out);
        }
    }

    /// Removes a connection that is lost or closed. The others get its part at once.
    pub(crate) fn remove(&mut self, now: Instant, id: ConnectionId, out: &mut Vec<SetReady>) {
        if let Some(index) = self.find(id) {
            self.total -= self.connections.remove(index).count;
            self.share_out(now, out);
        }
    }

    /// States that a connection received a message.
    pub(crate) fn receive(&mut self, now: Instant, id: ConnectionId) {
        if let Some(index) = self.find(id) {
            self.connections[index].active_at = now;
        }
    }

    /// Changes `max_in_flight`. 0 pauses.
    pub(crate) fn set_max(&mut self, now: Instant, max: u32, out: &mut Vec<SetReady>) {
        self.max = max;
        self.share_out(now, out);
    }

    /// Gives connections what others do not hold any more.
    pub(crate) fn use_room(&mut self, now: Instant, out: &mut Vec<SetReady>) {
        self.share_out(now, out);
    }

    /// Begins a pause of the backoff: all connections go to 0.
    pub(crate) fn pause(&mut self, now: Instant, out: &mut Vec<SetReady>) {
        self.is_backoff = true;
        for index in 0..self.connections.len() {
            self.connections[index].retry_at = None;
            self.set(now, index, 0, out);
        }
    }

    /// Gives one connection a count of 1, as the test of the backoff. Returns false if no connection can take it.
    pub(crate) fn test(&mut self, now: Instant, out: &mut Vec<SetReady>) -> bool {
        assert!(self.is_backoff, "only a backoff is tested");
        if self.total >= self.limit() {
            return false;
        }
        // A connection that holds messages anyway needs no room.
        let has_room = self.held(now) < self.max;
        let able = |index: &usize| {
            let found = &self.connections[*index];
            found.count_max > 0 && (has_room || found.held(now) > 0)
        };
        let able: Vec<usize> = (0..self.connections.len()).filter(able).collect();
        match self.random.choice(able) {
            Some(index) => {
                self.set(now, index, 1, out);
                true
            }
            None => false,
        }
    }

    /// Ends the backoff: all connections get their share.
    pub(crate) fn resume(&mut self, now: Instant, out: &mut Vec<SetReady>) {
        self.is_backoff = false;
        self.share_out(now, out);
    }

    /// Returns true while not every connection can have a count, so that the connections have to take turns: there are
    /// more of them, or the messages in flight leave less.
    pub(crate) fn is_scarce(&self) -> bool {
        let limit = self.limit() as usize;
        let has_few = self.shares() > limit || !self.is_backoff && self.share_left() == 0;
        limit > 0 && has_few && self.has_waiting()
    }

    /// Moves counts from connections that had their turn to connections that wait for theirs, if counts are scarce.
    pub(crate) fn redistribute(&mut self, now: Instant, out: &mut Vec<SetReady>) {
        if !self.is_scarce() {
            return;
        }
        for index in 0..self.connections.len() {
            let found = &self.connections[index];
            // The time without messages counts from the beginning of the turn: before, there could be none.
            let idle_since = found.active_at.max(found.set_at);
            let is_idle = now.duration_since(idle_since) > self.idle_timeout;
            let had_its_turn = now.duration_since(found.set_at) > self.hold_timeout;
            if found.count > 0 && (is_idle || had_its_turn) {
                self.set(now, index, 0, out);
            }
        }
        let mut held = self.held(now);
        for index in self.waiting() {
            if self.total >= self.limit() || !self.raise(now, index, 1, &mut held, out) {
                break;
            }
        }
    }

    /// Returns the time of the earliest retry, or at which a connection does not hold its earlier count any more, if
    /// another one waits for that.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let retries = self.connections.iter().filter_map(|found| found.retry_at);
        let is_short = self.is_short();
        let waited_for = self.connections.iter().filter(|_| is_short);
        let earlier = waited_for.flat_map(|found| &found.earlier);
        retries.chain(earlier.map(|(_, until)| *until)).min()
    }

    /// Carries out the retries that are due.
    pub(crate) fn retry(&mut self, now: Instant, out: &mut Vec<SetReady>) {
        let mut is_due = false;
        for found in &mut self.connections {
            if found.retry_at.is_some_and(|at| at <= now) {
                found.retry_at = None;
                is_due = true;
            }
            let before = found.earlier.len();
            found.earlier.retain(|(_, until)| *until > now);
            is_due |= found.earlier.len() < before;
        }
        if is_due {
            self.share_out(now, out);
        }
    }

    /// Gives every connection its share. Lower counts come first, so the sum never exceeds the limit in between. In a
    /// backoff no count grows.
    fn share_out(&mut self, now: Instant, out: &mut Vec<SetReady>) {
        let share = fair_share(self.limit(), self.shares());
        self.shrink(now, share, out);
        if self.is_backoff {
            return;
        }
        let (fair, share) = (share, self.share_left().max(share.min(1)));
        if self.has_waiting() {
            for index in 0..self.connections.len() {
                let found = &self.connections[index];
                // The answers of a connection that holds more than its count make room anyway.
                if found.count > share && found.in_flight <= found.count {
                    self.set(now, index, share, out);
                }
            }
        }
        // Room goes first to connections that have some, then to those that wait longest.
        let waiting = self.waiting();
        let mut held = self.held(now);
        for index in 0..self.connections.len() {
            if self.connections[index].count > 0 {
                self.raise(now, index, share, &mut held, out);
            }
        }
        for index in waiting {
            // A connection that had its turn could go on with what it holds, and the others would never get theirs.
            if !self.raise(now, index, share, &mut held, out) {
                break;
            }
        }
        for found in &mut self.connections {
            let is_short = found.count < fair.min(found.count_max);
            found.retry_at = is_short.then(|| found.retry_at.unwrap_or(now + RETRY));
        }
    }

    /// Raises the count of one connection to `share`, as far as there is room. `held` is what all connections hold.
    /// Returns false if the connection has no RDY after that.
    fn raise(
        &mut self,
        now: Instant,
        index: usize,
        share: u32,
        held: &mut u32,
        out: &mut Vec<SetReady>,
    ) -> bool {
        let found = &self.connections[index];
        let before = found.held(now);
        let room = before.saturating_add(self.max.saturating_sub(*held));
        let count = share.min(room).min(found.count + (self.max - self.total));
        if count > found.count {
            self.set(now, index, count, out);
            let after = self.connections[index].held(now);
            *held = held.saturating_sub(before).saturating_add(after);
        }
        self.connections[index].count > 0
    }

    /// Lowers counts to `share`. Then silences connections until the sum is within the limit, first those that have had
    /// their count longest.
    fn shrink(&mut self, now: Instant, share: u32, out: &mut Vec<SetReady>) {
        for index in 0..self.connections.len() {
            if self.connections[index].count > share {
                self.set(now, index, share, out);
            }
        }
        while self.total > self.limit() {
            let holding = self.connections.iter().enumerate();
            let holding = holding.filter(|(_, found)| found.count > 0);
            let longest = holding.min_by_key(|(_, found)| found.set_at);
            let (index, _) = longest.expect("the sum is above 0");
            self.set(now, index, 0, out);
        }
    }

    /// Returns the connections without RDY, those that wait longest first. Equals are in random order.
    fn waiting(&mut self) -> Vec<usize> {
        let able = |index: &usize| {
            let found = &self.connections[*index];
            found.count == 0 && found.count_max > 0
        };
        let mut waiting: Vec<usize> = (0..self.connections.len()).filter(able).collect();
        self.random.shuffle(&mut waiting);
        waiting.sort_by_key(|index| self.connections[*index].held_until);
        waiting
    }

    /// Sets the count of one connection, if it differs.
    fn set(&mut self, now: Instant, index: usize, count: u32, out: &mut Vec<SetReady>) {
        let found = &mut self.connections[index];
        let count = count.min(found.count_max);
        if count == found.count {
            return;
        }
        self.total = self.total - found.count + count;
        found.set(now, count, self.settle_time);
        out.push(SetReady {
            connection: found.id,
            count,
        });
    }
}

#[cfg(test)]
mod tests;
