//! [`Decoder`]: turns an input buffer into one command, or into the reason why there is none.
//!
//! ```text
//!             +-- NeedMore(n) <---- input ends too early; call again when it holds n bytes
//!   input ----+-- Command ---------> execute, consume
//!             +-- Reject ----------> make the topic if asked to, send the error, close
//!             +-- Close -----------> close without a word
//! ```
//!
//! The input always begins with the command to decode. The decoder removes nothing from the input:
//! the caller drops `consumed` bytes, or keeps them and decodes the same command again later. The
//! order of checks is nsqd's. Each check runs as soon as its bytes have arrived, so a bad size is
//! refused before the connection waits for the body.

mod body;
mod fin;
mod line;
mod stop;

use std::time::Duration;

use crate::batch::Walk;
use crate::command::Command;
use crate::error::{ErrorCode, WireError};
use crate::id::MessageId;
use crate::limits::{LINE_BYTES_MAX, Limits};
use crate::name::{ChannelName, TopicName};
use crate::origin::{self, Number, Origin};
use body::Body;
pub use fin::{FIN_BYTES, fin};
use line::{find_line_end, number, words};
use stop::{
    Missing, Stop, bad_name, invalid, not_a_number, reject, short, too_few_parameters,
    too_few_params, unknown_option, wrong_state,
};

/// The first bytes of a connection. They precede the first command; this module does not decode
/// them.
pub const MAGIC_V2: [u8; 4] = *b"  V2";

/// The third parameter of a REQ that does not count as an attempt.
pub(crate) const UNCOUNTED: &[u8] = b"uncounted";

/// The part of a connection's life that matters to the protocol. The numbers are those in stats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientState {
    /// Not subscribed: a producer, or a consumer before its SUB.
    #[default]
    Init = 0,
    /// After SUB.
    Subscribed = 3,
    /// After CLS.
    Closing = 4,
}

/// The facts besides its own bytes that decide whether a command is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The client's state.
    pub state: ClientState,
    /// True when the client has heartbeats. A client without heartbeats may not subscribe.
    pub heartbeats: bool,
    /// True when TLS is required and this connection has none: only IDENTIFY is allowed.
    pub tls_missing: bool,
    /// True when IDENTIFY has agreed on `req_uncounted`: REQ may have a third parameter.
    pub req_uncounted: bool,
    /// True when IDENTIFY has agreed on `publisher_id`: the last parameter of PUB, MPUB and DPUB is
    /// the number of the first message.
    pub has_numbers: bool,
    /// The operator's limits.
    pub limits: &'a Limits,
}

/// The result of [`Decoder::decode`] for the front of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The command is not complete, and the decoder can decide nothing about it before the input
    /// holds at least this many bytes. The number is at most a line and
    /// [`Limits::message_bytes_max`] or [`Limits::body_bytes_max`] beyond the present input. An
    /// MPUB may ask for that much again for each message: nsqd ignores the declared size of an
    /// MPUB, so only the caller's memory bounds the total.
    NeedMore(usize),
    /// A command.
    Command {
        /// The decoded command.
        command: Command<'a>,
        /// The number of input bytes that the command occupies.
        consumed: usize,
    },
    /// An error that ends the connection.
    Reject {
        /// The error to send to the peer.
        error: WireError,
        /// A topic to create first: nsqd creates the topic of an MPUB before it checks the
        /// messages, and keeps the topic when they are bad.
        creates_topic: Option<TopicName<'a>>,
    },
    /// The line is too long. nsqd closes the connection without an answer.
    Close,
}

/// Remembers how far the unfinished command of one connection has been examined, so that input
/// which arrives in small pieces is not examined from the start each time.
///
/// Invariant: every field describes a prefix of the input as it was when [`Decoder::decode`] last
/// asked for more, and is zero otherwise. The input may only have grown since then.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// The number of bytes last asked for. With less input there is nothing to do.
    needs: usize,
    /// Bytes of the input known to hold no LF.
    searched: usize,
    /// The messages of an MPUB seen so far.
    walk: Walk,
}

impl Decoder {
    /// Decodes the command at the front of `input`.
    ///
    /// The decoder remembers something only after [`Decoded::NeedMore`]. The next input must then
    /// begin with the same bytes, or the caller must call [`Decoder::reset`] first. After any other
    /// result the caller may pass the input behind the command or the same input again.
    #[inline]
    #[must_use]
    pub fn decode<'a>(&mut self, input: &'a [u8], context: &Context<'_>) -> Decoded<'a> {
        if input.len() < self.needs {
            return Decoded::NeedMore(self.needs);
        }
        let stop = match self.examine(input, context) {
            Ok((command, consumed)) => {
                self.reset();
                return Decoded::Command { command, consumed };
            }
            Err(stop) => stop,
        };
        match stop {
            Stop::Short { needs, .. } => {
                debug_assert!(needs > input.len(), "{needs} of {} bytes", input.len());
                self.needs = needs;
                Decoded::NeedMore(needs)
            }
            Stop::Reject {
                error,
                creates_topic,
            } => {
                self.reset();
                Decoded::Reject {
                    error: *error,
                    creates_topic,
                }
            }
            Stop::TooLong => {
                self.reset();
                Decoded::Close
            }
        }
    }

    /// Returns the error for a peer that sends nothing more (end of stream or read deadline) and
    /// the topic to create, as in [`Decoded::Reject`]. Returns `None` when the input ends within a
    /// line or between commands. The decoder is reset.
    #[must_use]
    pub fn finish<'a>(
        &mut self,
        input: &'a [u8],
        context: &Context<'_>,
    ) -> Option<(WireError, Option<TopicName<'a>>)> {
        let unfinished = self.unfinished(input, context);
        self.reset();
        unfinished
    }

    /// Does the work of [`Decoder::finish`] for a peer that may still send more: the decoder keeps
    /// its progress. After [`Decoded::NeedMore`] only the command's line is decoded again.
    #[must_use]
    pub fn unfinished<'a>(
        &mut self,
        input: &'a [u8],
        context: &Context<'_>,
    ) -> Option<(WireError, Option<TopicName<'a>>)> {
        match self.examine(input, context).err()? {
            Stop::Short {
                missing,
                creates_topic,
                ..
            } => Some((missing.error()?, creates_topic)),
            Stop::Reject {
                error,
                creates_topic,
            } => Some((*error, creates_topic)),
            Stop::TooLong => None,
        }
    }

    /// The number of bytes that the input must have before there is something to do, after
    /// [`Decoded::NeedMore`]. Otherwise 0.
    #[inline]
    pub fn needs(&self) -> usize {
        self.needs
    }

    /// Has the unfinished command examined again although no more input has come. The decoder keeps its progress.
    pub fn look_again(&mut self) {
        self.needs = 0;
    }

    /// Forgets the unfinished command: the next input may be any bytes.
    #[inline]
    pub fn reset(&mut self) {
        *self = Decoder::default();
    }

    /// Checks in nsqd's order: line, verb, state, parameters, body. No other function knows this
    /// order.
    #[inline]
    fn examine<'a>(&mut self, input: &'a [u8], context: &Context<'_>) -> Examined<'a> {
        let line_end = self.line_end(input)?;
        let line = &input[..line_end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut words = words(line);
        let verb = words.next().unwrap_or_default();
        let body = Body {
            input,
            at: line_end + 1,
            limits: context.limits,
        };

        // A client asks for TLS with IDENTIFY, so IDENTIFY is exempt.
        if context.tls_missing && verb != b"IDENTIFY" {
            let after = " in current state (TLS required)";
            let error = WireError::with_raw(ErrorCode::Invalid, "cannot ", verb, after);
            return Err(reject(error));
        }
        let command = match verb {
            b"FIN" => Command::Fin {
                id: message_id("FIN", words.next(), context)?,
            },
            b"TOUCH" => Command::Touch {
                id: message_id("TOUCH", words.next(), context)?,
            },
            b"REQ" => requeue([(); 3].map(|()| words.next()), context)?,
            b"RDY" => ready(words.next(), context)?,
            b"PUB" => {
                let topic = topic("PUB", words.next())?;
                let number = first_number("PUB", words, context)?;
                let (body, end) = body.message("PUB")?;
                let command = Command::Pub {
                    topic,
                    body,
                    number,
                };
                return Ok((command, end));
            }
            b"MPUB" => {
                let topic = topic_of_mpub(words.next())?;
                let number = first_number("MPUB", words, context)?;
                let (batch, end) = body
                    .batch(&mut self.walk)
                    .map_err(|stop| stop.creating(topic))?;
                check_last_number(number, batch.count())?;
                let command = Command::Mpub {
                    topic,
                    batch,
                    number,
                };
                return Ok((command, end));
            }
            b"DPUB" => {
                let (topic, defer) = deferral(words.next(), words.next(), context.limits)?;
                let number = first_number("DPUB", words, context)?;
                let (body, end) = body.message("DPUB")?;
                let command = Command::Dpub {
                    topic,
                    defer,
                    body,
                    number,
                };
                return Ok((command, end));
            }
            b"NOP" => Command::Nop,
            b"SUB" => subscribe(words.next(), words.next(), context)?,
            b"CLS" => {
                require(context.state == ClientState::Subscribed, "CLS")?;
                Command::Cls
            }
            b"IDENTIFY" => {
                require(context.state == ClientState::Init, "IDENTIFY")?;
                let (body, end) = body.document("IDENTIFY")?;
                return Ok((Command::Identify { body }, end));
            }
            b"AUTH" => {
                require(context.state == ClientState::Init, "AUTH")?;
                // CLS is the only command that refuses extra parameters, an empty one included.
                if words.next().is_some() {
                    return Err(invalid("AUTH invalid number of parameters"));
                }
                let (secret, end) = body.document("AUTH")?;
                return Ok((Command::Auth { secret }, end));
            }
            _ => {
                let error = WireError::with_raw(ErrorCode::Invalid, "invalid command ", verb, "");
                return Err(reject(error));
            }
        };
        Ok((command, line_end + 1))
    }

    /// Finds the LF of the first line.
    #[inline]
    fn line_end<'a>(&mut self, input: &[u8]) -> Result<usize, Stop<'a>> {
        let window = &input[..input.len().min(LINE_BYTES_MAX)];
        match find_line_end(window, self.searched) {
            Some(at) => {
                // While the decoder waits for the body, each search finds the LF at once.
                self.searched = at;
                Ok(at)
            }
            None if window.len() == LINE_BYTES_MAX => Err(Stop::TooLong),
            None => {
                self.searched = window.len();
                Err(short(window.len() + 1, Missing::Line))
            }
        }
    }
}

/// A command and the number of input bytes it occupies, or the reason why there is none.
type Examined<'a> = Result<(Command<'a>, usize), Stop<'a>>;

/// Fails unless the command is allowed in the client's state. This check is always the first one.
#[inline]
fn require<'a>(allowed: bool, verb: &'static str) -> Result<(), Stop<'a>> {
    if allowed {
        Ok(())
    } else {
        Err(wrong_state(verb))
    }
}

#[inline]
fn message_id<'a>(
    verb: &'static str,
    id: Option<&[u8]>,
    context: &Context<'_>,
) -> Result<MessageId, Stop<'a>> {
    require(context.state != ClientState::Init, verb)?;
    let id = id.ok_or_else(|| too_few_params(verb))?;
    id.try_into()
        .map(MessageId)
        .map_err(|_| invalid("invalid message ID"))
}

/// Decodes a REQ. The timeout is clamped, whereas DPUB refuses a deferral that is too long. Like nsqd, ignores a third
/// parameter, unless IDENTIFY has agreed on `req_uncounted`.
#[inline]
fn requeue<'a>(
    [id, timeout, option]: [Option<&[u8]>; 3],
    context: &Context<'_>,
) -> Result<Command<'a>, Stop<'a>> {
    require(context.state != ClientState::Init, "REQ")?;
    let timeout = timeout.ok_or_else(|| too_few_params("REQ"))?;
    let id = message_id("REQ", id, context)?;
    let ms =
        number(timeout).ok_or_else(|| not_a_number("REQ could not parse timeout ", timeout))?;
    let asked_ns = milliseconds(ms);
    let clamped_ns = asked_ns.clamp(0, context.limits.req_timeout_max_ns());
    let is_counted = match option.filter(|_| context.req_uncounted) {
        None => true,
        Some(option) if option == UNCOUNTED => false,
        Some(option) => return Err(unknown_option("REQ", option)),
    };
    Ok(Command::Req {
        id,
        timeout: Duration::from_nanos(clamped_ns.unsigned_abs()),
        is_counted,
        clamped_from_ns: (clamped_ns != asked_ns).then_some(asked_ns),
    })
}

#[inline]
fn ready<'a>(count: Option<&[u8]>, context: &Context<'_>) -> Result<Command<'a>, Stop<'a>> {
    if context.state == ClientState::Closing {
        return Ok(Command::RdyIgnored);
    }
    require(context.state == ClientState::Subscribed, "RDY")?;
    let word = count.unwrap_or(b"1");
    let count = number(word).ok_or_else(|| not_a_number("RDY could not parse count ", word))?;
    // Like nsqd, reads the bits of an unsigned number and compares them as a signed number.
    let count = count.cast_signed();
    let max = context.limits.rdy_count_max;
    if count < 0 || count > max {
        let description = format_args!("RDY count {count} out of range 0-{max}");
        return Err(invalid(description));
    }
    Ok(Command::Rdy {
        count: u32::try_from(count).unwrap_or(u32::MAX),
    })
}

#[inline]
fn topic<'a>(verb: &'static str, name: Option<&'a [u8]>) -> Result<TopicName<'a>, Stop<'a>> {
    let name = name.ok_or_else(|| too_few_parameters(verb))?;
    TopicName::new(name)
        .ok_or_else(|| bad_name(ErrorCode::BadTopic, &format!("{verb} topic"), name))
}

/// Decodes the topic of an MPUB. nsqd repeats the error's code in the description.
#[inline]
fn topic_of_mpub<'a>(name: Option<&'a [u8]>) -> Result<TopicName<'a>, Stop<'a>> {
    let name = name.ok_or_else(|| too_few_parameters("MPUB"))?;
    TopicName::new(name)
        .ok_or_else(|| bad_name(ErrorCode::BadTopic, "E_BAD_TOPIC MPUB topic", name))
}

/// Decodes the deferral of a DPUB. A deferral that is too long is refused, whereas REQ clamps it.
#[inline]
fn deferral<'a>(
    name: Option<&'a [u8]>,
    defer: Option<&[u8]>,
    limits: &Limits,
) -> Result<(TopicName<'a>, Duration), Stop<'a>> {
    let defer = defer.ok_or_else(|| too_few_parameters("DPUB"))?;
    let topic = topic("DPUB", name)?;
    let ms = number(defer).ok_or_else(|| not_a_number("DPUB could not parse timeout ", defer))?;
    let defer_ns = milliseconds(ms);
    if defer_ns < 0 || defer_ns > limits.req_timeout_max_ns() {
        let max_ms = limits.req_timeout_max.as_millis();
        let description = format_args!("DPUB timeout {ms} out of range 0-{max_ms}");
        return Err(invalid(description));
    }
    Ok((topic, Duration::from_nanos(defer_ns.unsigned_abs())))
}

/// Decodes the number of the first message of a publish, if IDENTIFY has agreed on `publisher_id`. Takes `words` by
/// value: a reference would keep the words of every command in memory instead of registers.
#[inline]
fn first_number<'a, 'w>(
    verb: &'static str,
    words: impl Iterator<Item = &'w [u8]>,
    context: &Context<'_>,
) -> Result<Option<Number>, Stop<'a>> {
    if !context.has_numbers {
        return Ok(None);
    }
    parse_number(verb, words)
}

#[cold]
#[inline(never)]
fn parse_number<'a, 'w>(
    verb: &'static str,
    mut words: impl Iterator<Item = &'w [u8]>,
) -> Result<Option<Number>, Stop<'a>> {
    let word = words.next().ok_or_else(|| too_few_parameters(verb))?;
    match origin::parse_number(word) {
        Some(number) => Ok(Some(number)),
        None => {
            let what = format!("{verb} could not parse message number ");
            Err(not_a_number(&what, word))
        }
    }
}

/// Refuses a batch whose last number would be above the largest one.
#[inline]
fn check_last_number<'a>(number: Option<Number>, count: u32) -> Result<(), Stop<'a>> {
    let Some(number) = number.map(Number::get) else {
        return Ok(());
    };
    let first = Origin {
        publisher: 0,
        number,
    };
    if first.has_room_for(count) {
        return Ok(());
    }
    let max = origin::NUMBER_MAX;
    Err(invalid(format_args!(
        "MPUB message number {number} plus {count} messages is above {max}"
    )))
}

/// Converts milliseconds to signed nanoseconds that wrap around as in nsqd: `2^64 / 10^6 + 1` ms
/// give 0.4 ms.
#[inline]
fn milliseconds(ms: u64) -> i64 {
    ms.cast_signed().wrapping_mul(1_000_000)
}

#[inline]
fn subscribe<'a>(
    topic_name: Option<&'a [u8]>,
    channel_name: Option<&'a [u8]>,
    context: &Context<'_>,
) -> Result<Command<'a>, Stop<'a>> {
    require(context.state == ClientState::Init, "SUB")?;
    if !context.heartbeats {
        return Err(invalid("cannot SUB with heartbeats disabled"));
    }
    let name = channel_name.ok_or_else(|| too_few_parameters("SUB"))?;
    let topic = topic("SUB", topic_name)?;
    let channel = ChannelName::new(name)
        .ok_or_else(|| bad_name(ErrorCode::BadChannel, "SUB channel", name))?;
    Ok(Command::Sub { topic, channel })
}

#[cfg(test)]
mod tests;
