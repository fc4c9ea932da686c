//! The bounds of messages that no channel owns.

use super::script::{changed, check_with, options, with_grace};
use crate::{BrokerOptions, UnclaimedBounds, UnclaimedRules};
use std::time::Duration;

const KEEP: UnclaimedBounds = UnclaimedBounds::KEEP;

/// The bounds of topics whose names begin with `t`.
pub(super) fn with_bounds(bounds: UnclaimedBounds) -> BrokerOptions {
    let mut rules = UnclaimedRules::default();
    rules.add("t*", bounds);
    let mut options = options();
    options.topic.unclaimed = rules.into();
    options
}

/// The same, which keeps the newest messages of so many bytes.
fn keeping(bytes: u64) -> BrokerOptions {
    with_bounds(UnclaimedBounds { bytes, ..KEEP })
}

scripts! {
dropped_messages_are_counted_and_channels_lose_none: with_bounds(UnclaimedBounds::DROP), "
a: PUB t | x; MPUB t | y,z; DPUB t 500 | later => OK
a< OK
a< OK
stats t => depth 0, messages 4, bytes 8, dropped 4
a: PUB kept | x => OK
stats kept => depth 1, messages 1, bytes 1
b: SUB t ch => OK
a: PUB t | w; DPUB t 500 | last => OK
a< OK
stats t => depth 0, messages 6, bytes 13, dropped 4
b: RDY 5 => w (1)
+500ms => b< last (1)
b: FIN #w; FIN #last
a: PUB t#ephemeral | x => OK
stats t#ephemeral => depth 1, messages 1, bytes 1
";

the_oldest_messages_go_first: keeping(4 * 51), "
a: PUB t | 1 => OK
a: PUB t | 2 => OK
a: MPUB t | 3,4,5 => OK
a: PUB t | 6 => OK
stats t => depth 4, messages 6, bytes 6, dropped 2
b consumes t ch 9 => b< 3 (1), 4 (1), 5 (1), 6 (1)
";

messages_that_are_too_old_go:
    with_bounds(UnclaimedBounds { age: Duration::from_secs(64), ..KEEP }), "
a: PUB t | 1 => OK
a gone
+10s
b: PUB t | 2 => OK
b gone
+53900ms
stats t => depth 2, messages 2, bytes 2
+200ms
stats t => depth 1, messages 2, bytes 2, dropped 1
+10s
stats t => depth 0, messages 2, bytes 2, dropped 2
";

a_topic_keeps_everything_in_its_grace_and_before_its_start: changed(with_grace(), |it| {
    it.topic.unclaimed = with_bounds(UnclaimedBounds::DROP).topic.unclaimed;
    it.topic.grace.period = Duration::from_secs(10);
}), "
a: PUB t | x
unasked t => a< OK
a: PUB t | y => OK
stats t => depth 2, messages 2, bytes 2
b consumes t ch 2 => b< x (1), y (1)
b: FIN #x; FIN #y
a: PUB t2 | x
unasked t2 => a< OK
+9s
stats t2 => depth 1, messages 1, bytes 1
+1s
stats t2 => depth 0, messages 1, bytes 1, dropped 1
";

/// The messages behind a pause belong to the topic's channels. Without a channel, nobody owns them.
a_pause_keeps_messages_as_long_as_there_is_a_channel: keeping(2 * 51), "
a: PUB t | 0 => OK
b: SUB t ch => OK
pause t
a: MPUB t | 1,2,3,4 => OK
stats t => depth 4, messages 5, bytes 5
b gone
delete t/ch
a: PUB t | 5 => OK
stats t => depth 2, messages 6, bytes 6, dropped 3
unpause t
c consumes t new 9 => c< 4 (1), 5 (1)
";

a_restart_keeps_the_bounds: keeping(2 * 51), "
a: MPUB t | 1,2,3 => OK
stats t => depth 2, messages 3, bytes 3, dropped 1
+3s
restart
stats t => depth 2
b: MPUB t | 4,5 => OK
stats t => depth 2, messages 2, bytes 2, dropped 2
c consumes t ch 9 => c< 4 (1), 5 (1)
";
}

/// Regression: the messages of others in the same segments were counted, so messages that an undo had brought back exceeded a
/// bound that is ten times as large.
#[test]
fn only_what_the_topic_keeps_counts_behind_an_undo() {
    let mut options = keeping(2000);
    options.topic.log.segment_bytes_min = 4096;
    options.topic.log.segment_bytes_steady = 4096;
    let large = "x".repeat(500);
    let publish = format!("a: MPUB t | {large},{large}\na< OK\n").repeat(12);
    check_with(
        options,
        &format!(
            "
a: MPUB t | 1,2 => OK
empty t for 1h
create t/ch
{publish}delete t/ch
a: MPUB t | 3,4 => OK
unempty t
stats t => depth 4, messages 28, bytes 12004
b: SUB t ch; RDY 9 => OK
b< 1 (1), 2 (1), 3 (1), 4 (1)
"
        ),
    );
}
