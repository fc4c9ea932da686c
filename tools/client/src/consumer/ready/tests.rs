use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
/// nsqd's default `--max-rdy-count`.
const COUNT_MAX: u32 = 2500;

/// A [`Ready`] with its clock, and the last counts that were sent.
struct Table {
    ready: Ready,
    now: Instant,
    sent: Vec<(u64, u32)>,
}

impl Table {
    fn new(max_in_flight: u32) -> Table {
        let config = Config {
            max_in_flight,
            low_rdy_idle_timeout: MS(2000),
            ..Config::default()
        };
        Table {
            ready: Ready::new(&config, 7),
            now: Instant::now(),
            sent: Vec::new(),
        }
    }

    /// Carries out one event and checks the sum after each count that is sent.
    fn after(
        &mut self,
        event: impl FnOnce(&mut Ready, Instant, &mut Vec<SetReady>),
    ) -> &[(u64, u32)] {
        let mut counts: Vec<(ConnectionId, u32)> = self
            .ready
            .connections
            .iter()
            .map(|found| (found.id, found.count))
            .collect();
        let mut out = Vec::new();
        event(&mut self.ready, self.now, &mut out);
        self.ready.check();
        counts.retain(|(id, _)| self.ready.find(*id).is_some());
        let limit = self.ready.limit();
        for SetReady { connection, count } in &out {
            let entry = counts.iter_mut().find(|(id, _)| id == connection);
            let is_growing = match entry {
                Some((_, before)) => std::mem::replace(before, *count) < *count,
                None => {
                    counts.push((*connection, *count));
                    true
                }
            };
            let sum: u32 = counts.iter().map(|(_, count)| count).sum();
            assert!(!is_growing || sum <= limit, "{out:?}");
        }
        self.sent = out
            .iter()
            .map(|set| (set.connection.0, set.count))
            .collect();
        &self.sent
    }

    fn add(&mut self, id: u64, count_max: u32) -> &[(u64, u32)] {
        self.after(|ready, now, out| ready.add(now, ConnectionId(id), count_max, out))
    }

    fn remove(&mut self, id: u64) -> &[(u64, u32)] {
        self.after(|ready, now, out| ready.remove(now, ConnectionId(id), out))
    }

    /// Lets the time pass for which connections hold earlier counts.
    fn settle(&mut self) -> &[(u64, u32)] {
        self.now += self.ready.settle_time;
        self.after(|ready, now, out| ready.use_room(now, out))
    }

    fn set_max(&mut self, max: u32) -> &[(u64, u32)] {
        self.after(|ready, now, out| ready.set_max(now, max, out))
    }

    fn redistribute(&mut self) -> &[(u64, u32)] {
        self.after(|ready, now, out| ready.redistribute(now, out))
    }

    fn counts(&self) -> Vec<u32> {
        let connections = &self.ready.connections;
        connections.iter().map(|found| found.count).collect()
    }
}

#[test]
fn shares_are_fair() {
    for (max, connections, share) in [
        (200, 3, 66),
        (2, 4, 1),
        (0, 4, 0),
        (0, 0, 0),
        (5, 0, 5),
        (1, 1, 1),
        (u32::MAX, 2, u32::MAX / 2),
    ] {
        assert_eq!(
            fair_share(max, connections),
            share,
            "{max} over {connections}"
        );
    }
}

#[test]
fn a_new_connection_gets_its_share_after_the_others_are_lowered() {
    let mut table = Table::new(10);
    assert_eq!(table.add(1, COUNT_MAX), [(1, 10)]);
    // Messages under the earlier count may be on their way.
    assert_eq!(table.add(2, COUNT_MAX), [(1, 5)]);
    assert_eq!(table.ready.next_retry(), Some(table.now + MS(350)));
    assert_eq!(table.settle(), [(2, 5)]);
    assert_eq!(table.add(3, COUNT_MAX), [(1, 3), (2, 3)]);
    assert_eq!(table.settle(), [(3, 3)]);
    assert_eq!(table.add(4, COUNT_MAX), [(1, 2), (2, 2), (3, 2), (4, 1)]);
    assert_eq!(table.settle(), [(4, 2)]);
}

/// While connections came, the messages in flight and the new RDY together exceeded `max_in_flight`: 83 of 40.
#[test]
fn a_new_connection_gets_what_the_messages_in_flight_leave() {
    let mut table = Table::new(40);
    table.add(1, COUNT_MAX);
    let in_flight = |table: &mut Table, count| {
        table.ready.set_in_flight(ConnectionId(1), count);
        table
            .after(|ready, now, out| ready.use_room(now, out))
            .to_vec()
    };
    in_flight(&mut table, 40);
    assert_eq!(table.add(2, COUNT_MAX), [(1, 20)]);
    assert_eq!(table.settle(), []);
    assert!(table.ready.is_short());
    // Each answer makes room for one message.
    assert_eq!(in_flight(&mut table, 39), [(2, 1)]);
    assert_eq!(in_flight(&mut table, 30), [(2, 10)]);
    assert_eq!(in_flight(&mut table, 20), [(2, 20)]);
    assert!(!table.ready.is_short());
    // A connection that leaves holds its messages, too. One that is lost does not.
    assert_eq!(
        table.after(|ready, now, out| ready.retire(now, ConnectionId(1), out)),
        []
    );
    assert_eq!(table.settle(), []);
    assert_eq!(in_flight(&mut table, 5), [(2, 35)]);
    assert_eq!(table.remove(1), [(2, 40)]);
}

/// The messages in flight of one connection left 3 for two others. The first took all 3, and kept them for as long as the
/// messages were in flight.
#[test]
fn connections_share_what_the_messages_in_flight_of_another_leave() {
    let mut table = Table::new(10);
    table.add(1, COUNT_MAX);
    table.ready.set_in_flight(ConnectionId(1), 7);
    table.add(2, COUNT_MAX);
    table.settle();
    assert_eq!(table.counts(), [5, 3]);
    table.add(3, COUNT_MAX);
    table.settle();
    assert_eq!(table.counts(), [3, 1, 1]);
    // Nothing is left for the fourth: the turns go round.
    table.add(4, COUNT_MAX);
    table.add(5, COUNT_MAX);
    table.settle();
    let mut had = [false; 5];
    for _ in 0..20 {
        table.now += MS(3000);
        table.redistribute();
        table.settle();
        for (had, count) in had.iter_mut().zip(table.counts()) {
            *had |= count > 0;
        }
    }
    assert_eq!(had, [true; 5]);
    table.ready.set_in_flight(ConnectionId(1), 2);
    table.settle();
    assert_eq!(table.counts(), [2; 5]);
}

#[test]
fn a_loss_raises_the_others_at_once() {
    let mut table = Table::new(30);
    table.add(1, COUNT_MAX);
    assert_eq!(table.add(2, COUNT_MAX), [(1, 15)]);
    assert_eq!(table.settle(), [(2, 15)]);
    assert_eq!(table.remove(1), [(2, 30)]);
    assert_eq!(table.remove(2), []);
    assert_eq!(table.remove(2), []);
}

#[test]
fn a_decrease_always_works() {
    let mut table = Table::new(10);
    table.add(1, COUNT_MAX);
    table.add(2, COUNT_MAX);
    table.settle();
    assert_eq!(table.counts(), [5, 5]);
    assert_eq!(table.set_max(4), [(1, 2), (2, 2)]);
    table.set_max(1);
    assert_eq!(table.ready.total(), 1);
    assert_eq!(table.set_max(0).len(), 1);
    assert_eq!(table.counts(), [0, 0]);
    table.settle();
    assert_eq!(table.set_max(5).len(), 2);
    assert_eq!(table.counts(), [2, 2]);
}

#[test]
fn no_count_exceeds_that_of_its_nsqd() {
    let mut table = Table::new(3000);
    assert_eq!(table.add(1, COUNT_MAX), [(1, 2500)]);
    let mut table = Table::new(3000);
    assert_eq!(table.add(1, 100), [(1, 100)]);
    assert_eq!(table.set_max(50), [(1, 50)]);
    let mut table = Table::new(3);
    assert_eq!(table.add(1, 0), []);
    assert_eq!(table.add(2, 1), [(2, 1)]);
}

#[test]
fn scarce_counts_go_round() {
    let mut table = Table::new(2);
    for id in 1..=4 {
        table.add(id, COUNT_MAX);
    }
    table.settle();
    assert_eq!(table.ready.total(), 2);
    let mut turns: Vec<[u32; 4]> = vec![table.counts().try_into().unwrap()];
    for _ in 0..8 {
        table.now += MS(3000);
        table.redistribute();
        table.settle();
        assert_eq!(table.ready.total(), 2);
        turns.push(table.counts().try_into().unwrap());
    }
    for index in 0..4 {
        // Each of the four has RDY in every other turn.
        let had = turns.iter().filter(|turn| turn[index] == 1).count();
        assert!((4..=5).contains(&had), "{turns:?}");
    }
}

#[test]
fn a_busy_connection_keeps_a_scarce_count_until_its_turn_ends() {
    let mut table = Table::new(1);
    table.add(1, COUNT_MAX);
    table.add(2, COUNT_MAX);
    // 30 s is the default low_rdy_timeout.
    for _ in 0..30 {
        table.now += MS(1000);
        let now = table.now;
        table.ready.receive(now, ConnectionId(1));
        assert_eq!(table.redistribute(), []);
    }
    table.now += MS(1000);
    // 2 of 1 messages were in flight.
    table.ready.set_in_flight(ConnectionId(1), 1);
    assert_eq!(table.redistribute(), [(1, 0)]);
    assert_eq!(table.settle(), []);
    table.ready.set_in_flight(ConnectionId(1), 0);
    assert_eq!(table.settle(), [(2, 1)]);
}

#[test]
fn a_waiting_connection_takes_room_at_once() {
    let mut table = Table::new(2);
    for id in 1..=4 {
        table.add(id, COUNT_MAX);
    }
    table.settle();
    let sent = table.remove(1).to_vec();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].0 >= 3 && sent[0].1 == 1, "{sent:?}");
    assert_eq!(table.set_max(3).len(), 1);
    assert_eq!(table.counts(), [1, 1, 1]);
}

#[test]
fn a_retry_is_due_after_five_seconds() {
    let mut table = Table::new(1);
    table.add(1, COUNT_MAX);
    assert_eq!(table.ready.next_retry(), None);
    table.add(2, COUNT_MAX);
    let retry = table.ready.next_retry();
    assert_eq!(retry, Some(table.now + MS(5000)));
    table.now += MS(5000);
    assert_eq!(table.after(|ready, now, out| ready.retry(now, out)), []);
    assert_eq!(table.ready.next_retry(), Some(table.now + MS(5000)));
    assert_eq!(table.remove(1), [(2, 1)]);
    assert_eq!(table.ready.next_retry(), None);
}

#[test]
fn a_backoff_has_at_most_one() {
    let mut table = Table::new(10);
    table.add(1, COUNT_MAX);
    table.add(2, COUNT_MAX);
    table.settle();
    assert_eq!(
        table.after(|ready, now, out| ready.pause(now, out)),
        [(1, 0), (2, 0)]
    );
    assert_eq!(table.add(3, COUNT_MAX), []);
    table.settle();
    table.after(|ready, now, out| assert!(ready.test(now, out)));
    assert_eq!(table.sent.len(), 1);
    // A second test would exceed the limit.
    table.after(|ready, now, out| assert!(!ready.test(now, out)));
    assert_eq!(table.set_max(7), []);
    assert_eq!(table.set_max(0).len(), 1);
    table.after(|ready, now, out| assert!(!ready.test(now, out)));
    table.set_max(9);
    table.settle();
    table.after(|ready, now, out| ready.resume(now, out));
    assert_eq!(table.counts(), [3, 3, 3]);
}

impl Ready {
    /// Checks the invariants.
    pub(crate) fn check(&self) {
        let total: u32 = self.connections.iter().map(|found| found.count).sum();
        assert_eq!(total, self.total, "{self:?}");
        assert!(total <= self.limit(), "{self:?}");
        let has_enough = !self.is_backoff && self.max as usize >= self.shares();
        for found in &self.connections {
            assert!(found.count <= found.count_max, "{self:?}");
            assert!(
                !has_enough || found.count > 0 || found.count_max == 0 || self.is_short(),
                "{self:?}"
            );
            assert!(
                found.count == 0 || found.retry_at.is_none() || self.is_short(),
                "{self:?}"
            );
        }
        if !self.is_backoff && !has_enough && !self.is_short() {
            // Counts are scarce: none is left over while a connection waits.
            let holding = self.connections.iter().filter(|found| found.count > 0);
            let able = self.connections.iter().filter(|found| found.count_max > 0);
            assert_eq!(
                holding.count(),
                able.count().min(self.max as usize),
                "{self:?}"
            );
        }
    }
}
