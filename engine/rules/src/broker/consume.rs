//! SUB, RDY, FIN, REQ, TOUCH, CLS.

use super::{Broker, Flow, shard_of};
use crate::channel::{Channel, Requeue};
use crate::client::output::Verb;
use crate::client::{Blocked, Client};
use crate::ids::{ChannelId, ClientId, TopicKey};
use crate::output::{Change, Output};
use crate::topic::Waiter;
use crate::window::NotYours;
use diskq_log::{Log, plant};
use wire::decode::{ClientState, FIN_BYTES, fin};
use wire::error::WireError;
use wire::id::{MessageId, Seq};
use wire::name::{ChannelName, TopicName};

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
            self.count_answers(id, 1, |client| &mut client.consumer.finish_count);
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
            self.count_answers(id, finished, |client| &mut client.consumer.finish_count);
        }
        finished as usize * FIN_BYTES
    }

    pub(super) fn requeue(&mut self, id: ClientId, message: MessageId, how: Requeue) {
        let now = self.now.mono;
        let requeue = |channel: &mut Channel, _: &mut Log, seq| channel.requeue(seq, id, now, how);
        if self.act_on(id, &message, WireError::req_failed, requeue) {
            self.count_answers(id, 1, |client| &mut client.consumer.requeue_count);
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
