//! Pauses that end by themselves.

use super::script::{Session, check, duration};
use crate::stats::PauseStats;
use crate::{Act, Pause};
use std::fmt::Write;
use std::time::Duration;

impl Session {
    /// Pauses a topic or channel. `terms` are pairs: `for 10s`, `note x`, `by x`.
    pub(super) fn pause(&mut self, what: &str, terms: &[&str]) {
        let mut pause = Pause::default();
        for term in terms.chunks(2) {
            match *term {
                ["for", length] => pause.length = Some(duration(length)),
                ["note", note] => pause.note = note.to_owned(),
                ["by", name] => pause.by = name.to_owned(),
                _ => panic!("no term of a pause: {term:?}"),
            }
        }
        self.set_pause(what, Some(&pause));
    }

    /// Pauses a topic or channel, or unpauses the topic or channel.
    pub(super) fn set_pause(&mut self, what: &str, pause: Option<&Pause>) {
        let done = self.administer(what, &Act::Pause(pause.cloned()));
        done.expect("it is there");
    }

    /// Sets the wall clock back.
    pub(super) fn set_clock_back(&mut self, time: &str) {
        self.now.wall_ns -= duration(time).as_nanos() as u64;
    }

    /// Shows whether a topic or channel is paused, and the terms. The end counts from now.
    pub(super) fn show_pause(&mut self, what: &str) {
        let (topic, channel) = self.stats_of(what);
        let (paused, pause) = match channel {
            Some(channel) => (channel.paused, channel.pause),
            None => topic
                .map(|topic| (topic.paused, topic.pause))
                .expect("it is there"),
        };
        let PauseStats { until_ms, note, by } = pause;
        let mut text = if paused { "paused" } else { "not paused" }.to_owned();
        if until_ms > 0 {
            let left = until_ms.saturating_sub(self.now.wall_ns / 1_000_000);
            write!(text, " for {:?}", Duration::from_millis(left)).expect("a String takes all");
        }
        for part in [note, by].into_iter().filter(|part| !part.is_empty()) {
            write!(text, ", {part}").expect("a String takes all");
        }
        self.show(&text);
    }
}

scripts! {
a_pause_ends_by_itself: "
a: SUB t ch; RDY 10 => OK
pause t/ch for 10s note repair by ann
pause t for 20s
pauses t/ch => paused for 10s, repair, ann
pauses t => paused for 20s
b: PUB t | x => OK
+9000ms
pauses t/ch => paused for 1s, repair, ann
+1000ms
pauses t/ch => not paused
stats t => depth 1, messages 1, bytes 1
+10s => a< x (1)
pauses t => not paused
";

the_last_command_counts: "
create t/ch
pause t/ch for 10s note one by ann
pause t/ch for 1h note two
pauses t/ch => paused for 3600s, two
+10s
pauses t/ch => paused for 3590s, two
pause t/ch
+1h
pauses t/ch => paused
pause t/ch for 10s by ann
unpause t/ch
pauses t/ch => not paused
pause t/ch
+10s
pauses t/ch => paused
pause t note why
pauses t => paused, why
unpause t
pauses t => not paused
";

/// The process was down when the pause was over.
a_pause_that_is_over_at_the_start_ends_at_once: "
a: SUB t ch; RDY 10 => OK
pause t/ch for 5ms
restart
+0ms
pauses t/ch => not paused
";

a_crash_or_a_stop_does_not_end_a_pause_and_does_not_lengthen_it
    [for end in ["restart", "stop\nrestart", "power lost 3"]]: "
a: SUB t ch; RDY 10 => OK
pause t/ch for 10s note repair by ann
pause t for 8s
pause t for 8s by bob
+5000ms
{end}
pauses t/ch => paused for 4.99s, repair, ann
pauses t => paused for 2.99s, bob
a: SUB t ch; RDY 10; PUB t | x => OK
a< OK
+4000ms
pauses t => not paused
pauses t/ch => paused for 990ms, repair, ann
+1000ms => a< x (1)
a: FIN #x
{end}
+1ms
pauses t/ch => not paused
";

/// The wall clock was set back by years, so the recorded end is years away.
a_wrong_clock_at_the_start_does_not_lengthen_a_pause_beyond_what_was_asked_for
    [for end in ["restart", "stop\nrestart"]]: "
a: SUB t ch; RDY 10; PUB t | x => OK
a< OK
a< x (1)
pause t/ch for 10s note repair by ann
pause t for 720h
+5000ms
clock back 50000h
{end}
pauses t/ch => paused for 10s, repair, ann
pauses t => paused for 2592000s
+6s
{end}
pauses t/ch => paused for 3.99s, repair, ann
pauses t => paused for 2591993.99s
+4s
pauses t/ch => not paused
pauses t => paused for 2591989.99s
";
}
