//! The input of a connection: decodes bytes to commands, and carries the commands out. publish.rs has the publishes.

use super::{Broker, BrokerOptions, Flow, shard_of};
use crate::auth::{Auth, AuthQuery, AuthReason, Grants, TlsSession, ip_of};
use crate::channel::{Channel, Requeue};
use crate::client::output::Verb;
use crate::client::{ANSWER_BYTES_MAX, Blocked, Client, Ending};
use crate::ids::{ChannelId, ClientId, TopicKey};
use crate::output::{Change, Level, Output, Refusal};
use crate::topic::Waiter;
use crate::topic::restore::deferral_ms;
use crate::window::NotYours;
use diskq_log::{Log, Now, plant};
use engine_dedup::Publication;
use std::time::Duration;
use wire::command::Command;
use wire::decode::{ClientState, Context, Decoded, FIN_BYTES, MAGIC_V2, fin};
use wire::error::{ErrorCode, WireError};
use wire::id::{MessageId, Seq};
use wire::identify::{IdentifyRequest, Response, negotiate};
use wire::limits::{LINE_BYTES_MAX, Limits};
use wire::name::{ChannelName, TopicName};
use wire::origin::{Number, Origin};

/// Returns the most bytes that one command may take. The declared size of an MPUB is no bound, because nsqd and the
/// decoder ignore it. Without this bound, a peer could make the broker keep `mpub_count_max` messages of
/// `message_bytes_max` bytes. All other commands are smaller by themselves.
fn command_bytes_max(limits: &Limits) -> usize {
    let body_bytes = limits.body_bytes_max.max(limits.message_bytes_max);
    usize::try_from(body_bytes).unwrap_or(0) + LINE_BYTES_MAX + COMMAND_SIZES_BYTES
}

/// Returns the facts about a connection that the decoder needs.
#[inline]
fn context<'a>(client: &Client, options: &'a BrokerOptions) -> Context<'a> {
    Context {
        state: client.session.state,
        heartbeats: client.session.settings.heartbeat.is_some(),
        tls_missing: options.server.tls_required && client.session.tls.is_none(),
        req_uncounted: client.session.settings.req_uncounted,
        has_numbers: client.session.settings.publisher_id.is_some(),
        limits: &options.limits,
    }
}

/// [`Broker::receive`] stops after this many commands: 100 to 300 us of work, for which all other
/// connections of the shard wait. One read of publishes with bodies of 60 bytes has fewer commands. Runs of FINs that
/// succeed are not counted: a read of 128 KiB has 6,241 FINs at most.
const COMMANDS_MAX: usize = 2048;

/// [`Broker::receive`] stops after this many outputs. The log line of a refused command takes as long
/// as 64 commands.
const OUTPUTS_MAX: usize = 32;

/// An IDENTIFY counts as this many commands in addition to itself, and an MPUB as one more for each message.
const IDENTIFY_COMMANDS: usize = 256;

/// The room in [`command_bytes_max`] for size and count fields. A command has four of them at most (16 bytes).
const COMMAND_SIZES_BYTES: usize = 64;

/// The result for the command at the start of the input.
#[derive(Clone, Copy)]
pub(super) enum Next {
    /// The command was carried out, and has this many bytes.
    Carried(usize),
    /// The command was refused before it was carried out.
    Refused,
    /// There is no command yet, or none that the broker looks at, or the command is offered again later.
    Later,
}

impl Broker {
    /// Carries out the commands at the start of `input`. Returns how many bytes were consumed. The caller offers the
    /// rest again when more input has come, or after [`Output::Resume`]. If [`Broker::has_more`] is true, the caller
    /// offers the rest again after the other connections have had their turn.
    pub fn receive(
        &mut self,
        now: Now,
        id: ClientId,
        input: &[u8],
        out: &mut Vec<Output>,
    ) -> usize {
        self.call(now, out, |broker| {
            broker.block_if_answers_pile_up(id);
            let outputs_max = broker.out.len() + OUTPUTS_MAX;
            let mut commands = 0;
            let mut consumed = 0;
            while commands < COMMANDS_MAX
                && broker.out.len() < outputs_max
                && let Some(client) = broker.clients.get_mut(id)
            {
                let rest = &input[consumed..];
                if !client.takes_input(rest.len()) {
                    break;
                }
                if !client.session.magic_seen {
                    broker.read_magic(id, [rest[0], rest[1], rest[2], rest[3]]);
                    consumed += MAGIC_V2.len();
                    continue;
                }
                if client.consumer.subscription.is_some() && !broker.is_tracing {
                    let finished = broker.finish_run(id, rest);
                    if finished > 0 {
                        consumed += finished;
                        continue;
                    }
                }
                let line_at = broker.out.len();
                let next = broker.receive_one(id, rest, &mut commands);
                if broker.is_tracing {
                    broker.trace(id, rest, next, line_at);
                }
                match next {
                    Next::Carried(bytes) => consumed += bytes,
                    Next::Refused | Next::Later => break,
                }
            }
            consumed
        })
    }

    /// Decodes the command at the start of `input`, and carries the command out. Counts in `commands` what it takes.
    #[inline]
    fn receive_one(&mut self, id: ClientId, input: &[u8], commands: &mut usize) -> Next {
        let client = &mut self.clients[id];
        let context = context(client, &self.options);
        match client.session.decoder.decode(input, &context) {
            Decoded::NeedMore(needs) => {
                let is_too_big = needs > command_bytes_max(&self.options.limits);
                if !is_too_big && !self.options.server.auth_required {
                    return Next::Later;
                }
                // The permission for an MPUB is checked before its messages have arrived, as in nsqd.
                let unfinished = client.session.decoder.unfinished(input, &context);
                if is_too_big {
                    // The command will be refused, perhaps after a question to the auth server. So no more of its
                    // input is needed.
                    client.session.decoder.reset();
                }
                let topic = unfinished.and_then(|(_, topic)| topic);
                if self.may_publish_many(id, topic) && is_too_big {
                    self.refuse_large_mpub(id, topic, needs);
                }
                Next::Later
            }
            Decoded::Close => {
                let reason = "failed to read command - bufio: buffer full";
                client.set_end_reason(reason.to_owned());
                self.end_after_output(id);
                Next::Later
            }
            Decoded::Reject {
                error,
                creates_topic,
            } => {
                if self.may_publish_many(id, creates_topic) {
                    if let Some(topic) = creates_topic {
                        self.create_topic_at_owner(topic);
                    }
                    self.fail(id, error);
                }
                Next::Refused
            }
            // An MPUB that is too large and arrives as a whole is refused like one that arrives in parts.
            Decoded::Command {
                command: Command::Mpub { topic, .. },
                consumed,
            } if consumed > command_bytes_max(&self.options.limits) => {
                if self.may_publish_many(id, Some(topic)) {
                    self.refuse_large_mpub(id, Some(topic), consumed);
                }
                Next::Later
            }
            Decoded::Command { command, consumed } => {
                client.heard(self.now.mono);
                *commands += 1;
                match self.command(id, command, commands) {
                    Flow::Next => Next::Carried(consumed),
                    Flow::Retry => Next::Later,
                }
            }
        }
    }

    /// Stops reading a client that has too many bytes of unsent answers. One check per read is enough, because one read
    /// brings a bounded number of bytes.
    fn block_if_answers_pile_up(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && !client.is_stopped()
            && client.output.answer_bytes() >= ANSWER_BYTES_MAX
        {
            client.block(Blocked::Output);
        }
    }

    /// Ends the input of a connection: the stream has ended, or the peer was silent for too long. `rest` is the input
    /// that was not consumed. The output that the client is owed is still written, then the connection ends.
    pub fn finish_input(&mut self, id: ClientId, rest: &[u8], out: &mut Vec<Output>) {
        self.collect(out, |broker| {
            let Some(client) = broker.clients.get_mut(id) else {
                return;
            };
            if client.ending() != Ending::No {
                return;
            }
            let is_asked = matches!(client.blocked(), Some(Blocked::Authorizing(_)));
            let context = context(client, &broker.options);
            let error = if client.session.magic_seen {
                client.session.decoder.finish(rest, &context)
            } else {
                let line = "failed to read protocol version - EOF".to_owned();
                broker.out.push(Output::error(line));
                None
            };
            match error {
                Some((error, None)) => broker.fail(id, error),
                // The auth server has not said yet whether the client may create the topic.
                Some((error, Some(_))) if is_asked => broker.fail(id, error),
                Some((error, Some(topic))) => {
                    let refusal = broker.refusal_of(id, Verb::Mpub, (topic, None));
                    if refusal.is_none() {
                        broker.create_topic_at_owner(topic);
                    }
                    broker.fail(id, refusal.unwrap_or(error));
                }
                None => broker.end_after_output(id),
            }
        })
    }

    /// Closes a connection once its output has left. Adds no error frame to the output.
    pub(super) fn end_after_output(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        client.end_after_output();
        if client.is_over() {
            self.out.push(Output::Close(id));
        } else {
            self.flush_later(id);
        }
    }

    /// Takes the magic. The client's heartbeats, and the time for its first command, begin here.
    fn read_magic(&mut self, id: ClientId, magic: [u8; 4]) {
        let client = &mut self.clients[id];
        let address = &client.address;
        let shown = String::from_utf8_lossy(&magic);
        let line = format!("CLIENT({address}): desired protocol magic '{shown}'");
        self.out.push(Output::info(line));
        if magic == MAGIC_V2 {
            client.session.magic_seen = true;
            client.heard(self.now.mono);
            self.arm_heartbeat(id);
        } else {
            let line = format!("client({address}) bad protocol magic '{shown}'");
            self.out.push(Output::error(line));
            client.reply_error(WireError::bad_protocol());
            self.flush_later(id);
        }
    }

    /// Carries out a command, and counts in `commands` what it takes beyond a small one.
    fn command(&mut self, id: ClientId, command: Command<'_>, commands: &mut usize) -> Flow {
        match command {
            Command::Pub {
                topic,
                body,
                number,
            } => {
                let origin = self.origin(id, number);
                let publication = Publication::one(body, 0, origin);
                return self.publish(id, Verb::Pub, topic, &publication);
            }
            Command::Mpub {
                topic,
                batch,
                number,
            } => {
                *commands += batch.count() as usize;
                let publication = Publication {
                    bodies: batch.iter(),
                    count: batch.count(),
                    body_bytes: batch.body_bytes(),
                    defer_ms: 0,
                    origin: self.origin(id, number),
                };
                return self.publish(id, Verb::Mpub, topic, &publication);
            }
            Command::Dpub {
                topic,
                defer,
                body,
                number,
            } => {
                let ms = if defer.is_zero() {
                    0
                } else {
                    deferral_ms(defer)
                };
                let publication = Publication::one(body, ms, self.origin(id, number));
                return self.publish(id, Verb::Dpub, topic, &publication);
            }
            Command::Sub { topic, channel } => {
                return self.subscribe(id, topic, channel);
            }
            Command::Fin { id: message } => self.finish(id, message),
            Command::Rdy { count } => self.ready(id, count),
            Command::Req {
                id: message,
                timeout,
                clamped_from_ns,
                is_counted,
            } => {
                if let Some(asked_ns) = clamped_from_ns {
                    self.log_clamped(id, asked_ns);
                }
                let how = Requeue {
                    timeout,
                    is_counted,
                };
                self.requeue(id, message, how);
            }
            Command::Touch { id: message } => self.touch(id, message),
            Command::Nop => {}
            Command::Cls => self.close_wait(id),
            Command::RdyIgnored => self.log_ignored(id),
            Command::Identify { body } => {
                *commands += IDENTIFY_COMMANDS;
                self.identify(id, body);
            }
            Command::Auth { secret } => self.authenticate(id, secret),
        }
        Flow::Next
    }

    /// Returns the origin of the first message of a publish. `number` is the number in the command.
    #[inline]
    fn origin(&self, id: ClientId, number: Option<Number>) -> Option<Origin> {
        let number = number?.get();
        let publisher = self.clients[id].session.settings.publisher_id?;
        Some(Origin { publisher, number })
    }

    fn log_ignored(&mut self, id: ClientId) {
        let address = &self.clients[id].address;
        let line = format!(
            "PROTOCOL(V2): [{address}] ignoring RDY after CLS in state ClientStateV2Closing"
        );
        self.out.push(Output::info(line));
    }

    fn log_clamped(&mut self, id: ClientId, asked_ns: i64) {
        let max = self.options.limits.req_timeout_max.as_nanos();
        let address = &self.clients[id].address;
        let set = if asked_ns < 0 { 0 } else { max };
        self.out.push(Output::info(format!(
            "PROTOCOL(V2): [{address}] REQ timeout {asked_ns} out of range 0-{max}. Setting to {set}"
        )));
    }

    fn identify(&mut self, id: ClientId, body: &[u8]) {
        let client = &mut self.clients[id];
        let result = IdentifyRequest::decode(body).and_then(|mut request| {
            if self.is_tracing {
                let line = format!("PROTOCOL(V2): [{}] {request}", client.address);
                self.out.push(Output::Log(Level::Debug, line));
            }
            let line = format!("[{}] IDENTIFY: {request}", client.address);
            self.out.push(Output::info(line));
            if client.session.is_upgraded() {
                // Upgrades come once; an IDENTIFY that is sent again gets none.
                (request.tls_v1, request.snappy, request.deflate) = (false, false, false);
            }
            let response = negotiate(&request, &self.options.server, &mut client.session.settings)?;
            Ok((request, response))
        });
        let (request, response) = match result {
            Ok(done) => done,
            Err(error) => return self.fail(id, error),
        };
        let upgrades = match response {
            Response::Ok => {
                client.reply(wire::encode::OK);
                Vec::new()
            }
            Response::Json(json, upgrades) => {
                client.reply_text(&json);
                upgrades
            }
        };
        if client.session.identify(request, upgrades) {
            client.consumer.settings = client.session.settings.clone();
            if let Some(topology) = &self.options.topology {
                client.consumer.locality = topology.locality(
                    &client.session.topology_zone,
                    &client.session.topology_region,
                );
            }
            self.arm_heartbeat(id);
        }
        self.start_upgrades(id);
        self.arm_deadline(id);
        self.flush_later(id);
    }

    /// Refuses an MPUB that has at least `bytes` bytes; see [`command_bytes_max`]. As in nsqd, the topic is created
    /// although the messages are refused.
    fn refuse_large_mpub(&mut self, id: ClientId, topic: Option<TopicName<'_>>, bytes: usize) {
        if let Some(topic) = topic {
            self.create_topic_at_owner(topic);
        }
        let max = self.options.limits.body_bytes_max;
        let text = format_args!("MPUB body too big {bytes} > {max}");
        self.fail(id, WireError::new(ErrorCode::BadBody, text));
    }
}

/// AUTH, and the rights that SUB and publishes need if an auth server is configured.
///
/// ```text
///   AUTH ─────────────► Output::Authorize ──► the shell asks ──► handle_grants: the answer to AUTH
///   SUB, PUB, ... ────► grants, not expired: allowed or not
///        expired └────► Output::Authorize ──► the shell asks ──► handle_grants: the command again
/// ```
///
/// Until the answer comes, the commands of this client wait. The commands of other clients do not.
impl Broker {
    /// AUTH.
    pub(super) fn authenticate(&mut self, id: ClientId, secret: &[u8]) {
        let session = &mut self.clients[id].session;
        if session.has_grants() {
            self.fail(id, WireError::auth_already_set());
        } else if !self.options.server.auth_required {
            self.fail(id, WireError::auth_disabled());
        } else {
            session.auth = Some(Box::new(Auth::new(secret)));
            self.ask_for_grants(id, AuthReason::Command);
        }
    }

    fn ask_for_grants(&mut self, id: ClientId, reason: AuthReason) {
        let client = &mut self.clients[id];
        let Some(auth) = &client.session.auth else {
            return;
        };
        let query = AuthQuery {
            secret: auth.secret.clone(),
            is_renewal: reason == AuthReason::Expired,
            remote_ip: ip_of(&client.address).to_owned(),
            tls: client.session.tls.clone(),
        };
        client.block(Blocked::Authorizing(reason));
        self.out.push(Output::Authorize(id, query));
    }

    /// Takes the answer to [`Output::Authorize`]. An error is the reason why there is no answer, for the log. Does
    /// nothing for a client that is gone.
    pub fn handle_grants(
        &mut self,
        now: Now,
        id: ClientId,
        answer: Result<Grants, String>,
        out: &mut Vec<Output>,
    ) {
        self.call(now, out, |broker| {
            let Some(client) = broker.clients.get_mut(id) else {
                return;
            };
            let Some(Blocked::Authorizing(reason)) = client.blocked() else {
                return;
            };
            client.unblock(Blocked::Authorizing(reason));
            if client.ending() != Ending::No {
                // An earlier publish has failed meanwhile, and that error ends the connection.
                return;
            }
            let Some(auth) = &mut client.session.auth else {
                return;
            };
            match answer {
                Err(why) => {
                    let address = client.address.as_str();
                    let error = WireError::auth_failed();
                    let warning = format!("PROTOCOL(V2): [{address}] AUTH failed {why}");
                    let line = format!("[{address}] - {} - {why}", error.text);
                    broker.out.push(Output::Log(Level::Warning, warning));
                    broker.out.push(Output::error(line));
                    client.reply_error(error);
                }
                Ok(grants) => {
                    auth.grant(now.mono, grants);
                    // The command that waits may be an unfinished MPUB, which needs more input only if it is permitted.
                    client.session.decoder.look_again();
                    if reason == AuthReason::Command {
                        if !auth.has_grants() {
                            return broker.fail(id, WireError::no_authorizations());
                        }
                        let json = auth.json();
                        client.reply_text(&json);
                    }
                    broker.out.push(Output::Resume(id));
                }
            }
            broker.flush_later(id);
        })
    }

    /// Checks that a client may publish to a topic, or subscribe to a channel. In a drain nobody may publish.
    ///
    /// # Errors
    /// The client may not, and has got the error. Or the auth server is being asked, and the command is offered again
    /// when the answer has come.
    #[inline]
    pub(super) fn permit(
        &mut self,
        id: ClientId,
        verb: Verb,
        names: (TopicName<'_>, Option<ChannelName<'_>>),
    ) -> Result<(), Flow> {
        if self.checks_permits {
            self.check_permit(id, verb, names)?;
        }
        Ok(())
    }

    /// Does what [`Broker::permit`] says, when permits are needed at all. Not inlined: nearly always they are not.
    #[inline(never)]
    fn check_permit(
        &mut self,
        id: ClientId,
        verb: Verb,
        (topic, channel): (TopicName<'_>, Option<ChannelName<'_>>),
    ) -> Result<(), Flow> {
        let auth = self.clients[id].session.auth.as_ref();
        let is_expired = auth.is_some_and(|auth| auth.expires_at < self.now.mono);
        if is_expired && self.options.server.auth_required && !self.is_closed_to(verb) {
            self.ask_for_grants(id, AuthReason::Expired);
            return Err(Flow::Retry);
        }
        match self.refusal_of(id, verb, (topic, channel)) {
            None => Ok(()),
            Some(error) => {
                self.fail(id, error);
                Err(Flow::Next)
            }
        }
    }

    /// Returns whether a drain refuses the command.
    fn is_closed_to(&self, verb: Verb) -> bool {
        plant!(DrainTakesPublishes, return false);
        self.is_draining && verb != Verb::Sub
    }

    /// Returns the error of a command that the client may not carry out by its last grants, whether or not they have
    /// expired.
    pub(super) fn refusal_of(
        &self,
        id: ClientId,
        verb: Verb,
        (topic, channel): (TopicName<'_>, Option<ChannelName<'_>>),
    ) -> Option<WireError> {
        if self.is_closed_to(verb) {
            return Some(verb.failed(&Refusal::Draining.to_string()));
        }
        if !self.options.server.auth_required {
            return None;
        }
        let topic = topic.as_str();
        let channel = channel.map_or("", |channel| channel.as_str());
        match &self.clients[id].session.auth {
            None => Some(WireError::auth_first(verb.name())),
            Some(auth) if auth.allows(topic, channel) => None,
            Some(_) => Some(WireError::unauthorized(verb.name(), topic, channel)),
        }
    }

    /// Returns whether the client may publish to the topic of an MPUB that is unfinished or will be refused. nsqd
    /// checks the permission before it looks at the messages.
    pub(super) fn may_publish_many(&mut self, id: ClientId, topic: Option<TopicName<'_>>) -> bool {
        topic.is_none_or(|topic| self.permit(id, Verb::Mpub, (topic, None)).is_ok())
    }
}

/// The longest time that the peer may take for its part of an upgrade.
const UPGRADE_TIME_MAX: Duration = Duration::from_secs(5);

/// The upgrades that an IDENTIFY was granted: one upgrade after the other, and an OK through each.
///
/// ```text
///   JSON in the clear ──► Output::Upgrade(TLS) ──► upgraded: OK ──► Output::Upgrade(snappy) ──► ...
/// ```
///
/// Nothing else is said meanwhile, and no command is read: a client takes the next frame for the OK.
impl Broker {
    /// Begins the granted upgrades as soon as all earlier commands are answered.
    pub(super) fn start_upgrades(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        if client.session.next_upgrade().is_none() {
            return;
        }
        client.block(Blocked::Upgrading);
        plant!(UpgradeBeforeAnswers, return self.next_upgrade(id));
        if client.output.all_answered() {
            self.next_upgrade(id);
        }
    }

    /// Asks for the next upgrade; behind the last one, commands are read again.
    pub(super) fn next_upgrade(&mut self, id: ClientId) {
        let client = &self.clients[id];
        match client.session.next_upgrade() {
            Some(upgrade) => {
                let address = &client.address;
                let line = format!("PROTOCOL(V2): [{address}] upgrading connection to {upgrade}");
                self.out.push(Output::info(line));
                self.out.push(Output::Upgrade(id, upgrade));
            }
            None => self.resume(id, Blocked::Upgrading),
        }
    }

    /// Starts the deadline of the peer's part of the upgrade that was asked for.
    pub fn upgrade_begins(&mut self, now: Now, id: ClientId) {
        self.set_deadline(id, Some(now.mono + UPGRADE_TIME_MAX));
    }

    /// The upgrade that was asked for is there, and everything from now on passes it: first an OK. TLS
    /// comes with what it agreed on.
    ///
    /// # Panics
    /// If none was asked for.
    pub fn upgraded(
        &mut self,
        now: Now,
        id: ClientId,
        session: Option<TlsSession>,
        out: &mut Vec<Output>,
    ) {
        self.call(now, out, |broker| {
            let Some(client) = broker.clients.get_mut(id) else {
                return;
            };
            client.session.upgraded(session);
            client.heard(now.mono);
            client.reply(wire::encode::OK);
            broker.next_upgrade(id);
            broker.arm_deadline(id);
            broker.flush_later(id);
        })
    }

    /// The upgrade that was asked for cannot be had. The peer is told, in the encoding that the shell has
    /// gone back to, and the connection ends.
    pub fn upgrade_failed(&mut self, id: ClientId, cause: &str, out: &mut Vec<Output>) {
        self.collect(out, |broker| {
            if let Some(client) = broker.clients.get_mut(id) {
                client.session.drop_upgrades();
                client.unblock(Blocked::Upgrading);
                broker.fail(id, WireError::identify_failed(cause));
            }
        })
    }
}

/// The log lines of every command, which operators switch on to find a client's mistake.
impl Broker {
    /// Switches a log line for every command on or off.
    pub fn set_tracing(&mut self, is_tracing: bool) {
        self.is_tracing = is_tracing;
    }

    /// Logs the command at the start of `input`, and the state of a consumer after the command. The line of the command
    /// goes in front of the outputs from `line_at` on, which the command has caused. A command that is offered again
    /// later is logged then.
    #[cold]
    pub(super) fn trace(&mut self, id: ClientId, input: &[u8], next: Next, line_at: usize) {
        if matches!(next, Next::Later) {
            return;
        }
        let client = &self.clients[id];
        let address = &client.address;
        let mut lines = input.split(|&byte| byte == b'\n');
        let line = lines.next().unwrap_or_default();
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        let line = format!("PROTOCOL(V2): [{address}] [{line}]");
        self.out.insert(line_at, Output::Log(Level::Debug, line));
        if matches!(next, Next::Carried(_)) && client.consumer.subscription.is_some() {
            let (ready, in_flight) = (client.consumer.ready_count, client.consumer.in_flight);
            let line = format!("[{address}] state rdy: {ready:4} inflt: {in_flight:4}");
            self.out.push(Output::Log(Level::Debug, line));
        }
    }
}

/// SUB, RDY, FIN, REQ, TOUCH, CLS.
impl Broker {
    pub(super) fn subscribe(
        &mut self,
        id: ClientId,
        topic_name: TopicName<'_>,
        channel_name: ChannelName<'_>,
    ) -> Flow {
        let names = (topic_name, Some(channel_name));
        if let Err(flow) = self.permit(id, Verb::Sub, names) {
            return flow;
        }
        let shard = shard_of(topic_name.as_bytes(), self.options.shards);
        if shard != self.options.shard {
            // Consumers live where their topic lives; there this SUB is read again.
            self.start_move(id, shard);
            return Flow::Retry;
        }
        let topic_key = match self.topic_for(id, Verb::Sub, topic_name) {
            Ok(key) => key,
            Err(flow) => return flow,
        };
        let Some(channel_id) = self.channel_id(topic_key, channel_name) else {
            return self.wait_for_topic(id, topic_key);
        };
        let limit = self.options.channel_consumers_max;
        let topic = &mut self.topics[topic_key];
        let channel = &mut topic.channels[channel_id];
        if limit > 0 && channel.consumers.all.len() as u64 >= limit {
            let (topic, channel) = (topic_name.as_str(), channel_name.as_str());
            let cause = format!("consumers for {topic}:{channel} exceeds limit of {limit}");
            self.fail(id, WireError::sub_failed(&cause));
            return Flow::Next;
        }
        channel.consumers.add(id);
        let unrecorded = topic.unrecorded(channel_id);
        plant!(ChannelBeforeCheckpoint, let unrecorded = None);
        let client = &mut self.clients[id];
        client.session.state = ClientState::Subscribed;
        client.consumer.subscription = Some((topic_key, channel_id));
        match unrecorded {
            // A channel exists once it would survive a crash: messages acknowledged after this
            // answer are owed to it.
            Some(number) => {
                let token = client.reply_later(Verb::Sub);
                topic
                    .waits
                    .add_for_checkpoint(number, Waiter::Client(id, token));
            }
            None => client.reply(wire::encode::OK),
        }
        if !client.output.all_answered() {
            client.block(Blocked::Subscribing);
        }
        self.pump_later(topic_key);
        self.flush_later(id);
        Flow::Next
    }

    /// Finds or makes a channel, and has a new channel recorded unless topic or channel are ephemeral. All new channels
    /// come from here, except those that a start restores ([`Topic::create_channel`](crate::topic::Topic::create_channel)).
    ///
    /// Returns `None` if the caller has to try again later: the topic has to catch up first, because the messages that
    /// were published so far belong to the present channels.
    pub(super) fn channel_id(
        &mut self,
        topic_key: TopicKey,
        name: ChannelName<'_>,
    ) -> Option<ChannelId> {
        let topic = &mut self.topics[topic_key];
        if let Some(channel) = topic.channels.find(name.as_str()) {
            return Some(channel);
        }
        if !topic.catch_up(self.now, &self.clients, &mut self.work) {
            return None;
        }
        topic.end_grace_in_time(self.now);
        let id = topic.create_channel(name);
        let (topic_name, name_text) = (&topic.name, name.as_str());
        let line = format!("TOPIC({topic_name}): new channel({name_text})");
        self.out.push(Output::info(line));
        if !topic.is_withdrawn {
            let change = Change::channel(topic_name, name_text, true);
            self.out.push(Output::Changed(change));
        }
        if !name.is_ephemeral() && !topic.ephemeral {
            topic.request_record_of(id);
            self.out.push(Output::MetadataChanged);
        }
        self.pump_later(topic_key);
        Some(id)
    }

    pub(super) fn ready(&mut self, id: ClientId, count: u32) {
        self.clients[id].consumer.ready_count = count;
        self.make_ready(id);
    }

    pub(super) fn finish(&mut self, id: ClientId, message: MessageId) {
        let now = self.now;
        let finish = |channel: &mut Channel, log: &mut Log, seq| channel.finish(now, seq, id, log);
        if self.act_on(id, &message, WireError::fin_failed, finish) {
            self.count_answers(id, 1, |client| &mut client.consumer.counters.finish_count);
        }
    }

    /// Carries out the FINs at the front of `input`, as long as each one has the usual spelling and names a message
    /// that this client has in flight. Returns the number of bytes of these FINs. The decoder reads the input behind
    /// them.
    ///
    /// One call for all FINs takes a quarter of the time of one call for each.
    pub(super) fn finish_run(&mut self, id: ClientId, input: &[u8]) -> usize {
        let Some((topic, channel)) = self.clients[id].consumer.subscription else {
            return 0;
        };
        let (channel, log) = self.topics[topic].channel_and_log(channel);
        let ours = self.options.topic.log.node;
        let (lines, _) = input.as_chunks();
        let seqs = lines.iter().map_while(|line| match fin(line) {
            Some((seq, node)) if node == ours => Some(seq),
            _ => None,
        });
        let finished = channel.finish_run(self.now, seqs, id, log);
        if finished > 0 {
            let client = &mut self.clients[id];
            // The first FIN may be the command that the decoder had an unfinished part of.
            client.session.decoder.reset();
            client.heard(self.now.mono);
            self.count_answers(id, finished, |client| {
                &mut client.consumer.counters.finish_count
            });
        }
        finished as usize * FIN_BYTES
    }

    pub(super) fn requeue(&mut self, id: ClientId, message: MessageId, how: Requeue) {
        let now = self.now.mono;
        let requeue = |channel: &mut Channel, _: &mut Log, seq| channel.requeue(seq, id, now, how);
        if self.act_on(id, &message, WireError::req_failed, requeue) {
            self.count_answers(id, 1, |client| &mut client.consumer.counters.requeue_count);
        }
    }

    pub(super) fn touch(&mut self, id: ClientId, message: MessageId) {
        let timeout = self.clients[id].session.settings.msg_timeout;
        let timeout_max = self.options.server.msg_timeout_max;
        let now = self.now.mono;
        let touch = |channel: &mut Channel, _: &mut Log, seq| {
            channel.touch(seq, id, now, timeout, timeout_max)
        };
        if self.act_on(id, &message, WireError::touch_failed, touch) {
            // A shorter timeout than before may have become the earliest one.
            self.follow_up(id);
        }
    }

    /// Lets `act` change the message that a client names. Answers with `error` if the client does not have the message
    /// in flight. Returns whether `act` has changed it.
    fn act_on(
        &mut self,
        id: ClientId,
        message: &MessageId,
        error: fn(&MessageId, &str) -> WireError,
        act: impl FnOnce(&mut Channel, &mut Log, Seq) -> Result<(), NotYours>,
    ) -> bool {
        let client = &mut self.clients[id];
        // An id that this node never gave out is not in flight.
        let ours = |(seq, node)| (node == self.options.topic.log.node).then_some(seq);
        let done = match (
            client.consumer.subscription,
            message.decode().and_then(ours),
        ) {
            (Some((topic, channel)), Some(seq)) => {
                let (channel, log) = self.topics[topic].channel_and_log(channel);
                act(channel, log, seq)
            }
            _ => Err(NotYours::NotInFlight),
        };
        let Err(reason) = done else {
            return true;
        };
        let (error, cause) = (error(message, reason.cause()), reason.cause());
        let line = format!("[{}] - {} - {cause}", client.address, error.text);
        self.out.push(Output::error(line));
        client.reply_error(error);
        self.flush_later(id);
        false
    }

    /// Counts messages that a client has answered for, in `counter`, and has the client refilled.
    fn count_answers(&mut self, id: ClientId, count: u32, counter: fn(&mut Client) -> &mut u64) {
        let client = &mut self.clients[id];
        client.consumer.in_flight -= count;
        client.consumer.coalescing.count(count);
        *counter(client) += u64::from(count);
        if let Some((topic, channel)) = client.consumer.subscription {
            let channel = &mut self.topics[topic].channels[channel];
            channel.consumers.refill(id, client, self.now.mono);
        }
        self.follow_up(id);
    }

    /// Does what follows when a consumer has finished, requeued or touched a message.
    fn follow_up(&mut self, id: ClientId) {
        if let Some((topic, channel)) = self.clients[id].consumer.subscription {
            self.topics[topic].after_answer(channel);
            self.pump_later(topic);
        }
    }

    pub(super) fn close_wait(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        client.consumer.ready_count = 0;
        client.session.state = ClientState::Closing;
        client.reply(wire::encode::CLOSE_WAIT);
        self.flush_later(id);
    }

    /// Puts a client on its channel's ready list if it may take messages.
    pub(super) fn make_ready(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        let Some((topic_key, channel_id)) = client.consumer.subscription else {
            return;
        };
        let topic = &mut self.topics[topic_key];
        topic.channels[channel_id].consumers.make_ready(id, client);
        topic.channels.pump_later(channel_id);
        if topic.wants_pump() {
            self.pump_later(topic_key);
        }
    }
}
