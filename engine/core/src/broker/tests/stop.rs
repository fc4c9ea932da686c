//! A stop while the disk cannot be synced.

use super::script::{Session, options};
use crate::{DedupRules, PublisherRule};

/// A stop that cannot sync the last messages saves no numbers of these messages: after a power failure, their copies are
/// stored.
#[test]
fn a_stop_without_a_sync_saves_no_numbers() {
    let mut rules = DedupRules::default();
    let rule = PublisherRule {
        window: PublisherRule::WINDOW_DEFAULT,
        memory_bytes: PublisherRule::MEMORY_DEFAULT,
    };
    rules.add_publisher("t*", rule);
    let mut options = options();
    options.topic.dedup = rules.into();
    options.server.takes_numbers = true;
    let identify = "a: IDENTIFY | {\"feature_negotiation\":true,\"publisher_id\":\"7f\"}";
    let mut lost = 0;
    for seed in 0..20 {
        let mut session = Session::new(options.clone());
        let lines = [
            "create t/ch",
            identify,
            "a: PUB t 0 | x",
            "no descriptors 13s",
            "stop",
            &format!("power lost {seed}"),
            "create t/ch",
            "c: SUB t ch",
            "c: RDY 9",
        ];
        lines.iter().for_each(|line| session.act(line));
        lost += usize::from(!session.transcript().contains("c< x ("));
        session.act(identify);
        session.act("a: PUB t 0 | x");
        let transcript = session.transcript();
        assert_eq!(transcript.matches("c< x (").count(), 1, "{transcript}");
    }
    assert!(
        (1..20).contains(&lost),
        "the disk lost x {lost} times of 20"
    );
}
