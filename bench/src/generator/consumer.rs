//! [`Consumer`]: how one consuming connection handles messages. Without sockets and clock: bytes and
//! times go in and come out.
//!
//! ```text
//!   input ─► frames ─► delivery (for the ledger), latency
//!                 └──► FIN now, or held: TOUCH halfway, then FIN / REQ / nothing
//! ```
//!
//! The FINs of one read go out in one write.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wire::encode;
use wire::frame::{FrameType, Message};
use wire::id::MessageId;

use crate::generator::link::next_frame;
use crate::random::chance;
use crate::result::HistogramKind;
use crate::result::ledger::{ChannelLedger, Delivery, LedgerEntry};
use crate::result::tally::Tally;
use crate::scenario::Scenario;
use crate::scenario::header::{Decoded, Header};
use crate::scenario::work::Work;
use fastrand::Rng;

/// The answers of a consumer to messages.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// The scenario, with the shares of messages to requeue, to touch and to leave to time out.
    pub scenario: Scenario,
    /// The run whose messages are ours; `None` accepts the messages of any run.
    pub run: Option<u16>,
    /// True if the topics are the run's own, with names that were made up. Other topics may have messages of
    /// applications.
    pub owns_topics: bool,
}

impl Behaviour {
    /// Tells whether every message is finished as soon as it is read.
    fn is_plain(&self) -> bool {
        let scenario = &self.scenario;
        let given_back = scenario.requeue + scenario.time_out;
        scenario.work == Work::None && given_back == 0.0 && scenario.touch == 0.0
    }
}

/// A message that is worked on: its next action, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldMessage {
    /// The time of the action, in nanoseconds.
    pub due_ns: u64,
    /// The message's id, which the answer names.
    pub id: MessageId,
    /// The action that is due at that time.
    pub action: Action,
}

/// The answer at the end of a message's work, or halfway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// FIN.
    Finish,
    /// REQ, with the scenario's delay.
    Requeue,
    /// TOUCH, and FIN after this many more nanoseconds.
    Touch(u64),
}

/// The delay with which foreign messages are given back: most runs do not see them twice. nsqd's default for the
/// longest delay is an hour.
const FOREIGN_DELAY: Duration = Duration::from_secs(60);

/// A consumer's state.
#[derive(Debug)]
pub struct Consumer {
    /// Number of the channel in its topic.
    pub channel: usize,
    /// The answers that the consumer gives.
    pub behaviour: Arc<Behaviour>,
    random: Rng,
    /// The next number expected of each producer, by its place in the run.
    next_by_producer: Vec<u64>,
    /// Messages taken and not yet answered. A dropped connection gives them back.
    held: Vec<(MessageId, u32, u64)>,
}

/// The time of a call and the places it writes to.
pub struct CallContext<'a> {
    /// The time now: nanoseconds of the run's [`Clock`](crate::clock::Clock).
    pub now_ns: u64,
    /// The measured time, in nanoseconds. A latency counts as measured when its message was intended in this
    /// time.
    pub measured: Range<u64>,
    /// The buffer for answers to the daemon: FIN, REQ, TOUCH and NOP.
    pub output: &'a mut Vec<u8>,
    /// The counts and latencies to add to.
    pub tally: &'a mut Tally,
    /// The buffer for entries of the ledger.
    pub entries: &'a mut Vec<LedgerEntry>,
    /// The number of the consumer's connection, with which its held messages are kept.
    pub connection: usize,
    /// The messages that are worked on, by the time they are due.
    pub held: &'a mut BinaryHeap<Reverse<(HeldMessage, usize)>>,
}

impl Consumer {
    /// Makes a consumer of the ledger number `channel`; `seed` determines its random choices.
    pub fn new(channel: usize, behaviour: Arc<Behaviour>, seed: u64) -> Consumer {
        Consumer {
            channel,
            behaviour,
            random: Rng::with_seed(seed),
            next_by_producer: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Takes the frames at the front of `input`; returns the bytes handled.
    /// Fails when the daemon sent something that ends the connection, in words.
    pub fn frames(&mut self, input: &[u8], context: &mut CallContext<'_>) -> Result<usize, String> {
        let plain = self.behaviour.is_plain();
        let mut at = 0;
        // Messages of one batch have one intended time: their latencies are recorded together.
        let mut same = (0, 0);
        while let Some((kind, data)) = next_frame(input, &mut at)? {
            match kind {
                FrameType::Message => {
                    let message = Message::parse(data).ok_or("a message frame is too short")?;
                    let decoded = Header::decode(message.body);
                    if self.answer_stranger(&message, decoded, context) {
                        continue;
                    }
                    let header = match decoded {
                        Decoded::Intact(header) => Some(header),
                        Decoded::Damaged | Decoded::Foreign => None,
                    };
                    let entry = header.map(|header| Delivery {
                        producer: header.producer,
                        number: header.number,
                        attempts: message.attempts,
                    });
                    let entry = entry.map_or(LedgerEntry::Damaged, LedgerEntry::Delivered);
                    context.entries.push(entry);
                    context.tally.counts.delivered += 1;
                    context.tally.last_delivery_ns = context.now_ns;
                    if let Some(header) = header.filter(|_| message.attempts <= 1) {
                        self.note_order(header, context);
                        if same.0 != header.intended_ns {
                            record(same, context);
                            same = (header.intended_ns, 0);
                        }
                        same.1 += 1;
                    }
                    match header {
                        Some(header) if !plain => self.treat(&message, header, context),
                        _ => finish(&message.id, context),
                    }
                }
                FrameType::Response if data == b"_heartbeat_" => encode::nop(context.output),
                FrameType::Response => {}
                FrameType::Error => {
                    let text = String::from_utf8_lossy(data);
                    context.tally.counts.answers.error_answers += 1;
                    let goes_on = ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"];
                    if !goes_on.iter().any(|code| text.starts_with(code)) {
                        return Err(format!("the daemon refused a consumer: {text}"));
                    }
                }
            }
        }
        record(same, context);
        Ok(at)
    }

    /// Answers a message that this run did not publish; false for other messages.
    #[inline]
    fn answer_stranger(
        &self,
        message: &Message<'_>,
        decoded: Decoded,
        context: &mut CallContext<'_>,
    ) -> bool {
        let Behaviour {
            run, owns_topics, ..
        } = *self.behaviour;
        match decoded {
            // Nobody waits any more for the messages of another run.
            Decoded::Intact(header)
                if run.is_some_and(|run| header.producer >> 16 != u32::from(run)) =>
            {
                finish(&message.id, context);
            }
            // A run's own topics hold its own messages only: a foreign one is altered beyond recognition.
            Decoded::Foreign if run.is_none() || !owns_topics => {
                encode::req(context.output, &message.id, FOREIGN_DELAY);
            }
            Decoded::Intact(_) | Decoded::Damaged | Decoded::Foreign => return false,
        }
        context.tally.counts.foreign += 1;
        true
    }

    /// Notes whether the first delivery of a message comes behind a later message of its producer.
    #[inline]
    fn note_order(&mut self, header: Header, context: &mut CallContext<'_>) {
        let index = (header.producer & 0xffff) as usize;
        if index >= self.next_by_producer.len() {
            self.next_by_producer.resize(index + 1, 0);
        }
        let next = &mut self.next_by_producer[index];
        if header.number < *next {
            context.tally.counts.reordered += 1;
        } else {
            *next = header.number + 1;
        }
    }

    /// Decides what becomes of a message. Only first deliveries are given back, so that each one is
    /// finished in the end.
    fn treat(&mut self, message: &Message<'_>, header: Header, context: &mut CallContext<'_>) {
        let scenario = &self.behaviour.scenario;
        let first = message.attempts <= 1;
        let choice = if first { self.random.f64() } else { 1.0 };
        let requeue = choice < scenario.requeue;
        if choice < scenario.requeue + scenario.time_out {
            let entry = LedgerEntry::GivenBack(header.producer, header.number);
            context.entries.push(entry);
            if !requeue {
                context.tally.counts.answers.left_to_time_out += 1;
                return;
            }
        }
        let work_ns = scenario.work.draw_ns(&mut self.random);
        let touch = chance(&mut self.random, scenario.touch);
        let (in_ns, action) = match (requeue, touch) {
            (true, _) => (work_ns, Action::Requeue),
            (false, true) => (work_ns / 2, Action::Touch(work_ns - work_ns / 2)),
            (false, false) => (work_ns, Action::Finish),
        };
        let held = HeldMessage {
            due_ns: context.now_ns + in_ns,
            id: message.id,
            action,
        };
        self.held.push((message.id, header.producer, header.number));
        if work_ns == 0 {
            self.act(held, context);
        } else {
            context.held.push(Reverse((held, context.connection)));
        }
    }

    /// Acts on a held message whose time has come.
    pub fn act(&mut self, held: HeldMessage, context: &mut CallContext<'_>) {
        let Some(index) = self.held.iter().position(|(id, ..)| *id == held.id) else {
            // The message's connection was dropped in the meantime.
            return;
        };
        match held.action {
            Action::Finish => finish(&held.id, context),
            Action::Requeue => {
                let delay = self.behaviour.scenario.requeue_delay.0;
                encode::req(context.output, &held.id, delay);
                context.tally.counts.answers.requeued += 1;
            }
            Action::Touch(rest_ns) => {
                encode::touch(context.output, &held.id);
                context.tally.counts.answers.touched += 1;
                if rest_ns > 0 {
                    let held = HeldMessage {
                        due_ns: held.due_ns + rest_ns,
                        action: Action::Finish,
                        ..held
                    };
                    context.held.push(Reverse((held, context.connection)));
                    return;
                }
                finish(&held.id, context);
            }
        }
        self.held.swap_remove(index);
    }

    /// Gives back the held messages, because the connection was dropped. The order of numbers starts anew.
    pub fn dropped(&mut self, ledger: &mut ChannelLedger) {
        for (_, producer, number) in self.held.drain(..) {
            ledger.enter(LedgerEntry::GivenBack(producer, number));
        }
        ledger.allow_redeliveries();
        self.next_by_producer.clear();
    }
}

#[inline]
fn finish(id: &MessageId, context: &mut CallContext<'_>) {
    // The bytes are those of `encode::fin`. They are copied in one piece, because millions a second go through here.
    let mut line = *b"FIN 0123456789abcdef\n";
    line[4..20].copy_from_slice(id.as_bytes());
    context.output.extend_from_slice(&line);
    context.tally.counts.answers.finished += 1;
}

#[inline]
fn record((intended_ns, count): (u64, u64), context: &mut CallContext<'_>) {
    if count == 0 {
        return;
    }
    let measured = context.measured.contains(&intended_ns);
    let early_ns = intended_ns.saturating_sub(context.now_ns);
    if early_ns > 0 {
        context.tally.counts.from_future += count;
        context.tally.early_ns_max = context.tally.early_ns_max.max(early_ns);
    }
    let latency_ns = context.now_ns.saturating_sub(intended_ns);
    let delivery = context.tally.of(HistogramKind::Delivery);
    delivery.record(measured, latency_ns, count);
}

#[cfg(test)]
mod tests;
