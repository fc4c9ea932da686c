//! [`Protocol`]: the bytes of one connection in both directions, and its time limits. Each
//! answer of nsqd leads to the next step of the handshake, until the connection is open.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
#[cfg(any(feature = "compression", feature = "tls"))]
use upgrade::Upgrade;
use upgrade::Upgrades;
#[cfg(feature = "tls")]
use upgrade::pki_types::ServerName;
use wire::encode;
use wire::name::{ChannelName, TopicName};

use super::frames::{Batch, FrameBuffer, Incoming};
use super::settings::{Negotiated, Settings};
use crate::config::Config;
use crate::error::{ConnectionError, ErrorFrame};

/// The first bytes of each connection.
const MAGIC: &[u8] = b"  V2";
const HEARTBEAT: &[u8] = b"_heartbeat_";
const NOP: &[u8] = b"NOP\n";
/// The most sealed bytes of one read, in bytes.
const SEALED_BYTES: usize = 32 * 1024;
/// The most output whose memory is kept after a write, in bytes.
const KEPT_BYTES: usize = 256 * 1024;

/// An event of a connection, for its owner.
#[derive(Debug)]
pub(crate) enum Event {
    /// The handshake is over.
    Opened,
    /// A response, but no heartbeat.
    Response(Bytes),
    /// An error frame.
    Error(ErrorFrame),
    /// Messages.
    Messages(Batch),
}

/// One connection. The owner moves bytes: it reads into [`Protocol::receive_space`] and writes
/// [`Protocol::unsent`].
#[derive(Debug)]
pub(crate) struct Protocol {
    settings: Arc<Settings>,
    /// The host of the address.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS checks it"))]
    host: String,
    state: HandshakeStep,
    negotiated: Negotiated,
    frames: FrameBuffer,
    upgrades: Option<Box<Upgrades>>,
    /// Bytes from the stream that no upgrade has opened yet.
    sealed: BytesMut,
    /// True when the upgrades may have more plain bytes without new sealed ones.
    has_more: bool,
    /// Plain output. Without upgrades, the first `sent` bytes are sent.
    output: Vec<u8>,
    sent: usize,
    /// True when the output has commands of the application.
    has_commands: bool,
    last_read: Instant,
    created_at: Instant,
    /// The time since when the stream has taken none of the unsent bytes.
    unsent_since: Option<Instant>,
}

impl Protocol {
    /// Makes a connection whose output begins with the magic and IDENTIFY.
    pub(crate) fn new(settings: Arc<Settings>, host: &str, now: Instant) -> Protocol {
        let mut output = MAGIC.to_vec();
        encode::identify(&mut output, settings.identify.to_string().as_bytes());
        Protocol {
            host: host.to_owned(),
            state: HandshakeStep::Identify,
            negotiated: Negotiated::default(),
            frames: FrameBuffer::new(settings.frame_bytes_max),
            upgrades: None,
            sealed: BytesMut::new(),
            has_more: false,
            output,
            sent: 0,
            has_commands: false,
            last_read: now,
            created_at: now,
            unsent_since: None,
            settings,
        }
    }

    /// Returns what nsqd agreed to.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Returns true when the handshake is over.
    pub(crate) fn is_open(&self) -> bool {
        self.state == HandshakeStep::Open
    }

    /// Returns the buffer to whose end the next bytes of the stream belong. It has free space.
    #[inline]
    pub(crate) fn receive_space(&mut self) -> &mut BytesMut {
        if self.upgrades.is_none() {
            return self.frames.space();
        }
        self.sealed.reserve(SEALED_BYTES);
        &mut self.sealed
    }

    /// States that bytes were read at `now`.
    #[inline]
    pub(crate) fn received(&mut self, now: Instant) {
        self.last_read = now;
    }

    /// Returns the next event of the received bytes, if they have one.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, ConnectionError> {
        loop {
            while let Some(incoming) = self.frames.next()? {
                if let Some(event) = self.handle(incoming)? {
                    return Ok(Some(event));
                }
            }
            if !self.open_sealed()? {
                return Ok(None);
            }
        }
    }

    /// Opens a piece of the sealed bytes. Returns false when there is no new plain byte.
    fn open_sealed(&mut self) -> Result<bool, ConnectionError> {
        let Some(upgrades) = &mut self.upgrades else {
            return Ok(false);
        };
        if self.sealed.is_empty() && !self.has_more {
            return Ok(false);
        }
        let plain = self.frames.space();
        let (filled, end) = (plain.len(), plain.capacity());
        plain.resize(end, 0);
        let mut rest = &self.sealed[..];
        let opened = upgrades.open(&mut rest, &mut plain[filled..]);
        let taken = self.sealed.len() - rest.len();
        self.sealed.advance(taken);
        plain.truncate(filled + opened.as_ref().map_or(0, |opened| *opened));
        self.has_more = plain.len() == end;
        match opened? {
            0 if upgrades.has_ended() => Err(ConnectionError::Closed),
            opened => Ok(opened > 0),
        }
    }

    #[inline]
    fn handle(&mut self, incoming: Incoming) -> Result<Option<Event>, ConnectionError> {
        match incoming {
            Incoming::Response(data) if data == HEARTBEAT => {
                self.answer_heartbeat();
                Ok(None)
            }
            Incoming::Response(data) if self.is_open() => Ok(Some(Event::Response(data))),
            Incoming::Response(data) => self.continue_handshake(&data),
            Incoming::Error(data) if self.is_open() => {
                Ok(Some(Event::Error(ErrorFrame::new(&data))))
            }
            Incoming::Error(data) => Err(self.refusal(&data)),
            Incoming::Messages(batch) if self.is_open() => Ok(Some(Event::Messages(batch))),
            Incoming::Messages(_) => Err(ConnectionError::Unexpected("a message".to_owned())),
        }
    }

    /// Adds a NOP, unless the last unsent command is one: nsqd needs a sign of life, not one for each heartbeat. So an
    /// nsqd that sends heartbeats and reads nothing fills no memory.
    fn answer_heartbeat(&mut self) {
        if !self.output[self.sent..].ends_with(NOP) {
            encode::nop(&mut self.output);
        }
    }

    /// Moves all of `commands` to the output, and leaves `commands` empty, with memory for the next ones.
    #[inline]
    pub(crate) fn send(&mut self, commands: &mut Vec<u8>) {
        self.has_commands |= !commands.is_empty();
        if self.output.is_empty() {
            std::mem::swap(&mut self.output, commands);
        } else {
            self.output.append(commands);
        }
    }

    /// Returns the bytes that the stream has to take next. An empty slice means that everything was sent.
    #[inline]
    pub(crate) fn unsent(&mut self, now: Instant) -> Result<&[u8], ConnectionError> {
        if let Some(upgrades) = &mut self.upgrades
            && !self.output.is_empty()
            && upgrades.unsent().is_empty()
            && !upgrades.is_handshaking()
        {
            upgrades.seal(&[IoSlice::new(&self.output)])?;
            self.output.clear();
            self.output.shrink_to(KEPT_BYTES);
            self.has_commands = false;
        }
        let is_empty = self.unsent_bytes().is_empty();
        if is_empty {
            self.unsent_since = None
        } else {
            _ = self.unsent_since.get_or_insert(now)
        }
        Ok(self.unsent_bytes())
    }

    #[inline]
    fn unsent_bytes(&self) -> &[u8] {
        match &self.upgrades {
            Some(upgrades) => upgrades.unsent(),
            None => &self.output[self.sent..],
        }
    }

    /// Drops the first `bytes` of the unsent bytes: the stream took them at `now`.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize, now: Instant) {
        self.unsent_since = Some(now);
        if let Some(upgrades) = &mut self.upgrades {
            upgrades.drop_sent(bytes);
            return;
        }
        self.sent += bytes;
        assert!(self.sent <= self.output.len(), "sent what there was");
        if self.sent == self.output.len() {
            self.has_commands = false;
            self.output.clear();
            self.output.shrink_to(KEPT_BYTES);
            self.sent = 0;
        }
    }

    /// Returns true when the stream has taken the commands of the last [`Protocol::send`], in the form in which TLS and
    /// the compression send them.
    #[inline]
    pub(crate) fn are_commands_sent(&self) -> bool {
        !self.has_commands && self.unsent_bytes().is_empty()
    }

    /// Appends the end marks of the upgrades to the output.
    pub(crate) fn end(&mut self) {
        if let Some(upgrades) = &mut self.upgrades {
            upgrades.end();
        }
    }

    /// Returns the time at which [`Protocol::handle_timeout`] has something to do, if nothing happens before.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.silence_deadline(), self.write_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Returns the time at which nsqd has been silent for too long, or the handshake has taken too long.
    #[inline]
    fn silence_deadline(&self) -> Option<Instant> {
        let read_timeout = self.settings.config.read_timeout;
        if self.is_open() {
            let has_heartbeats = self.settings.config.heartbeat_interval.is_some();
            has_heartbeats.then(|| self.last_read + read_timeout)
        } else {
            Some(self.created_at + read_timeout)
        }
    }

    /// Returns the time at which nsqd has taken no byte for too long. An nsqd that sends its heartbeats is slow, not
    /// gone: then the time begins when the next heartbeat is due, and ends with the read timeout in any case.
    #[inline]
    fn write_deadline(&self) -> Option<Instant> {
        let since = self.unsent_since?;
        let Config {
            read_timeout,
            write_timeout,
            ..
        } = self.settings.config;
        let deadline = since + write_timeout;
        Some(match self.settings.config.heartbeat_interval {
            Some(interval) if self.is_open() => {
                let alive = self.last_read + interval + write_timeout;
                deadline.max(alive.min(since + read_timeout))
            }
            _ => deadline,
        })
    }

    /// Fails when nsqd was silent, or took no byte, for too long, or when the handshake takes too long as a whole.
    pub(crate) fn handle_timeout(&self, now: Instant) -> Result<(), ConnectionError> {
        match self.write_deadline() {
            Some(deadline) if now >= deadline => Err(ConnectionError::WriteTimeout(
                self.settings.config.write_timeout,
            )),
            _ => self.check_silence(now),
        }
    }

    /// Fails when nsqd was silent for too long, or when the handshake takes too long as a whole.
    pub(crate) fn check_silence(&self, now: Instant) -> Result<(), ConnectionError> {
        let read_timeout = self.settings.config.read_timeout;
        match self.silence_deadline() {
            Some(deadline) if now < deadline => Ok(()),
            None => Ok(()),
            Some(_) if now >= self.last_read + read_timeout => {
                Err(ConnectionError::ReadTimeout(read_timeout))
            }
            Some(_) => Err(ConnectionError::HandshakeTimeout(read_timeout)),
        }
    }
}

const OK: &[u8] = b"OK";

/// The answer that the handshake waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStep {
    /// The answer to IDENTIFY.
    Identify,
    /// The OK through TLS.
    #[cfg(feature = "tls")]
    Tls,
    /// The OK through the compression.
    #[cfg(feature = "compression")]
    Compression,
    /// The answer to AUTH.
    Auth,
    /// The answer to SUB.
    Subscribe,
    /// None: the handshake is over.
    Open,
}

impl Protocol {
    /// Returns the error of a step of the handshake that nsqd refused.
    fn refusal(&self, data: &[u8]) -> ConnectionError {
        let text = String::from_utf8_lossy(data).into_owned();
        match self.state {
            HandshakeStep::Auth => ConnectionError::Auth(text),
            HandshakeStep::Subscribe => ConnectionError::Subscribe(text),
            _ => ConnectionError::Identify(text),
        }
    }

    /// Takes nsqd's answer to the last step, and begins the next one. Returns the event [`Event::Opened`] at the end.
    fn continue_handshake(&mut self, data: &[u8]) -> Result<Option<Event>, ConnectionError> {
        match self.state {
            HandshakeStep::Identify => {
                if data.starts_with(b"{") {
                    self.negotiated =
                        serde_json::from_slice(data).map_err(ConnectionError::Negotiation)?;
                }
                self.check_upgrades()?;
                self.begin_tls()
            }
            HandshakeStep::Auth => {
                let answer = serde_json::from_slice(data).map_err(ConnectionError::AuthAnswer)?;
                self.negotiated.authorization = Some(answer);
                self.begin_subscription()
            }
            _ if data != OK => Err(unexpected(data)),
            #[cfg(feature = "tls")]
            HandshakeStep::Tls => self.begin_compression(),
            #[cfg(feature = "compression")]
            HandshakeStep::Compression => self.begin_auth(),
            HandshakeStep::Subscribe | HandshakeStep::Open => self.open(),
        }
    }

    /// Fails when nsqd refused TLS, or granted what the client did not ask for.
    fn check_upgrades(&self) -> Result<(), ConnectionError> {
        let (asked, granted) = (&self.settings, &self.negotiated);
        match () {
            () if asked.tls_v1 && !granted.tls_v1 => Err(ConnectionError::TlsRefused),
            () if granted.tls_v1 && !asked.tls_v1 => Err(ConnectionError::UpgradeUnasked("TLS")),
            () if granted.deflate && !asked.config.deflate => {
                Err(ConnectionError::UpgradeUnasked("deflate"))
            }
            () if granted.snappy && !asked.config.snappy => {
                Err(ConnectionError::UpgradeUnasked("snappy"))
            }
            () => Ok(()),
        }
    }

    #[cfg(feature = "tls")]
    fn begin_tls(&mut self) -> Result<Option<Event>, ConnectionError> {
        let Some(tls) = self.settings.tls.clone() else {
            return self.begin_compression();
        };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| ConnectionError::ServerName(self.host.clone()))?;
        self.state = HandshakeStep::Tls;
        self.upgrade(Upgrade::tls_client(&tls, name)?)?;
        Ok(None)
    }

    /// Continues without TLS: [`Protocol::check_upgrades`] lets no nsqd begin it.
    #[cfg(not(feature = "tls"))]
    fn begin_tls(&mut self) -> Result<Option<Event>, ConnectionError> {
        self.begin_compression()
    }

    #[cfg(feature = "compression")]
    fn begin_compression(&mut self) -> Result<Option<Event>, ConnectionError> {
        let upgrade = if self.negotiated.deflate {
            let level = self.negotiated.deflate_level.clamp(1, 9);
            Upgrade::deflate(u32::try_from(level).expect("1 to 9"))
        } else if self.negotiated.snappy {
            Upgrade::snappy()
        } else {
            return self.begin_auth();
        };
        self.state = HandshakeStep::Compression;
        self.upgrade(upgrade)?;
        Ok(None)
    }

    /// Continues without compression: [`Protocol::check_upgrades`] lets no nsqd begin it.
    #[cfg(not(feature = "compression"))]
    fn begin_compression(&mut self) -> Result<Option<Event>, ConnectionError> {
        self.begin_auth()
    }

    fn begin_auth(&mut self) -> Result<Option<Event>, ConnectionError> {
        if !self.negotiated.auth_required {
            return self.begin_subscription();
        }
        if self.settings.config.auth_secret.is_empty() {
            return Err(ConnectionError::AuthRequired);
        }
        self.state = HandshakeStep::Auth;
        encode::auth(
            &mut self.output,
            self.settings.config.auth_secret.as_bytes(),
        );
        Ok(None)
    }

    fn begin_subscription(&mut self) -> Result<Option<Event>, ConnectionError> {
        let settings = Arc::clone(&self.settings);
        let Some(names) = &settings.subscription else {
            return self.open();
        };
        let topic = TopicName::new(names.topic.as_bytes()).expect("the name was checked");
        let channel = ChannelName::new(names.channel.as_bytes()).expect("the name was checked");
        self.state = HandshakeStep::Subscribe;
        encode::sub(&mut self.output, topic, channel);
        Ok(None)
    }

    fn open(&mut self) -> Result<Option<Event>, ConnectionError> {
        self.state = HandshakeStep::Open;
        Ok(Some(Event::Opened))
    }

    /// Adds an upgrade. The output so far goes out as it would have before. The input behind the answer that led to
    /// this upgrade goes through it.
    #[cfg(any(feature = "compression", feature = "tls"))]
    fn upgrade(&mut self, upgrade: Upgrade) -> Result<(), ConnectionError> {
        let is_first = self.upgrades.is_none();
        let upgrades = self.upgrades.get_or_insert_default();
        upgrades.seal(&[IoSlice::new(&self.output[self.sent..])])?;
        self.output.clear();
        self.sent = 0;
        upgrades.push(upgrade);
        let rest = self.frames.take_rest();
        if is_first {
            self.sealed = rest;
            return Ok(());
        }
        let mut rest = &rest[..];
        while !rest.is_empty() {
            let plain = self.frames.space();
            let (filled, end) = (plain.len(), plain.capacity());
            plain.resize(end, 0);
            let opened = upgrades.open_last(&mut rest, &mut plain[filled..]);
            plain.truncate(filled + opened.as_ref().map_or(0, |opened| *opened));
            if opened? < end - filled {
                break;
            }
        }
        Ok(())
    }
}

fn unexpected(data: &[u8]) -> ConnectionError {
    ConnectionError::Unexpected(String::from_utf8_lossy(data).into_owned())
}

#[cfg(test)]
#[cfg(all(feature = "compression", feature = "tls"))]
mod tests;
