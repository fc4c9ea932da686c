//! [`RoomLog`]: the lines of the log about a history that is full.

use std::time::Duration;

use program::log_warn;
use wire::go_value::duration_text;

use crate::history::TIERS;

/// Says once that series have no room, and each time that the past has become much shorter.
#[derive(Debug, Default)]
pub(super) struct RoomLog {
    /// True if the log says already that series have no room.
    has_left_out: bool,
    /// The time for which the past had room at the last line, in seconds.
    logged: Option<i64>,
}

impl RoomLog {
    /// Takes the time for which the past has room now, in seconds, and the number of series without room.
    pub(super) fn log(&mut self, room_seconds: i64, left_out: usize) {
        if left_out > 0 && !self.has_left_out {
            log_warn!("history: no room for {left_out} series (--history-max-bytes)");
            self.has_left_out = true;
        }
        let is_much_shorter = match self.logged {
            None => room_seconds < TIERS[2].seconds(),
            // The past of a full history becomes a bit shorter and longer all the time.
            Some(logged) => room_seconds < logged / 4 * 3,
        };
        if is_much_shorter {
            let seconds = Duration::from_secs(room_seconds.unsigned_abs());
            log_warn!(
                "history: the past reaches back {} only, because there is no room for more (--history-max-bytes)",
                duration_text(seconds)
            );
            self.logged = Some(room_seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use program::log::capture;

    use super::*;

    #[test]
    fn the_log_tells_each_large_change_once() {
        let mut log = RoomLog::default();
        let day = 86_400;
        for (room_seconds, left_out, expected) in [
            (7 * day, 0, ""),
            (6 * day, 0, "reaches back 144h0m0s only"),
            (5 * day, 0, ""),
            (6 * day, 0, ""),
            (4 * day, 0, "reaches back 96h0m0s only"),
            (600, 0, "reaches back 10m0s only"),
            (600, 3, "no room for 3 series (--history-max-bytes)"),
            (600, 4, ""),
        ] {
            capture::start();
            log.log(room_seconds, left_out);
            let lines = capture::stop();
            let is_expected = match expected {
                "" => lines.is_empty(),
                text => lines.len() == 1 && lines[0].contains(text),
            };
            assert!(is_expected, "{room_seconds} s: {lines:?}");
        }
    }
}
