//! [`Discovery`]: the nodes of the cluster. They are asked for beside the figures, so that an nsqlookupd that hangs does not
//! make the figures of the nsqds old.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::cluster::{Cluster, Discovered};
use crate::upstream::AnswerTime;

/// The longest wait for the answers of one question, while other nodes are known. nsqlookupds usually answer in milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The time after which a question without an answer is a warning. It counts if requests have no deadline, or a long one.
const SILENCE: Duration = Duration::from_secs(10);

/// Smallest pause after a question, in the time in which servers answered, as for the figures (`PAUSE_FACTOR` of the
/// collector). The figures themselves do not wait for it.
const PAUSE_FACTOR: u32 = 4;

/// The nodes that are known, and the question about them that is under way.
#[derive(Debug)]
pub(super) struct Discovery {
    cluster: Cluster,
    /// The time of the cluster's answers to the question that is under way.
    answer_time: AnswerTime,
    /// The last answers. If no nsqlookupd answered, they have the nodes that were known before.
    last: Option<Discovered>,
    /// The time of the question for `last`. `None` if a new question is due.
    asked: Option<Instant>,
    /// The earliest time of the next question.
    not_before: Option<Instant>,
    asking: Option<Asking>,
}

/// A question that is under way.
#[derive(Debug)]
struct Asking {
    began: Instant,
    /// The nsqlookupds that are asked.
    lookupds: Vec<String>,
    answer: JoinHandle<Discovered>,
}

impl Discovery {
    /// Returns the discovery of a cluster, which has not asked yet.
    pub(super) fn new(cluster: &Cluster) -> Discovery {
        let answer_time = AnswerTime::default();
        Discovery {
            cluster: cluster.for_collecting(answer_time.clone()),
            answer_time,
            last: None,
            asked: None,
            not_before: None,
            asking: None,
        }
    }

    /// Has the next call ask, however young the last answers are.
    pub(super) fn expire(&mut self) {
        self.asked = None;
    }

    /// Returns the nodes. Asks for them if the last question is older than `age_max`. If that takes long, returns those of
    /// before, and the new ones in a later call.
    pub(super) async fn nodes(&mut self, age_max: Duration) -> Discovered {
        let has_nodes = self.last.as_ref().is_some_and(|last| last.targets.is_ok());
        let Some(Asking { began, answer, .. }) = self.question(age_max) else {
            return self.last.clone().unwrap_or_default();
        };
        let answered = if has_nodes {
            timeout(WAIT_MAX.saturating_sub(began.elapsed()), answer)
                .await
                .ok()
        } else {
            Some(answer.await)
        };
        let began = *began;
        let Some(answer) = answered else {
            let mut known = self.last.clone().unwrap_or_default();
            if began.elapsed() >= SILENCE {
                known.warn_of_silence(began.elapsed());
            }
            return known;
        };
        self.asking = None;
        self.asked = Some(began);
        self.not_before = Some(Instant::now() + self.answer_time.take() * PAUSE_FACTOR);
        // A task fails only in a panic, which ends the process.
        let answer = answer.unwrap_or_default().or_known(self.last.take());
        self.last.insert(answer).clone()
    }

    /// Returns the question that is under way. Begins one if that is due.
    fn question(&mut self, age_max: Duration) -> Option<&mut Asking> {
        let lookupds = self.cluster.lookupds();
        // The operator has named other nsqlookupds, and the former ones may never answer.
        if let Some(former) = self.asking.take_if(|asking| asking.lookupds != lookupds) {
            former.answer.abort();
            self.expire();
        }
        let is_young = self.asked.is_some_and(|asked| asked.elapsed() < age_max);
        let is_too_soon = self.not_before.is_some_and(|time| Instant::now() < time);
        if self.asking.is_none() && !is_young && !is_too_soon {
            let cluster = self.cluster.clone();
            self.asking = Some(Asking {
                began: Instant::now(),
                lookupds,
                answer: tokio::spawn(async move { cluster.discover().await }),
            });
        }
        self.asking.as_mut()
    }
}
