//! Topics that recognise messages by their content.

use super::script::{Session, changed, check_with, options};
use super::{dead_letters, group_commit, unclaimed};
use crate::{
    Act, BrokerOptions, ContentKey, ContentRule, DedupRule, DedupRules, JsonPointer, KeyWindow,
    Output, TaskId, UnclaimedBounds,
};
use diskq_log::Request;
use std::time::Duration;
use wire::name::TopicName;

/// Options with rules: `body` for the topics `t*`, and the value at `/id` for the topics `j*`.
fn with_rules(window: KeyWindow) -> BrokerOptions {
    let mut rules = DedupRules::default();
    let rule = |key| ContentRule::new(key, window, None).expect("it fits");
    rules.add("t*", DedupRule::Content(rule(ContentKey::Body)));
    let pointer = JsonPointer::parse("/id").expect("a pointer");
    rules.add("j*", DedupRule::Content(rule(ContentKey::Json(pointer))));
    let mut options = options();
    options.topic.dedup = rules.into();
    options
}

/// These options with the rules.
fn recognising(options: BrokerOptions) -> BrokerOptions {
    let rules = with_rules(KeyWindow::Count(1000)).topic.dedup;
    changed(options, |it| it.topic.dedup = rules)
}

#[track_caller]
fn check(script: &str) {
    check_with(with_rules(KeyWindow::Count(1000)), script);
}

scripts! {
a_body_is_stored_once: "
c consumes t ch 9
a: PUB t | x => OK
c< x (1)
a: PUB t | x => OK
b: DPUB t 0 | x => OK
b: DPUB t 0 | y => OK
c< y (1)
a: PUB t | y => OK
a: PUB other | x => OK
a: PUB other | x => OK
keys t => 3 duplicates, 0 of them unverified, 0 without the key, 2 keys
keys other => no rule
stats t/ch => depth 0, in flight 2, messages 2, clients 1
";

a_batch_is_judged_message_by_message: "
c consumes t ch 99
a: PUB t | b => OK
c< b (1)
a: MPUB t | a,b,c,a,c => OK
c< a (1), c (1)
a: MPUB t | a,b,c => OK
a: MPUB t | a,a,a,d,d => OK
c< d (1)
keys t => 10 duplicates, 0 of them unverified, 0 without the key, 4 keys
";

/// The segment of a message whose consumer has finished is used again. Then the fingerprint decides.
a_finished_message_is_remembered: "
c consumes t ch 9
a: PUB t | x => OK
c< x (1)
c: FIN #x
+20s
+3600s => c< _heartbeat_
a< _heartbeat_
c< _heartbeat_
a< _heartbeat_
c closed
a closed
a: PUB t | x => OK
keys t => 1 duplicates, 1 of them unverified, 0 without the key, 1 keys
stats t/ch => depth 0, messages 1
";

a_value_in_the_body: r#"
c consumes j ch 9
a: PUB j | {"id":1} => OK
c< {"id":1} (1)
a: PUB j | {"try":2,"id":1} => OK
a: PUB j | {"id":"1"} => OK
c< {"id":"1"} (1)
a: PUB j | no JSON => OK
c< no JSON (1)
a: PUB j | no JSON => OK
c< no JSON (1)
a: PUB j | {"id":null} => OK
c< {"id":null} (1)
keys j => 1 duplicates, 0 of them unverified, 3 without the key, 2 keys
"#;

/// Pulsar recorded the id of a message before the message was stored, and dropped the client's next attempt.
pulsar_5218_id_recorded_before_the_message_was_stored: "
disk full
a: PUB t | x
a< E_PUB_FAILED PUB failed disk full: cannot allocate /data/t.log/000000000001.segment: simulated: disk full; closed
b: MPUB t | x,y,x
b< E_MPUB_FAILED MPUB failed disk full: cannot allocate /data/t.log/000000000001.segment: simulated: disk full; closed
keys t => 0 duplicates, 0 of them unverified, 0 without the key, 0 keys
disk free
+1s
a: MPUB t | x,y,x => OK
keys t => 1 duplicates, 0 of them unverified, 0 without the key, 2 keys
";

/// The state after a restart is that of the log, whatever the restart was.
nats_3272_inconsistent_after_restart: "
c: SUB t ch => OK
a: PUB t | x => OK
a: MPUB t | y,z => OK
restart
a: MPUB t | x,y,z,w => OK
keys t => 3 duplicates, 3 of them unverified, 0 without the key, 4 keys
restart
restart
a: PUB t | w => OK
stats t/ch => depth 4, messages 4
";

/// Emptying a topic or channel keeps the keys, so that a retry of an emptied message is not stored again. Deleting the topic
/// forgets them.
nats_6782_purge_keeps_ids: "
c: SUB t ch => OK
a: PUB t | x => OK
empty t/ch
pause t
a: PUB t | y => OK
empty t
a: PUB t | x => OK
unpause t
a: PUB t | y => OK
stats t/ch => depth 0, messages 1, clients 1
delete t => c closed
a: MPUB t | x,y => OK
keys t => 0 duplicates, 0 of them unverified, 0 without the key, 2 keys
";

/// Regression: the retry of a message that the log knew as lost was answered with OK and not stored.
a_message_that_a_load_finds_damaged_is_stored_again: "
c: SUB t ch => OK
a: MPUB t | first,second => OK
+12s
restart
spoil first
c consumes t ch 9 => c< second (1)
a: MPUB t | second,first,first => OK
c< first (1)
keys t => 2 duplicates, 0 of them unverified, 0 without the key, 2 keys
a: PUB t | first => OK
keys t => 3 duplicates, 0 of them unverified, 0 without the key, 2 keys
";

/// Regression: see above. The damaged message is forgotten for good: its segment goes, and another start follows.
a_damaged_message_stays_unknown_when_its_segment_is_gone: "
c: SUB t ch => OK
a: MPUB t | first,second => OK
+12s
restart
spoil first
c consumes t ch 9 => c< second (1)
c: FIN #second
+12s
restart
a: MPUB t | first,second => OK
stats t/ch => depth 1, messages 1
keys t => 1 duplicates, 1 of them unverified, 0 without the key, 2 keys
";

/// Regression: keys that a start had read from the log were in no file until the next new message. So the next crash took
/// the keys of messages that were finished in the meantime.
keys_of_an_earlier_process_are_saved_without_new_messages: "
c: SUB t ch => OK
a: PUB t | x => OK
restart
c consumes t ch 1 => c< x (1)
c: FIN #x
+12s
restart
a: PUB t | x => OK
keys t => 1 duplicates, 1 of them unverified, 0 without the key, 1 keys
";

a_window_of_time_ends: with_rules(KeyWindow::Time(Duration::from_secs(60))), "
a: PUB t | x => OK
+59s => a< _heartbeat_
a: PUB t | x => OK
keys t => 1 duplicates, 0 of them unverified, 0 without the key, 1 keys
+10s => a< _heartbeat_
a: PUB t | x => OK
keys t => 1 duplicates, 0 of them unverified, 0 without the key, 1 keys
create t/ch
stats t/ch => depth 2, messages 2
";

/// A message that a power failure took is stored when it comes again.
a_lost_message_is_not_remembered:
    recognising(changed(options(), |it| it.topic.log.sync_timeout = Duration::from_secs(1000))), "
c: SUB t ch => OK
a: PUB t | x => OK
+30s => c< _heartbeat_
a< _heartbeat_
power lost 1
a: PUB t | x => OK
keys t => 0 duplicates, 0 of them unverified, 0 without the key, 1 keys
";

/// A message that the bounds of a topic without channels drop is as an emptied one: it was stored once, and its retry is no
/// new message.
a_dropped_message_is_not_stored_again:
    recognising(unclaimed::with_bounds(UnclaimedBounds::DROP)), "
a: PUB t | x => OK
stats t => depth 0, messages 1, bytes 1, dropped 1
c consumes t ch 9
a: PUB t | x => OK
a: PUB t | y => OK
c< y (1)
keys t => 1 duplicates, 0 of them unverified, 0 without the key, 2 keys
";

a_duplicate_is_answered_when_the_first_copy_is_synced:
    recognising(group_commit()), "
c consumes t ch 9
a: PUB t | x => c< x (1)
a< OK
open fails
a: PUB t | y => c< y (1)
b: PUB t | y
b: PUB t | x
+250ms => a< OK
b< OK
b< OK
sync fails
a: PUB t | z => c< z (1)
a< E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure; closed
b: PUB t | z
b< E_PUB_FAILED PUB failed log is read-only since a failed sync: cannot sync /data/t.log/000000000001.segment: simulated failure
b closed
";
}

/// Regression: see above. Here the start itself finds the damage: in the message, before and after a checkpoint that has
/// it, or in the head of its segment.
#[test]
fn a_message_that_a_start_finds_damaged_is_stored_again() {
    let recorded = "\npause t/ch\nunpause t/ch";
    let cases = [("", "first"), (recorded, "first"), (recorded, "RQSG RQST")];
    for (before, spoiled) in cases {
        check(&format!(
            "
c: SUB t ch => OK
a: PUB t | first => OK
+12s{before}
restart spoils {spoiled}
a: MPUB t | first,first => OK
keys t => 1 duplicates, 0 of them unverified, 0 without the key, 1 keys
stats t/ch => depth 1, messages 1
"
        ));
    }
}

scripts! {
two_dead_letters_of_one_body_are_both_stored:
    recognising(changed(options(), |it| it.topic.dead_letters = dead_letters::rule("s", "*", 1, "t.dead").into())), "
c consumes s one 1
d consumes s two 1
a: PUB s | x => OK
d< x (1)
c< x (1)
c: REQ #x 0
d: REQ #x 0
+30s => c< _heartbeat_
d< _heartbeat_
a< _heartbeat_
create t.dead/ch
stats t.dead/ch => depth 2, messages 2
";
}

/// Finishes a message and carries out `actions`. Then loses power in 20 ways, and publishes copies, which are known by their
/// fingerprints.
fn survives_a_power_failure(actions: &str, copies: &[&str]) {
    let (count, bodies) = (copies.len(), copies.join(","));
    for seed in 0..20 {
        check(&format!(
            "
c consumes t ch 9
a: PUB t | x => OK
c< x (1)
c: FIN #x
{actions}
power lost {seed}
a: MPUB t | {bodies} => OK
keys t => {count} duplicates, {count} of them unverified, 0 without the key, {count} keys
"
        ));
    }
}

/// Regression: the name of the last file of keys was not synced, so a power failure after a graceful stop brought an older
/// file back, or none.
#[test]
fn a_power_failure_after_a_stop_takes_no_keys() {
    survives_a_power_failure(
        "+15s\na: PUB t | y => OK\nc< y (1)\nc: FIN #y\nstop",
        &["x", "y"],
    );
}

/// Regression: a sync that could not open its files forgot that the name of a file of keys was new. The next sync left the
/// name out.
#[test]
fn the_name_of_a_file_of_keys_is_synced_after_a_sync_that_failed_to_open() {
    survives_a_power_failure("+11s\nopen fails\n+5s", &["x"]);
}

/// Regression: the name of a file of keys waited for the next sync, and a topic without new messages has none. So a power
/// failure hours later brought an older file back, or none.
#[test]
fn the_name_of_a_file_of_keys_becomes_durable_without_new_messages() {
    let beats = "c< _heartbeat_\na< _heartbeat_\n".repeat(2);
    survives_a_power_failure(&format!("+1h\n{beats}c closed\na closed"), &["x"]);
}

/// Regression: nobody was told that the file did not get its name, and no other file followed.
#[test]
fn a_file_without_its_name_is_told_and_written_again() {
    let mut session = Session::new(with_rules(KeyWindow::Count(100)));
    session.play(
        "c consumes t ch 1\na: PUB t | x\na gone\nc: FIN #x\nc gone\nrename fails\n+12s\nerrors",
    );
    let what =
        "TOPIC(t): cannot save the keys of messages, so duplicates may be stored after a crash";
    let line = format!("{what} - cannot rename /data/t.log/keys.new-");
    let transcript = session.transcript();
    assert!(transcript.contains(&line), "{transcript}");
    session.check(
        "
+12s
restart
a: PUB t | x => OK
keys t => 1 duplicates, 1 of them unverified, 0 without the key, 1 keys
",
    );
}

/// Regression: a batch needed room for its copies, too, so a full disk refused a batch whose only new message had room.
#[test]
fn copies_in_a_batch_need_no_room() {
    let mut options = with_rules(KeyWindow::Count(7));
    options.topic.log.segment_bytes_min = 4096;
    options.topic.log.segment_bytes_steady = 4096;
    let long = "x".repeat(1000);
    let large: Vec<String> = (0..7).map(|number| format!("{long}{number}")).collect();
    let large = large.join(",");
    check_with(
        options,
        &format!(
            "
a: MPUB t | {large} => OK
disk full
b: MPUB t | {large},{large},{large},{large},z => OK
keys t => 28 duplicates, 0 of them unverified, 0 without the key, 8 keys
"
        ),
    );
}

/// Regression: a batch that a full disk refused had the topic forget keys in its window, so messages were stored twice. The
/// batch has room for none of its messages, and a batch of copies needs no room.
#[test]
fn a_refused_batch_forgets_no_key_in_the_window() {
    let mut options = with_rules(KeyWindow::Count(7));
    options.topic.log.segment_bytes_min = 4096;
    options.topic.log.segment_bytes_steady = 4096;
    let long = "x".repeat(1000);
    let large: Vec<String> = (0..9).map(|number| format!("{long}{number}")).collect();
    let large = large.join(",");
    check_with(
        options,
        &format!(
            "
a: MPUB t | a,b,c,d,e,f,g => OK
disk full
b: MPUB t | a,{large}
b< E_MPUB_FAILED MPUB failed disk full: cannot allocate /data/t.log/000000000003.segment: simulated: disk full; closed
a: MPUB t | a,b,c,d,e,f,g => OK
keys t => 7 duplicates, 0 of them unverified, 0 without the key, 7 keys
disk free
+1s
b: MPUB t | a,{large} => OK
keys t => 8 duplicates, 0 of them unverified, 0 without the key, 8 keys
"
        ),
    );
}

/// Regression: the deletion of a topic freed the tables of its keys in one turn, up to 64 GiB.
#[test]
fn the_keeper_frees_the_tables_of_a_deleted_topic() {
    let mut session = Session::new(with_rules(KeyWindow::Count(1000)));
    session.act("a: PUB t | x");
    let (broker, now) = session.broker();
    let mut out = Vec::new();
    let place = (TopicName::new(b"t").expect("a valid name"), None);
    let deleted = broker.administer(now, place, &Act::Delete, TaskId(9), &mut out);
    deleted.expect("the topic exists");
    let is_drop = |it: &Output| matches!(it, Output::Keeper(_, _, Request::Drop(_)));
    assert!(out.iter().any(is_drop) && !broker.is_turn_open());
}
