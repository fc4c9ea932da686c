//! Random histories of connections, messages and answers, beside a simple model of each nsqd.

use super::*;

/// One nsqd with its connection: what it may send, and what the application has.
#[derive(Debug, Default)]
struct Node {
    ready: u32,
    ready_max: u32,
    in_flight: u32,
    /// An earlier RDY, under which messages are on their way, and the time until which they come.
    late: Option<(u32, Instant)>,
    /// The time at which it last had a RDY above 0.
    served_at: Option<Instant>,
}

impl Node {
    /// Returns how many messages may be in flight at `now`.
    fn in_flight_max(&self, now: Instant) -> u32 {
        let late = self.late.filter(|(_, until)| now < *until);
        late.map_or(0, |(ready, _)| ready).max(self.ready)
    }
}

struct World {
    seed: u64,
    random: fastrand::Rng,
    config: Config,
    table: Table,
    nodes: BTreeMap<u64, Node>,
    next_id: u64,
    max: u32,
    /// True after `max_in_flight` was lowered, while more messages may be in flight.
    has_excess: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let strategies = [
            crate::config::BackoffStrategy::Exponential,
            crate::config::BackoffStrategy::FullJitter,
        ];
        let config = Config {
            max_in_flight: random.u32(0..12),
            backoff_strategy: random.choice(strategies).expect("two"),
            backoff_multiplier: MS(random.u64(0..100)),
            max_backoff_duration: MS(random.choice([0, 100, 1000]).expect("three")),
            rdy_redistribute_interval: MS(random.u64(1..5000)),
            low_rdy_idle_timeout: MS(random.u64(1000..5000)),
            low_rdy_timeout: MS(random.u64(1000..5000)),
            ..Config::default()
        };
        World {
            seed,
            random,
            max: config.max_in_flight,
            table: Table::new(&config),
            config,
            nodes: BTreeMap::new(),
            next_id: 1,
            has_excess: false,
        }
    }

    fn has_failed(&self, what: &str) -> ! {
        panic!("seed {}: {what}: {:?}", self.seed, self.nodes)
    }

    /// Takes over the counts, in their order. The sum on the wire stays within `max_in_flight` after each count that
    /// grows.
    fn apply(&mut self, sent: &[(u64, u32)]) {
        for (id, count) in sent {
            let Some(node) = self.nodes.get_mut(id) else {
                self.has_failed("a count for a connection that is gone")
            };
            let is_growing = *count > node.ready;
            let now = self.table.now;
            if node.in_flight_max(now) == node.ready && *count < node.ready {
                node.late = Some((node.ready, now + MS(300)));
            }
            node.ready = *count;
            if *count > 0 {
                node.served_at = Some(self.table.now);
            }
            let sum: u32 = self.nodes.values().map(|node| node.ready).sum();
            if is_growing && sum > self.max {
                self.has_failed("the sum of RDY exceeds max_in_flight");
            }
        }
        let level = self.table.flow.level();
        let sum: u32 = self.nodes.values().map(|node| node.ready).sum();
        if sum > self.max || (level > 0 && sum > 1) {
            self.has_failed("the sum of RDY is too high after an event");
        }
        if self.nodes.values().any(|node| node.ready > node.ready_max) {
            self.has_failed("a RDY is above max_rdy_count");
        }
    }

    fn add(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let ready_max = self.random.choice([1, 3, 2500]).expect("three");
        let node = Node {
            ready_max,
            ..Node::default()
        };
        self.nodes.insert(id, node);
        let sent = self
            .table
            .after(|flow, now| flow.add(now, ConnectionId(id), ready_max));
        self.apply(&sent);
    }

    fn any_node(&mut self) -> Option<u64> {
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        self.random.choice(ids)
    }

    fn remove(&mut self) {
        if let Some(id) = self.any_node() {
            self.nodes.remove(&id);
            let sent = self.table.remove(id);
            self.apply(&sent);
        }
    }

    fn deliver(&mut self) {
        let Some(id) = self.any_node() else { return };
        let node = self.nodes.get_mut(&id).expect("it is there");
        let now = self.table.now;
        if node.in_flight < node.in_flight_max(now) {
            node.in_flight += 1;
            self.table.flow.receive(now, ConnectionId(id));
            self.count();
            let sum: u32 = self.nodes.values().map(|node| node.in_flight).sum();
            if sum > self.max && !self.has_excess {
                self.has_failed("more than max_in_flight messages are in flight");
            }
        }
    }

    /// Tells the flow control how many messages are in flight.
    fn count(&mut self) {
        let now = self.table.now;
        for (id, node) in &self.nodes {
            self.table
                .flow
                .set_in_flight(ConnectionId(*id), node.in_flight);
        }
        let held = self.nodes.values();
        let held: u32 = held
            .map(|node| node.in_flight.max(node.in_flight_max(now)))
            .sum();
        self.has_excess &= held > self.max;
    }

    fn answer(&mut self, verdict: Verdict) {
        let Some(id) = self.any_node() else { return };
        let node = self.nodes.get_mut(&id).expect("it is there");
        if node.in_flight > 0 {
            node.in_flight -= 1;
            let sent = self.table.answer(verdict);
            self.apply(&sent);
            self.count();
            let sent = self.table.after(Flow::use_room);
            self.apply(&sent);
        }
    }

    fn set_max(&mut self) {
        let max = self.random.u32(0..12);
        self.has_excess |= max < self.max;
        self.max = max;
        let sent = self.table.after(|flow, now| flow.set_max(now, max));
        self.apply(&sent);
    }

    /// Lets time pass, with all timeouts on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.table.now + time;
        while let Some(at) = self.table.flow.next_timeout().filter(|at| *at <= end) {
            self.table.now = self.table.now.max(at);
            let sent = self.table.after(Flow::handle_timeout);
            self.apply(&sent);
            if self
                .table
                .flow
                .next_timeout()
                .is_some_and(|next| next <= at && at < self.table.now)
            {
                self.has_failed("a timeout comes again at once");
            }
        }
        self.table.now = end;
    }

    fn step(&mut self) {
        match self.random.u32(0..100) {
            0..6 => self.add(),
            6..10 => self.remove(),
            10..14 => self.set_max(),
            14..45 => self.deliver(),
            45..65 => self.answer(Verdict::Success),
            65..75 => self.answer(Verdict::Failure),
            75..80 => self.answer(Verdict::Neutral),
            _ => {
                let time = MS(self.random.u64(0..3000));
                self.pass(time);
            }
        }
    }

    /// After a random history all messages succeed. The backoff must end, and each connection must have its turn.
    fn settle(&mut self) {
        if self.max == 0 {
            self.max = 1;
            let sent = self.table.after(|flow, now| flow.set_max(now, 1));
            self.apply(&sent);
        }
        while self.nodes.len() < 3 {
            self.add();
        }
        let begin = self.table.now;
        for _ in 0..200 {
            self.pass(MS(1100));
            let ids: Vec<u64> = self.nodes.keys().copied().collect();
            for id in ids {
                let node = self.nodes.get_mut(&id).expect("it is there");
                node.in_flight = 0;
                self.count();
                let node = self.nodes.get_mut(&id).expect("it is there");
                if node.ready > 0 {
                    node.served_at = Some(self.table.now);
                    let now = self.table.now;
                    self.table.flow.receive(now, ConnectionId(id));
                    let sent = self.table.answer(Verdict::Success);
                    self.apply(&sent);
                }
            }
        }
        if self.table.flow.level() > 0 {
            self.has_failed("the backoff does not end");
        }
        let turn = self.config.low_rdy_timeout + self.config.rdy_redistribute_interval;
        // 220 s are enough for 20 turns of 10 s.
        assert!(turn * 20 < MS(1100) * 200);
        let starved = |node: &Node| node.served_at.is_none_or(|at| at < begin);
        if self.nodes.len() <= 20 && self.nodes.values().any(starved) {
            self.has_failed("a connection starves");
        }
    }
}

#[test]
fn random_histories_keep_the_invariants_and_starve_no_connection() {
    let count = match std::env::var("RINGQ_SIM_COUNT") {
        Ok(count) => count.parse().expect("RINGQ_SIM_COUNT is a number"),
        Err(_) => 2000,
    };
    let seeds = match std::env::var("RINGQ_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("RINGQ_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..count,
    };
    let mut backoffs = 0;
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
            backoffs += usize::from(world.table.flow.level() > 1);
        }
        world.settle();
    }
    assert!(backoffs > 0, "no history had a backoff");
}
