//! Messages that have reached their attempts go to the dead-letter topic.

use super::script::{changed, check_with, options};
use crate::{BrokerOptions, DeadLetterRules, UnclaimedBounds, UnclaimedRules};

/// The rule for one topic and channel.
pub(super) fn rule(topic: &str, channel: &str, attempts: u16, to: &str) -> DeadLetterRules {
    let mut rules = DeadLetterRules::default();
    rules
        .add(topic, channel, attempts, to)
        .expect("a valid rule");
    rules
}

/// Options with `t/ch` to `d` after two attempts, and `d/retry` to `e` after one.
fn with_rules() -> BrokerOptions {
    let mut rules = rule("t", "c*", 2, "d");
    rules.add("d", "retry", 1, "e").expect("right");
    let mut options = options();
    options.topic.dead_letters = rules.into();
    // Topics without channels drop their messages, but dead letters stay.
    let mut unclaimed = UnclaimedRules::default();
    unclaimed.add("*", UnclaimedBounds::DROP);
    options.topic.unclaimed = unclaimed.into();
    options
}

/// The beginning of each script: `x` has reached its attempts.
const REACHED: &str = "
a consumes t ch 1
p: PUB t | x => OK
a< x (1)
a: REQ #x 0 => x (2)
";

fn check(script: &str) {
    check_with(with_rules(), &format!("{REACHED}{}", script.trim_start()));
}

scripts! {
a_message_moves_and_is_finished_after_the_sync: "
a: REQ #x 0
dead t/ch => 0 went to d, 1 wait
stats t/ch => depth 1, messages 1, requeued 2, clients 1
+1s
oldest t/ch => 1000 ms
p: PUB t | y => OK
a< y (1)
a: FIN #y
+2s
dead t/ch => 1 went to d, 0 wait
stats t/ch => depth 0, messages 2, requeued 2, clients 1
oldest t/ch => 0 ms
b consumes d other 1 => b< x (1)
dead d/other => no rule
b: REQ #x 0 => x (2)
b: REQ #x 0 => x (3)
";

a_deferred_message_moves_when_it_is_due: "
a: REQ #x 5000
+4s
dead t/ch => 0 went to d, 0 wait
+1s
dead t/ch => 0 went to d, 1 wait
+2s
dead t/ch => 1 went to d, 0 wait
";

a_message_that_times_out_needs_no_consumer_to_move: "
a gone
p gone
+61s
+2s
dead t/ch => 1 went to d, 0 wait
";

a_paused_channel_keeps_its_dead_letters: "
pause t/ch
a: REQ #x 0
+5s
dead t/ch => 0 went to d, 1 wait
unpause t/ch
+2s
dead t/ch => 1 went to d, 0 wait
";

a_refused_message_stays_and_is_tried_again: "
disk full
a: REQ #x 0
+20s
dead t/ch => 0 went to d, 1 wait
disk free
+8s
dead t/ch => 1 went to d, 0 wait
";

an_emptied_channel_forgets_its_dead_letters: "
a: REQ #x 0
empty t/ch
dead t/ch => 0 went to d, 0 wait
+3s
dead t/ch => 0 went to d, 0 wait
delete t/ch => a closed
stats d => depth 1, messages 1, bytes 1
";

a_channel_may_be_deleted_before_the_answer: "
a: REQ #x 0
delete t/ch => a closed
+3s
delete t
stats d => depth 1, messages 1, bytes 1
";

a_deleted_dead_letter_topic_is_made_again: "
a: REQ #x 0
delete d
dead t/ch => 0 went to d, 1 wait
+3s
dead t/ch => 1 went to d, 0 wait
stats d => depth 1, messages 1, bytes 1
";

dead_letters_of_dead_letters: "
a: REQ #x 0
b consumes d retry 1 => b< x (1)
b: REQ #x 0
+5s
dead t/ch => 1 went to d, 0 wait
dead d/retry => 1 went to e, 0 wait
";

a_restart_knows_the_attempts: "
+3s
restart
dead t/ch => 0 went to d, 1 wait
+3s
dead t/ch => 1 went to d, 0 wait
stats d => depth 1, messages 1, bytes 1
";

/// A message that comes back unhandled is not nearer to its last attempt.
an_uncounted_requeue_makes_no_dead_letter: with_rules(), "
a: IDENTIFY | {\"feature_negotiation\":true,\"req_uncounted\":true}
a< {\"max_rdy_count\":2500,\"version\":\"1.3.0\",\"max_msg_timeout\":900000,\"msg_timeout\":60000,\"tls_v1\":false,\"deflate\":false,\"deflate_level\":6,\"max_deflate_level\":6,\"snappy\":false,\"sample_rate\":0,\"auth_required\":false,\"output_buffer_size\":16384,\"output_buffer_timeout\":250,\"topology_region\":\"\",\"topology_zone\":\"\",\"req_uncounted\":true}
a consumes t ch 1
p: PUB t | x => OK
a< x (1)
a: REQ #x 0 uncounted => x (1)
a: REQ #x 0 => x (2)
a: REQ #x 0 uncounted => x (2)
a: REQ #x 0 free => E_INVALID REQ unknown option free; closed
";

/// The message is not finished before the dead-letter topic is synced, so a power failure may double it.
a_power_failure_before_the_sync_loses_nothing [for seed in 0..20]: "
+3s
a: REQ #x 0
power lost {seed}
+5s
dead t/ch => 1 went to d, 0 wait
";

a_power_failure_after_the_sync_loses_nothing [for seed in 0..20]: "
a: REQ #x 0
+2s
dead t/ch => 1 went to d, 0 wait
power lost {seed}
b consumes d all 1 => b< x (1)
";
}

/// The bound of a channel was the only one, so ten thousand channels could have ten thousand times its bytes on their way.
#[test]
fn the_letters_of_all_channels_have_a_bound_and_all_arrive() {
    let mut options = with_rules();
    // Two letters: the room of the first one is not the whole room.
    options.dead_letter_bytes = 300;
    let for_each = |lines: &str| {
        let channels = (1..=5).map(|number| lines.replace("NAME", &format!("c{number}")));
        channels.collect::<String>()
    };
    let script = [
        &*for_each("NAME: SUB t NAME\nNAME< OK\nNAME: RDY 1\n"),
        "p: PUB t | x\np< OK\n",
        // Deliveries begin with the channel that was named last.
        "c5< x (1)\nc4< x (1)\nc3< x (1)\nc2< x (1)\nc1< x (1)\n",
        &for_each("NAME: REQ #x 0\nNAME< x (2)\n"),
        &for_each("NAME: REQ #x 0\n"),
        "+2s\n",
        &for_each("dead t/NAME\n= 1 went to d, 0 wait\n"),
        "stats d\n= depth 5, messages 5, bytes 5\n",
    ]
    .concat();
    check_with(options, &script);
}

scripts! {
/// A drain refused letters that waited for the start of their topic, with an ERROR line, and they were sent again later.
a_drain_keeps_letters_that_wait_for_their_topic:
    changed(with_rules(), |it| it.asks_for_channels = true), "
a: SUB t ch
channels t ch => a< OK
a: RDY 1
p: PUB t | x => OK
a< x (1)
a: REQ #x 0 => x (2)
a: REQ #x 0
errors
dead t/ch => 0 went to d, 1 wait
drain on
errors
channels d all
errors
+2s
dead t/ch => 1 went to d, 0 wait
";
}
