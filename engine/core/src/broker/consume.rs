//! SUB, RDY, FIN, REQ, TOUCH, CLS.

use super::authorize::Permit;
use super::output::{Change, Level, Output};
use super::{Broker, Flow, Found, place};
use crate::client::output::Verb;
use crate::client::{Blocked, Client};
use crate::ids::{ChannelId, ClientId, TopicKey};
use crate::now::Now;
use crate::topic::Waiter;
use crate::window::NotYours;
use diskq_log::{planted::Bug, planted::is_planted};
use std::time::Duration;
use wire::decode::{ClientState, FIN_BYTES, fin};
use wire::error::WireError;
use wire::id::{MessageId, Seq};
use wire::name::{ChannelName, TopicName};

impl Broker {
    pub(super) fn subscribe(
        &mut self,
        now: Now,
        id: ClientId,
        topic_name: TopicName<'_>,
        channel_name: ChannelName<'_>,
        out: &mut Vec<Output>,
    ) -> Flow {
        let names = (topic_name, Some(channel_name));
        match self.permit(now, id, Verb::Sub, names, out) {
            Permit::Granted => {}
            Permit::Refused => return Flow::Next,
            Permit::Asked => return Flow::Retry,
        }
        let shard = place(topic_name.as_bytes(), self.options.shards);
        if shard != self.options.shard {
            // Consumers live where their topic lives; there this SUB is read again.
            self.start_move(id, shard, out);
            return Flow::Retry;
        }
        let topic_key = match self.topic_key(topic_name, out) {
            Ok(Found::Ready(key)) => key,
            Ok(Found::Starting(key)) => return self.wait_for_topic(id, key),
            Err(cause) => {
                self.fail(id, WireError::sub_failed(&cause), out);
                return Flow::Next;
            }
        };
        let Some(channel_id) = self.channel_id(now, topic_key, channel_name, out) else {
            return self.wait_for_topic(id, topic_key);
        };
        let limit = self.options.channel_consumers_max;
        let Some(topic) = self.topics.get_mut(topic_key) else {
            return Flow::Next;
        };
        let Some(channel) = topic.channel_mut(channel_id) else {
            return Flow::Next;
        };
        if limit > 0 && channel.consumers.len() as u64 >= limit {
            let (topic, channel) = (topic_name.as_str(), channel_name.as_str());
            let cause = format!("consumers for {topic}:{channel} exceeds limit of {limit}");
            self.fail(id, WireError::sub_failed(&cause), out);
            return Flow::Next;
        }
        channel.subscribe(id);
        let unrecorded = topic.unrecorded(channel_id);
        let unrecorded = unrecorded.filter(|_| !is_planted(Bug::ChannelBeforeCheckpoint));
        let Some(client) = self.clients.get_mut(id) else {
            return Flow::Next;
        };
        client.session.state = ClientState::Subscribed;
        client.consumer.subscription = Some((topic_key, channel_id));
        match unrecorded {
            // A channel exists once it would survive a crash: messages acknowledged after this
            // answer are owed to it.
            Some(number) => {
                let token = client.reply_later(Verb::Sub);
                topic.wait_for_checkpoint(number, Waiter::Client(id, token));
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

    /// Finds or creates a channel, and has a new channel recorded unless topic or channel are ephemeral. Returns `None`
    /// if the topic has to catch up first: the messages that were published so far belong to the present channels.
    pub(super) fn channel_id(
        &mut self,
        now: Now,
        topic_key: TopicKey,
        name: ChannelName<'_>,
        out: &mut Vec<Output>,
    ) -> Option<ChannelId> {
        let topic = self
            .topics
            .get_mut(topic_key)
            .expect("the caller has just found it");
        if let Some(channel) = topic.find_channel(name.as_str()) {
            return Some(channel);
        }
        if !topic.catch_up(now, &self.clients, &mut self.work) {
            return None;
        }
        let id = topic.create_channel(name);
        let line = format!("TOPIC({}): new channel({})", topic.name, name.as_str());
        out.push(Output::Log(Level::Info, line));
        out.push(Output::Changed(Change::channel(
            &topic.name,
            name.as_str(),
            true,
        )));
        if !name.is_ephemeral() && !topic.ephemeral {
            topic.record_channel(id);
            out.push(Output::MetadataChanged);
        }
        self.pump_later(topic_key);
        Some(id)
    }

    pub(super) fn ready(&mut self, id: ClientId, count: u32) -> Flow {
        let Some(client) = self.clients.get_mut(id) else {
            return Flow::Next;
        };
        client.consumer.ready_count = count;
        self.make_ready(id);
        Flow::Next
    }

    pub(super) fn finish(
        &mut self,
        now: Now,
        id: ClientId,
        message: MessageId,
        out: &mut Vec<Output>,
    ) -> Flow {
        let Some((topic_key, channel_id, seq)) = self.message_of(id, &message) else {
            return self.not_yours(
                id,
                WireError::fin_failed,
                &message,
                NotYours::NotInFlight,
                out,
            );
        };
        let Some(topic) = self.topics.get_mut(topic_key) else {
            return Flow::Next;
        };
        let Some((channel, log)) = topic.channel_and_log(channel_id) else {
            return Flow::Next;
        };
        if let Err(reason) = channel.finish(now, seq, id, log) {
            return self.not_yours(id, WireError::fin_failed, &message, reason, out);
        }
        self.count_answers(now, id, 1, |client| &mut client.consumer.finish_count);
        Flow::Next
    }

    /// Carries out the FINs at the front of `input`, as long as each one has the usual spelling and names a message
    /// that this client has in flight. Returns the number of bytes of these FINs. The decoder reads the input behind
    /// them.
    ///
    /// One call for all FINs takes a quarter of the time of one call for each.
    pub(super) fn finish_run(&mut self, now: Now, id: ClientId, input: &[u8]) -> usize {
        let Some((topic, channel)) = self
            .clients
            .get(id)
            .and_then(|client| client.consumer.subscription)
        else {
            return 0;
        };
        let topic = self.topics.get_mut(topic);
        let Some((channel, log)) = topic.and_then(|topic| topic.channel_and_log(channel)) else {
            return 0;
        };
        let ours = self.options.topic.log.node;
        let (lines, _) = input.as_chunks();
        let seqs = lines.iter().map_while(|line| match fin(line) {
            Some((seq, node)) if node == ours => Some(seq),
            _ => None,
        });
        let finished = channel.finish_run(now, seqs, id, log);
        if finished > 0 {
            if let Some(client) = self.clients.get_mut(id) {
                // The first FIN may be the command that the decoder had an unfinished part of.
                client.session.decoder.reset();
                client.heard(now.mono);
            }
            self.count_answers(now, id, finished, |client| {
                &mut client.consumer.finish_count
            });
        }
        finished as usize * FIN_BYTES
    }

    /// Counts messages that a client has answered for, in `counter`, and has the client refilled.
    fn count_answers(
        &mut self,
        now: Now,
        id: ClientId,
        count: u32,
        counter: fn(&mut Client) -> &mut u64,
    ) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.consumer.in_flight -= count;
        client.consumer.coalescing.count(count);
        *counter(client) += u64::from(count);
        let Some((topic_key, channel_id)) = client.consumer.subscription else {
            return;
        };
        let Some(topic) = self.topics.get_mut(topic_key) else {
            return;
        };
        if let Some(channel) = topic.channel_mut(channel_id) {
            channel.refill(id, client, now.mono);
        }
        topic.after_answer(channel_id);
        self.pump_later(topic_key);
    }

    pub(super) fn requeue(
        &mut self,
        now: Now,
        id: ClientId,
        message: MessageId,
        timeout: Duration,
        out: &mut Vec<Output>,
    ) -> Flow {
        let Some((topic_key, channel_id, seq)) = self.message_of(id, &message) else {
            return self.not_yours(
                id,
                WireError::req_failed,
                &message,
                NotYours::NotInFlight,
                out,
            );
        };
        let Some(topic) = self.topics.get_mut(topic_key) else {
            return Flow::Next;
        };
        let Some(channel) = topic.channel_mut(channel_id) else {
            return Flow::Next;
        };
        if let Err(reason) = channel.requeue(seq, id, now.mono, timeout) {
            return self.not_yours(id, WireError::req_failed, &message, reason, out);
        }
        self.count_answers(now, id, 1, |client| &mut client.consumer.requeue_count);
        Flow::Next
    }

    pub(super) fn touch(
        &mut self,
        now: Now,
        id: ClientId,
        message: MessageId,
        out: &mut Vec<Output>,
    ) -> Flow {
        let Some((topic_key, channel_id, seq)) = self.message_of(id, &message) else {
            let reason = NotYours::NotInFlight;
            return self.not_yours(id, WireError::touch_failed, &message, reason, out);
        };
        let Some(client) = self.clients.get(id) else {
            return Flow::Next;
        };
        let timeout = client.session.settings.msg_timeout;
        let timeout_max = self.options.server.msg_timeout_max;
        let Some(topic) = self.topics.get_mut(topic_key) else {
            return Flow::Next;
        };
        let Some(channel) = topic.channel_mut(channel_id) else {
            return Flow::Next;
        };
        if let Err(reason) = channel.touch(seq, id, now.mono, timeout, timeout_max) {
            return self.not_yours(id, WireError::touch_failed, &message, reason, out);
        }
        // A shorter timeout than before may have become the earliest one.
        topic.after_answer(channel_id);
        self.pump_later(topic_key);
        Flow::Next
    }

    pub(super) fn close_wait(&mut self, id: ClientId) -> Flow {
        if let Some(client) = self.clients.get_mut(id) {
            client.consumer.ready_count = 0;
            client.session.state = ClientState::Closing;
            client.reply(wire::encode::CLOSE_WAIT);
            self.flush_later(id);
        }
        Flow::Next
    }

    pub(super) fn log_clamped(&self, id: ClientId, asked_ns: i64, out: &mut Vec<Output>) {
        let max = self.options.limits.req_timeout_max.as_nanos();
        let address = self.address(id).unwrap_or_default();
        let set = if asked_ns < 0 { 0 } else { max };
        out.push(Output::Log(
            Level::Info,
            format!(
                "PROTOCOL(V2): [{address}] REQ timeout {asked_ns} out of range 0-{max}. Setting to {set}"
            ),
        ));
    }

    /// Puts a client on its channel's ready list if it may take messages.
    pub(super) fn make_ready(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let Some((topic_key, channel_id)) = client.consumer.subscription else {
            return;
        };
        let Some(topic) = self.topics.get_mut(topic_key) else {
            return;
        };
        let Some(channel) = topic.channel_mut(channel_id) else {
            return;
        };
        channel.make_ready(id, client);
        topic.pump_channel_later(channel_id);
        if topic.wants_pump() {
            self.pump_later(topic_key);
        }
    }

    /// Returns the topic, channel and seq of the message that a client names. `None` if the client has no subscription,
    /// or if this node never gave out the id.
    fn message_of(&self, id: ClientId, message: &MessageId) -> Option<(TopicKey, ChannelId, Seq)> {
        let (topic, channel) = self.clients.get(id)?.consumer.subscription?;
        let (seq, node) = message.decode()?;
        (node == self.options.topic.log.node).then_some((topic, channel, seq))
    }

    fn not_yours(
        &mut self,
        id: ClientId,
        error: fn(&MessageId, &str) -> WireError,
        message: &MessageId,
        reason: NotYours,
        out: &mut Vec<Output>,
    ) -> Flow {
        let error = error(message, reason.cause());
        let Some(client) = self.clients.get_mut(id) else {
            return Flow::Next;
        };
        let line = format!("[{}] - {} - {}", client.address, error.text, reason.cause());
        out.push(Output::Log(Level::Error, line));
        client.reply_error(error);
        self.flush_later(id);
        Flow::Next
    }
}
