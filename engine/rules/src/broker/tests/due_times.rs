//! Due times over a restart at which the wall clock is not right.

use super::script::check;

/// Regression: the recorded due times counted on the wall clock of the start. A clock that was set back by 5 minutes delayed
/// the messages by as much, and a clock that began in 1970 delayed them by decades. A kill leaves the checkpoint that came
/// 2 s after the first message.
#[test]
fn a_wall_clock_that_is_set_back_at_a_restart_delays_no_message() {
    for back in ["300s", "450000h"] {
        for (end, left) in [("clock back 0s", "17s"), ("stop", "11s")] {
            check(&format!(
                "
a: SUB t ch; RDY 2; PUB t | x; DPUB t 20000 | y => OK
a< OK
a< OK
a< x (1)
a: REQ #x 19500
+8s
{end}
clock back {back}
restart
b: SUB t ch; RDY 2 => OK
+{left}
+1s => b< x (2), y (1)
"
            ));
        }
    }
}

scripts! {
/// No checkpoint has the message: its deferral is in its slot.
a_wall_clock_that_is_set_back_delays_no_message_that_is_newer_than_the_checkpoint: "
a: SUB t ch; RDY 1; DPUB t 2000 | x => OK
a< OK
+300ms
clock back 300s
restart
b: SUB t ch; RDY 1 => OK
+1s
+1s => b< x (1)
";

/// The messages of an undo keep what is left of their deferrals, too.
a_wall_clock_that_is_set_back_at_a_restart_delays_no_message_of_an_undo: "
a: SUB t ch; DPUB t 20000 | x => OK
a< OK
empty t/ch for 1h
+8s
clock back 300s
restart
unempty t/ch
b: SUB t ch; RDY 1 => OK
+17s
+1s => b< x (1)
";

/// A clock that is right, or that was set forward, changes no due time.
a_right_clock_moves_no_due_time: "
a: SUB t ch; DPUB t 20000 | x => OK
a< OK
+8s
restart
+8s
restart
b: SUB t ch; RDY 1 => OK
+3s
+1s => b< x (1)
";
}
