//! The wait of a thread without ready tasks: first it looks for answers for a moment, then it sleeps.

use super::Reactor;
use std::io;
use std::time::{Duration, Instant};

/// The number of looks for answers after which a spinning thread lets other threads run.
const LOOKS_PER_YIELD: usize = 20;

impl Reactor {
    /// Waits for the engine or the clock.
    pub(super) fn wait(&self, next_timer: Option<Instant>) -> io::Result<()> {
        let start = Instant::now();
        let timer = next_timer.map(|at| at.saturating_duration_since(start));
        let window = self.spin.borrow().window(timer);
        let window = window.filter(|_| self.driver.can_look_for_free());
        let hit = window.map(|window| self.spin_until(start + window));
        let hit = hit.transpose()?;
        let now = match hit {
            Some(false) => Instant::now(),
            _ => start,
        };
        let entered = self.driver.enter(time_left(next_timer, hit, now));
        let end = Instant::now();
        let worked = start.saturating_duration_since(self.awake_since.replace(end));
        self.spin.borrow_mut().record_wait(worked, end - start, hit);
        entered
    }

    /// Looks for answers until there is one, or the time is over.
    fn spin_until(&self, end: Instant) -> io::Result<bool> {
        self.driver.enter(Some(Duration::ZERO))?;
        loop {
            for _ in 0..LOOKS_PER_YIELD {
                if self.driver.has_news() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            // Another thread that waits for this processor comes first.
            rustix::thread::sched_yield();
        }
    }
}

/// Returns how long the engine may wait: not at all if spinning has found an answer, else until the next timer.
///
/// The spin takes longer than its window if another thread had the processor meanwhile. So the time that is left
/// follows from the clock, not from the window.
fn time_left(next_timer: Option<Instant>, hit: Option<bool>, now: Instant) -> Option<Duration> {
    if hit == Some(true) {
        return Some(Duration::ZERO);
    }
    next_timer.map(|at| at.saturating_duration_since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sleep overran the timer. Opened by a spin that took longer than its window, because another thread had the
    /// processor.
    #[test]
    fn a_sleep_ends_at_the_timer_however_long_the_spin_took() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let timer = Some(start + ms(10));
        assert_eq!(time_left(timer, Some(false), start + ms(8)), Some(ms(2)));
        assert_eq!(time_left(timer, Some(false), start + ms(11)), Some(ms(0)));
        assert_eq!(time_left(timer, None, start), Some(ms(10)));
        assert_eq!(time_left(None, Some(false), start + ms(8)), None);
        for timer in [timer, None] {
            assert_eq!(
                time_left(timer, Some(true), start),
                Some(ms(0)),
                "an answer is there"
            );
        }
    }
}
