//! Questions to a store that several consumers share. Each is a task, because the store takes its time.

use std::sync::Arc;

use super::{Sieve, Waiting};
#[cfg(feature = "memcached")]
use crate::line::Line;
use crate::message::Message;

/// A copy about which the store is asked.
pub(super) enum Asked {
    /// The message has just arrived.
    Arrived(Waiting<Message>),
    /// The message was in the room.
    Again(Waiting<Message>),
}

/// Counts a question with the connection of its copy, until the question is answered or dropped.
#[cfg(feature = "memcached")]
struct Question(Arc<Line>);

#[cfg(feature = "memcached")]
impl Question {
    fn new(line: &Arc<Line>) -> Question {
        line.begin_question();
        Question(Arc::clone(line))
    }
}

#[cfg(feature = "memcached")]
impl Drop for Question {
    fn drop(&mut self) {
        self.0.end_question();
    }
}

impl Sieve {
    /// Asks the store, in a task.
    #[cfg(feature = "memcached")]
    pub(super) fn ask_store(self: &Arc<Sieve>, asked: Asked) {
        use crate::dedup::{Answer, Count, StoreFailure};
        use crate::hub::Phase;

        let sieve = Arc::clone(self);
        let (is_new, waiting) = match asked {
            Asked::Arrived(waiting) => (true, waiting),
            Asked::Again(waiting) => (false, waiting),
        };
        let line = &waiting.copy.delivery().source.line;
        let (question, msg_timeout) = (Question::new(line), line.msg_timeout);
        self.runtime.spawn(async move {
            let _question = question;
            let asking = sieve
                .dedup
                .begin_shared(waiting.key, msg_timeout, &sieve.ended);
            let answer = asking.await;
            sieve.set_failure(answer.as_ref().err().map(ToString::to_string));
            match answer {
                Ok(Answer::Fresh(claim)) => {
                    let message = sieve.fresh(waiting.copy, claim);
                    sieve.deliver(message);
                    return;
                }
                Ok(Answer::Done) => return sieve.finish(&waiting.copy),
                Ok(Answer::InProgress) if is_new => {
                    sieve.counters.add(Count::Waited);
                }
                Ok(Answer::InProgress) => {}
                Err(_) => {
                    sieve.counters.add(Count::StoreFailure);
                    if sieve.dedup.when_store_fails() == StoreFailure::Handle {
                        return sieve.deliver(waiting.copy);
                    }
                }
            }
            match sieve.hub.phase() != Phase::Running {
                // The answer is on its way without being awaited.
                true => drop(waiting.copy.delivery().give_back()),
                false => sieve.wait(waiting),
            }
        });
    }

    /// States that the store fails, or answers again.
    #[cfg(feature = "memcached")]
    fn set_failure(&self, error: Option<String>) {
        use crate::dedup::DedupReport;
        use std::sync::atomic::Ordering;

        let was_failing = self.is_failing.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_failing => self.report(DedupReport::StoreFailed { error }),
            None if was_failing => self.report(DedupReport::StoreAnswers),
            _ => {}
        }
    }

    /// Without a store, no filter is outside of this process.
    #[cfg(not(feature = "memcached"))]
    pub(super) fn ask_store(self: &Arc<Sieve>, asked: Asked) {
        let (Asked::Arrived(waiting) | Asked::Again(waiting)) = asked;
        self.ask_again(vec![waiting]);
    }
}
