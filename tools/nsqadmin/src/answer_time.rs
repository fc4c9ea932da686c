//! [`AnswerTime`]: the time in which servers worked on answers. The wait for a server that gives none is not part of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The answers since the last look. All clones count the same.
#[derive(Clone, Debug, Default)]
pub struct AnswerTime(Arc<Mutex<Vec<(Instant, Instant)>>>);

impl AnswerTime {
    /// Adds a request that got an answer.
    pub fn add(&self, asked: Instant, answered: Instant) {
        self.0.lock().push((asked, answered));
    }

    /// Returns the time in which at least one of the answers was under way, and begins anew.
    pub fn take(&self) -> Duration {
        time_of(std::mem::take(&mut *self.0.lock()))
    }

    /// Returns the same time, and goes on.
    pub fn so_far(&self) -> Duration {
        time_of(self.0.lock().clone())
    }
}

fn time_of(mut answers: Vec<(Instant, Instant)>) -> Duration {
    answers.sort_unstable();
    let mut time = Duration::ZERO;
    let mut counted_until = None;
    for (asked, answered) in answers {
        let begin = counted_until.map_or(asked, |until| asked.max(until));
        time += answered.saturating_duration_since(begin);
        counted_until = counted_until.max(Some(answered));
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_at_the_same_time_count_once_and_gaps_do_not_count() {
        let start = Instant::now();
        let second = |number: u64| start + Duration::from_secs(number);
        let time = AnswerTime::default();
        for (asked, answered) in [(20, 21), (0, 4), (1, 2), (3, 6), (5, 6)] {
            time.clone().add(second(asked), second(answered));
        }
        assert_eq!(time.so_far(), Duration::from_secs(7));
        assert_eq!(time.take(), Duration::from_secs(7));
        assert_eq!(time.take(), Duration::ZERO);
    }
}
