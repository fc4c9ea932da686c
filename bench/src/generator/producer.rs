//! [`Producer`]: what one publishing connection sends, and how it handles the answers. Without sockets
//! and clock: bytes and times go in and come out.
//!
//! ```text
//!   pacer ─► due? ─► encode ─► output        outstanding: one entry per command, in order
//!                       └────► outstanding ◄─ OK / E_... / HTTP answer ◄─ input
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use wire::frame::FrameType;

use crate::generator::link::{OUTPUT_BYTES_MAX, next_frame};
use crate::generator::pace::{Pace, Pacer};
use crate::http::{self, Response};
use crate::result::HistogramKind;
use crate::result::ledger::ProducerRecord;
use crate::result::tally::Tally;
use crate::scenario::header::{Filler, HEADER_BYTES, Header};
use crate::scenario::{Scenario, Via};

/// The settings that all producers of a run share. The bodies of all messages are one filler, cut to sizes that were
/// drawn beforehand, so that the load path neither draws nor computes a checksum over them.
#[derive(Clone, Debug)]
pub struct PublishSettings {
    /// The scenario, with the command that publishes and the window.
    pub scenario: Scenario,
    /// The topics' names. Commands go to them in turn.
    pub topics: Vec<String>,
    /// The value of HTTP's Host header.
    pub host: String,
    /// Incompressible bytes, as many as the largest message has.
    pub filler: Vec<u8>,
    /// The sizes, to be used in turn.
    pub sizes: Vec<Filler>,
}

/// One command that awaits its answer.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    first: u64,
    count: u32,
    intended_ns: u64,
}

/// A producer's state.
#[derive(Debug)]
pub struct Producer {
    settings: Arc<PublishSettings>,
    /// The producer's topics, which take turns, as places in the list of the settings.
    topics: Vec<usize>,
    turn: usize,
    /// Place in the list of sizes.
    size_at: usize,
    /// The producer stops at this number.
    pub(crate) limit: u64,
    /// The pace; `None` in a closed loop.
    pace: Option<Pace>,
    /// Intended times in an open loop that has begun.
    pacer: Option<Pacer>,
    /// The measured time, from and to, in nanoseconds. Publishing ends with it.
    measured: Range<u64>,
    outstanding: VecDeque<Outstanding>,
    /// Messages that are sent and await their answer.
    pub outstanding_messages: u64,
    /// The time from which on only the generator itself was in the way; `None` while something else is.
    free_since_ns: Option<u64>,
    /// What was sent so far. The next message's number is `sent`.
    record: ProducerRecord,
    ended: bool,
}

/// The next thing that [`Producer::publish`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Waits for this time.
    Until(u64),
    /// Waits for the socket or an answer.
    Daemon,
    /// Waits for nothing: everything is sent.
    Done,
}

impl Producer {
    /// Makes a producer that sends up to `limit` messages. `pace` is `None` in a closed loop. `index` is its place
    /// among `producers`; together they take turns over all topics.
    pub fn new(
        settings: Arc<PublishSettings>,
        run: u16,
        (index, producers): (u32, u32),
        pace: Option<Pace>,
        limit: u64,
    ) -> Producer {
        let count = settings.topics.len();
        let first = index as usize % count;
        Producer {
            size_at: index as usize % settings.sizes.len(),
            settings,
            topics: (first..count).step_by(producers as usize).collect(),
            turn: 0,
            limit,
            pace,
            pacer: None,
            measured: 0..0,
            outstanding: VecDeque::new(),
            outstanding_messages: 0,
            free_since_ns: Some(0),
            record: ProducerRecord {
                producer: u32::from(run) << 16 | index,
                ..ProducerRecord::default()
            },
            ended: false,
        }
    }

    /// Begins, now that the time of the first send is known.
    pub fn begin(&mut self, start_ns: u64, measured: Range<u64>) {
        let pacer = |pace| Pacer::new(pace, start_ns, measured.clone());
        self.pacer = self.pace.map(pacer);
        self.measured = measured;
    }

    /// Returns the place among the run's producers, from 0 on.
    pub fn index(&self) -> u32 {
        self.record.producer & 0xffff
    }

    /// Tells whether the producer publishes by HTTP.
    pub fn is_http(&self) -> bool {
        self.settings.scenario.via.is_http()
    }

    /// Encodes the commands that are due, as far as there is room. Returns what to wait for.
    pub fn publish(&mut self, now_ns: u64, output: &mut Vec<u8>, tally: &mut Tally) -> Wait {
        loop {
            let left = self.limit - self.record.sent;
            if self.ended || left == 0 {
                return Wait::Done;
            }
            let intended_ns = match &self.pacer {
                Some(pacer) => match pacer.peek() {
                    None => return Wait::Done,
                    Some(at) if at > now_ns => {
                        self.free_since_ns.get_or_insert(now_ns);
                        return Wait::Until(at);
                    }
                    Some(at) => at,
                },
                None if now_ns >= self.measured.end => return Wait::Done,
                None => now_ns,
            };
            if !self.has_room(output) {
                self.free_since_ns = None;
                return Wait::Daemon;
            }
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            let count = self.settings.scenario.messages_per_command().min(left);
            let measured = self.measured.contains(&intended_ns);
            if self.pacer.is_some() {
                let free_since_ns = *self.free_since_ns.get_or_insert(now_ns);
                let lateness_ns = now_ns.saturating_sub(intended_ns.max(free_since_ns));
                let lateness = tally.of(HistogramKind::Lateness);
                lateness.record(measured, lateness_ns, count.into());
            }
            let bodies_bytes = self.encode(intended_ns, count, output);
            tally.counts.sent += u64::from(count);
            tally.counts.sent_bytes += bodies_bytes as u64;
            self.outstanding.push_back(Outstanding {
                first: self.record.sent,
                count,
                intended_ns,
            });
            self.outstanding_messages += u64::from(count);
            self.record.sent += u64::from(count);
            if let Some(pacer) = &mut self.pacer {
                pacer.advance();
            }
        }
    }

    fn has_room(&self, output: &[u8]) -> bool {
        let window_left =
            self.pace.is_some() || self.outstanding_messages < self.settings.scenario.window();
        let answered = !self.is_http() || self.outstanding.is_empty();
        window_left && answered && output.len() < OUTPUT_BYTES_MAX
    }

    /// Appends one command with `count` messages; returns the bytes of their bodies.
    fn encode(&mut self, intended_ns: u64, count: u32, output: &mut Vec<u8>) -> usize {
        let settings = Arc::clone(&self.settings);
        let topic = &settings.topics[self.topics[self.turn]];
        self.turn = (self.turn + 1) % self.topics.len();
        let sizes = settings.sizes.iter().cycle().skip(self.size_at);
        let sizes = sizes.take(count as usize);
        self.size_at = (self.size_at + count as usize) % settings.sizes.len();
        let fillers_bytes: usize = sizes.clone().map(|filler| filler.bytes).sum();
        let bodies_bytes = HEADER_BYTES * count as usize + fillers_bytes;
        let batch_bytes = 4 + 4 * count as usize + bodies_bytes;
        output.reserve(batch_bytes + 128);
        match settings.scenario.via {
            Via::Pub => line(output, &["PUB ", topic, "\n"]),
            Via::Dpub => {
                let defer_ms = settings.scenario.defer.as_millis().to_string();
                line(output, &["DPUB ", topic, " ", &defer_ms, "\n"]);
            }
            Via::Mpub => {
                line(output, &["MPUB ", topic, "\n"]);
                size(output, batch_bytes);
            }
            Via::HttpPub => {
                let path = format!("/pub?topic={topic}");
                http::request(output, &path, &settings.host, bodies_bytes);
            }
            Via::HttpMpub => {
                let path = format!("/mpub?topic={topic}&binary=true");
                http::request(output, &path, &settings.host, batch_bytes);
            }
        }
        if settings.scenario.via.is_batched() {
            size(output, count as usize);
        }
        let has_size = settings.scenario.via != Via::HttpPub;
        let mut header = Header {
            producer: self.record.producer,
            number: self.record.sent,
            intended_ns,
        };
        for filler in sizes {
            if has_size {
                size(output, HEADER_BYTES + filler.bytes);
            }
            output.extend_from_slice(&header.encode(filler));
            output.extend_from_slice(&settings.filler[..filler.bytes]);
            header.number += 1;
        }
        bodies_bytes
    }

    /// Takes the answers at the front of `input`; returns the bytes handled.
    /// Fails when the daemon sent something that ends the connection, in words.
    pub fn answers(
        &mut self,
        input: &[u8],
        now_ns: u64,
        output: &mut Vec<u8>,
        tally: &mut Tally,
    ) -> Result<usize, String> {
        let mut at = 0;
        if self.is_http() {
            while let Some(response) = Response::parse(&input[at..])? {
                at += response.consumed;
                let text = String::from_utf8_lossy(response.body);
                self.answer(response.status == 200, &text, now_ns, tally)?;
            }
            return Ok(at);
        }
        while let Some((kind, data)) = next_frame(input, &mut at)? {
            match kind {
                FrameType::Response if data == b"_heartbeat_" => wire::encode::nop(output),
                FrameType::Response => self.answer(true, "", now_ns, tally)?,
                FrameType::Error => {
                    let text = String::from_utf8_lossy(data);
                    self.answer(false, &text, now_ns, tally)?;
                }
                FrameType::Message => {
                    return Err("the daemon sent a message to a producer".into());
                }
            }
        }
        Ok(at)
    }

    fn answer(
        &mut self,
        ok: bool,
        text: &str,
        now_ns: u64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Some(command) = self.outstanding.pop_front() else {
            return Err(format!("the daemon answered without being asked: {text}"));
        };
        let count = u64::from(command.count);
        self.outstanding_messages -= count;
        if !ok {
            tally.counts.answers.error_answers += 1;
            let refused = command.first..command.first + count;
            self.record.refused.push(refused);
            // nsqd closes the connection after these; what was behind them stays unconfirmed.
            let goes_on = ["E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED"];
            if goes_on.iter().any(|code| text.starts_with(code)) || self.is_http() {
                return Ok(());
            }
            return Err(format!("the daemon refused a publish: {text}"));
        }
        tally.counts.acknowledged += count;
        tally.last_answer_ns = now_ns;
        let measured = self.measured.contains(&command.intended_ns);
        let latency_ns = now_ns.saturating_sub(command.intended_ns);
        let publish = tally.of(HistogramKind::Publish);
        publish.record(measured, latency_ns, count);
        Ok(())
    }

    /// Ends publishing: no further command is encoded. Answers are still taken.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Tells whether an answer must come before anything more can be sent.
    pub fn awaits_answer(&self) -> bool {
        !self.has_room(&[])
    }

    /// Returns how many messages the daemon acknowledged.
    pub fn acknowledged(&self) -> u64 {
        let refused: u64 = self.record.refused.iter().map(|r| r.end - r.start).sum();
        self.record.sent - refused - self.outstanding_messages
    }

    /// Returns how many messages were due by `until_ns` and are not sent.
    pub fn unsent(&self, until_ns: u64) -> u64 {
        let Some(mut pacer) = self.pacer.clone() else {
            return 0;
        };
        let mut count = 0;
        while pacer.peek().is_some_and(|at| at < until_ns) {
            pacer.advance();
            count += u64::from(self.settings.scenario.messages_per_command());
        }
        count.min(self.limit - self.record.sent)
    }

    /// Returns the record for the ledger, in which outstanding messages are unconfirmed.
    pub fn record(&self) -> ProducerRecord {
        let mut record = self.record.clone();
        let range = |o: &Outstanding| o.first..o.first + u64::from(o.count);
        let unconfirmed = self.outstanding.iter().map(range);
        record.unconfirmed.extend(unconfirmed);
        record
    }
}

fn line(output: &mut Vec<u8>, words: &[&str]) {
    for word in words {
        output.extend_from_slice(word.as_bytes());
    }
}

/// Appends a size or count as V2 has it.
#[inline]
fn size(output: &mut Vec<u8>, value: usize) {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    output.extend_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
