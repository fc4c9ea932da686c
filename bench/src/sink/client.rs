//! [`Client`]: one connection to the sink.

use std::sync::Arc;

use upgrade::{ServerConfig, Upgrade};
use wire::command::Command;
use wire::decode::{ClientState, Context, Decoded, Decoder, MAGIC_V2};
use wire::encode;
use wire::error::{ErrorCode, WireError};
use wire::id::MessageId;
use wire::identify::IdentifyRequest;
use wire::limits::Limits;

use super::channel::{RDY_MAX, Store, limits};
use super::http;
use crate::generator::link::{Link, OUTPUT_BYTES_MAX};

/// The sink encodes messages while less than this is unsent. The amount is large, because a consumer that
/// reads in large pieces finishes in large pieces.
const DELIVERY_BYTES_MAX: usize = OUTPUT_BYTES_MAX;
/// The deflate level of a client that names none, and the highest level.
const DEFLATE_LEVEL: (i64, i64) = (6, 9);

/// The configuration to grant TLS with, if there is one.
type Tls<'a> = Option<&'a Arc<ServerConfig>>;

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    pub(super) link: Link,
    /// The protocol that the client speaks: HTTP, or V2; `None` before its first bytes.
    is_http: Option<bool>,
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
            is_http: None,
            decoder: Decoder::default(),
            limits: limits(),
            state: ClientState::Init,
            channel: None,
            ready: 0,
            in_flight: 0,
            closing: false,
            waits_to_write: false,
        }
    }

    /// Handles input; returns the bytes handled.
    pub(super) fn input(&mut self, input: &[u8], store: &mut Store, tls: Tls<'_>) -> usize {
        let mut at = 0;
        if self.is_http.is_none() {
            let Some(head) = input.first_chunk() else {
                return 0;
            };
            let is_http = *head != MAGIC_V2;
            self.is_http = Some(is_http);
            at = if is_http { 0 } else { head.len() };
        }
        if self.is_http == Some(true) {
            let (handled, close) = http::answer(input, &mut self.link.output, store);
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
            let done = match self.decoder.decode(&input[at..], &context) {
                Decoded::NeedMore(_) => break,
                Decoded::Command { command, consumed } => {
                    at += consumed;
                    self.execute(&command, store, tls)
                }
                Decoded::Reject { error, .. } => Err(error),
                Decoded::Close => {
                    self.closing = true;
                    break;
                }
            };
            match done {
                Ok(false) => {}
                // Like nsqd, the sink drops what the client sent before it knew of the upgrade.
                Ok(true) => return input.len(),
                Err(error) => {
                    encode::error(&mut self.link.output, &error);
                    self.closing = true;
                }
            }
        }
        at
    }

    /// Carries out a command; true when it upgraded the connection. An error closes the connection.
    fn execute(
        &mut self,
        command: &Command<'_>,
        store: &mut Store,
        tls: Tls<'_>,
    ) -> Result<bool, WireError> {
        let output = &mut self.link.output;
        match command {
            Command::Identify { body } => return identify(&mut self.link, body, tls),
            Command::Auth { .. } => encode::error(output, &WireError::auth_disabled()),
            Command::Sub { topic, channel } => {
                let found = store.enter(self.index, topic.as_str(), channel.as_str());
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
                let Some(channel) = self.channel else {
                    return Ok(false);
                };
                let (known, failed): (_, fn(&MessageId, &str) -> WireError) = match command {
                    Command::Fin { .. } => (store.finish(channel, id), WireError::fin_failed),
                    _ => (store.requeue(channel, id), WireError::req_failed),
                };
                if known {
                    self.in_flight = self.in_flight.saturating_sub(1);
                } else {
                    encode::error(output, &failed(id, "ID not in flight"));
                }
            }
            Command::Cls => {
                self.ready = 0;
                self.state = ClientState::Closing;
                output.extend_from_slice(encode::CLOSE_WAIT);
            }
            Command::Touch { .. } | Command::Nop | Command::RdyIgnored => {}
        }
        Ok(false)
    }

    /// Tells whether a message waits that only lacks room in the client's buffer.
    pub(super) fn has_more(&self, store: &Store) -> bool {
        let has_message = |channel| store.has_message(channel);
        self.in_flight < self.ready && self.channel.is_some_and(has_message)
    }

    /// Appends messages up to the ready count.
    pub(super) fn deliver(&mut self, store: &mut Store, now_ns: u64) {
        let Some(channel) = self.channel else { return };
        while self.in_flight < self.ready
            && self.link.unsent() < DELIVERY_BYTES_MAX
            && store.deliver(channel, self.index, now_ns, &mut self.link.output)
        {
            self.in_flight += 1;
        }
    }
}

/// Answers an IDENTIFY and upgrades the connection; true when it did.
fn identify(link: &mut Link, body: &[u8], tls: Tls<'_>) -> Result<bool, WireError> {
    let request = IdentifyRequest::decode(body)?;
    // Upgrades come once; an IDENTIFY that is sent again gets none.
    let negotiates = request.feature_negotiation && !link.is_upgraded();
    let tls = tls.filter(|_| negotiates && request.tls_v1);
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
    let level = u32::try_from(level).expect("between 1 and the highest");
    let upgrades = [
        tls.map(Upgrade::tls_server),
        snappy.then(|| Ok(Upgrade::snappy())),
        deflate.then(|| Ok(Upgrade::deflate(level))),
    ];
    for upgrade in upgrades.into_iter().flatten() {
        let upgrade = upgrade.map_err(|error| WireError::identify_failed(&error.to_string()))?;
        link.upgrade(upgrade)
            .map_err(|error| WireError::identify_failed(&error.to_string()))?;
        // TLS keeps its OK, and the output behind it, until the handshake is done.
        link.output.extend_from_slice(encode::OK);
    }
    Ok(link.is_upgraded() && negotiates)
}
