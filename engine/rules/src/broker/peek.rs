//! Peeks: slices of a channel's or topic's messages. A peek changes nothing: it borrows the broker only to read.

use super::Broker;
use super::admin::AdminError;
use crate::now::Now;
use crate::peek::{
    Candidate, CandidateState, LogEnd, PeekBudget, PeekFrom, PeekQuestion, PeekSlice, PeekState,
    PeekedFrame, PeekedMessage,
};
use crate::topic::Topic;
use diskq_log::Look;
use std::time::Duration;
use wire::id::{MessageId, Seq};

impl Broker {
    /// Returns a slice of messages. The cost is bounded by the question's budget.
    ///
    /// # Errors
    /// There is no such topic or channel.
    pub fn peek(&self, now: Now, question: &PeekQuestion) -> Result<PeekSlice, AdminError> {
        let topic = self.peeked_topic(&question.topic)?;
        let PeekQuestion {
            from,
            place,
            budget,
            ..
        } = question;
        let candidates = match &question.channel {
            None => topic.candidates(*from, *place, budget),
            Some(name) => {
                let id = topic
                    .find_channel(name)
                    .ok_or(AdminError::ChannelNotFound)?;
                topic.channel(id).candidates(*from, *place, budget)
            }
        };
        let mut slice = PeekSlice {
            next: candidates.next,
            passed: candidates.passed,
            log_end: matches!(from, PeekFrom::Published { .. }).then(|| self.log_end(topic)),
            ..PeekSlice::default()
        };
        let found = &candidates.found;
        let frames = frames_within(topic, found.iter().map(|candidate| candidate.seq), budget);
        for (candidate, frame) in found.iter().zip(frames) {
            slice.messages.push(self.peeked(now, candidate, frame));
        }
        let count = slice.messages.len();
        if count < found.len()
            && let Some(last) = found[..count].last()
        {
            slice.next = Some(last.next);
            slice.passed = last.passed;
        }
        Ok(slice)
    }

    /// Returns where messages are now, because they were not where an earlier peek has found them. The result is shorter
    /// than `seqs` if the bytes of the budget end before.
    ///
    /// # Errors
    /// There is no such topic any more.
    pub fn peek_again(
        &self,
        topic: &str,
        seqs: &[Seq],
        budget: &PeekBudget,
    ) -> Result<Vec<PeekedFrame>, AdminError> {
        let topic = self.peeked_topic(topic)?;
        Ok(frames_within(topic, seqs.iter().copied(), budget).collect())
    }

    fn peeked_topic(&self, name: &str) -> Result<&Topic, AdminError> {
        if let Some(aside) = self.set_aside.get(name) {
            return Err(AdminError::SetAside(aside.cause.clone()));
        }
        let key = self.by_name.get(name).ok_or(AdminError::TopicNotFound)?;
        Ok(&self.topics[*key])
    }

    fn log_end(&self, topic: &Topic) -> LogEnd {
        let newest = Seq(topic.log.next_seq().0.saturating_sub(1));
        LogEnd {
            newest,
            newest_id: MessageId::new(newest, self.options.topic.log.node),
            message_count: topic.message_count,
            first: topic.first_seq,
        }
    }

    fn peeked(&self, now: Now, candidate: &Candidate, frame: PeekedFrame) -> PeekedMessage {
        let state = match candidate.state {
            CandidateState::Waiting => PeekState::Waiting,
            CandidateState::Requeued => PeekState::Requeued,
            CandidateState::Published { is_finished } => PeekState::Published { is_finished },
            CandidateState::DeferredFor(ms) => PeekState::DeferredFor(ms),
            CandidateState::Due(due) => PeekState::DeferredUntil(unix_ns(now, due)),
            CandidateState::InFlight(entry) => {
                let client = self.clients.get(entry.owner);
                let names = |client: &crate::client::Client| {
                    (client.address.clone(), client.session.client_id.clone())
                };
                PeekState::InFlight {
                    client: client.map(names),
                    since_ns: unix_ns(now, entry.delivered),
                    until_ns: unix_ns(now, entry.deadline),
                }
            }
        };
        PeekedMessage {
            seq: candidate.seq,
            id: MessageId::new(candidate.seq, self.options.topic.log.node),
            attempts: candidate.attempts,
            state,
            frame,
            next: candidate.next,
        }
    }
}

/// Returns the frames of messages until the bytes of the budget end. The first one comes in any case.
fn frames_within(
    topic: &Topic,
    seqs: impl Iterator<Item = Seq>,
    budget: &PeekBudget,
) -> impl Iterator<Item = PeekedFrame> {
    let mut left = None;
    seqs.map_while(move |seq| {
        let frame = frame_of(topic, seq, budget);
        let bytes = frame.copied_bytes();
        let room = left.unwrap_or(budget.bytes_max.max(bytes));
        left = Some(room.checked_sub(bytes)?);
        Some(frame)
    })
}

fn frame_of(topic: &Topic, seq: Seq, budget: &PeekBudget) -> PeekedFrame {
    match topic.log.look(seq) {
        Look::Frame(frame) => {
            let copied = &frame[..frame.len().min(budget.frame_bytes_max)];
            PeekedFrame::Copied(copied.to_vec(), frame.len())
        }
        Look::Cold(cold) => PeekedFrame::Cold(cold),
        Look::Damaged => PeekedFrame::Damaged,
        Look::Gone => PeekedFrame::Gone,
    }
}

/// Returns the Unix time of a moment on the monotonic clock, in nanoseconds.
fn unix_ns(now: Now, at: Duration) -> u64 {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_sub(now.mono) {
        Some(until) => now.wall_ns.saturating_add(nanos(until)),
        None => now.wall_ns.saturating_sub(nanos(now.mono - at)),
    }
}
