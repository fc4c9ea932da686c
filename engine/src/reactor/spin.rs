//! [`Spin`]: whether a thread that has nothing to do goes on looking for a moment before it sleeps.
//!
//! To fall asleep and be woken costs both sides tens of microseconds, more than answering one request. Where
//! requests come one by one, each soon after the answer to the one before, it is cheaper not to sleep at
//! all. Whether they do is tried now and then; it goes on while nearly every try is a hit. An idle thread
//! does not even try.

use std::time::Duration;

/// How long a try is: about what falling asleep and being woken costs.
const WINDOW: Duration = Duration::from_micros(50);
/// Behind longer turns a sleep does not matter.
const TURN_MAX: Duration = Duration::from_micros(50);
/// Only after waits up to here is it tried: a sleep makes a wait of 20 us one of 100 to 200.
const SHORT: Duration = Duration::from_micros(300);
/// So many of them in a row.
const WAITS_PER_TRY: u8 = 32;
/// A miss outweighs so many hits.
const MISS: u8 = 4;
const SCORE_MAX: u8 = 16;

/// Of one thread.
pub(super) struct Spin {
    /// Above 0 it goes on.
    score: u8,
    waits_to_try: u8,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin {
            score: 0,
            waits_to_try: WAITS_PER_TRY,
        }
    }
}

impl Spin {
    /// How long to look before sleeping, if the next timer is due in `timer`. With one that is due
    /// soon not at all: what arrives until then is left to gather.
    pub(super) fn window(&self, timer: Option<Duration>) -> Option<Duration> {
        let is_soon = timer.is_some_and(|timer| timer <= WINDOW);
        let is_worth_it = self.score > 0 || self.waits_to_try == 0;
        (is_worth_it && !is_soon).then_some(WINDOW)
    }

    /// A turn of `worked` and a wait of `waited` are over; `hit` says what came of looking, if it was tried.
    pub(super) fn note(&mut self, worked: Duration, waited: Duration, hit: Option<bool>) {
        match hit {
            Some(true) if worked <= TURN_MAX => self.score = (self.score + 1).min(SCORE_MAX),
            Some(_) => {
                self.score = self.score.saturating_sub(MISS);
                self.waits_to_try = WAITS_PER_TRY;
            }
            None if worked <= TURN_MAX && waited <= SHORT => {
                self.waits_to_try = self.waits_to_try.saturating_sub(1);
            }
            None => self.waits_to_try = WAITS_PER_TRY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Duration = Duration::from_micros(10);

    /// A thread to which the next request comes so long after each answer, in turn. Returns how many of
    /// the last 1,000 waits began with looking.
    fn tries(gaps_us: &[u64], work: Duration) -> u32 {
        let mut spin = Spin::default();
        let mut tries = 0;
        for turn in 0..2000 {
            let gap = Duration::from_micros(gaps_us[turn % gaps_us.len()]);
            let hit = spin.window(None).map(|window| gap <= window);
            tries += u32::from(hit.is_some() && turn >= 1000);
            // Asleep it takes longer to notice.
            let late = Duration::from_micros(if hit == Some(true) { 0 } else { 80 });
            spin.note(work, gap + late, hit);
        }
        tries
    }

    #[test]
    fn an_idle_thread_never_tries() {
        assert_eq!(tries(&[2_000], WORK), 0);
    }

    #[test]
    fn it_goes_on_where_requests_follow_answers_at_once() {
        assert_eq!(tries(&[20], WORK), 1000);
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
    fn it_ends_soon_after_the_requests() {
        let mut spin = Spin::default();
        for _ in 0..100 {
            let hit = spin.window(None).map(|_| true);
            spin.note(WORK, Duration::from_micros(20), hit);
        }
        let misses = (0..10).take_while(|_| {
            let is_on = spin.window(None).is_some();
            spin.note(WORK, Duration::from_millis(5), is_on.then_some(false));
            is_on
        });
        assert_eq!(misses.count(), 4);
    }

    #[test]
    fn what_is_left_to_gather_is_not_looked_for() {
        let mut spin = Spin::default();
        for _ in 0..WAITS_PER_TRY {
            spin.note(WORK, WORK, None);
        }
        assert_eq!(spin.window(Some(Duration::from_micros(30))), None);
        assert_eq!(spin.window(Some(Duration::from_millis(1))), Some(WINDOW));
    }
}
