use super::*;
use crate::content_key::ContentKey;
use crate::plan::KeyWindow;
use crate::rules::ContentRule;
use diskq::Keeper;
use diskq_sim::SimFiles;

const NOW: Now = Now {
    mono: Duration::from_secs(1),
    wall_ns: 1 << 60,
};

/// A topic as far as its gate knows it.
struct Gated {
    gate: Gate,
    log: Log,
    keeper: Keeper<SimFiles>,
}

impl Gated {
    /// Makes a topic with the rule `body` that has the message `stored`.
    fn new() -> Gated {
        let rule = ContentRule::new(ContentKey::Body, KeyWindow::Count(100), None);
        let mut rules = DedupRules::default();
        rules.add("*", DedupRule::Content(rule.expect("it fits")));
        let topic = TopicName::new(b"orders").expect("a name");
        let options = LogOptions::default();
        let mut gated = Gated {
            gate: Gate::new(&rules, topic, &options).expect("there is a rule"),
            log: Log::new(options),
            keeper: Keeper::new(SimFiles::new(), "/data"),
        };
        gated.publish(&[b"stored"]);
        gated
    }

    /// Publishes messages. Returns the number of those that are stored.
    fn publish(&mut self, bodies: &[&[u8]]) -> u64 {
        let publication = Publication {
            bodies: bodies.iter().copied(),
            count: bodies.len() as u32,
            body_bytes: bodies.iter().map(|body| body.len() as u64).sum(),
            defer_ms: 0,
            origin: None,
        };
        loop {
            let fates = self.gate.judge(NOW, &mut self.log, &publication);
            let fates = fates.expect("the log takes messages");
            let (fresh, count, bytes) = (fates.fresh(&publication), fates.count, fates.bytes);
            let (mono, wall_ns) = (NOW.mono, NOW.wall_ns);
            match self
                .log
                .append_numbered(mono, wall_ns, fresh, count, bytes, 0)
            {
                Ok(range) => {
                    self.log.retain(range, 1);
                    self.gate.confirm(NOW, &mut self.log, fates, range);
                    return range.len();
                }
                Err(why) => assert_eq!(why, AppendError::WouldBlock),
            }
            self.gate.take_back();
            while let Some(request) = self.log.next_request() {
                if let Some(reply) = self.keeper.handle("orders", request) {
                    self.log.handle_reply(NOW.mono, reply, &mut Vec::new());
                }
            }
        }
    }

    /// Remembers the key `fresh` with the seq of a message behind `stored`. Nobody knows two keys with one fingerprint, so
    /// a test gives the key the seq of another message.
    fn remember_fresh(&mut self, behind: u64) {
        let Memory::Keys(keys) = &mut self.gate.memory else {
            panic!("the topic has a rule for contents")
        };
        let fingerprint = keys.fingerprint(b"fresh").expect("each body is a key");
        let seq = Seq(self.log.next_seq().0 - 1 + behind);
        assert!(keys.tables.insert(clock_ms(NOW.mono), fingerprint, seq));
        keys.tables.confirm();
    }

    /// Asserts the numbers of duplicates, of those that were not compared, and of keys that are not remembered.
    #[track_caller]
    fn assert_counts(&self, expected: [u64; 3]) {
        let (_, stats) = self.gate.stats(NOW);
        let stats = stats.expect("the topic has a rule for contents");
        let counts = [
            stats.duplicate_count,
            stats.unverified_count,
            stats.unremembered_count,
        ];
        assert_eq!(counts, expected);
    }
}

#[test]
fn a_hit_is_compared_with_the_stored_message() {
    let mut gated = Gated::new();
    gated.remember_fresh(0);
    assert_eq!(gated.publish(&[b"fresh"]), 1);
    assert_eq!(gated.publish(&[b"stored"]), 0);
    gated.assert_counts([1, 0, 1]);
}

/// Regression: between two messages of one batch, the fingerprint alone decided.
#[test]
fn a_hit_is_compared_with_the_message_of_the_same_batch() {
    let mut gated = Gated::new();
    // The seq that `two` will have.
    gated.remember_fresh(2);
    let batch: [&[u8]; 7] = [b"stored", b"one", b"one", b"two", b"fresh", b"two", b"one"];
    assert_eq!(gated.publish(&batch), 3, "one, two and fresh");
    gated.assert_counts([4, 0, 1]);
}
