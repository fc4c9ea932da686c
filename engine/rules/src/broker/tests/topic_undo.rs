//! The undo of an emptied topic.

use super::group_commit;
use super::script::{check, check_with, with_grace};

#[test]
fn an_emptied_topic_keeps_its_messages_again() {
    let paused = ("create t/ch\npause t\n", "unpause t\n");
    for (pause, unpause) in [("", ""), paused] {
        check(&format!(
            "
{pause}b: MPUB t | a,b,c; DPUB t 20000 | d
b< OK
b< OK
empty t for 10s
stats t => depth 0, messages 4, bytes 4
undo t => 4 messages for 10s
+2000ms
b: PUB t | e => OK
unempty t
undo t => no undo
stats t => depth 5, messages 5, bytes 5
unempty t => NotFound
a: SUB t ch; RDY 10 => OK
{unpause}a< a (1), b (1), c (1), e (1)
+18s => a< d (1)
"
        ));
    }
}

scripts! {
/// The channels that an open topic has at the undo get the messages, wherever their other messages lie.
an_undo_of_a_topic_gives_the_messages_to_its_channels: "
b: SUB t x; MPUB t | a,b => OK
b< OK
pause t
b: MPUB t | c,d; DPUB t 20000 | e => OK
b< OK
empty t for 1h
unpause t
b: MPUB t | f,g => OK
create t/y
b: PUB t | h => OK
unempty t
stats t => depth 0, messages 8, bytes 8
stats t/x => depth 7, deferred 1, messages 8, clients 1
stats t/y => depth 3, deferred 1, messages 4
b: RDY 10 => a (1), b (1), c (1), d (1), f (1), g (1), h (1)
+18s
b: FIN #a; FIN #b; FIN #c; FIN #d; FIN #f; FIN #g; FIN #h
a: SUB t y; RDY 10 => OK
a< c (1), d (1), h (1)
+3000ms => a< e (1)
b< e (1)
";

/// Channels get the messages that a topic keeps in the order of the seqs. And all messages of a channel are newer than
/// those of its undo.
an_undo_of_a_topic_waits_for_newer_messages_that_channels_have: "
create t/x
pause t
b: MPUB t | a,b => OK
empty t for 1h
unpause t
b: PUB t | c => OK
pause t
unempty t => OfPaused
empty t/x for 1h
unempty t => OfPaused
unpause t
unempty t => ChannelFirst
undo t => 2 messages for 3600s
unempty t/x
unempty t
stats t/x => depth 3, messages 3
";

the_time_and_other_commands_end_the_undo_of_a_topic: "
b: PUB t | a => OK
empty t for 10s
+10s
undo t => no undo
unempty t => NotFound
b: PUB t | b => OK
empty t for 10s
+1000ms
b: PUB t | c => OK
empty t for 1s
undo t => 2 messages for 9s
create t/x
empty t/x
empty t
undo t => no undo
delete t/x
b: PUB t | d => OK
empty t for 10s
delete t
b: PUB t | e => OK
undo t => no undo
unempty t => NotFound
unempty u => TopicNotFound
";

/// Regression: an ephemeral channel took as many of the messages as it keeps, and the others were lost.
the_undo_of_a_topic_needs_a_channel_that_keeps_its_messages: "
b: MPUB t | a,b,c => OK
empty t for 1h
create t/e#ephemeral
unempty t => OnlyEphemeral
undo t => 3 messages for 3600s
create t/ch
unempty t
stats t/ch => depth 3, messages 3
";

a_topic_whose_grace_keeps_messages_has_no_undo: with_grace(), "
a: MPUB t | a,b
unasked t => a< OK
empty t for 1h => InGrace
stats t => depth 2, messages 2, bytes 2
+60s => a< _heartbeat_
a< _heartbeat_
a closed
empty t for 1h
unempty t
stats t => depth 2, messages 2, bytes 2
";

/// Also after a start, no other channel and no later message is in the way of the undo.
a_crash_or_a_stop_ends_no_undo_of_a_topic [for end in ["restart", "stop\nrestart"]]: "
a: MPUB t | a,b; DPUB t 20000 | c => OK
a< OK
empty t for 10s
+5000ms
{end}
undo t => 3 messages for 4.99s
stats t => depth 0
a: PUB t | d => OK
{end}
unempty t
{end}
undo t => no undo
stats t => depth 4
empty t for 10s
create t/x
a: PUB t | e => OK
unempty t
{end}
stats t/x => depth 4, deferred 1
";

/// With `--sync-every=1`, the answers to an empty and to an unempty wait for the disk.
a_power_failure_takes_neither_the_undo_of_a_topic_nor_its_use [for seed in 0..20]: group_commit(), "
a: MPUB t | a,b => OK
empty t for 10s
power lost {seed}
undo t => 2 messages for 9.99s
stats t => depth 0
unempty t
power lost {seed}
undo t => no undo
stats t => depth 2
unempty t => NotFound
";
}
