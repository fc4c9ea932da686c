//! [`Session`]: one connection of protocol V1. Bytes go in, answers and log lines come out, and
//! commands change the [`Database`].
//!
//! ```text
//!   bytes ─► Decoder ─► commands ─► Database
//!                           └─► answers, events
//! ```
//!
//! [`Session::receive`] decodes without the database, so that a lock on the database is held only
//! by [`Session::execute`].

use std::sync::Arc;

use wire::go_json::to_string;
use wire::json_object;

use crate::database::{ClientKey, Database, Now};
use crate::decoder::{Command, Decoded, Decoder, Refusal};
use crate::event::Event;
use crate::peer::Peer;

/// Registrations that one call of [`Session::leave`] removes: about 0.2 ms of work.
const REMOVED_AT_ONCE: usize = 500;

/// Returns the answer to IDENTIFY for a daemon with these properties. Only a daemon with HTTPS tells `https_port`, which
/// ringq's nsqd uses if it registers over TLS. Other clients ignore the field.
pub fn identify_answer(
    broadcast_address: &str,
    hostname: &str,
    http_port: u16,
    https_port: Option<u16>,
    tcp_port: u16,
) -> Arc<str> {
    let json = to_string(&json_object! {
        broadcast_address,
        hostname,
        http_port,
        #[serde(flatten)]
        https_port: https_port.map(|port| json_object! { https_port: port }),
        tcp_port,
        version: program::version::NSQ_VERSION,
    });
    json.into()
}

/// The results of a call, for the caller to carry out.
#[derive(Debug, Default)]
pub struct Effects {
    /// The bytes to send.
    pub output: Vec<u8>,
    /// The lines to log, in order.
    pub events: Vec<Event>,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    address: Arc<str>,
    identify_answer: Arc<str>,
    decoder: Decoder,
    decoded: Vec<Decoded>,
    client: Option<ClientKey>,
    state: State,
    is_leaving: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing more is read, and the registrations are to be removed. The text is the reason, for
    /// the log.
    Over(Option<String>),
    /// Nothing more is read, and nothing is to be done: the client never spoke the protocol, or
    /// everything is removed.
    Done,
}

impl Session {
    /// Returns the session of a connection that was just accepted. `address` is that of the client.
    pub fn new(address: Arc<str>, identify_answer: Arc<str>) -> Session {
        Session {
            address,
            identify_answer,
            decoder: Decoder::default(),
            decoded: Vec::new(),
            client: None,
            state: State::Open,
            is_leaving: false,
        }
    }

    /// Decodes bytes. Returns true if [`Session::execute`] has something to do.
    pub fn receive(&mut self, bytes: &[u8]) -> bool {
        self.decoder.push(bytes);
        while let Some(decoded) = self.decoder.decode() {
            self.decoded.push(decoded);
        }
        !self.decoded.is_empty()
    }

    /// Carries out the decoded commands.
    pub fn execute(&mut self, database: &mut Database, now: Now, effects: &mut Effects) {
        for decoded in std::mem::take(&mut self.decoded) {
            match decoded {
                Decoded::Magic => effects.events.push(Event::Magic {
                    client: self.address.clone(),
                    magic: *b"  V1",
                }),
                Decoded::BadMagic(magic) => {
                    let client = self.address.clone();
                    effects.events.push(Event::Magic {
                        client: client.clone(),
                        magic,
                    });
                    answer(b"E_BAD_PROTOCOL", &mut effects.output);
                    effects.events.push(Event::BadMagic { client, magic });
                    self.state = State::Done;
                }
                Decoded::Command(command) => self.carry_out(command, database, now, effects),
                Decoded::Error(refusal) => self.refuse(&refusal, effects),
            }
        }
    }

    fn carry_out(
        &mut self,
        command: Command,
        database: &mut Database,
        now: Now,
        effects: &mut Effects,
    ) {
        let events = &mut effects.events;
        let identify_answer = self.identify_answer.clone();
        let mut bytes = &b"OK"[..];
        match (command, self.client) {
            (Command::Ping, Some(client)) => database.ping(client, now, events),
            (Command::Identify(info), None) => {
                let peer = Arc::new(Peer::new(self.address.clone(), info));
                events.push(Event::Identified(peer.clone()));
                self.client = Some(database.join(peer, now, events));
                bytes = identify_answer.as_bytes();
            }
            (Command::Register(topic, channel), Some(client)) => {
                database.register(client, &topic, channel.as_deref(), events);
            }
            (Command::Unregister(topic, channel), Some(client)) => {
                database.unregister(client, &topic, channel.as_deref(), events);
            }
            // A PING before IDENTIFY is answered, too. The decoder refuses the other commands
            // where they must not come.
            (Command::Ping | Command::Identify(_), _) => {}
            (Command::Register(..) | Command::Unregister(..), None) => {}
        }
        answer(bytes, &mut effects.output);
    }

    fn refuse(&mut self, refusal: &Refusal, effects: &mut Effects) {
        let text = refusal.text();
        let error = match &refusal.cause {
            Some(cause) => format!("{text} - {cause}"),
            None => text.clone(),
        };
        effects.events.push(Event::Refused {
            client: self.address.clone(),
            error,
        });
        answer(&refusal.answer, &mut effects.output);
        self.state = State::Over(Some(text));
    }

    /// Returns true until the first four bytes have come.
    pub fn awaits_magic(&self) -> bool {
        self.decoder.missing_magic().is_some()
    }

    /// Returns true when the connection is to be closed, after the output was sent.
    pub fn is_over(&self) -> bool {
        self.state != State::Open
    }

    /// Ends the session, unless it is over: no more bytes will come. `cause` is the reason of a
    /// broken connection; `None` is an orderly end.
    pub fn end(&mut self, cause: Option<&str>, effects: &mut Effects) {
        if self.is_over() {
            return;
        }
        if let Some(word) = self.decoder.missing_magic() {
            let why = cause.unwrap_or(word).to_string();
            effects.events.push(Event::NoMagic { why });
            self.state = State::Done;
        } else if let Some(refusal) = self.decoder.end(cause) {
            self.refuse(&refusal, effects);
        } else {
            self.state = State::Over(Some(cause.unwrap_or("EOF").to_string()));
        }
    }

    /// Ends the session because the daemon stops. No line says why, for nothing is wrong.
    pub fn stop(&mut self) {
        if !self.is_over() {
            self.state = match self.decoder.missing_magic() {
                Some(_) => State::Done,
                None => State::Over(None),
            };
        }
    }

    /// Removes some registrations of a session that is over. Returns true after the last one.
    pub fn leave(&mut self, database: &mut Database, effects: &mut Effects) -> bool {
        if self.state == State::Done {
            return true;
        }
        let events = &mut effects.events;
        if !std::mem::replace(&mut self.is_leaving, true) {
            events.push(Event::Exiting {
                client: self.address.clone(),
            });
        }
        if let Some(client) = self.client {
            if !database.leave(client, REMOVED_AT_ONCE, events) {
                return false;
            }
            self.client = None;
        }
        if let State::Over(Some(why)) = std::mem::replace(&mut self.state, State::Done) {
            events.push(Event::Ended {
                client: self.address.clone(),
                why,
            });
        }
        true
    }
}

/// Appends an answer: its length and its bytes.
fn answer(bytes: &[u8], output: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("answers are shorter than their commands");
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
