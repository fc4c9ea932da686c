//! Topics that recognise the messages that their publishers send again.

use super::group_commit;
use super::script::{Session, changed, check_with, options};
use crate::{BrokerOptions, DedupRule, DedupRules, PublisherRule};

/// Options with a rule for the topics `t*`.
pub(super) fn with_rule() -> BrokerOptions {
    with_memory(PublisherRule::MEMORY_DEFAULT)
}

/// The same, with so many bytes for the numbers.
fn with_memory(memory_bytes: u64) -> BrokerOptions {
    let mut rules = DedupRules::default();
    let rule = PublisherRule {
        window: PublisherRule::WINDOW_DEFAULT,
        memory_bytes,
    };
    rules.add("t*", DedupRule::Publisher(rule));
    let mut options = options();
    options.topic.dedup = rules.into();
    options.server.takes_numbers = true;
    options
}

#[track_caller]
fn check(script: &str) {
    check_with(with_rule(), script);
}

scripts! {
a_message_that_is_sent_again_is_not_stored_again: "
c consumes t ch 9
a is 7f
a: PUB t 0 | x => OK
c< x (1)
a: PUB t 0 | x => OK
a: DPUB t 0 1 | y => OK
c< y (1)
b is 7f
b: PUB t 1 | y => OK
b: PUB t 2 | z => OK
c< z (1)
other is 80
other: PUB t 0 | w => OK
c< w (1)
dedup t => 2 duplicates, 0 unchecked, 2 publishers
stats t/ch => depth 0, in flight 4, messages 4, clients 1
";

a_batch_is_judged_message_by_message: "
c consumes t ch 99
a is 7f
a: PUB t 1 | b => OK
c< b (1)
a: MPUB t 0 | a,b,c => OK
c< a (1), c (1)
a: MPUB t 2 | c,d => OK
c< d (1)
dedup t => 2 duplicates, 0 unchecked, 1 publishers
";

/// Iggy wrote a batch without messages.
iggy_3099_batch_of_duplicates: "
c consumes t ch 99
a is 7f
a: MPUB t 0 | a,b,c => OK
c< a (1), b (1), c (1)
a: MPUB t 0 | a,b,c => OK
a: MPUB t 1 | b,c => OK
dedup t => 5 duplicates, 0 unchecked, 1 publishers
stats t/ch => depth 0, in flight 3, messages 3, clients 1
";

/// Pulsar recorded the id of a message before the message was stored, and dropped the client's next attempt.
pulsar_5218_id_recorded_before_the_message_was_stored: "
a is 7f
disk full
a: PUB t 0 | x
a< E_PUB_FAILED PUB failed disk full: cannot allocate /data/t.log/000000000001.segment: simulated: disk full; closed
disk free
+1s
b is 7f
b: PUB t 0 | x => OK
dedup t => 0 duplicates, 0 unchecked, 1 publishers
c consumes t ch 1 => c< x (1)
";

/// RabbitMQ's streams drop every message whose id is not above the highest one.
rabbitmq_streams_gap_behind_a_higher_id: "
c consumes t ch 9
a is 7f
b is 7f
b: PUB t 5 | later => OK
c< later (1)
a: PUB t 4 | earlier => OK
c< earlier (1)
dedup t => 0 duplicates, 0 unchecked, 1 publishers
";

/// NATS kept the ids when a stream was purged, and that was not what its documentation said.
nats_6782_purge_keeps_ids: "
c: SUB t ch => OK
a is 7f
a: PUB t 0 | x => OK
empty t/ch
pause t
a: PUB t 1 | y => OK
empty t
unpause t
a: PUB t 0 | x => OK
a: PUB t 1 | y => OK
stats t/ch => depth 0, messages 1, clients 1
dedup t => 2 duplicates, 0 unchecked, 1 publishers
delete t => c closed
a: PUB t 0 | x => OK
dedup t => 0 duplicates, 0 unchecked, 1 publishers
";

a_topic_without_a_rule_ignores_numbers: "
c consumes other ch 9
a is 7f
a: PUB other 0 | x => OK
c< x (1)
a: PUB other 0 | y => OK
c< y (1)
dedup other => no rule
";

messages_without_numbers_are_stored_and_counted: "
a: PUB t | x => OK
a: MPUB t | y,z => OK
dedup t => 0 duplicates, 3 unchecked, 0 publishers
b is 7f
b: PUB t 5000 | x => OK
b: PUB t 0 | y => OK
b: PUB t 0 | y => OK
dedup t => 0 duplicates, 5 unchecked, 1 publishers
";

/// While its numbers are not saved, a message stays in the log, whoever has finished it. Then its segment goes.
a_full_disk_ends_the_wait_for_a_save: "
c consumes t ch 9
a is 7f
a: PUB t 0 | x => OK
c< x (1)
c: FIN #x
disk full
+5s
a: PUB t 0 | x => OK
dedup t => 1 duplicates, 0 unchecked, 1 publishers
";

/// Redpanda refused the next message of a producer that it had evicted. Here such a publisher is accepted like a new one,
/// and its eviction is counted. There is room for two publishers of 352 bytes each.
redpanda_22670_idle_publisher_evicted_then_refused: with_memory(800), "
a is 7f
b is 80
c is 81
a: PUB t 0 | x => OK
b: PUB t 0 | y => OK
c: PUB t 0 | z => OK
dedup t => 0 duplicates, 0 unchecked, 2 publishers, 1 forgotten
a: PUB t 0 | x => OK
dedup t => 0 duplicates, 0 unchecked, 2 publishers, 2 forgotten
a: MPUB t 0 | x,w => OK
c: PUB t 0 | z => OK
dedup t => 2 duplicates, 0 unchecked, 2 publishers, 2 forgotten
stats t => depth 5, messages 5, bytes 5
";
}

/// NATS let a message through again after a restart.
#[test]
fn nats_3272_inconsistent_after_restart() {
    let after = |events: &str| {
        let mut session = Session::new(with_rule());
        session.play(&format!(
            "
c consumes t ch 9
a is 7f
a: PUB t 0 | x
c: FIN #x
+5s
a: MPUB t 1 | y,z
c: FIN #y; FIN #z
{events}
a is 7f
a: MPUB t 0 | x,y,z,w
dedup t
c consumes t ch 9
"
        ));
        let transcript = session.transcript();
        let expected = "= 3 duplicates, 0 unchecked, 1 publishers";
        assert!(transcript.contains(expected), "{events}: {transcript}");
        assert_eq!(transcript.matches("c< w (").count(), 1, "{transcript}");
    };
    after("restart");
    after("restart\nrestart");
    after("+1s\nrestart\n+9s\nrestart");
    after("+9s\nrestart");
    // By now, everything is synced.
    for seed in 0..20 {
        after(&format!("+3s\npower lost {seed}"));
        after(&format!("+3s\npower lost {seed}\n+9s\npower lost {seed}"));
    }
}

/// A message that a power failure has taken is stored when its publisher sends it again.
#[test]
fn a_message_that_a_power_failure_has_taken_is_fresh() {
    let mut both = 0;
    for seed in 0..40 {
        let mut session = Session::new(with_rule());
        session.play(&format!(
            "
create t/ch
a is 7f
a: PUB t 0 | x
+3s
a: PUB t 1 | y
power lost {seed}
a is 7f
a: PUB t 0 | x
a: PUB t 1 | y
c consumes t ch 9
"
        ));
        let count = |body: &str| session.transcript().matches(body).count();
        assert_eq!(count("c< x ("), 1, "{}", session.transcript());
        assert_eq!(count("c< y ("), 1, "{}", session.transcript());
        session.act("dedup t");
        both += usize::from(session.transcript().contains("= 2 duplicates"));
    }
    assert!(
        (1..40).contains(&both),
        "the disk kept y {both} times of 40"
    );
}

/// A start that finds a message damaged does not know its number, and the next attempt is stored. Once a save has the
/// number, the next attempt gets OK and is not stored: the message is lost, as "What it cannot do" of
/// docs/explain/deduplication.md says.
#[test]
fn the_number_of_a_message_that_a_start_finds_damaged_stays_if_it_was_saved() {
    for (before, duplicates, stats) in [("", 0, "depth 1, messages 1"), ("+12s\n", 1, "depth 0")] {
        check(&format!(
            "
create t/ch
a is 7f
a: PUB t 0 | first => OK
{before}restart spoils first
a is 7f
a: PUB t 0 | first => OK
dedup t => {duplicates} duplicates, 0 unchecked, 1 publishers
stats t/ch => {stats}
"
        ));
    }
}

scripts! {
/// A load that finds a message damaged leaves its number, saved or not: see above.
the_number_of_a_message_that_a_load_finds_damaged_stays [for before in ["", "+12s\n"]]: "
create t/ch
a is 7f
a: MPUB t 0 | first,second => OK
{before}restart
spoil first
c consumes t ch 9 => c< second (1)
a is 7f
a: PUB t 0 | first => OK
dedup t => 1 duplicates, 0 unchecked, 1 publishers
";

/// Regression: a crash left a save of numbers in the page cache only. The next process believed the save, and gave up the
/// messages above the save before. Then a power failure took the save, and the messages were stored twice.
a_save_that_a_crash_has_left_is_not_yet_durable [for seed in 0..40]: "
c consumes t ch 9
a is 7f
a: PUB t 0 | x => OK
c< x (1)
c: FIN #x
+5s
a: PUB t 1 | y => OK
c< y (1)
c: FIN #y
save dies
+3s
restart
c consumes t ch 9
+9s
power lost {seed}
a is 7f
a: MPUB t 0 | x,y => OK
dedup t => 2 duplicates, 0 unchecked, 1 publishers
";

a_duplicate_is_answered_when_the_first_copy_is_synced: changed(group_commit(), |it| {
    it.topic.dedup = with_rule().topic.dedup;
    it.server.takes_numbers = true;
}), "
c consumes t ch 9
a is 7f
b is 7f
a: PUB t 0 | x => c< x (1)
a< OK
open fails
a: PUB t 1 | y => c< y (1)
b: PUB t 1 | y
b: PUB t 0 | x
+250ms => a< OK
b< OK
b< OK
sync fails
a: PUB t 2 | z => c< z (1)
a< E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure; closed
b: PUB t 2 | z
b< E_PUB_FAILED PUB failed log is read-only since a failed sync: cannot sync /data/t.log/000000000001.segment: simulated failure
b closed
dedup t => 2 duplicates, 0 unchecked, 1 publishers
";
}
