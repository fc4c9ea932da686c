//! [`Delay`]: the time between attempts, which grows and is random. No clock.

use std::time::Duration;

/// The first delay: long enough for a process that restarts, short for its clients.
const FIRST: Duration = Duration::from_millis(100);

/// The delays of repeated attempts: each is twice as long, up to a maximum. A random half keeps many clients apart.
#[derive(Clone, Debug)]
pub(crate) struct Delay {
    next: Duration,
    max: Duration,
    random: fastrand::Rng,
}

impl Delay {
    pub(crate) fn new(max: Duration, seed: u64) -> Delay {
        Delay {
            next: FIRST.min(max),
            max,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns the delay before the next attempt: between half of the present step and all of it.
    pub(crate) fn next(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.max);
        let half = u64::try_from(step.as_nanos() / 2).unwrap_or(u64::MAX);
        step - Duration::from_nanos(self.random.u64(0..=half))
    }

    /// Returns true when the delay grows no more.
    pub(crate) fn is_longest(&self) -> bool {
        self.next == self.max
    }

    /// Begins again with the first delay.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST.min(self.max);
    }

    /// Takes the life of a connection into account. If it was longer than the delay before it, the delays begin again.
    pub(crate) fn lived(&mut self, life: Duration) {
        if life > self.next {
            self.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn delays_double_up_to_the_maximum() {
        for seed in 0..100 {
            let mut delay = Delay::new(MS(1000), seed);
            for step in [100, 200, 400, 800, 1000, 1000] {
                let got = delay.next();
                assert!(
                    (MS(step / 2)..=MS(step)).contains(&got),
                    "{got:?} of {step} ms"
                );
            }
            assert!(delay.is_longest());
            delay.lived(MS(999));
            assert!(delay.is_longest());
            delay.lived(MS(1001));
            assert!(delay.next() <= MS(100));
        }
    }

    #[test]
    fn a_short_maximum_is_the_only_delay() {
        let mut delay = Delay::new(MS(10), 1);
        assert!(delay.is_longest());
        assert!((MS(5)..=MS(10)).contains(&delay.next()));
        let mut delay = Delay::new(Duration::ZERO, 1);
        assert_eq!(delay.next(), Duration::ZERO);
    }
}
