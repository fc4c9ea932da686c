//! A drain: what is refused, what is owed, and what the nsqlookupds are told.

use super::script::{changed, check, check_with, options, with_grace};

scripts! {
publishes_are_refused_and_consumers_are_served: "
a: PUB t | x => OK
b: SUB t ch => OK
drain on
a: PUB t | y; PUB t | z => E_PUB_FAILED PUB failed draining, publish to another nsqd; closed
c: MPUB t | y,z => E_MPUB_FAILED MPUB failed draining, publish to another nsqd; closed
d: DPUB new 5 | y => E_DPUB_FAILED DPUB failed draining, publish to another nsqd; closed
owed => 1 messages are owed: 1 waiting
b: RDY 1 => x (1)
owed => 1 messages are owed: 1 in flight
b: REQ #x 1500
owed => 1 messages are owed: 1 deferred; the last deferred one is due in 2 s
+1500ms => b< x (2)
b: FIN #x
owed
= 0 messages are owed
= -t/ch
= -t
owed => 0 messages are owed
";

the_causes_that_keep_messages_are_named: "
a: PUB none | x => OK
a: SUB absent ch => OK
a: PUB absent | x => OK
a gone
b: SUB paused ch => OK
b: PUB paused | x => OK
pause paused/ch
c: SUB stopped ch => OK
pause stopped
c: PUB stopped | x => OK
drain on
owed
= 4 messages are owed: 2 waiting, 2 without a channel or behind a pause; absent/ch has no consumer, none has no \
channel, paused/ch is paused, stopped is paused
d consumes none new 1 => d< x (1)
d: FIN #x
owed
= 3 messages are owed: 2 waiting, 1 without a channel or behind a pause; absent/ch has no consumer, paused/ch is \
paused, stopped is paused
= -none/new
= -none
";

a_drain_that_is_taken_back_announces_the_topics_again: "
a: SUB t ch => OK
drain on
owed
= 0 messages are owed
= -t/ch
= -t
b: SUB t late => OK
owed => 0 messages are owed
drain off
= +t
= +t/ch
= +t/late
a: PUB t | x => OK
owed => 2 messages are owed: 2 waiting
drain on
owed => 2 messages are owed: 2 waiting
drain off
";

the_grace_of_a_new_topic_is_awaited: with_grace(), "
a: PUB t | x
unasked t ch => a< OK
drain on
owed
= 2 messages are owed: 1 waiting, 1 in the grace of a new topic; t has a grace that ends in 61 s, t/ch has no consumer
b consumes t ch 1 => b< x (1)
b: FIN #x
owed => 1 messages are owed: 1 in the grace of a new topic; t has a grace that ends in 61 s
a gone
b gone
+60s
owed
= 0 messages are owed
= -t/ch
= -t
";

/// A publish that waits for room is refused as a whole.
a_publish_that_waits_is_refused: changed(options(), |it| it.asks_for_channels = true), "
a: PUB t | x
drain on
owed
= 0 messages are owed
= -t
channels t ch => a< E_PUB_FAILED PUB failed draining, publish to another nsqd; closed
owed => 0 messages are owed
drain off
= +t
= +t/ch
";
}
