//! [`Consumer`]: what one consuming connection makes of the messages it gets. No sockets and no clock.
//!
//! ```text
//!   input ─► frames ─► delivery (for the ledger), latency
//!                 └──► FIN now, or held: TOUCH halfway, then FIN / REQ / nothing
//! ```
//!
//! The FINs of one read go out in one write.

use std::ops::Range;

use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::id::MessageId;

use crate::header::{Decoded, Header};
use crate::ledger::{ChannelLedger, Delivery};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::work::Work;

/// How a consumer treats messages.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Work on each message.
    pub work: Work,
    /// Share of first deliveries answered with REQ.
    pub requeue: f64,
    /// The REQ's delay.
    pub requeue_delay_ms: u64,
    /// Share of first deliveries left to time out.
    pub time_out: f64,
    /// Share of messages that get a TOUCH.
    pub touch: f64,
    /// The run whose messages are ours; `None` takes those of any.
    pub run: Option<u16>,
    /// The measured time.
    pub measured: Range<u64>,
}

impl Behaviour {
    /// That of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario, run: Option<u16>, measured: Range<u64>) -> Behaviour {
        Behaviour {
            work: scenario.work,
            requeue: scenario.requeue,
            requeue_delay_ms: u64::try_from(scenario.requeue_delay.0.as_millis())
                .unwrap_or(u64::MAX),
            time_out: scenario.time_out,
            touch: scenario.touch,
            run,
            measured,
        }
    }

    /// Whether every message is finished as soon as it is read.
    fn is_plain(&self) -> bool {
        self.work == Work::None && self.requeue == 0.0 && self.time_out == 0.0 && self.touch == 0.0
    }
}

/// What to do with a held message, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// When its work is done, in nanoseconds.
    pub due_ns: u64,
    /// By which to FIN it.
    pub id: MessageId,
    /// What then.
    pub action: Action,
}

/// The end of a message's work, or its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// FIN.
    Finish,
    /// REQ.
    Requeue,
    /// TOUCH, and FIN so many nanoseconds later.
    Touch(u64),
}

/// A message that is not plainly finished, for the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Arrived.
    Delivered(Delivery),
    /// Will be given back, or left to time out.
    GivenBack(u32, u64),
    /// Damaged.
    Damaged,
}

/// A consumer's state.
#[derive(Debug)]
pub struct Consumer {
    /// Number of the channel in its topic.
    pub channel: usize,
    random: Random,
    /// The next number expected of each producer, by its place in the run.
    next_by_producer: Vec<u64>,
    /// Messages taken and not yet answered, for when the connection is dropped.
    held: Vec<(MessageId, u32, u64)>,
}

/// What a call works on besides the consumer itself.
pub struct Desk<'a> {
    /// The time now.
    pub now_ns: u64,
    /// Where answers go.
    pub output: &'a mut Vec<u8>,
    /// Where counts go.
    pub tally: &'a mut Tally,
    /// What the ledger is to learn.
    pub marks: &'a mut Vec<Mark>,
    /// Messages held.
    pub held: &'a mut Vec<Held>,
}

impl Consumer {
    /// A consumer of a channel.
    #[must_use]
    pub fn new(channel: usize, seed: u64) -> Consumer {
        Consumer {
            channel,
            random: Random::new(seed),
            next_by_producer: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Takes the frames at the front of `input`; returns the bytes handled.
    ///
    /// # Errors
    /// When the daemon sent something that ends the connection, in words.
    pub fn frames(
        &mut self,
        input: &[u8],
        behaviour: &Behaviour,
        desk: &mut Desk<'_>,
    ) -> Result<usize, String> {
        let plain = behaviour.is_plain();
        let mut at = 0;
        // Messages of one batch have one intended time: their latencies are recorded together.
        let mut same = (0, 0);
        loop {
            let (kind, data, consumed) = match decode_frame(&input[at..]) {
                FrameDecoded::NeedMore(_) => break,
                FrameDecoded::Bad => {
                    return Err("the daemon sent something that is no frame".into());
                }
                FrameDecoded::Frame {
                    kind,
                    data,
                    consumed,
                } => (kind, data, consumed),
            };
            at += consumed;
            match kind {
                FrameType::Message => {
                    let message = Message::parse(data).ok_or("a message frame is too short")?;
                    desk.tally.counts.delivered += 1;
                    desk.tally.last_delivery_ns = desk.now_ns;
                    let header = self.identify(&message, behaviour, desk);
                    if let Some(header) = header.filter(|_| message.attempts <= 1) {
                        if same.0 != header.intended_ns {
                            record(same, behaviour, desk);
                            same = (header.intended_ns, 0);
                        }
                        same.1 += 1;
                    }
                    match header {
                        Some(header) if !plain => self.treat(&message, header, behaviour, desk),
                        _ => finish(&message.id, desk),
                    }
                }
                FrameType::Response if data == b"_heartbeat_" => encode::nop(desk.output),
                FrameType::Response => {}
                FrameType::Error => {
                    let text = String::from_utf8_lossy(data);
                    desk.tally.counts.error_answers += 1;
                    let goes_on = ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"];
                    if !goes_on.iter().any(|code| text.starts_with(code)) {
                        return Err(format!("the daemon refused a consumer: {text}"));
                    }
                }
            }
        }
        record(same, behaviour, desk);
        Ok(at)
    }

    /// Whose message it is; marks it for the ledger. `None` when it is not ours or damaged.
    #[inline]
    fn identify(
        &mut self,
        message: &Message<'_>,
        behaviour: &Behaviour,
        desk: &mut Desk<'_>,
    ) -> Option<Header> {
        let header = match (Header::decode(message.body), behaviour.run) {
            (Decoded::Intact(header), None) => header,
            (Decoded::Intact(header), Some(run)) if header.producer >> 16 == u32::from(run) => {
                header
            }
            // A run's own topics hold its own messages only, so this one is altered beyond recognition.
            (Decoded::Damaged, _) | (Decoded::Foreign, Some(_)) => {
                desk.marks.push(Mark::Damaged);
                return None;
            }
            (Decoded::Foreign, None) | (Decoded::Intact(_), Some(_)) => {
                desk.tally.counts.foreign += 1;
                return None;
            }
        };
        desk.marks.push(Mark::Delivered(Delivery {
            producer: header.producer,
            number: header.number,
            attempts: message.attempts,
        }));
        if message.attempts <= 1 {
            let index = (header.producer & 0xffff) as usize;
            if index >= self.next_by_producer.len() {
                self.next_by_producer.resize(index + 1, 0);
            }
            let next = &mut self.next_by_producer[index];
            if header.number < *next {
                desk.tally.counts.reordered += 1;
            } else {
                *next = header.number + 1;
            }
        }
        Some(header)
    }

    /// Decides what becomes of a message. Only first deliveries are given back, so that each one is
    /// finished in the end.
    fn treat(
        &mut self,
        message: &Message<'_>,
        header: Header,
        behaviour: &Behaviour,
        desk: &mut Desk<'_>,
    ) {
        let first = message.attempts <= 1;
        let choice = if first { self.random.unit() } else { 1.0 };
        let requeue = choice < behaviour.requeue;
        let time_out = !requeue && choice < behaviour.requeue + behaviour.time_out;
        if requeue || time_out {
            desk.marks
                .push(Mark::GivenBack(header.producer, header.number));
        }
        if time_out {
            desk.tally.counts.left_to_time_out += 1;
            return;
        }
        let work_ns = behaviour.work.draw_ns(&mut self.random);
        let action = match (requeue, self.random.chance(behaviour.touch)) {
            (true, _) => Action::Requeue,
            (false, true) => Action::Touch(work_ns - work_ns / 2),
            (false, false) => Action::Finish,
        };
        let in_ns = match action {
            Action::Touch(rest_ns) => work_ns - rest_ns,
            _ => work_ns,
        };
        let held = Held {
            due_ns: desk.now_ns + in_ns,
            id: message.id,
            action,
        };
        self.held.push((message.id, header.producer, header.number));
        if work_ns == 0 {
            self.act(held, behaviour, desk);
        } else {
            desk.held.push(held);
        }
    }

    /// The time of a held message has come.
    pub fn act(&mut self, held: Held, behaviour: &Behaviour, desk: &mut Desk<'_>) {
        let Some(index) = self.held.iter().position(|(id, ..)| *id == held.id) else {
            // Its connection was dropped in the meantime.
            return;
        };
        match held.action {
            Action::Finish => finish(&held.id, desk),
            Action::Requeue => {
                let delay = std::time::Duration::from_millis(behaviour.requeue_delay_ms);
                encode::req(desk.output, &held.id, delay);
                desk.tally.counts.requeued += 1;
            }
            Action::Touch(rest_ns) => {
                encode::touch(desk.output, &held.id);
                desk.tally.counts.touched += 1;
                if rest_ns == 0 {
                    finish(&held.id, desk);
                } else {
                    desk.held.push(Held {
                        due_ns: held.due_ns + rest_ns,
                        action: Action::Finish,
                        ..held
                    });
                    return;
                }
            }
        }
        self.held.swap_remove(index);
    }

    /// The connection is dropped: what was held goes back to the channel, and order starts anew.
    pub fn dropped(&mut self, ledger: &mut ChannelLedger) {
        for (_, producer, number) in self.held.drain(..) {
            ledger.give_back(producer, number);
        }
        ledger.excuse();
        self.next_by_producer.clear();
    }
}

#[inline]
fn finish(id: &MessageId, desk: &mut Desk<'_>) {
    // As `encode::fin`, in one piece: millions a second go through here.
    let mut line = *b"FIN 0123456789abcdef\n";
    line[4..20].copy_from_slice(id.as_bytes());
    desk.output.extend_from_slice(&line);
    desk.tally.counts.finished += 1;
}

#[inline]
fn record((intended_ns, count): (u64, u64), behaviour: &Behaviour, desk: &mut Desk<'_>) {
    if count > 0 {
        let measured = behaviour.measured.contains(&intended_ns);
        let latency_ns = desk.now_ns.saturating_sub(intended_ns);
        desk.tally.delivery.record(measured, latency_ns, count);
    }
}

/// Puts what consumers learned into the channel's ledger.
pub fn settle_marks(marks: &mut Vec<Mark>, ledger: &mut ChannelLedger) {
    for mark in marks.drain(..) {
        match mark {
            Mark::Delivered(delivery) => ledger.deliver(delivery),
            Mark::GivenBack(producer, number) => ledger.give_back(producer, number),
            Mark::Damaged => ledger.damaged(),
        }
    }
}

#[cfg(test)]
mod tests;
