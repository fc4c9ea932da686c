//! Topics that recognise the messages that their publishers send again.

use super::script::{self, check_with, options};
use crate::{BrokerOptions, DedupRule, DedupRules, PublisherRule};

/// Options with a rule for the topics `t*`.
fn with_rule() -> BrokerOptions {
    let mut rules = DedupRules::default();
    let rule = PublisherRule {
        window: PublisherRule::WINDOW_DEFAULT,
        memory_bytes: PublisherRule::MEMORY_DEFAULT,
    };
    rules.add("t*", DedupRule::Publisher(rule));
    let mut options = options();
    options.topic.dedup = rules.into();
    options.server.takes_numbers = true;
    options
}

/// The answer to an IDENTIFY with a publisher's id.
const AGREED: &str = "{\"max_rdy_count\":2500,\"version\":\"1.3.0\",\"max_msg_timeout\":900000,\"msg_timeout\":60000,\"tls_v1\":false,\"deflate\":false,\"deflate_level\":6,\"max_deflate_level\":6,\"snappy\":false,\"sample_rate\":0,\"auth_required\":false,\"output_buffer_size\":16384,\"output_buffer_timeout\":250,\"topology_region\":\"\",\"topology_zone\":\"\",\"publisher_id\":true}";

/// Runs a script. In the script, `<name> is <id>` stands for an IDENTIFY with this publisher's id, and its answer.
#[track_caller]
fn check(options: BrokerOptions, script: &str) {
    let mut lines = Vec::new();
    for line in script.trim_start().lines() {
        let Some((name, id)) = line.split_once(" is ").filter(|_| !line.contains("< ")) else {
            lines.push(line.to_owned());
            continue;
        };
        let json = format!("{{\"feature_negotiation\":true,\"publisher_id\":\"{id}\"}}");
        lines.push(format!("{name}: IDENTIFY | {json}"));
        lines.push(format!("{name}< {AGREED}"));
    }
    check_with(options, &(lines.join("\n") + "\n"));
}

#[test]
fn a_message_that_is_sent_again_is_not_stored_again() {
    check(
        with_rule(),
        "
c: SUB t ch
c< OK
c: RDY 9
a is 7f
a: PUB t 0 | x
a< OK
c< x (1)
a: PUB t 0 | x
a< OK
a: DPUB t 0 1 | y
a< OK
c< y (1)
b is 7f
b: PUB t 1 | y
b< OK
b: PUB t 2 | z
b< OK
c< z (1)
other is 80
other: PUB t 0 | w
other< OK
c< w (1)
dedup t
= 2 duplicates, 0 unchecked, 2 publishers
stats t/ch
= depth 0, in flight 4, deferred 0, messages 4, requeued 0, timed out 0, clients 1
",
    );
}

#[test]
fn a_batch_is_judged_message_by_message() {
    check(
        with_rule(),
        "
c: SUB t ch
c< OK
c: RDY 99
a is 7f
a: PUB t 1 | b
a< OK
c< b (1)
a: MPUB t 0 | a,b,c
a< OK
c< a (1)
c< c (1)
a: MPUB t 2 | c,d
a< OK
c< d (1)
dedup t
= 2 duplicates, 0 unchecked, 1 publishers
",
    );
}

/// Iggy wrote a batch without messages.
#[test]
fn iggy_3099_batch_of_duplicates() {
    check(
        with_rule(),
        "
c: SUB t ch
c< OK
c: RDY 99
a is 7f
a: MPUB t 0 | a,b,c
a< OK
c< a (1)
c< b (1)
c< c (1)
a: MPUB t 0 | a,b,c
a< OK
a: MPUB t 1 | b,c
a< OK
dedup t
= 5 duplicates, 0 unchecked, 1 publishers
stats t/ch
= depth 0, in flight 3, deferred 0, messages 3, requeued 0, timed out 0, clients 1
",
    );
}

/// Pulsar recorded the id of a message before the message was stored, and dropped the client's next attempt.
#[test]
fn pulsar_5218_id_recorded_before_the_message_was_stored() {
    check(
        with_rule(),
        "
a is 7f
disk full
a: PUB t 0 | x
a< E_PUB_FAILED PUB failed disk full: cannot allocate /data/t.log/000000000001.segment: simulated: disk full
a closed
disk free
+1s
b is 7f
b: PUB t 0 | x
b< OK
dedup t
= 0 duplicates, 0 unchecked, 1 publishers
c: SUB t ch
c< OK
c: RDY 1
c< x (1)
",
    );
}

/// RabbitMQ's streams drop every message whose id is not above the highest one.
#[test]
fn rabbitmq_streams_gap_behind_a_higher_id() {
    check(
        with_rule(),
        "
c: SUB t ch
c< OK
c: RDY 9
a is 7f
b is 7f
b: PUB t 5 | later
b< OK
c< later (1)
a: PUB t 4 | earlier
a< OK
c< earlier (1)
dedup t
= 0 duplicates, 0 unchecked, 1 publishers
",
    );
}

/// NATS kept the ids when a stream was purged, and that was not what its documentation said.
#[test]
fn nats_6782_purge_keeps_ids() {
    check(
        with_rule(),
        "
c: SUB t ch
c< OK
a is 7f
a: PUB t 0 | x
a< OK
empty t/ch
pause t
a: PUB t 1 | y
a< OK
empty t
unpause t
a: PUB t 0 | x
a< OK
a: PUB t 1 | y
a< OK
stats t/ch
= depth 0, in flight 0, deferred 0, messages 1, requeued 0, timed out 0, clients 1
dedup t
= 2 duplicates, 0 unchecked, 1 publishers
delete t
c closed
a: PUB t 0 | x
a< OK
dedup t
= 0 duplicates, 0 unchecked, 1 publishers
",
    );
}

#[test]
fn a_topic_without_a_rule_ignores_numbers() {
    check(
        with_rule(),
        "
c: SUB other ch
c< OK
c: RDY 9
a is 7f
a: PUB other 0 | x
a< OK
c< x (1)
a: PUB other 0 | y
a< OK
c< y (1)
dedup other
= no rule
",
    );
}

#[test]
fn messages_without_numbers_are_stored_and_counted() {
    check(
        with_rule(),
        "
a: PUB t | x
a< OK
a: MPUB t | y,z
a< OK
dedup t
= 0 duplicates, 3 unchecked, 0 publishers
b is 7f
b: PUB t 5000 | x
b< OK
b: PUB t 0 | y
b< OK
b: PUB t 0 | y
b< OK
dedup t
= 0 duplicates, 5 unchecked, 1 publishers
",
    );
}

/// Redpanda refused the next message of a producer that it had evicted. Here such a publisher is accepted like a new one,
/// and its eviction is counted.
#[test]
fn redpanda_22670_idle_publisher_evicted_then_refused() {
    let mut rules = DedupRules::default();
    // Room for two publishers of 352 bytes each.
    let rule = PublisherRule {
        window: PublisherRule::WINDOW_DEFAULT,
        memory_bytes: 800,
    };
    rules.add("t", DedupRule::Publisher(rule));
    let mut options = with_rule();
    options.topic.dedup = rules.into();
    check(
        options,
        "
a is 7f
b is 80
c is 81
a: PUB t 0 | x
a< OK
b: PUB t 0 | y
b< OK
c: PUB t 0 | z
c< OK
dedup t
= 0 duplicates, 0 unchecked, 2 publishers, 1 forgotten
a: PUB t 0 | x
a< OK
dedup t
= 0 duplicates, 0 unchecked, 2 publishers, 2 forgotten
a: MPUB t 0 | x,w
a< OK
c: PUB t 0 | z
c< OK
dedup t
= 2 duplicates, 0 unchecked, 2 publishers, 2 forgotten
stats t
= depth 5, messages 5, bytes 5
",
    );
}

/// The IDENTIFY of a publisher.
const IDENTIFY: &str = "a: IDENTIFY | {\"feature_negotiation\":true,\"publisher_id\":\"7f\"}";

/// NATS let a message through again after a restart.
#[test]
fn nats_3272_inconsistent_after_restart() {
    let after = |events: &[&str]| {
        let mut session = script::Session::new(with_rule());
        let before = [
            "c: SUB t ch",
            "c: RDY 9",
            IDENTIFY,
            "a: PUB t 0 | x",
            "c: FIN #x",
            "+5s",
            "a: MPUB t 1 | y,z",
            "c: FIN #y; FIN #z",
        ];
        let behind = [
            IDENTIFY,
            "a: MPUB t 0 | x,y,z,w",
            "dedup t",
            "c: SUB t ch",
            "c: RDY 9",
        ];
        for line in before.iter().chain(events).chain(&behind) {
            session.act(line);
        }
        let transcript = session.transcript();
        assert!(
            transcript.contains("= 3 duplicates, 0 unchecked, 1 publishers"),
            "{events:?}: {transcript}"
        );
        assert_eq!(transcript.matches("c< w (").count(), 1, "{transcript}");
    };
    after(&["restart"]);
    after(&["restart", "restart"]);
    after(&["+1s", "restart", "+9s", "restart"]);
    after(&["+9s", "restart"]);
    // By now, everything is synced.
    for seed in 0..20 {
        let lost = format!("power lost {seed}");
        after(&["+3s", &lost]);
        after(&["+3s", &lost, "+9s", &lost]);
    }
}

/// A message that a power failure has taken is stored when its publisher sends it again.
#[test]
fn a_message_that_a_power_failure_has_taken_is_fresh() {
    let mut both = 0;
    for seed in 0..40 {
        let mut session = script::Session::new(with_rule());
        let lines = [
            "create t/ch",
            IDENTIFY,
            "a: PUB t 0 | x",
            "+3s",
            "a: PUB t 1 | y",
            &format!("power lost {seed}"),
            IDENTIFY,
            "a: PUB t 0 | x",
            "a: PUB t 1 | y",
            "c: SUB t ch",
            "c: RDY 9",
        ];
        lines.iter().for_each(|line| session.act(line));
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
/// number, the next attempt gets OK and is not stored: the message is lost, as "What it cannot do" of docs/deduplication.md
/// says.
#[test]
fn the_number_of_a_message_that_a_start_finds_damaged_stays_if_it_was_saved() {
    for (before, duplicates, depth) in [("", 0, 1), ("+12s\n", 1, 0)] {
        check(
            with_rule(),
            &format!(
                "
create t/ch
a is 7f
a: PUB t 0 | first
a< OK
{before}restart spoils first
a is 7f
a: PUB t 0 | first
a< OK
dedup t
= {duplicates} duplicates, 0 unchecked, 1 publishers
stats t/ch
= depth {depth}, in flight 0, deferred 0, messages {depth}, requeued 0, timed out 0, clients 0
"
            ),
        );
    }
}

/// A load that finds a message damaged leaves its number, saved or not: see above.
#[test]
fn the_number_of_a_message_that_a_load_finds_damaged_stays() {
    for before in ["", "+12s\n"] {
        check(
            with_rule(),
            &format!(
                "
create t/ch
a is 7f
a: MPUB t 0 | first,second
a< OK
{before}restart
spoil first
c: SUB t ch
c< OK
c: RDY 9
c< second (1)
a is 7f
a: PUB t 0 | first
a< OK
dedup t
= 1 duplicates, 0 unchecked, 1 publishers
"
            ),
        );
    }
}

/// Regression: a crash left a save of numbers in the page cache only. The next process believed the save, and gave up the
/// messages above the save before. Then a power failure took the save, and the messages were stored twice.
#[test]
fn a_save_that_a_crash_has_left_is_not_yet_durable() {
    for seed in 0..40 {
        let mut session = script::Session::new(with_rule());
        let lines = [
            "c: SUB t ch",
            "c: RDY 9",
            IDENTIFY,
            "a: PUB t 0 | x",
            "c: FIN #x",
            "+5s",
            "a: PUB t 1 | y",
            "c: FIN #y",
            "save dies",
            "+3s",
            "restart",
            "c: SUB t ch",
            "c: RDY 9",
            "+9s",
            &format!("power lost {seed}"),
            IDENTIFY,
            "a: MPUB t 0 | x,y",
            "dedup t",
        ];
        lines.iter().for_each(|line| session.act(line));
        let transcript = session.transcript();
        assert!(
            transcript.contains("= 2 duplicates, 0 unchecked, 1 publishers"),
            "seed {seed}: {transcript}"
        );
    }
}

/// While its numbers are not saved, a message stays in the log, whoever has finished it. Then its segment goes.
#[test]
fn a_full_disk_ends_the_wait_for_a_save() {
    check(
        with_rule(),
        "
c: SUB t ch
c< OK
c: RDY 9
a is 7f
a: PUB t 0 | x
a< OK
c< x (1)
c: FIN #x
disk full
+5s
a: PUB t 0 | x
a< OK
dedup t
= 1 duplicates, 0 unchecked, 1 publishers
",
    );
}

#[test]
fn a_duplicate_is_answered_when_the_first_copy_is_synced() {
    let mut options = with_rule();
    options.topic.group_commit = true;
    options.topic.log.sync_every = 1;
    check(
        options,
        "
c: SUB t ch
c< OK
c: RDY 9
a is 7f
b is 7f
a: PUB t 0 | x
c< x (1)
a< OK
open fails
a: PUB t 1 | y
c< y (1)
b: PUB t 1 | y
b: PUB t 0 | x
+250ms
a< OK
b< OK
b< OK
sync fails
a: PUB t 2 | z
c< z (1)
a< E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure
a closed
b: PUB t 2 | z
b< E_PUB_FAILED PUB failed log is read-only since a failed sync: cannot sync /data/t.log/000000000001.segment: simulated failure
b closed
dedup t
= 2 duplicates, 0 unchecked, 1 publishers
",
    );
}
