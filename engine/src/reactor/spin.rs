//! [`Spin`]: decides whether a thread that has nothing to do looks for answers for a moment before it sleeps.
//!
//! Falling asleep and being woken costs processor time: 3 us on one virtual machine, tens of them on another. That is
//! more than answering a request. Where each request comes soon after the answer to the one before, not sleeping at all
//! is cheaper. A thread finds out by a try now and then. A try looks for as long as a sleep costs, and that cost is
//! measured. The thread goes on looking while nearly every try is a hit. An idle thread makes no tries.

use std::time::Duration;

/// The longest try.
const WINDOW_MAX: Duration = Duration::from_micros(50);
/// Behind longer turns a sleep does not matter.
const TURN_MAX: Duration = Duration::from_micros(50);
/// Only waits up to this length count towards a try. (A sleep turns a wait of 20 us into one of 100 to 200 us.)
const SHORT: Duration = Duration::from_micros(300);
/// Short waits in a row before a try.
const WAITS_PER_TRY: u8 = 32;
/// A miss lowers the score by this, a hit raises it by one.
const MISS: u8 = 4;
const SCORE_MAX: u8 = 16;
/// Tries without a sleep before one wait is a sleep, which is measured.
const TRIES_PER_SLEEP: u16 = 1000;
/// A new measurement counts a quarter of the average.
const SLEEPS_AVERAGED: u32 = 4;

/// Decides for one thread whether it looks for answers before it sleeps.
pub(super) struct Spin {
    /// Above 0 it goes on.
    score: u8,
    waits_until_try: u8,
    tries_until_measured_sleep: u16,
    /// The processor time of this thread for one sleep, an average. Zero: not measured yet.
    sleep_cost: Duration,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin {
            score: 0,
            waits_until_try: WAITS_PER_TRY,
            tries_until_measured_sleep: TRIES_PER_SLEEP,
            sleep_cost: Duration::ZERO,
        }
    }
}

impl Spin {
    /// Returns how long to look for answers before sleeping, if the next timer is due in `timer`. `None` means that the
    /// thread sleeps at once: looking is not expected to pay, a sleep is to be measured, or the timer is due within
    /// `WINDOW_MAX`, so that input gathers until then.
    pub(super) fn window(&self, timer: Option<Duration>) -> Option<Duration> {
        let is_soon = timer.is_some_and(|timer| timer <= WINDOW_MAX);
        let is_worth_it = self.score > 0 || self.waits_until_try == 0;
        let window = self.sleep_cost.min(WINDOW_MAX);
        (is_worth_it && !is_soon && !self.wants_sleep()).then_some(window)
    }

    /// Returns whether the next wait is to be a sleep whose cost is measured.
    pub(super) fn wants_sleep(&self) -> bool {
        self.waits_until_try == 1 || self.tries_until_measured_sleep == 0
    }

    /// Records the cost of a sleep of this thread, in processor time.
    pub(super) fn record_sleep(&mut self, cost: Duration) {
        self.tries_until_measured_sleep = TRIES_PER_SLEEP;
        self.sleep_cost = if self.sleep_cost.is_zero() {
            cost
        } else {
            (self.sleep_cost * (SLEEPS_AVERAGED - 1) + cost) / SLEEPS_AVERAGED
        };
    }

    /// A turn of `worked` and a wait of `waited` are over; `hit` says what came of looking, if it was tried.
    pub(super) fn record_wait(&mut self, worked: Duration, waited: Duration, hit: Option<bool>) {
        if hit.is_some() {
            self.tries_until_measured_sleep = self.tries_until_measured_sleep.saturating_sub(1);
        }
        match hit {
            Some(true) if worked <= TURN_MAX => self.score = (self.score + 1).min(SCORE_MAX),
            Some(_) => {
                self.score = self.score.saturating_sub(MISS);
                self.waits_until_try = WAITS_PER_TRY;
            }
            None if worked <= TURN_MAX && waited <= SHORT => {
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

    /// The number of sleeps among 1,000 waits that would begin with looking. They measure the cost of a sleep.
    const MEASURED: u32 = 1;

    /// The cost of a sleep on a machine where a sleep is dear.
    const DEAR: Duration = Duration::from_micros(40);

    /// A wait for what comes after `gap`, with a sleep that costs `sleep`; asleep it takes `late` longer to
    /// notice. Returns whether it began with looking.
    fn wait(spin: &mut Spin, worked: Duration, gap: Duration, sleep: Duration) -> bool {
        let hit = spin.window(None).map(|window| gap <= window);
        if spin.wants_sleep() {
            spin.record_sleep(sleep);
        }
        let late = if hit == Some(true) {
            Duration::ZERO
        } else {
            sleep * 2
        };
        spin.record_wait(worked, gap + late, hit);
        hit.is_some()
    }

    /// A thread to which the next request comes so long after each answer, in turn. Returns how many of
    /// the last 1,000 waits began with looking.
    fn tries_if(gaps_us: &[u64], work: Duration, sleep: Duration) -> u32 {
        let mut spin = Spin::default();
        let mut tries = 0;
        for turn in 0..2000 {
            let gap = Duration::from_micros(gaps_us[turn % gaps_us.len()]);
            let is_try = wait(&mut spin, work, gap, sleep);
            tries += u32::from(is_try && turn >= 1000);
        }
        tries
    }

    fn tries(gaps_us: &[u64], work: Duration) -> u32 {
        tries_if(gaps_us, work, DEAR)
    }

    #[test]
    fn an_idle_thread_never_tries() {
        assert_eq!(tries(&[2_000], WORK), 0);
    }

    #[test]
    fn it_goes_on_where_requests_follow_answers_at_once() {
        assert_eq!(tries(&[20], WORK), 1000 - MEASURED);
        assert!(tries(&[20, 20, 20, 20, 20, 20, 20, 20, 20, 100], WORK) > 900);
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

    #[test]
    fn it_is_no_longer_than_a_sleep_costs() {
        let cheap = Duration::from_micros(6);
        assert_eq!(tries_if(&[5], WORK, cheap), 1000 - MEASURED);
        let some = tries_if(&[20], WORK, cheap);
        assert!((20..=40).contains(&some), "{some}");
    }

    #[test]
    fn a_sleep_that_became_cheaper_is_found_out() {
        let mut spin = Spin::default();
        let gap = Duration::from_micros(20);
        for _ in 0..100 {
            wait(&mut spin, WORK, gap, DEAR);
        }
        let cheap = Duration::from_micros(1);
        let tries = (0..20_000)
            .filter(|_| wait(&mut spin, WORK, gap, cheap))
            .count();
        // The average falls by a quarter each time.
        assert!((3_000..8_000).contains(&tries), "{tries}");
        assert!(
            (0..1000)
                .filter(|_| wait(&mut spin, WORK, gap, cheap))
                .count()
                < 40
        );
    }

    #[test]
    fn it_ends_soon_after_the_requests() {
        let mut spin = Spin::default();
        for _ in 0..100 {
            wait(&mut spin, WORK, Duration::from_micros(20), DEAR);
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
        let mut spin = Spin::default();
        for _ in 0..WAITS_PER_TRY {
            wait(&mut spin, WORK, WORK, DEAR);
        }
        assert_eq!(spin.window(Some(Duration::from_micros(30))), None);
        assert_eq!(spin.window(Some(Duration::from_millis(1))), Some(DEAR));
    }
}
