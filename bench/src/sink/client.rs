//! [`Client`]: one connection to the sink.

use std::sync::Arc;

use upgrade::{ServerConfig, Upgrade};
use wire::command::Command;
use wire::decode::{ClientState, Context, Decoded, Decoder, MAGIC_V2};
use wire::encode;
use wire::error::{ErrorCode, WireError};
use wire::identify::IdentifyRequest;
use wire::limits::Limits;

use super::channel::Store;
use super::http;
use crate::link::{Link, OUTPUT_BYTES_MAX};

/// Largest ready count.
const RDY_MAX: i64 = 1_000_000;
/// The sink encodes messages while less than this is unsent. The amount is large, because a consumer that
/// reads in large pieces finishes in large pieces.
const DELIVERY_BYTES_MAX: usize = OUTPUT_BYTES_MAX;
/// The deflate level of a client that names none, and the highest level.
const DEFLATE_LEVEL: (i64, i64) = (6, 9);

/// The sink's state that a client works on.
pub(super) struct ClientContext<'a> {
    pub(super) store: &'a mut Store,
    pub(super) now_ns: u64,
    /// The configuration to grant TLS with, if there is one.
    pub(super) tls: Option<&'a Arc<ServerConfig>>,
}

/// The protocol a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Unknown,
    V2,
    Http,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    pub(super) link: Link,
    language: Language,
    decoder: Decoder,
    limits: Limits,
    state: ClientState,
    pub(super) channel: Option<usize>,
    ready: u32,
    in_flight: u32,
    /// The connection closes when everything is written.
    pub(super) closing: bool,
    pub(super) waits_to_write: bool,
}

impl Client {
    pub(super) fn new(index: usize, link: Link) -> Client {
        Client {
            index,
            link,
            language: Language::Unknown,
            decoder: Decoder::default(),
            limits: Limits {
                message_bytes_max: i32::MAX,
                body_bytes_max: i32::MAX,
                rdy_count_max: RDY_MAX,
                ..Limits::default()
            },
            state: ClientState::Init,
            channel: None,
            ready: 0,
            in_flight: 0,
            closing: false,
            waits_to_write: false,
        }
    }

    /// Handles input; returns the bytes handled.
    pub(super) fn input(&mut self, input: &[u8], shared: &mut ClientContext<'_>) -> usize {
        let mut at = 0;
        if self.language == Language::Unknown {
            let Some((head, _)) = input.split_first_chunk::<4>() else {
                return 0;
            };
            if *head == MAGIC_V2 {
                self.language = Language::V2;
                at = head.len();
            } else {
                self.language = Language::Http;
            }
        }
        if self.language == Language::Http {
            let (handled, close) = http::answer(input, &mut self.link.output, shared.store);
            self.closing |= close;
            return handled;
        }
        while !self.closing {
            let context = Context {
                state: self.state,
                heartbeats: true,
                tls_missing: false,
                req_uncounted: false,
                has_numbers: false,
                limits: &self.limits,
            };
            match self.decoder.decode(&input[at..], &context) {
                Decoded::NeedMore(_) => break,
                Decoded::Command {
                    command: Command::Identify { body },
                    consumed,
                } => {
                    at += consumed;
                    match identify(&mut self.link, body, shared) {
                        Ok(false) => {}
                        // Like nsqd, the sink drops what the client sent before it knew of the upgrade.
                        Ok(true) => return input.len(),
                        Err(error) => {
                            encode::error(&mut self.link.output, &error);
                            self.closing = true;
                        }
                    }
                }
                Decoded::Command { command, consumed } => {
                    at += consumed;
                    self.execute(&command, shared);
                }
                Decoded::Reject { error, .. } => {
                    encode::error(&mut self.link.output, &error);
                    self.closing = true;
                }
                Decoded::Close => self.closing = true,
            }
        }
        at
    }

    fn execute(&mut self, command: &Command<'_>, shared: &mut ClientContext<'_>) {
        let output = &mut self.link.output;
        let store = &mut *shared.store;
        match command {
            Command::Auth { .. } => encode::error(output, &WireError::auth_disabled()),
            Command::Sub {
                topic,
                channel: name,
            } => {
                let found = store.channel(topic.as_str(), name.as_str());
                store.enter(self.index, found);
                self.channel = Some(found);
                self.state = ClientState::Subscribed;
                output.extend_from_slice(encode::OK);
            }
            Command::Pub { topic, body, .. } | Command::Dpub { topic, body, .. } => {
                store.publish(topic.as_str(), body);
                output.extend_from_slice(encode::OK);
            }
            Command::Mpub { topic, batch, .. } => {
                for body in *batch {
                    store.publish(topic.as_str(), body);
                }
                output.extend_from_slice(encode::OK);
            }
            Command::Rdy { count } => self.ready = *count,
            Command::Fin { id } | Command::Req { id, .. } => {
                let Some(channel) = self.channel else { return };
                let is_fin = matches!(command, Command::Fin { .. });
                let known = if is_fin {
                    store.finish(channel, id)
                } else {
                    store.requeue(channel, id)
                };
                if known {
                    self.in_flight = self.in_flight.saturating_sub(1);
                } else if is_fin {
                    encode::error(output, &WireError::fin_failed(id, "ID not in flight"));
                } else {
                    encode::error(output, &WireError::req_failed(id, "ID not in flight"));
                }
            }
            Command::Cls => {
                self.ready = 0;
                self.state = ClientState::Closing;
                output.extend_from_slice(encode::CLOSE_WAIT);
            }
            // `input` has handled IDENTIFY, because IDENTIFY changes the link.
            Command::Identify { .. }
            | Command::Touch { .. }
            | Command::Nop
            | Command::RdyIgnored => {}
        }
    }

    /// Tells whether a message waits that only lacks room in the client's buffer.
    pub(super) fn has_more(&self, store: &Store) -> bool {
        self.in_flight < self.ready
            && self
                .channel
                .is_some_and(|channel| store.has_message(channel))
    }

    /// Appends messages up to the ready count.
    pub(super) fn deliver(&mut self, shared: &mut ClientContext<'_>) {
        let Some(channel) = self.channel else { return };
        while self.in_flight < self.ready && self.link.unsent() < DELIVERY_BYTES_MAX {
            let output = &mut self.link.output;
            if !shared
                .store
                .deliver(channel, self.index, shared.now_ns, output)
            {
                break;
            }
            self.in_flight += 1;
        }
    }
}

/// Answers an IDENTIFY and upgrades the connection; true when it did.
fn identify(link: &mut Link, body: &[u8], shared: &ClientContext<'_>) -> Result<bool, WireError> {
    let request = IdentifyRequest::decode(body)?;
    // Upgrades come once; an IDENTIFY that is sent again gets none.
    let negotiates = request.feature_negotiation && !link.is_upgraded();
    let tls = shared.tls.filter(|_| negotiates && request.tls_v1);
    let snappy = negotiates && request.snappy;
    let deflate = negotiates && request.deflate;
    if snappy && deflate {
        let text = "cannot enable both deflate and snappy compression";
        return Err(WireError::new(ErrorCode::IdentifyFailed, text));
    }
    let level = match request.deflate_level {
        level if deflate && level > 0 => level.min(DEFLATE_LEVEL.1),
        _ => DEFLATE_LEVEL.0,
    };
    let identity = serde_json::json!({
        "version": concat!("nsq-bench sink ", env!("CARGO_PKG_VERSION")),
        "max_rdy_count": RDY_MAX,
        "nsq_bench_sink": true,
        "tls_v1": tls.is_some(),
        "snappy": snappy,
        "deflate": deflate,
        "deflate_level": level,
        "max_deflate_level": DEFLATE_LEVEL.1,
    });
    encode::response(&mut link.output, identity.to_string().as_bytes());
    let mut upgrades = Vec::new();
    if let Some(config) = tls {
        let upgrade = Upgrade::tls_server(config);
        upgrades.push(upgrade.map_err(|error| WireError::identify_failed(&error.to_string()))?);
    }
    if snappy {
        upgrades.push(Upgrade::snappy());
    }
    if deflate {
        let level = u32::try_from(level).expect("between 1 and the highest");
        upgrades.push(Upgrade::deflate(level));
    }
    let upgraded = !upgrades.is_empty();
    for upgrade in upgrades {
        link.upgrade(upgrade)
            .map_err(|error| WireError::identify_failed(&error.to_string()))?;
        // TLS keeps its OK, and the output behind it, until the handshake is done.
        link.output.extend_from_slice(encode::OK);
    }
    Ok(upgraded)
}
