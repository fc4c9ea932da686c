use std::collections::BTreeMap;

use super::*;

mod simulation;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn config(max_in_flight: u32) -> Config {
    Config {
        max_in_flight,
        backoff_multiplier: MS(50),
        max_backoff_duration: MS(1000),
        ..Config::default()
    }
}

/// A flow with its clock.
struct Table {
    flow: Flow,
    start: Instant,
    now: Instant,
}

impl Table {
    fn new(config: &Config) -> Table {
        let now = Instant::now();
        Table {
            flow: Flow::new(now, config, 3),
            start: now,
            now,
        }
    }

    fn after(&mut self, event: impl FnOnce(&mut Flow, Instant) -> Changes) -> Vec<(u64, u32)> {
        let changes = event(&mut self.flow, self.now);
        self.flow.check();
        let sent = changes.ready.iter();
        sent.map(|set| (set.connection.0, set.count)).collect()
    }

    fn add(&mut self, id: u64) -> Vec<(u64, u32)> {
        self.after(|flow, now| flow.add(now, ConnectionId(id), 2500))
    }

    fn remove(&mut self, id: u64) -> Vec<(u64, u32)> {
        self.after(|flow, now| flow.remove(now, ConnectionId(id)))
    }

    fn answer(&mut self, verdict: Verdict) -> Vec<(u64, u32)> {
        self.after(|flow, now| flow.answer(now, verdict))
    }

    /// Lets the next timeout come. Returns its time since the start, in milliseconds, and what it sends.
    fn wait(&mut self) -> (u128, Vec<(u64, u32)>) {
        self.now = self.flow.next_timeout().expect("there is a timeout");
        let sent = self.after(Flow::handle_timeout);
        ((self.now - self.start).as_millis(), sent)
    }
}

#[test]
fn a_lost_connection_with_the_test_passes_it_on() {
    let mut table = Table::new(&config(5));
    table.add(1);
    table.add(2);
    assert_eq!(table.wait().1, [(2, 2)]);
    table.answer(Verdict::Failure);
    let (_, sent) = table.wait();
    let (tested, _) = sent[0];
    let other = 3 - tested;
    assert_eq!(table.remove(tested), [(other, 1)]);
    // Without any connection, the test is tried again every second.
    assert_eq!(table.remove(other), []);
    let before = table.now - table.start;
    for second in 1..=3 {
        let (ms, sent) = table.wait();
        assert_eq!((ms, sent), (before.as_millis() + second * 1000, vec![]));
    }
    assert_eq!(table.add(3), []);
    let (_, sent) = table.wait();
    assert_eq!(sent, [(3, 1)]);
    assert_eq!(table.answer(Verdict::Success), [(3, 5)]);
}

#[test]
fn a_pause_during_a_backoff_ends_the_test() {
    let mut table = Table::new(&config(5));
    table.add(1);
    table.answer(Verdict::Failure);
    table.wait();
    assert_eq!(table.after(|flow, now| flow.set_max(now, 0)), [(1, 0)]);
    assert_eq!(table.wait().1, []);
    assert_eq!(table.after(|flow, now| flow.set_max(now, 3)), []);
    assert_eq!(table.wait().1, [(1, 1)]);
    assert_eq!(table.answer(Verdict::Success), [(1, 3)]);
}

#[test]
fn an_idle_test_moves_to_another_connection() {
    let mut table = Table::new(&config(5));
    table.add(1);
    table.add(2);
    assert_eq!(table.wait().1, [(2, 2)]);
    table.answer(Verdict::Failure);
    let (_, sent) = table.wait();
    let (tested, _) = sent[0];
    let moved = loop {
        let (_, sent) = table.wait();
        if !sent.is_empty() {
            break sent;
        }
    };
    assert_eq!(moved, [(tested, 0), (3 - tested, 1)]);
    // 10 s is the default low_rdy_idle_timeout, and redistribution is considered every 5 s.
    let ms = (table.now - table.start).as_millis();
    assert_eq!(ms, 15_000);
}

#[test]
fn a_stopped_flow_sends_nothing() {
    let mut table = Table::new(&config(5));
    table.add(1);
    table.answer(Verdict::Failure);
    table.flow.stop();
    assert_eq!(table.flow.next_timeout(), None);
    table.now += MS(10_000);
    assert_eq!(table.after(Flow::handle_timeout), []);
    assert_eq!(table.answer(Verdict::Success), []);
    assert_eq!(table.add(2), []);
}

impl Flow {
    /// Checks the invariants.
    pub(crate) fn check(&self) {
        self.ready.check();
        self.backoff.check();
        if self.backoff.level() > 0 && !self.is_stopped {
            let is_testing = self.ready.total() == 1;
            assert!(self.backoff.is_period_running() != is_testing, "{self:?}");
        }
    }
}
