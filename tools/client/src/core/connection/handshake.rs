//! The handshake of a [`Connection`]: each answer of nsqd leads to the next step.

#[cfg(any(feature = "compression", feature = "tls"))]
use std::io::IoSlice;
use std::sync::Arc;

#[cfg(any(feature = "compression", feature = "tls"))]
use upgrade::Upgrade;
#[cfg(feature = "tls")]
use upgrade::pki_types::ServerName;
use wire::encode;
use wire::name::{ChannelName, TopicName};

use super::{Connection, Event};
use crate::error::ConnectionError;

const OK: &[u8] = b"OK";

/// The answer that the handshake waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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

impl Connection {
    /// Returns the error of a step of the handshake that nsqd refused.
    pub(super) fn refusal(&self, data: &[u8]) -> ConnectionError {
        let text = String::from_utf8_lossy(data).into_owned();
        match self.state {
            State::Auth => ConnectionError::Auth(text),
            State::Subscribe => ConnectionError::Subscribe(text),
            _ => ConnectionError::Identify(text),
        }
    }

    /// Takes nsqd's answer to the last step, and begins the next one. Returns the event [`Event::Opened`] at the end.
    pub(super) fn continue_handshake(
        &mut self,
        data: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        match self.state {
            State::Identify => {
                if data.starts_with(b"{") {
                    self.negotiated =
                        serde_json::from_slice(data).map_err(ConnectionError::Negotiation)?;
                }
                self.check_upgrades()?;
                self.begin_tls()
            }
            State::Auth => {
                let answer = serde_json::from_slice(data).map_err(ConnectionError::AuthAnswer)?;
                self.negotiated.authorization = Some(answer);
                self.begin_subscription()
            }
            _ if data != OK => Err(unexpected(data)),
            #[cfg(feature = "tls")]
            State::Tls => self.begin_compression(),
            #[cfg(feature = "compression")]
            State::Compression => self.begin_auth(),
            State::Subscribe | State::Open => self.open(),
        }
    }

    /// Fails when nsqd refused TLS, or granted what the client did not ask for.
    fn check_upgrades(&self) -> Result<(), ConnectionError> {
        let (asked, granted) = (&self.settings, &self.negotiated);
        match () {
            () if asked.tls_v1 && !granted.tls_v1 => Err(ConnectionError::TlsRefused),
            () if granted.tls_v1 && !asked.tls_v1 => Err(ConnectionError::UpgradeUnasked("TLS")),
            () if granted.deflate && !asked.deflate => {
                Err(ConnectionError::UpgradeUnasked("deflate"))
            }
            () if granted.snappy && !asked.snappy => Err(ConnectionError::UpgradeUnasked("snappy")),
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
        self.state = State::Tls;
        self.upgrade(Upgrade::tls_client(&tls, name)?)?;
        Ok(None)
    }

    /// Continues without TLS: [`Connection::check_upgrades`] lets no nsqd begin it.
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
        self.state = State::Compression;
        self.upgrade(upgrade)?;
        Ok(None)
    }

    /// Continues without compression: [`Connection::check_upgrades`] lets no nsqd begin it.
    #[cfg(not(feature = "compression"))]
    fn begin_compression(&mut self) -> Result<Option<Event>, ConnectionError> {
        self.begin_auth()
    }

    fn begin_auth(&mut self) -> Result<Option<Event>, ConnectionError> {
        if !self.negotiated.auth_required {
            return self.begin_subscription();
        }
        if self.settings.auth_secret.is_empty() {
            return Err(ConnectionError::AuthRequired);
        }
        self.state = State::Auth;
        encode::auth(&mut self.output, self.settings.auth_secret.as_bytes());
        Ok(None)
    }

    fn begin_subscription(&mut self) -> Result<Option<Event>, ConnectionError> {
        let settings = Arc::clone(&self.settings);
        let Some(names) = &settings.subscription else {
            return self.open();
        };
        let topic = TopicName::new(names.topic.as_bytes()).expect("the name was checked");
        let channel = ChannelName::new(names.channel.as_bytes()).expect("the name was checked");
        self.state = State::Subscribe;
        encode::sub(&mut self.output, topic, channel);
        Ok(None)
    }

    fn open(&mut self) -> Result<Option<Event>, ConnectionError> {
        self.state = State::Open;
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
