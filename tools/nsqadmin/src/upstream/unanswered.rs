//! [`Unanswered`]: the questions that got no answer, which the collector does not repeat for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nsq_doctor::duration;
use parking_lot::Mutex;

use super::Failed;

/// The time for which a question is not repeated, in times of the wait for its answer. So a server that is slower than the
/// deadline works on a question at most a fifth of the time. Servers that answer in time have the same share
/// (`PAUSE_FACTOR` of the collector).
const PAUSE_FACTOR: u32 = 4;

/// The longest pause. The wait may be long because nsqadmin itself stood still, or has no deadline.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Shortest wait that leads to a pause. A connection that is refused at once costs the server nothing.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// The questions that are not repeated now, by their URL. A server that is too slow for one question may well answer
/// others: the figures without clients cost less than those with clients. All clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Unanswered(Arc<Mutex<BTreeMap<String, Paused>>>);

/// A question that is not repeated now.
#[derive(Debug)]
struct Paused {
    until: Instant,
    failed: Failed,
}

impl Unanswered {
    /// Returns the failure of a question that is not to be repeated now.
    pub(super) fn failure(&self, url: &str, now: Instant) -> Option<Failed> {
        let paused = self.0.lock();
        let paused = paused.get(url).filter(|it| now < it.until)?;
        Some(paused.failed.clone())
    }

    /// Takes a question that was asked at `asked` and has failed without an answer. Returns the failure, which then also
    /// says for how long the question is not repeated.
    pub(super) fn add(
        &self,
        url: &str,
        mut failed: Failed,
        asked: Instant,
        now: Instant,
    ) -> Failed {
        let waited = now.saturating_duration_since(asked);
        if waited < WAIT_MIN {
            return failed;
        }
        let pause = waited.saturating_mul(PAUSE_FACTOR).min(PAUSE_MAX);
        let words = duration(pause.as_secs_f64());
        failed
            .why
            .push_str(&format!("; it is not asked again for {words}"));
        let mut paused = self.0.lock();
        // An nsqlookupd may name other nodes each time.
        paused.retain(|_, paused| now < paused.until);
        let entry = Paused {
            until: now + pause,
            failed: failed.clone(),
        };
        paused.insert(url.to_owned(), entry);
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::super::FailureKind;
    use super::*;

    #[test]
    fn a_question_is_not_repeated_for_four_times_the_wait() {
        let unanswered = Unanswered::default();
        let start = Instant::now();
        let second = |number: u64| start + Duration::from_secs(number);
        let failed = || Failed {
            why: "no answer in time".to_owned(),
            kind: FailureKind::NoAnswer,
            refused: None,
        };
        let told = unanswered.add("http://slow/", failed(), start, second(5));
        assert_eq!(told.why, "no answer in time; it is not asked again for 20s");
        let failure = |url: &str, number| unanswered.failure(url, second(number));
        assert_eq!(failure("http://slow/", 24), Some(told));
        assert_eq!(failure("http://slow/", 25), None);
        assert_eq!(failure("http://slow/stats", 6), None);
        // A refused connection.
        let soon = second(30) + Duration::from_millis(1);
        let told = unanswered.add("http://dead/", failed(), second(30), soon);
        assert_eq!(told, failed());
        assert_eq!(unanswered.failure("http://dead/", soon), None);
        // Questions whose pause is over take no memory.
        unanswered.add("http://last/", failed(), second(30), second(31));
        assert_eq!(unanswered.0.lock().len(), 1);
        // nsqadmin stood still for ten minutes, or has no deadline.
        let told = unanswered.add("http://hung/", failed(), start, second(600));
        assert_eq!(told.why, "no answer in time; it is not asked again for 30s");
        assert_eq!(failure("http://hung/", 630), None);
    }
}
