//! The rules of the protocol as transcripts: each test is the text of a session. The answers to each command in each state are
//! recorded (`engine/nsqd/tests/differential/*.case`).

/// Makes tests of scripts, each with its name, and with the broker's options if they are not the usual ones of the module.
/// With `[for x in ..]` behind the name, the script is carried out for each x, which stands in it as `{x}`.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident $([for $var:ident in $all:expr])?: $($part:expr),+;)*) => {
        $($(#[$doc])* #[test] fn $name() { scripts!(@check $([$var $all])? $($part),+) })*
    };
    (@check [$var:ident $all:expr] $script:expr) => { for $var in $all { check(&format!($script)) } };
    (@check [$var:ident $all:expr] $options:expr, $script:expr) => {
        for $var in $all { check_with($options, &format!($script)) }
    };
    (@check $script:expr) => { check($script) };
    (@check $options:expr, $script:expr) => { check_with($options, $script) };
}

mod age;
mod dead_letters;
mod disk_use;
mod drain;
mod due_times;
mod keys;
mod numbers;
mod pauses;
mod pressure;
mod script;
mod slices;
mod stop;
mod topic_undo;
mod unclaimed;
mod undo;
mod undo_bound;

use crate::Topology;
use script::{changed, check, check_with};
use std::time::Duration;

scripts! {
/// Section 8.3: MPUB makes its topic before it looks at the messages; PUB does not.
a_bad_mpub_still_makes_its_topic: "
a: MPUB made | , => E_BAD_MESSAGE MPUB invalid message(0) body size 0; closed
stats made => depth 0
b! PUB unmade\\n\\0\\0\\0\\0 => E_BAD_MESSAGE PUB invalid message body size 0; closed
stats unmade => no such topic
";

/// A consumer that had all its RDY allows gets the next messages when it has credit for an eighth
/// of it, or a moment later; one that asks with RDY gets them at once.
a_saturated_consumer_is_refilled_in_runs: "
a consumes t ch 16
p: MPUB t | 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21 => OK
a< 1 (1), 2 (1), 3 (1), 4 (1), 5 (1), 6 (1), 7 (1), 8 (1), 9 (1), 10 (1), 11 (1), 12 (1), 13 (1)
a< 14 (1), 15 (1), 16 (1)
a: FIN #1
a: FIN #2 => 17 (1), 18 (1)
a: FIN #3
+1ms => a< 19 (1)
a: FIN #4
a: RDY 16 => 20 (1)
";

/// Section 15: REQ 0 goes to the tail, REQ n waits, attempts grow at the next delivery.
requeue_now_and_later: "
a consumes t ch 1
p: PUB t | x => OK
a< x (1)
a: REQ #x 0 => x (2)
a: REQ #x 500
stats t/ch => depth 0, deferred 1, messages 1, requeued 2, clients 1
+499ms
+1ms => a< x (3)
a: REQ #x nonsense => E_INVALID REQ could not parse timeout nonsense; closed
";

a_deferred_publish_is_never_early: "
a consumes t ch 5
p: DPUB t 1000 | late => OK
p: PUB t | soon => OK
a< soon (1)
stats t/ch => depth 0, in flight 1, deferred 1, messages 2, clients 1
+999ms
+1ms => a< late (1)
";

/// Found by reading: a message whose deferral has ended waits without an attempt so far. A restart
/// put it behind messages of higher seqs and failed (`ranges arrive in order`).
a_message_that_became_due_before_a_restart_comes_back: "
a: SUB t ch => OK
p: DPUB t 100 | early => OK
p: PUB t | late => OK
+5s
stats t/ch => depth 2, messages 2, clients 1
restart
b consumes t ch 5 => b< early (1), late (1)
";

/// Sections 15 and 16: a timeout hands a message to others; the late answers of the first fail.
who_may_answer_after_a_timeout: "
a consumes t ch 1
p: PUB t | x => OK
a< x (1)
+30s => a< _heartbeat_
p< _heartbeat_
a: TOUCH #x
a: NOP
p: NOP
+29s
a: NOP
p: NOP
+1s => a< _heartbeat_
p< _heartbeat_
+29s
a: RDY 0
+1016ms => a< _heartbeat_
p< _heartbeat_
stats t/ch => depth 1, messages 1, timed out 1, clients 1
a: FIN #x => E_FIN_FAILED FIN #x failed ID not in flight
b consumes t ch 1 => b< x (2)
a: FIN #x => E_FIN_FAILED FIN #x failed client does not own message
a: REQ #x 0 => E_REQ_FAILED REQ #x failed client does not own message
a: TOUCH #x => E_TOUCH_FAILED TOUCH #x failed client does not own message
b: FIN #x
b: FIN #x => E_FIN_FAILED FIN #x failed ID not in flight
";

/// FINs in a row are carried out together: what is wrong among them is answered as ever, in its place,
/// and the others are done.
fins_in_a_row: "
a consumes t ch 4
b: SUB t ch => OK
p: MPUB t | 1,2,3,4,5,6,7,8 => OK
a< 1 (1), 2 (1), 3 (1), 4 (1)
b: RDY 2 => 5 (1), 6 (1)
a: FIN #2; FIN #1; FIN #5; FIN #1; NOP; FIN 0123456789abcdef; FIN #3 x; FIN #4
a< E_FIN_FAILED FIN #5 failed client does not own message
a< E_FIN_FAILED FIN #1 failed ID not in flight
a< E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight
a< 7 (1), 8 (1)
stats t/ch => depth 0, in flight 4, messages 8, clients 2
b: FIN #5; FIN #6; FIN => E_INVALID FIN insufficient number of params; closed
stats t/ch => depth 0, in flight 2, messages 8, clients 1
";

a_disconnect_requeues_nothing: "
a: IDENTIFY | {\"msg_timeout\":2000} => OK
a consumes t ch 1
p: PUB t | x => OK
a< x (1)
b consumes t ch 1
a gone
stats t/ch => depth 0, in flight 1, messages 1, clients 1
+1999ms
+17ms => b< x (2)
stats t/ch => depth 0, in flight 1, messages 1, timed out 1, clients 1
";

/// A peer that ended its input and reads nothing stayed for ever: no timer was left for it.
a_dying_connection_that_reads_nothing_is_closed: "
a: PUB t | x => OK
a stuck
a: PUB t | x
a eof
+29s
+1s => a closed
";

/// Regression: heartbeats and the time for the first command began at the connect. nsqd begins both at the magic: a
/// peer that has not sent the magic may speak another protocol.
heartbeats_begin_with_the_magic: "
a connects
+59s
a! \\x20\\x20V2
+29s
+2s => a< _heartbeat_
+28s
+1s => a closed
";

/// CLS: nothing new is delivered, what is held may be answered; RDY is ignored.
close_wait: "
a consumes t ch 2
p: MPUB t | 1,2,3 => OK
a< 1 (1), 2 (1)
a: CLS => CLOSE_WAIT
a: FIN #1
a: RDY 5
a: TOUCH #2
a: REQ #2 0
stats t/ch => depth 2, messages 3, requeued 1, clients 1
";

/// Broker-semantics 6.
ephemeral_channels_and_topics_end_with_their_last_user: "
a: SUB t ch#ephemeral => OK
b: SUB t ch#ephemeral => OK
a gone
stats t/ch#ephemeral => depth 0, clients 1
b gone
stats t/ch#ephemeral => no such channel
stats t => depth 0
c: SUB e#ephemeral ch#ephemeral => OK
c gone
stats e#ephemeral => no such topic
d: SUB e#ephemeral ch => OK
d gone
stats e#ephemeral/ch => depth 0
delete e#ephemeral/ch
stats e#ephemeral => no such topic
create t/lonely#ephemeral
stats t/lonely#ephemeral => depth 0
";

/// An ephemeral topic's checkpoint, which is never written, was due for ever: the shell's timer
/// spun. The script fails on a timer that comes back without time passing.
an_ephemeral_topic_leaves_no_timer_that_spins: "
a consumes e#ephemeral ch 1
p: PUB e#ephemeral | x => OK
a< x (1)
a: FIN #x
+20s
";

/// DPUB without a deferral is a PUB that still complains in its own name.
a_failing_publish_names_its_verb: "
p: PUB t | x => OK
disk full
p: PUB u | x
p< E_PUB_FAILED PUB failed disk full: cannot allocate /data/u.log/000000000001.segment: simulated: disk full; closed
q: DPUB u 0 | x
q< E_DPUB_FAILED DPUB failed disk full: cannot allocate /data/u.log/000000000001.segment: simulated: disk full; closed
disk free
+1s
r: PUB u | x => OK
";

/// In a drain nobody may publish, and so the end of an unfinished MPUB creates no topic.
the_end_of_an_unfinished_batch_creates_no_topic_in_a_drain: "
a! MPUB made\\n\\0\\0
drain on
a eof => a< E_MPUB_FAILED MPUB failed draining, publish to another nsqd; closed
stats made => no such topic
";

/// If an nsqlookupd has not answered, a channel that is made soon gets all messages since the topic began.
a_channel_that_is_made_in_grace_gets_all_messages: script::with_grace(), "
a: MPUB t | 1,2
unasked t known => a< OK
a: DPUB t 30000 | 3 => OK
a: PUB t | 4 => OK
c: SUB t known; RDY 9 => OK
c< 1 (1), 2 (1), 4 (1)
c: FIN #1; FIN #2; FIN #4
stats t => depth 0, messages 4, bytes 4
+10s
create t/late
stats t/late => depth 3, deferred 1, messages 4
create t/tail#ephemeral
stats t/tail#ephemeral => depth 0
+6s
channels t found,late
stats t/found => depth 3, deferred 1, messages 4
delete t/found
create t/found
stats t/found => depth 0
restart
create t/found
create t/after
stats t/after => depth 3, deferred 1, messages 4
+15s
create t/later
+1ms
stats t/later => depth 4, messages 4
empty t
create t/emptied
stats t/emptied => depth 0
+30s
a: PUB t | 5 => OK
create t/over
stats t/over => depth 0
";

/// The grace outlives the last channel, a pause, a crash, and a power failure after a sync.
a_grace_ends_in_time_only: script::with_grace(), "
a: MPUB t | 1,2
unasked t one => a< OK
delete t/one
a: PUB t | 3 => OK
pause t
create t/two
stats t/two => depth 2, messages 2
stats t => depth 1, messages 3, bytes 3
unpause t
stats t/two => depth 3, messages 3
+3s
+3s
power lost 1
create t/three
stats t/three => depth 3, messages 3
restart
create t/four
stats t/four => depth 3, messages 3
+60s
create t/five
stats t/five => depth 0
restart
create t/six
stats t/six => depth 0
";

/// A sync that found no descriptor failed the publish and poisoned the topic.
an_answer_waits_for_a_sync_that_could_not_start: group_commit(), "
p: PUB t | x => OK
open fails
p: PUB t | y
q: PUB t | z
+249ms
+1ms => p< OK
q< OK
health => OK
";

/// A run that was checked in time changed while it waited for a slow consumer.
what_is_delivered_behind_a_failed_sync_leaves_whole: group_commit(), "
a consumes t ch 1
p: PUB t | x => a< x (1)
p< OK
sync fails
p: PUB t | y => E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure; closed
a stuck
a: REQ #x 0
a: RDY 2
reclaim
a reads => a< y (1), x (2)
";

/// The pages were gone before the broker knew of the failed sync.
a_consumer_whose_messages_are_not_whole_any_more_is_cut_off: group_commit(), "
a: IDENTIFY | {\"msg_timeout\":1000} => OK
a consumes t ch 2
p: PUB t | x => a< x (1)
p< OK
a stuck
sync fails
reclaim early
p: PUB t | y => E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure; closed
a closed
b consumes t ch 2
+2s => b< x (2)
";

/// One topic's room made a shard healthy of which another topic takes no more messages.
a_shard_is_as_healthy_as_its_worst_topic: group_commit(), "
a: PUB a | x => OK
b: PUB b | x => OK
health => OK
sync fails
a: PUB a | y => E_PUB_FAILED PUB failed cannot sync /data/a.log/000000000001.segment: simulated failure; closed
health => cannot sync /data/a.log/000000000001.segment: simulated failure
disk full
c: PUB c | x
c< E_PUB_FAILED PUB failed disk full: cannot allocate /data/c.log/000000000001.segment: simulated: disk full; closed
disk free
+1s
d: PUB c | x => OK
health => cannot sync /data/a.log/000000000001.segment: simulated failure
delete a
health => OK
";

/// No line said that publishes work again, so an operator had to try.
a_line_says_that_a_topic_takes_messages_again: group_commit(), "
disk full
c: PUB c | x
c< E_PUB_FAILED PUB failed disk full: cannot allocate /data/c.log/000000000001.segment: simulated: disk full; closed
errors
= TOPIC(c) ERROR: failed to write message to backend - cannot allocate /data/c.log/000000000001.segment: simulated: disk full
= [10.0.0.1:5] - E_PUB_FAILED PUB failed disk full: cannot allocate /data/c.log/000000000001.segment: simulated: disk full
disk free
+1s
errors
= TOPIC(c): takes messages again
health => OK
";

/// The client that makes a topic waits until the topic has the channels that others know. Messages that are
/// published until then wait in the topic, and all channels get them.
a_new_topic_starts_with_the_channels_that_others_know:
    changed(script::options(), |it| it.asks_for_channels = true), "
a: PUB t | 1
b: PUB t | 2 => OK
c consumes t own 5
stats t => depth 1, messages 1, bytes 1
channels t b,a => c< 2 (1)
a< OK
c< 1 (1)
stats t/a => depth 2, messages 2
stats t/b => depth 2, messages 2
d: SUB u c; RDY 1
e: MPUB u | x,y => OK
channels u => d< OK
d< x (1)
f: PUB v | x
delete v
channels v a => f< OK
g: MPUB w | , => E_BAD_MESSAGE MPUB invalid message(0) body size 0; closed
g: PUB w | x => OK
channels w
restart
h: SUB t own => OK
";

/// The grace keeps a bounded number of bytes: the newest messages.
a_grace_keeps_the_newest_messages:
    changed(script::with_grace(), |it| it.topic.grace.bytes_max = 110), "
a: PUB t | 1
unasked t one => a< OK
a: PUB t | 2 => OK
a: PUB t | 3 => OK
create t/two
stats t/two => depth 2, messages 2
restart
create t/three
stats t/three => depth 2, messages 2
a: PUB t | 4 => OK
create t/four
stats t/four => depth 2, messages 2
";
}

/// Commands behind AUTH, or behind a command whose grants have expired, wait for the auth server's answer. Other
/// clients do not wait.
#[test]
fn authorised_clients_may_what_they_may() {
    let mut options = script::options();
    options.server.auth_required = true;
    let first = "E_AUTH_FIRST AUTH required before";
    let denied = "E_UNAUTHORIZED AUTH failed for";
    let welcome = r#"{"identity":"\u003cme\u003e","identity_url":"url","permission_count":1}"#;
    let script = format!(
        "
a: AUTH | hush; PUB t | x; NOP
b: AUTH | hush
grant b 60s ^t$ .* p => b< {welcome}
b: PUB t | x => OK
grant a 10s ^t .* sp => a< {welcome}
a< OK
b: SUB t c => {denied} SUB on \"t\" \"c\"
b closed
b: SUB t c => {first} SUB
b closed
b: DPUB t 5 | x => {first} DPUB
b closed
b! MPUB made\\n => {first} MPUB
b closed
b: MPUB made | , => {first} MPUB
b closed
stats made => no such topic
b! PUB t\\n\\0\\0\\0\\0 => E_BAD_MESSAGE PUB invalid message body size 0; closed
b: AUTH | hush
grant b 60s => b< E_UNAUTHORIZED AUTH no authorizations found; closed
b: AUTH | hush; PUB t | x
auth fails b => b< E_AUTH_FAILED AUTH failed; closed
b: AUTH | hush
grant b 60s ^t$ .* p => b< {welcome}
+11s
a: MPUB t | 1,2; PUB t | 3; NOP
grant a 10s ^t .* sp => a< OK
a< OK
+11s
a! MPUB t\\n\\0\\0
grant a 10s ^t .* sp
a! \\0\\x0d\\0\\0\\0\\x01\\0\\0\\0\\x01z => OK
a: SUB t c => OK
+11s => a< _heartbeat_
b< _heartbeat_
a: RDY 1 => x (1)
a: PUB t | y
grant a 10s => a< {denied} PUB on \"t\" \"\"
a closed
c: AUTH | hush
grant c 10s ^t$ ^c$ sp => c< {welcome}
c: AUTH | hush => E_INVALID AUTH already set; closed
d: AUTH | hush
grant d 10s .* .* p => d< {welcome}
+11s
d: MPUB made | ,
grant d 10s .* .* p => d< E_BAD_MESSAGE MPUB invalid message(0) body size 0; closed
stats made => depth 0
"
    );
    check_with(options, &script);
}

/// Protocol-v2 section 18: near consumers first, as long as they wait for messages.
#[test]
fn near_consumers_come_first() {
    let identify = |name: &str, zone: &str, region: &str| {
        format!(
            "{name}: IDENTIFY | {{\"topology_zone\":\"{zone}\",\"topology_region\":\"{region}\"}}\n\
             {name}< OK\n{name}: SUB t ch\n{name}< OK\n"
        )
    };
    let consumers = [
        identify("far", "y", "q"),
        identify("region", "y", "r"),
        identify("zone", "z", "r"),
    ];
    let script = format!(
        "{}far: RDY 2\nregion: RDY 1\nzone: RDY 1\n",
        consumers.concat()
    );
    let mut options = script::options();
    options.topology = Some(Topology {
        zone: "z".to_owned(),
        region: "r".to_owned(),
    });
    check_with(
        options,
        &format!(
            "{script}p: PUB t | 1
p< OK
zone< 1 (1)
p: PUB t | 2 => OK
region< 2 (1)
p: PUB t | 3 => OK
far< 3 (1)
zone: FIN #1
p: PUB t | 4 => OK
zone< 4 (1)
region: REQ #2 0 => 2 (2)
where t/ch => zone 2, region 2, global 1
"
        ),
    );
    // Without the experiment whoever waits longest has its turn.
    check(&format!(
        "{script}p: PUB t | 1
p< OK
far< 1 (1)
p: PUB t | 2 => OK
region< 2 (1)
p: PUB t | 3 => OK
zone< 3 (1)
where t/ch => zone 0, region 0, global 3
"
    ));
}

scripts! {
/// Captured: msg timeout 2 s, max 5 s, touched every 0.9 s: redelivered at 5.0 s.
touch_reaches_no_further_than_the_cap:
    changed(script::options(), |it| it.server.msg_timeout_max = Duration::from_secs(5)), "
a: IDENTIFY | {\"msg_timeout\":2000} => OK
a consumes t ch 1
p: PUB t | x => OK
a< x (1)
+900ms
a: TOUCH #x
+900ms
a: TOUCH #x
+900ms
a: TOUCH #x
+900ms
a: TOUCH #x
+900ms
a: TOUCH #x
+499ms
+17ms => a< x (2)
";

/// Section 14. Silence ends a connection without a word, a body that does not come with one.
heartbeats_and_deadlines: "
a: NOP
+30s => a< _heartbeat_
+30s => a< _heartbeat_
a closed
---
a: IDENTIFY | {\"heartbeat_interval\":1000} => OK
+1s => a< _heartbeat_
+500ms
a: NOP
+500ms => a< _heartbeat_
+1s => a< _heartbeat_
+500ms => a closed
---
a: IDENTIFY | {\"heartbeat_interval\":1000} => OK
a! PUB t\\n\\0\\0\\0\\x05abc
+1s => a< _heartbeat_
a! d
+1s => a< _heartbeat_
a< E_BAD_MESSAGE PUB failed to read message body; closed
---
a: IDENTIFY | {\"heartbeat_interval\":-1} => OK
+1h
a: NOP
--- Half of the magic, and silence.
raw V2
+30s
+30s => raw closed
";

/// Section 9.6, captured: only the first IDENTIFY reaches heartbeats, each one the deadlines.
identify_twice: "
a: IDENTIFY | {\"heartbeat_interval\":60000} => OK
a: IDENTIFY | {\"heartbeat_interval\":1000} => OK
+1999ms
+1ms => a closed
---
a: IDENTIFY | {\"heartbeat_interval\":1000} => OK
a: IDENTIFY | {\"heartbeat_interval\":-1} => OK
+3s => a< _heartbeat_
a< _heartbeat_
a< _heartbeat_
";

/// Half-close (section 16): what was sent is carried out and answered, then the connection ends.
end_of_input: "
a: PUB t | x => OK
a eof => a closed
a! PUB t\\n\\0\\0
a eof => a< E_BAD_MESSAGE PUB failed to read message body size; closed
a! PUB t
a eof => a closed
";
}

/// Before a consumer is closed, the broker has the socket written to once more, because Linux reports room late.
#[test]
fn a_slow_consumer_is_judged_by_what_its_socket_takes() {
    let large = "x".repeat(50_000);
    check(&format!(
        "
a consumes t ch 1
a stuck
p: PUB t | {large} => OK
p gone
a takes 16384 at deadline
+30s
a: NOP
a takes 16383 at deadline
+30s => a closed
"
    ));
}

scripts! {
too_many_consumers: changed(script::options(), |it| it.channel_consumers_max = 1), "
a: SUB r ch => OK
b: SUB r ch => E_SUB_FAILED SUB failed consumers for r:ch exceeds limit of 1; closed
a gone
c: SUB r ch => OK
";

/// --mem-queue-size bounds what ephemeral topics and channels keep; the rest counts and is gone.
ephemeral_queues_keep_what_fits: changed(script::options(), |it| it.topic.mem_queue_size = 3), "
p: MPUB e#ephemeral | 1,2,3,4,5 => OK
stats e#ephemeral => depth 3, messages 5, bytes 5
create t/c#ephemeral
p: MPUB t | 1,2,3,4,5 => OK
stats t/c#ephemeral => depth 3, messages 5
";

an_ephemeral_queue_of_no_size_keeps_what_a_consumer_takes_at_once:
    changed(script::options(), |it| it.topic.mem_queue_size = 0), "
a: SUB t c#ephemeral => OK
p: PUB t | lost => OK
stats t/c#ephemeral => depth 0, messages 1, clients 1
a: RDY 1
p: PUB t | taken => OK
a< taken (1)
";

/// P7: with group commit nobody gets an OK that waited for the sync that failed, or any after it,
/// be it for a channel; what is stored is still delivered.
a_failed_sync_is_final: group_commit(), "
a: SUB t ch => OK
p: PUB t | x => OK
sync fails
p: PUB t | y => E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure; closed
q: PUB t | z
q< E_PUB_FAILED PUB failed log is read-only since a failed sync: cannot sync /data/t.log/000000000001.segment: simulated failure
q closed
a: RDY 1 => x (1)
a: FIN #x => y (1)
b: SUB t ch => OK
c: SUB t later => E_SUB_FAILED SUB failed nothing is durable any more since a failed sync; closed
d: SUB t later => E_SUB_FAILED SUB failed nothing is durable any more since a failed sync; closed
";

/// Answers leave in the order of the commands, also behind one that waits for a sync or for
/// another shard; a connection whose publish is refused gets no answer to what it sent behind it.
a_refused_publish_is_the_last_answer: group_commit(), "
p: PUB t | x => OK
sync fails
p! PUB t\\n\\0\\0\\0\\x01yPUB other\\n\\0\\0\\0\\x01z
p< E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure; closed
";
}

fn group_commit() -> crate::BrokerOptions {
    changed(script::options(), |it| {
        it.topic.group_commit = true;
        it.topic.log.sync_every = 1;
    })
}

/// Messages waited for a slow consumer when a sync failed. The kernel dropped their pages, and the socket got
/// what the disk had.
#[test]
fn what_was_lent_before_a_failed_sync_leaves_whole() {
    let large = "y".repeat(20_000);
    check_with(
        group_commit(),
        &format!(
            "
a consumes t ch 2
a stuck
p: PUB t | x => OK
sync fails
p: PUB t | {large} => E_PUB_FAILED PUB failed cannot sync /data/t.log/000000000001.segment: simulated failure; closed
reclaim
a reads => a< x (1), {large} (1)
a: FIN #x
"
        ),
    );
}

scripts! {
/// With group commit a channel was acknowledged before anything of it was synced.
a_channel_that_got_its_ok_survives_a_power_failure [for seed in 0..40]: group_commit(), "
a: SUB t ch => OK
create t/other
p: PUB t | x => OK
delete t/other
power lost {seed}
stats t/ch => depth 1
stats t/other => no such channel
";

/// Regression: after a start, a SUB to a channel that a durable checkpoint names waited for a new checkpoint, which
/// takes seconds with millions of deferred messages.
a_sub_to_a_channel_that_a_durable_checkpoint_names_waits_for_nothing: group_commit(), "
a: SUB t ch => OK
p: PUB t | x => OK
+3s
restart
sync fails
b: SUB t ch => OK
health => OK
";

/// The only checkpoint that names the channel may not have been synced.
a_sub_to_a_channel_that_no_durable_checkpoint_names_waits: group_commit(), "
a: SUB t ch => OK
restart
sync fails
b: SUB t ch => E_SUB_FAILED SUB failed cannot sync /data/t.log/checkpoint: simulated failure; closed
";
}

/// nsqd ignores the declared size of an MPUB: a million messages of a MiB were waited for.
#[test]
fn an_mpub_that_never_ends_is_refused() {
    let mut options = script::options();
    options.limits.body_bytes_max = 64;
    options.limits.message_bytes_max = 2000;
    let size = "\\0\\0\\x07\\xd0";
    let message = format!("{size}{}", "y".repeat(2000));
    let head = "MPUB made\\n\\0\\0\\0\\x20\\0\\0\\0";
    // More than was declared, as nsqd takes it; then more than is kept for one command.
    let (few, many) = (message.repeat(9), message.repeat(9) + size);
    // Also if all of it is there at once.
    let all = message.repeat(10);
    check_with(
        options,
        &format!(
            "
a! {head}\\x09{few} => OK
b! {head}\\x0c{many} => E_BAD_BODY MPUB body too big 20062 > 64; closed
stats made => depth 9, messages 9, bytes 18000
c! {}\\x0c{many} => E_BAD_BODY MPUB body too big 20062 > 64; closed
stats also => depth 0
d! {}\\x0a{all} => E_BAD_BODY MPUB body too big 20059 > 64; closed
",
            head.replace("made", "also"),
            head.replace("made", "whole")
        ),
    );
}

// --- upgrades

fn with_upgrades() -> crate::BrokerOptions {
    changed(script::options(), |it| {
        it.server.tls_available = true;
        it.server.snappy_available = true;
        it.server.deflate_available = true;
    })
}

/// The answer to an IDENTIFY that is granted these.
fn granted(tls: bool, deflate: bool, level: u32, snappy: bool) -> String {
    format!(
        "{{\"max_rdy_count\":2500,\"version\":\"1.3.0\",\"max_msg_timeout\":900000,\
         \"msg_timeout\":60000,\"tls_v1\":{tls},\"deflate\":{deflate},\"deflate_level\":{level},\
         \"max_deflate_level\":6,\"snappy\":{snappy},\"sample_rate\":0,\"auth_required\":false,\
         \"output_buffer_size\":16384,\"output_buffer_timeout\":250,\"topology_region\":\"\",\
         \"topology_zone\":\"\"}}"
    )
}

/// The answer first, then upgrade by upgrade, each with its OK; nothing is read or said meanwhile.
#[test]
fn upgrades_follow_the_answer_one_by_one() {
    let (both, none) = (
        granted(true, false, 6, true),
        granted(false, false, 6, false),
    );
    check_with(
        with_upgrades(),
        &format!(
            "
a: IDENTIFY | {{\"feature_negotiation\":true,\"tls_v1\":true,\"snappy\":true,\"heartbeat_interval\":1000}} => {both}
a upgrades to TLS
a: PUB t | waits
+3s
a upgraded => a< OK
a upgrades to snappy
a upgraded => a< OK
a< OK
stats t => depth 1, messages 1, bytes 5
a: IDENTIFY | {{\"feature_negotiation\":true,\"tls_v1\":true,\"snappy\":true}} => {none}
a: PUB t | x => OK
"
        ),
    );
    let deflate = granted(false, true, 3, false);
    check_with(
        with_upgrades(),
        &format!(
            "
a: IDENTIFY | {{\"feature_negotiation\":true,\"deflate\":true,\"deflate_level\":3}} => {deflate}
a upgrades to deflate (level 3)
a upgraded => a< OK
a: NOP
"
        ),
    );
}

#[test]
fn an_upgrade_that_takes_too_long_fails() {
    let tls = granted(true, false, 6, false);
    for heartbeat in [-1, 1000] {
        check_with(
            with_upgrades(),
            &format!(
                "
a: IDENTIFY | {{\"feature_negotiation\":true,\"tls_v1\":true,\"heartbeat_interval\":{heartbeat}}} => {tls}
a upgrades to TLS
+4s
+1s => a< E_IDENTIFY_FAILED IDENTIFY failed i/o timeout; closed
"
            ),
        );
    }
}

/// Regression: the end of the input created the topic of an unfinished MPUB, whatever the client was granted meanwhile. Each
/// end comes after the grants have expired. nsqd refuses such an MPUB when the auth server has answered.
#[test]
fn the_end_of_an_unfinished_batch_creates_no_topic_without_a_grant() {
    let mut options = script::options();
    options.server.auth_required = true;
    let welcome = r#"{"identity":"\u003cme\u003e","identity_url":"url","permission_count":1}"#;
    for (end, created) in [
        (
            "grant a 10s\na< E_UNAUTHORIZED AUTH failed for MPUB on \"made\" \"\"",
            false,
        ),
        (
            "grant a 10s ^other$ .* p\na< E_UNAUTHORIZED AUTH failed for MPUB on \"made\" \"\"",
            false,
        ),
        ("a eof\na< E_BAD_BODY MPUB failed to read body size", false),
        (
            "grant a 10s .* .* p\na eof\na< E_BAD_BODY MPUB failed to read body size",
            true,
        ),
    ] {
        let stats = if created { "depth 0" } else { "no such topic" };
        let script = format!(
            "
a: AUTH | hush
grant a 10s .* .* p => a< {welcome}
+11s
a! MPUB made\\n\\0\\0
{end}
a closed
stats made => {stats}
"
        );
        check_with(options.clone(), &script);
    }
}

/// Regression: with auth servers, every piece of an MPUB was decoded from the start of the MPUB. A million small
/// messages that trickle in cost a million passes over up to a million messages.
#[test]
fn an_unfinished_batch_is_looked_at_once() {
    let remembered = |auth_required: bool| {
        let mut options = script::options();
        options.server.auth_required = auth_required;
        let mut session = script::Session::new(options);
        if auth_required {
            session.act("a: AUTH | hush");
            session.act("grant a 60s ^t$ .* p");
        }
        session.act("a! MPUB t\\n\\0\\0\\0\\x20\\0\\0\\0\\x03\\0\\0\\0\\x01x\\0\\0\\0\\x01y");
        session.remembered("a")
    };
    let plain = remembered(false);
    assert!(plain.contains("index: 2"), "{plain}");
    assert_eq!(remembered(true), plain);
}

/// Regression: the peer's time for a handshake ran while the answers before the upgrade had not left yet.
#[test]
fn the_time_of_an_upgrade_begins_when_the_peer_may_begin() {
    let tls = granted(true, false, 6, false);
    let mut options = with_upgrades();
    options.topic.group_commit = true;
    check_with(
        options,
        &format!(
            "
a: PUB t | x => OK
open fails
a: PUB t | x
a: IDENTIFY | {{\"feature_negotiation\":true,\"tls_v1\":true}}
+250ms => a< OK
a< {tls}
a upgrades to TLS
+4900ms
+100ms => a< E_IDENTIFY_FAILED IDENTIFY failed i/o timeout; closed
"
        ),
    );
}
