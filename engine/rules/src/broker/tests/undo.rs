//! The undo of empty.

use super::script::{Session, changed, check, check_with, duration, options};
use super::{dead_letters, group_commit};
use crate::{Act, AdminError, Outcome};
use std::time::Duration;

impl Session {
    /// Empties a topic or channel with an undo.
    pub(super) fn empty_for(&mut self, what: &str, time: &str) {
        self.try_until_done(what, &Act::Empty(Some(duration(time))));
    }

    /// Brings the messages back that a topic or channel was emptied of.
    pub(super) fn unempty(&mut self, what: &str) {
        self.try_until_done(what, &Act::Unempty);
    }

    /// Carries out an operator's command, and says why it is refused.
    fn try_until_done(&mut self, what: &str, act: &Act) {
        loop {
            match self.administer(what, act) {
                Ok(Outcome::Later) => continue,
                Ok(_) => {}
                Err(AdminError::NoUndo(why)) => self.show(&format!("{why:?}")),
                Err(error) => self.show(&format!("{error:?}")),
            }
            return;
        }
    }

    /// Shows the undo of a topic or channel. The end counts from now.
    pub(super) fn show_undo(&mut self, what: &str) {
        let (topic, channel) = self.stats_of(what);
        let undo = if what.contains('/') {
            channel.and_then(|channel| channel.undo)
        } else {
            topic.and_then(|topic| topic.undo)
        };
        let text = match undo {
            None => "no undo".to_owned(),
            Some(undo) => {
                assert!(undo.disk_bytes > 0, "a segment has the messages");
                let left = undo.until_ms.saturating_sub(self.now.wall_ns / 1_000_000);
                let left = Duration::from_millis(left);
                format!("{} messages for {left:?}", undo.message_count)
            }
        };
        self.show(&text);
    }
}

scripts! {
messages_of_all_states_come_back_before_later_ones: "
a: SUB t ch; RDY 2 => OK
b: MPUB t | a,b,c,d; DPUB t 20000 | e => OK
b< OK
a< a (1), b (1)
a: RDY 0; REQ #b 0
stats t/ch => depth 3, in flight 1, deferred 1, messages 5, requeued 1, clients 1
empty t/ch for 10s
stats t/ch => depth 0, messages 5, requeued 1, clients 1
undo t/ch => 5 messages for 10s
a: FIN #a => E_FIN_FAILED FIN #a failed ID not in flight
b: PUB t | f => OK
+2000ms
unempty t/ch
undo t/ch => no undo
stats t/ch => depth 5, deferred 1, messages 6, requeued 1, clients 1
a: RDY 10 => c (1), d (1), a (2), b (2), f (1)
+18s => a< e (1)
unempty t/ch => NotFound
";

the_time_ends_and_so_do_other_commands: "
b: SUB t ch; MPUB t | a,b => OK
b< OK
empty t/ch for 10s
+10s
undo t/ch => no undo
unempty t/ch => NotFound
b: PUB t | c => OK
empty t/ch for 10s
undo t/ch => 1 messages for 10s
empty t/ch
undo t/ch => no undo
empty t/ch for 10s
undo t/ch => no undo
b: PUB t | d => OK
empty t/ch for 10s
delete t/ch => b closed
create t/ch
undo t/ch => no undo
";

a_second_empty_adds_to_the_undo: "
a: SUB t ch => OK
a: MPUB t | a,b => OK
empty t/ch for 1h
a: PUB t | c => OK
+1000ms
empty t/ch for 10s
undo t/ch => 3 messages for 3599s
a: PUB t | d => OK
unempty t/ch
a: RDY 10 => a (1), b (1), c (1), d (1)
empty t/ch for 10s
unempty t/ch => a< a (2), b (2), c (2), d (2)
";

ephemeral_channels_have_no_undo: "
a: SUB t ch#ephemeral; PUB t | x => OK
a< OK
empty t/ch#ephemeral for 10s => OfEphemeral
stats t/ch#ephemeral => depth 1, messages 1, clients 1
";

/// Regression: each empty prolonged the undo of the messages before, so their segments could stay for ever.
later_empties_prolong_no_undo_beyond_a_day: "
b: PUB t | a => OK
b gone
empty t for 20h
+10h
b: PUB t | b => OK
b gone
empty t for 24h
undo t => 2 messages for 50400s
+13h
b: PUB t | c => OK
b gone
empty t for 24h
undo t => 3 messages for 3600s
+1h
undo t => no undo
";

/// Regression: the due times were those of the wall clock, so messages came late when it was set back between the empty and
/// the undo.
a_wall_clock_that_is_set_back_delays_no_message_of_an_undo: "
a: SUB t ch; RDY 2 => OK
a: DPUB t 20000 | x => OK
empty t/ch for 1h
clock back 1h
+2s
a: DPUB t 20000 | y => OK
empty t/ch for 1h
unempty t/ch
+17s
+1s => a< x (1)
+2s => a< y (1)
a: FIN #x; FIN #y
a gone
b: PUB u | z; DPUB u 20000 | x => OK
b< OK
b gone
empty u for 1h
clock back 1h
pause u
restart
unempty u
unpause u
a: SUB u ch; RDY 2 => OK
a< z (1)
+18s
+2s => a< x (1)
";

/// The undo is in the checkpoint, so it survives what the answer to the operator survives.
a_crash_or_a_stop_ends_no_undo [for end in ["restart", "stop\nrestart"]]: "
a: SUB t ch; RDY 1 => OK
a: MPUB t | a,b; DPUB t 20000 | c => OK
a< OK
a< a (1)
empty t/ch for 10s
+5000ms
{end}
undo t/ch => 3 messages for 4.99s
stats t/ch => depth 0
a: SUB t ch; RDY 10; PUB t | d => OK
a< OK
a< d (1)
a: FIN #d
unempty t/ch => a< a (2), b (1)
{end}
undo t/ch => no undo
stats t/ch => depth 2, deferred 1
empty t/ch for 10s
+9000ms
{end}
+1000ms
undo t/ch => no undo
{end}
unempty t/ch => NotFound
stats t/ch => depth 0
";

/// With `--sync-every=1`, the answers to an empty and to an unempty wait for the disk.
a_power_failure_takes_neither_an_undo_nor_its_use [for seed in 0..20]: group_commit(), "
a: SUB t ch; RDY 1 => OK
a: MPUB t | a,b => a (1)
a< OK
a: DPUB t 20000 | c => OK
empty t/ch for 10s
power lost {seed}
undo t/ch => 3 messages for 9.99s
stats t/ch => depth 0
unempty t/ch
power lost {seed}
undo t/ch => no undo
stats t/ch => depth 2, deferred 1
unempty t/ch => NotFound
";

dead_letters_of_an_undo_are_dead_letters_again:
    changed(options(), |it| it.topic.dead_letters = dead_letters::rule("t", "ch", 1, "dead").into()), "
a: SUB t ch; RDY 1 => OK
a: PUB t | x => OK
a< x (1)
empty t/ch for 10s
unempty t/ch
+2000ms
+2000ms
stats t/ch => depth 0, messages 1, clients 1
stats dead => depth 1, messages 1, bytes 1
";
}

#[test]
fn a_full_disk_ends_every_undo() {
    let mut session = Session::new(options());
    session.play("a: SUB t ch; MPUB t | a,b\nempty t/ch for 1h\nundo t/ch");
    assert!(session.transcript().contains("= 2 messages for 3600s"));
    let mut out = Vec::new();
    session.broker.drop_undos(&mut out);
    session.run_until_idle(out);
    session.broker.check();
    session.act("undo t/ch");
    assert!(session.transcript().ends_with("= no undo\n"));
}

/// Without the undo, a full disk has more room. Any other failure would stay.
#[test]
fn only_a_full_disk_ends_an_undo() {
    for (failure, is_full, expected) in [
        ("disk full", true, "= no undo\n"),
        ("segment fails", false, "= 2 messages for 3600s\n"),
    ] {
        let mut session = Session::new(options());
        session.play("a: SUB t ch; MPUB t | a,b\nempty t/ch for 1h");
        session.act(failure);
        session.act("b: PUB u | x");
        assert!(session.transcript().contains("E_PUB_FAILED"));
        session.act("undo t/ch");
        let transcript = session.transcript();
        assert!(transcript.ends_with(expected), "{transcript}");
        // The other shards drop theirs, too.
        assert_eq!(session.broker.take_full_disk(), is_full);
        assert!(!session.broker.take_full_disk(), "told once");
    }
}

/// The undos of the whole node ended for a large segment that was asked for ahead, although a smaller one found room and
/// no publish was refused.
#[test]
fn an_undo_ends_only_if_the_disk_has_no_room_for_any_segment() {
    let mut session = Session::new(options());
    session.play("a: SUB t ch; MPUB t | a,b\nempty t/ch for 1h");
    let publish = format!("b: PUB u | {}", "x".repeat(1000));
    for _ in 0..100 {
        session.act(&publish);
    }
    // Room for one segment of the smallest size. The topic has outgrown it.
    let before = session.files.bytes();
    session.files.limit(Some(before + (40 << 10)));
    let mut is_full = false;
    for _ in 0..1000 {
        session.act(&publish);
        is_full = session.broker.take_full_disk();
        if is_full {
            break;
        }
        assert!(!session.transcript().contains("E_PUB_FAILED"));
        session.act("undo t/ch");
        assert!(session.transcript().ends_with("= 2 messages for 3600s\n"));
    }
    assert!(is_full);
    assert!(
        session.files.bytes() >= before + (32 << 10),
        "a small segment was made"
    );
    session.act("undo t/ch");
    assert!(session.transcript().ends_with("= no undo\n"));
}

/// The room of an undo that a full disk had ended was not free before --sync-timeout was over.
#[test]
fn an_undo_that_a_full_disk_ends_makes_room_soon() {
    let mut options = options();
    options.topic.log.sync_timeout = Duration::from_secs(60);
    let mut session = Session::new(options);
    session.act("a: SUB t ch");
    let publish = format!("p: PUB t | {}", "x".repeat(1000));
    for _ in 0..300 {
        session.act(&publish);
    }
    session.play("empty t/ch for 1h\ndisk full\nb: PUB u | x");
    assert!(session.transcript().contains("E_PUB_FAILED"));
    // The topic gives back its segments when it has been idle for 5 s.
    session.play("+10s\nc: PUB u | x");
    let transcript = session.transcript();
    assert!(transcript.ends_with("c< OK\n"), "{transcript}");
}
