//! The age of the oldest message that is not finished.

use super::script::check;

scripts! {
the_oldest_message_counts_wherever_it_is: "
p: PUB t | w => OK
+1s
oldest t => 1000 ms
create t/ch
oldest t => 0 ms
oldest t/ch => 1000 ms
p: PUB t | x => OK
+1s
p: PUB t | y => OK
oldest t/ch => 2000 ms
a consumes t ch 3 => a< w (1), x (1), y (1)
+1s
oldest t/ch => 3000 ms
a: FIN #w
oldest t/ch => 2000 ms
a: RDY 0; REQ #x 0; FIN #y
+1s
oldest t/ch => 3000 ms
a: RDY 1 => x (2)
a: REQ #x 500000
+2s
oldest t/ch => 5000 ms
empty t/ch
oldest t/ch => 0 ms
p: DPUB t 60000 | later => OK
+1s
oldest t/ch => 1000 ms
oldest t => 0 ms
";

/// The publish time is on the disk. So the age goes on after a restart, also if no message was read.
the_age_survives_a_restart: "
a: SUB t ch => OK
p: MPUB t | x,y => OK
+4s
oldest t/ch => 4000 ms
restart
oldest t/ch => 4010 ms
b consumes t ch 1 => b< x (1)
oldest t/ch => 4010 ms
b: FIN #x => y (1)
b: FIN #y
oldest t/ch => 0 ms
";
}
