//! [`Spin`]: decides whether a thread that has nothing to do looks for answers for a moment before it sleeps.
//!
//! A thread that sleeps halts its core. The next request then waits until the core and the thread run again: 40 to 100 us on
//! virtual machines, more than answering it takes. Where each request comes soon after the answer to the one before, not
//! sleeping at all is quicker, and also cheaper. A thread finds out by a try now and then, and goes on looking while at
//! least four of five tries are hits. An idle thread makes no tries.
//!
//! With many active connections, the next request comes soon in any case, and looking would only take processor time. So a
//! thread looks only while few connections are active (docs/decisions/0013-one-request-at-a-time.md).

use std::time::Duration;

/// A timer that is due within this time is waited for asleep, so that input gathers until then.
const TIMER_SOON: Duration = Duration::from_micros(50);
/// Behind a longer turn, the cost of a sleep does not matter: a hit counts as a miss.
const TURN_MAX: Duration = Duration::from_micros(50);
/// Only waits up to this length count towards a try.
const SHORT_WAIT_MAX: Duration = Duration::from_micros(300);
/// Short waits in a row before a try.
const WAITS_PER_TRY: u8 = 32;
/// A miss lowers the score by this, a hit raises it by one.
const MISS: u8 = 4;
const SCORE_MAX: u8 = 16;

/// The most connections that count as few.
const FEW: usize = 4;
/// An answer from a connection that is not among the last [`FEW`] raises the crowd by this. Any other lowers it by one.
const STRANGER: u8 = 8;
const CROWD_MAX: u8 = 64;
/// Above this, there are many connections. A heartbeat beside four active ones ends the looking for about 26 answers.
const CROWD: u8 = 2 * STRANGER;

/// Decides for one thread whether it looks for answers before it sleeps.
pub(super) struct Spin {
    /// The length of a try. Zero: never.
    window: Duration,
    /// Above 0, the thread looks before each sleep.
    score: u8,
    waits_until_try: u8,
    /// The sources that answered last.
    recent: [usize; FEW],
    /// The place in `recent` of the next stranger.
    next: usize,
    crowd: u8,
}

impl Spin {
    /// `window` is the length of a try; zero for none.
    pub(super) fn new(window: Duration) -> Spin {
        Spin {
            window,
            score: 0,
            waits_until_try: WAITS_PER_TRY,
            recent: [usize::MAX; FEW],
            next: 0,
            crowd: 0,
        }
    }

    /// Records that the source with this index has an answer.
    #[inline]
    pub(super) fn record_answer(&mut self, index: usize) {
        if self.recent.contains(&index) {
            self.crowd = self.crowd.saturating_sub(1);
        } else {
            self.recent[self.next] = index;
            self.next = (self.next + 1) % FEW;
            self.crowd = (self.crowd + STRANGER).min(CROWD_MAX);
        }
    }

    /// Returns how long to look for answers before sleeping, if the next timer is due in `timer`. `None` means that the
    /// thread sleeps at once: looking is not expected to pay, or the timer is due soon.
    pub(super) fn window(&self, timer: Option<Duration>) -> Option<Duration> {
        let is_soon = timer.is_some_and(|timer| timer <= TIMER_SOON);
        let is_worth_it = self.score > 0 || self.waits_until_try == 0;
        let is_allowed = self.crowd <= CROWD && !self.window.is_zero();
        let window = timer.map_or(self.window, |timer| self.window.min(timer));
        (is_worth_it && is_allowed && !is_soon).then_some(window)
    }

    /// Records a turn of `worked` and the wait of `waited` after it. `hit` says whether looking found an answer; `None` if
    /// the thread did not look.
    pub(super) fn record_wait(&mut self, worked: Duration, waited: Duration, hit: Option<bool>) {
        match hit {
            // A longer look found the answer late: another thread had the processor, to which the look leaves it.
            Some(true) if worked <= TURN_MAX && waited <= self.window + TURN_MAX => {
                self.score = (self.score + 1).min(SCORE_MAX);
            }
            Some(_) => {
                self.score = self.score.saturating_sub(MISS);
                self.waits_until_try = WAITS_PER_TRY;
            }
            None if worked <= TURN_MAX && waited <= SHORT_WAIT_MAX => {
                self.waits_until_try = self.waits_until_try.saturating_sub(1);
            }
            None => self.waits_until_try = WAITS_PER_TRY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Duration = Duration::from_micros(10);
    const WINDOW: Duration = Duration::from_micros(50);

    /// The time by which a sleep makes a wait longer.
    const LATE: Duration = Duration::from_micros(80);

    /// A wait for what comes after `gap`. Returns whether it began with looking.
    fn wait(spin: &mut Spin, worked: Duration, gap: Duration) -> bool {
        let hit = spin.window(None).map(|window| gap <= window);
        let late = if hit == Some(true) {
            Duration::ZERO
        } else {
            LATE
        };
        spin.record_wait(worked, gap + late, hit);
        hit.is_some()
    }

    /// A thread to which the next request comes so long after each answer, in turn. Returns how many of
    /// the last 1,000 waits began with looking.
    fn tries(gaps_us: &[u64], work: Duration) -> u32 {
        let mut spin = Spin::new(WINDOW);
        let mut tries = 0;
        for turn in 0..2000 {
            let gap = Duration::from_micros(gaps_us[turn % gaps_us.len()]);
            let is_try = wait(&mut spin, work, gap);
            tries += u32::from(is_try && turn >= 1000);
        }
        tries
    }

    #[test]
    fn an_idle_thread_never_tries() {
        assert_eq!(tries(&[2_000], WORK), 0);
    }

    #[test]
    fn it_goes_on_where_requests_follow_answers_at_once() {
        for gap in [5, 20, 50] {
            assert_eq!(tries(&[gap], WORK), 1000, "{gap}");
        }
        assert!(tries(&[20, 20, 20, 20, 20, 20, 20, 20, 20, 150], WORK) > 900);
    }

    #[test]
    fn it_is_tried_now_and_then_where_they_come_later() {
        let some = tries(&[150], WORK);
        assert!((20..=40).contains(&some), "{some}");
        let some = tries(&[20, 150], WORK);
        assert!((20..=100).contains(&some), "{some}");
    }

    #[test]
    fn long_turns_end_it() {
        assert_eq!(tries(&[20], Duration::from_micros(200)), 0);
    }

    /// Another thread had the processor for its whole slice, and the answer came meanwhile.
    #[test]
    fn a_look_that_lost_its_processor_is_a_miss() {
        let mut spin = Spin::new(WINDOW);
        for _ in 0..100 {
            wait(&mut spin, WORK, Duration::from_micros(20));
        }
        let late = (0..10).take_while(|_| {
            let is_on = spin.window(None).is_some();
            spin.record_wait(WORK, Duration::from_millis(3), is_on.then_some(true));
            is_on
        });
        assert_eq!(late.count(), 4);
    }

    #[test]
    fn it_ends_soon_after_the_requests() {
        let mut spin = Spin::new(WINDOW);
        for _ in 0..100 {
            wait(&mut spin, WORK, Duration::from_micros(20));
        }
        let misses = (0..10).take_while(|_| {
            let is_on = spin.window(None).is_some();
            spin.record_wait(WORK, Duration::from_millis(5), is_on.then_some(false));
            is_on
        });
        assert_eq!(misses.count(), 4);
    }

    #[test]
    fn what_is_left_to_gather_is_not_looked_for() {
        let mut spin = Spin::new(WINDOW);
        for _ in 0..WAITS_PER_TRY {
            wait(&mut spin, WORK, WORK);
        }
        assert_eq!(spin.window(Some(Duration::from_micros(30))), None);
        let later = Some(Duration::from_millis(1));
        assert_eq!(spin.window(later), Some(WINDOW));
        spin.window = Duration::from_millis(2);
        assert_eq!(spin.window(later), later, "no timer comes late");
        spin.window = Duration::ZERO;
        assert_eq!(spin.window(later), None, "--look=0");
    }

    /// With 32 clients that wait for each answer, looking raised the processor time by 40 %, and the rate by 3 %.
    #[test]
    fn a_crowd_is_not_looked_for() {
        let looks_among = |connections: usize| {
            let mut spin = Spin::new(WINDOW);
            let mut tries = 0;
            for turn in 0..1000 {
                spin.record_answer(turn % connections);
                // A heartbeat, now and then.
                if turn % 500 == 50 {
                    spin.record_answer(1000 + turn);
                }
                tries += u32::from(wait(&mut spin, WORK, WORK));
            }
            tries
        };
        for few in 1..=FEW {
            assert!(looks_among(few) > 850, "{few}");
        }
        for many in [FEW + 1, 32, 256] {
            assert_eq!(looks_among(many), 0, "{many}");
        }
    }
}
