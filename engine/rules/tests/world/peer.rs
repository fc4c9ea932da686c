//! The peers: the commands they send, the broker's answers, and the effect of both on the model.

use super::at_risk::Risk;
use super::contents;
use super::dead_letters::{DEAD, DURABLE_CHANNELS};
use super::grants::Granted;
use super::model::{Action, Delivered, Place};
use super::sockets::Socket;
use super::{CHANNELS, ShardWorld, World, channel_name, is_durable, topic_name};
use engine_rules::{ClientId, Output, Sent};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::id::{MessageId, Seq};

/// The number of FINs whose answers exceed the unsent answers that the broker keeps: 64 KiB.
const FLOOD_COMMANDS: usize = 2000;

/// An expected answer.
#[derive(Debug)]
pub(crate) enum Awaited {
    /// The answer to a publish: its message numbers, and the failed sync that already forbade
    /// publishes when it was sent.
    Publish(Vec<u64>, Option<u64>),
    /// The answer to messages that are sent again.
    PublishAgain(Vec<u64>, Option<u64>),
    Sub,
    CloseWait,
    Identify,
    /// The answer to an IDENTIFY that asks for REQs that do not count.
    Negotiation,
    /// The answer to an IDENTIFY that asks for numbers of messages.
    Numbers,
    /// The answer to AUTH.
    Auth,
    /// The answer to an IDENTIFY that asks for an upgrade, which ends the plain output.
    Upgrade,
    /// The OK that comes through the upgrade.
    Upgraded,
}

/// A simulated peer.
#[derive(Debug, Default)]
pub(crate) struct TestClient {
    /// The peer's shard and connection. `None` while the connection moves, or after its end.
    pub(crate) at: Option<(usize, ClientId)>,
    pub(crate) closed: bool,
    pub(crate) input_ended: bool,
    has_finished: bool,
    /// True if the peer does not answer heartbeats.
    pub(crate) is_silent: bool,
    /// True if the peer reads late and in small portions.
    pub(super) is_slow: bool,
    pub(super) socket: Socket,
    pub(super) granted: Granted,
    /// True if the peer is in the zone of the node.
    is_near: bool,
    /// True if its SUB was carried out while it was not permitted.
    has_forbidden_sub: bool,
    /// True if the peer's side of the connection is gone. The broker does not know it yet.
    pub(super) is_reset: bool,
    /// True while the peer waits for an upgrade.
    pub(super) is_upgrading: bool,
    /// True if the peer seals what it sends, and opens what it gets.
    pub(super) is_sealed: bool,
    /// Sealed input that the broker's side of the upgrade holds.
    pub(super) unopened_input: Vec<u8>,
    /// Sealed output that the peer has got, and that is not a whole record.
    pub(super) unopened_output: Vec<u8>,
    /// Bytes that are sent and not yet consumed by the broker.
    pub(super) input: Vec<u8>,
    /// Number of these bytes that the broker has examined.
    offered: usize,
    is_cut_short: bool,
    consumed: u64,
    /// The commands with the end of their bytes.
    sent: VecDeque<(u64, Action)>,
    sent_bytes: u64,
    pub(super) received: Vec<u8>,
    pub(super) awaiting: VecDeque<Awaited>,
    pub(crate) subscription: Option<Place>,
    ready: u32,
    is_closing: bool,
    /// True when the broker has carried out a CLS.
    has_closed: bool,
    was_refused: bool,
    /// True if the peer asks for REQs that do not count as attempts.
    may_not_count: bool,
    /// The id of the publisher, if the peer numbers its messages.
    pub(crate) publisher: Option<u64>,
    /// The messages that the peer has got and not answered.
    pub(crate) holds: Vec<(MessageId, u64)>,
    /// The ids of messages whose answers may fail.
    unsure: Vec<MessageId>,
}

impl World {
    pub(crate) fn connect(&mut self) {
        if self.peers.iter().filter(|peer| !peer.closed).count() > 8 {
            return;
        }
        let shard = self.random.below(self.shards.len() as u64) as usize;
        if self.shards[shard].broker.is_stopping() || !self.shards[shard].is_awake {
            return;
        }
        let is_slow = self.random.below(8) == 0;
        let index = self.connect_to(shard, is_slow);
        self.peers[index].is_silent = self.random.below(10) == 0;
        self.become_publisher(index);
        self.offer(index);
    }

    pub(crate) fn connect_to(&mut self, shard: usize, is_slow: bool) -> usize {
        let now = self.now();
        let broker = &mut self.shards[shard].broker;
        let id = broker.connect(now, "10.0.0.1:5".to_owned(), "10.0.0.1".to_owned());
        self.peers.push(TestClient {
            at: Some((shard, id)),
            is_slow,
            ..TestClient::default()
        });
        let index = self.peers.len() - 1;
        self.send(index, Action::Other, |out| out.extend_from_slice(b"  V2"));
        self.authenticate(index);
        index
    }

    /// Queues a command. It is on its way until the broker consumes it.
    pub(crate) fn send(&mut self, index: usize, action: Action, write: impl FnOnce(&mut Vec<u8>)) {
        let peer = &mut self.peers[index];
        let mut bytes = Vec::new();
        write(&mut bytes);
        peer.transmit(&bytes);
        peer.sent_bytes += bytes.len() as u64;
        peer.sent.push_back((peer.sent_bytes, action));
    }

    pub(crate) fn publish(&mut self) {
        let Some(index) = self.pick_peer(TestClient::may_send) else {
            return self.connect();
        };
        if (self.peers[index].publisher.is_some() || self.model.numbers.are_contents)
            && self.random.below(3) == 0
            && self.send_again(index)
        {
            return;
        }
        let topic = self.random.below(DEAD as u64) as usize;
        let kind = self.random.below(10);
        let count = if kind < 4 {
            1
        } else {
            1 + self.random.below(30)
        };
        let defer_ms = if kind == 0 {
            let most = [3_000, 60_000][self.random.below(2) as usize];
            self.random.below(most)
        } else {
            0
        };
        let defer = Duration::from_millis(defer_ms);
        let mut numbers = Vec::new();
        let mut bodies = Vec::new();
        for _ in 0..count {
            let number = self.model.messages.len() as u64;
            let filler = [3, 40, 300, 2500][self.random.below(4) as usize];
            let body = contents::body(topic, number, filler);
            self.model.track(topic, body.clone());
            numbers.push(number);
            bodies.push(body);
        }
        let action = Action::Publish(numbers.clone(), defer);
        let mut command = Vec::new();
        let messages = (&numbers[..], &bodies[..]);
        let deferral = (kind == 0).then_some(defer);
        self.encode_publish(index, topic, deferral, kind > 3, messages, &mut command);
        self.send(index, action, |out| out.extend_from_slice(&command));
        if defer_ms > 0 {
            self.reached.note("deferred");
        }
        self.await_publish(index, topic, numbers, false);
        if self.random.below(12) == 0 {
            self.ask_for_upgrade(index);
        }
    }

    /// Makes a peer wait for the answer to a publish.
    pub(crate) fn await_publish(
        &mut self,
        index: usize,
        topic: usize,
        numbers: Vec<u64>,
        is_again: bool,
    ) {
        let refuses = self.model.poisoned.get(&topic).copied();
        let awaited = if is_again {
            Awaited::PublishAgain(numbers, refuses)
        } else {
            Awaited::Publish(numbers, refuses)
        };
        self.peers[index].awaiting.push_back(awaited);
        self.offer(index);
    }

    pub(crate) fn subscribe(&mut self) {
        let Some(index) = self.pick_peer(|peer| peer.subscription.is_none() && peer.may_send())
        else {
            return self.connect();
        };
        let topics = DEAD + usize::from(!self.dead_letters.is_empty());
        let topic = self.random.below(topics as u64) as usize;
        let mut channel = self.random.below(CHANNELS.len() as u64) as usize;
        let ready = 1 + self.random.below(40) as u32;
        let mut sample = (self.random.below(12) == 0).then_some(50);
        if topic == DEAD {
            // Nothing may drop a dead letter.
            (channel, sample) = (channel % DURABLE_CHANNELS, None);
        }
        self.subscribe_to(index, (topic, channel), ready, sample);
        self.offer(index);
    }

    pub(crate) fn subscribe_to(
        &mut self,
        index: usize,
        place: Place,
        ready: u32,
        sample: Option<u8>,
    ) {
        // Another IDENTIFY would end the agreement of a publisher.
        let is_publisher = self.peers[index].publisher.is_some();
        let sample = sample.filter(|_| !is_publisher);
        if let Some(rate) = sample {
            let json = format!("{{\"sample_rate\":{rate}}}");
            self.send(index, Action::Other, |out| {
                encode::identify(out, json.as_bytes())
            });
            self.peers[index].awaiting.push_back(Awaited::Identify);
            self.model.sampled.insert(place);
            self.reached.note("sampled");
        }
        // An IDENTIFY that was sent for the sample rate negotiates nothing.
        if sample.is_none() && !is_publisher && !index.is_multiple_of(3) {
            let is_near = self.random.below(2) == 0;
            let zone = if is_near { "here" } else { "there" };
            let json = format!(
                r#"{{"feature_negotiation":true,"req_uncounted":true,"topology_zone":"{zone}"}}"#
            );
            let json = json.as_bytes();
            self.send(index, Action::Other, |out| encode::identify(out, json));
            self.peers[index].is_near = is_near;
            self.peers[index].awaiting.push_back(Awaited::Negotiation);
            self.peers[index].may_not_count = true;
        }
        if self.peers[index].is_slow {
            self.model.allow_late(place);
        }
        let (topic, channel) = (topic_name(place.0), channel_name(place.1));
        self.send(index, Action::Sub, |out| encode::sub(out, topic, channel));
        self.send(index, Action::Ready(ready), |out| encode::rdy(out, ready));
        let peer = &mut self.peers[index];
        peer.subscription = Some(place);
        peer.awaiting.push_back(Awaited::Sub);
    }

    pub(crate) fn change_ready(&mut self) {
        let wanted = |peer: &TestClient| peer.subscription.is_some() && peer.may_send();
        let Some(index) = self.pick_peer(wanted) else {
            return;
        };
        let ready = self.random.below(60) as u32;
        self.send(index, Action::Ready(ready), |out| encode::rdy(out, ready));
        self.offer(index);
    }

    /// Answers some of the messages that a consumer holds.
    pub(crate) fn answer(&mut self) {
        let wanted = |peer: &TestClient| !peer.holds.is_empty() && peer.may_send();
        let Some(index) = self.pick_peer(wanted) else {
            return;
        };
        let count = 1 + self.random.below(self.peers[index].holds.len() as u64);
        for _ in 0..count {
            let at = self.random.below(self.peers[index].holds.len() as u64) as usize;
            let (id, number) = self.peers[index].holds[at];
            let kind = self.random.below(10);
            if kind != 1 {
                self.peers[index].holds.swap_remove(at);
            }
            match kind {
                0 => {
                    let ms = [0, 0, 200, 1500][self.random.below(4) as usize];
                    let wait = Duration::from_millis(ms);
                    // Without the agreement the form for uncounted REQs counts.
                    let is_uncounted = number.is_multiple_of(3);
                    let is_counted = !(is_uncounted && self.peers[index].may_not_count);
                    let action = Action::Requeue(id, number, wait, is_counted);
                    self.send(index, action, |out| {
                        if is_uncounted {
                            encode::req_uncounted(out, &id, wait)
                        } else {
                            encode::req(out, &id, wait)
                        }
                    });
                }
                1 => self.send(index, Action::Touch(id, number), |out| {
                    encode::touch(out, &id)
                }),
                _ => self.send(index, Action::Finish(id, number), |out| {
                    encode::fin(out, &id)
                }),
            }
            if self.peers[index].holds.is_empty() {
                break;
            }
        }
        self.offer(index);
    }

    /// Makes a consumer ask for more answers than the broker keeps for it. The broker reads from
    /// the consumer again when the answers have left.
    pub(crate) fn flood(&mut self) {
        let wanted = |peer: &TestClient| peer.subscription.is_some() && peer.may_send();
        let Some(index) = self.pick_peer(wanted) else {
            return;
        };
        let never_sent = MessageId::new(Seq(1), 0);
        self.send(index, Action::Other, |out| {
            (0..FLOOD_COMMANDS).for_each(|_| encode::fin(out, &never_sent));
        });
        let unsure = &mut self.peers[index].unsure;
        unsure.extend(std::iter::repeat_n(never_sent, FLOOD_COMMANDS));
        let is_reading = |world: &World| {
            let at = world.peers[index].at;
            at.is_some_and(|(shard, id)| world.shards[shard].broker.is_reading(id))
        };
        let was_reading = is_reading(self);
        self.offer(index);
        if was_reading && !is_reading(self) {
            self.reached.note("not read on");
        }
    }

    pub(crate) fn close_wait(&mut self) {
        let wanted =
            |peer: &TestClient| peer.subscription.is_some() && peer.may_send() && !peer.is_closing;
        let Some(index) = self.pick_peer(wanted) else {
            return;
        };
        // From here on the peer does not subscribe and sends CLS only once. RDY is ignored.
        self.peers[index].is_closing = true;
        self.send(index, Action::CloseWait, encode::cls);
        self.peers[index].awaiting.push_back(Awaited::CloseWait);
        self.offer(index);
    }

    pub(crate) fn hang_up(&mut self) {
        let Some(index) = self.pick_peer(|_| true) else {
            return;
        };
        self.reached.note("disconnected");
        self.close_peer(index);
    }

    /// Ends the peer's side. The broker still carries out and answers everything that was sent.
    pub(crate) fn end_input(&mut self) {
        let Some(index) = self.pick_peer(|peer| !peer.input_ended && !peer.is_reset) else {
            return;
        };
        self.reached.note("end of input");
        let peer = &mut self.peers[index];
        peer.input_ended = true;
        if peer.awaiting.iter().any(|it| matches!(it, Awaited::Sub)) {
            self.reached.note("half-closed with a SUB under way");
        }
        if peer.is_upgrading {
            self.reached.note("half-closed with an upgrade under way");
        }
        self.offer_all(index);
    }

    /// Tells the broker that the input has ended. Like the shell, waits while the broker does not
    /// read.
    pub(crate) fn finish_input(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let Some((shard, id)) = peer.at else { return };
        let ShardWorld {
            broker, is_awake, ..
        } = &self.shards[shard];
        if peer.has_finished || !*is_awake || !broker.is_reading(id) {
            return;
        }
        peer.has_finished = true;
        let mut out = Vec::new();
        self.shards[shard]
            .broker
            .finish_input(id, &peer.input, &mut out);
        self.perform(shard, out);
    }

    /// Expires the peer's deadline. The broker does not get the input that was not offered yet.
    pub(crate) fn expire(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.input_ended = true;
        peer.input.truncate(peer.offered);
        peer.unopened_input.clear();
        let seen = peer.consumed + peer.offered as u64;
        peer.is_cut_short = peer.sent.iter().any(|(end, _)| *end > seen);
        self.finish_input(index);
    }

    pub(crate) fn close_peer(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if let Some(place) = peer.subscription.filter(|_| peer.is_slow) {
            self.model.allow_late(place);
        }
        peer.closed = true;
        let shard = peer.at.map(|(shard, _)| shard);
        if shard.is_some_and(|shard| !self.shards[shard].is_awake) {
            // The shard learns it later, and may deliver messages until then.
            if let Some(place) = peer.subscription {
                self.model.allow_late(place);
            }
            self.leaving.extend(peer.at.take());
        }
        if let Some((shard, id)) = peer.at.take() {
            let mut out = Vec::new();
            self.shards[shard].broker.disconnect(id, &mut out);
            self.perform(shard, out);
        }
    }

    // --- to the broker

    /// Offers a peer's input to its broker, sometimes only a part of it.
    pub(crate) fn offer(&mut self, index: usize) {
        let is_part = self.random.below(4) == 0;
        let random = &mut self.random;
        let mut length = |all: usize| {
            if is_part {
                random.below(all as u64 + 1) as usize
            } else {
                all
            }
        };
        let peer = &mut self.peers[index];
        peer.open_input(length(peer.unopened_input.len()));
        let length = length(peer.input.len());
        self.offer_bytes(index, length);
    }

    pub(crate) fn offer_all(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.open_input(peer.unopened_input.len());
        let length = peer.input.len();
        self.offer_bytes(index, length);
        if self.peers[index].input_ended {
            self.finish_input(index);
        }
    }

    fn offer_bytes(&mut self, index: usize, length: usize) {
        if self.mid_turn.is_killed {
            return;
        }
        let now = self.now();
        let peer = &mut self.peers[index];
        let Some((shard, id)) = peer.at else { return };
        if !self.shards[shard].is_awake {
            return;
        }
        let mut out = Vec::new();
        let broker = &mut self.shards[shard].broker;
        let consumed = broker.receive(now, id, &peer.input[..length], &mut out);
        peer.input.drain(..consumed);
        peer.consumed += consumed as u64;
        peer.offered = length - consumed;
        let done = peer.consumed;
        let mut is_publish = false;
        while let Some((_, action)) = self.peers[index].sent.pop_front_if(|(end, _)| *end <= done) {
            is_publish |= matches!(action, Action::Publish(..) | Action::PublishAgain(..));
            self.carry_out(index, action);
        }
        let has_more = self.shards[shard].broker.has_more(id, length - consumed);
        if self.is_killed_behind_input(is_publish) {
            return;
        }
        self.perform(shard, out);
        // Offers again the input that the broker left for the sake of other connections, unless the
        // input has been offered in the meantime.
        if has_more && self.peers[index].consumed == done {
            self.offer_bytes(index, length - consumed);
        }
    }

    /// Notes that the broker has carried out a command, and applies the command to the model.
    fn carry_out(&mut self, index: usize, action: Action) {
        let now = self.mono;
        let place = self.peers[index].subscription;
        let subscribed = || place.expect("only consumers answer");
        match action {
            Action::Publish(numbers, defer) => {
                let topic = self.model.messages[numbers[0] as usize].topic;
                if self.is_draining() || !self.is_granted(index, topic) {
                    self.forbidden.insert(numbers[0]);
                }
                for number in numbers {
                    self.model.messages[number as usize].defer_until(now + defer);
                }
            }
            Action::PublishAgain(numbers) => {
                for number in numbers {
                    self.model.messages[number as usize].defer_until(now);
                }
            }
            Action::Sub => {
                self.peers[index].has_forbidden_sub = !self.is_granted(index, subscribed().0);
            }
            Action::Ready(_) if self.peers[index].has_closed => {}
            Action::Ready(count) => self.peers[index].ready = count,
            Action::Finish(id, number) => {
                if self.model.finish(subscribed(), number, index, now) {
                    self.reached.note("finished");
                } else {
                    self.peers[index].unsure.push(id);
                }
            }
            Action::Requeue(id, number, wait, is_counted) => {
                let place = subscribed();
                if self
                    .model
                    .requeue(place, number, index, now, wait, is_counted)
                {
                    self.reached.note(if is_counted {
                        "requeued"
                    } else {
                        "requeued without an attempt"
                    });
                } else {
                    self.peers[index].unsure.push(id);
                }
            }
            Action::Touch(id, number) => {
                if self.model.touch(subscribed(), number, index, now) {
                    self.reached.note("touched");
                } else {
                    self.peers[index].unsure.push(id);
                }
            }
            Action::CloseWait => {
                self.peers[index].has_closed = true;
                self.peers[index].ready = 0;
            }
            Action::Other => {}
        }
    }

    pub(crate) fn peer_of(&self, shard: usize, id: ClientId) -> Option<usize> {
        self.peers
            .iter()
            .position(|peer| peer.at == Some((shard, id)))
    }

    // --- from the broker

    /// Makes slow readers read a little more.
    pub(crate) fn read_slowly(&mut self) {
        for index in 0..self.peers.len() {
            if let Some((shard, id)) = self.peers[index].at
                && self.peers[index].is_slow
                && self.random.below(2) == 0
            {
                self.flush(shard, id);
            }
        }
    }

    /// Writes a connection's output in pieces of any size, for a slow reader not to the end.
    pub(crate) fn flush(&mut self, shard: usize, id: ClientId) {
        if self.is_killed_here() {
            return;
        }
        let mut out = Vec::new();
        self.flush_into(shard, id, &mut out);
        // Commands that were held back follow what the peer has read now.
        self.perform(shard, out);
    }

    pub(crate) fn flush_into(&mut self, shard: usize, id: ClientId, out: &mut Vec<Output>) {
        let Some(index) = self.peer_of(shard, id) else {
            return;
        };
        while self.shards[shard].is_awake {
            let now = self.clock(shard);
            let World {
                shards,
                peers,
                random,
                reached,
                ..
            } = &mut *self;
            let (broker, peer) = (&mut shards[shard].broker, &mut peers[index]);
            let mut slices = [IoSlice::new(&[]); 8];
            let count = broker.output(id, &mut slices);
            if peer.is_slow && count > 0 && random.below(4) == 0 {
                reached.note("slow reader");
                broker.sent(now, id, 0, out);
                return;
            }
            let Some((left, bytes)) = peer.socket.write(&slices[..count], random) else {
                return self.abandon(index);
            };
            let sent = broker.sent(now, id, left, out);
            peer.receive(&bytes);
            self.read_frames(index);
            match sent {
                Sent::More => {}
                Sent::All => return,
                Sent::Over => {
                    let peer = &self.peers[index];
                    let all = peer.was_refused || peer.is_cut_short || peer.awaiting.is_empty();
                    let all = all || self.mid_turn.is_dying;
                    assert!(all, "closed before the answers: {:?}", peer.awaiting);
                    self.reached.note("closed after answers");
                    return self.end_later(index);
                }
            }
        }
    }

    fn read_frames(&mut self, index: usize) {
        let received = std::mem::take(&mut self.peers[index].received);
        let mut at = 0;
        while let FrameDecoded::Frame {
            kind,
            data,
            consumed,
        } = decode_frame(&received[at..])
        {
            at += consumed;
            self.digest = data.iter().fold(self.digest, |digest, byte| {
                (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            assert!(
                !self.peers[index].was_refused,
                "nothing follows a fatal error"
            );
            let was_sealed = self.peers[index].is_sealed;
            match kind {
                FrameType::Message => self.take_message(index, data),
                FrameType::Error => self.take_error(index, data),
                FrameType::Response => self.take_response(index, data),
            }
            if self.peers[index].is_sealed != was_sealed {
                self.peers[index].receive(&received[at..]);
                return self.read_frames(index);
            }
        }
        self.peers[index].received = received[at..].to_vec();
    }

    fn take_response(&mut self, index: usize, data: &[u8]) {
        let peer = &mut self.peers[index];
        if data == b"_heartbeat_" {
            let is_ok_due = matches!(peer.awaiting.front(), Some(Awaited::Upgraded));
            assert!(!is_ok_due, "a heartbeat comes before the OK of the upgrade");
            return;
        }
        if let Some(Awaited::Upgrade) = peer.awaiting.front() {
            let data = String::from_utf8_lossy(data);
            assert!(data.contains(r#""snappy":true"#), "{data}");
            peer.is_sealed = true;
            peer.awaiting.pop_front();
            return;
        }
        if let Some(Awaited::Negotiation) = peer.awaiting.front() {
            assert!(data.ends_with(br#","req_uncounted":true}"#));
            peer.awaiting.pop_front();
            return;
        }
        if let Some(Awaited::Numbers) = peer.awaiting.front() {
            assert!(data.ends_with(br#","publisher_id":true}"#));
            peer.awaiting.pop_front();
            return;
        }
        let wanted: &[u8] = match peer.awaiting.front().expect("an answer has its command") {
            Awaited::CloseWait => b"CLOSE_WAIT",
            Awaited::Auth => data,
            _ => b"OK",
        };
        assert_eq!(data, wanted);
        let awaited = peer.awaiting.pop_front();
        match awaited.expect("the command is still there") {
            Awaited::PublishAgain(numbers, refuses) => {
                let topic = self.model.messages[numbers[0] as usize].topic;
                let still = self.model.poisoned.get(&topic).copied();
                assert!(
                    refuses.is_none() || refuses != still,
                    "accepted after a failed sync"
                );
                for number in numbers {
                    self.model.acknowledge_copy(number);
                    let message = &mut self.model.messages[number as usize];
                    let was_there = message.acknowledged && !message.is_lost;
                    message.acknowledged = true;
                    message.is_lost = false;
                    message.acknowledged_ns = self.wall_ns;
                    if !was_there {
                        self.put_at_risk(Risk::Message(number), topic);
                    }
                }
            }
            Awaited::Publish(numbers, refuses) => {
                let topic = self.model.messages[numbers[0] as usize].topic;
                let still = self.model.poisoned.get(&topic).copied();
                assert!(
                    refuses.is_none() || refuses != still,
                    "accepted after a failed sync"
                );
                let is_forbidden = self.forbidden.contains(&numbers[0]);
                assert!(!is_forbidden, "a publish that is not permitted got OK");
                self.reached.note("acknowledged");
                if self.group_commit {
                    self.reached.note("synced before OK");
                }
                for number in numbers {
                    let message = &mut self.model.messages[number as usize];
                    message.acknowledged = true;
                    message.acknowledged_ns = self.wall_ns;
                    self.put_at_risk(Risk::Message(number), topic);
                }
            }
            Awaited::Sub => {
                let is_forbidden = peer.has_forbidden_sub;
                assert!(!is_forbidden, "a SUB that is not permitted got OK");
                let place = peer.subscription.expect("SUB was sent");
                let exists = peer.at.is_some();
                if exists && is_durable(place) && self.model.channels.insert(place) {
                    self.put_at_risk(Risk::Channel(place), place.0);
                    self.owe_kept(place);
                }
            }
            Awaited::CloseWait => self.reached.note("close wait"),
            Awaited::Upgraded => {
                self.reached.note("upgraded");
                peer.is_upgrading = false;
            }
            Awaited::Auth
            | Awaited::Identify
            | Awaited::Negotiation
            | Awaited::Numbers
            | Awaited::Upgrade => {}
        }
    }

    fn take_error(&mut self, index: usize, data: &[u8]) {
        let text = String::from_utf8_lossy(data).into_owned();
        let words: Vec<&str> = text.split(' ').collect();
        let peer = &mut self.peers[index];
        match words[0] {
            "E_FIN_FAILED" | "E_REQ_FAILED" | "E_TOUCH_FAILED" => {
                // A peer may answer a message that it certainly holds. An error may arrive late,
                // behind the answer to a publish, so only the id tells its message.
                let is_about = |id: &MessageId| id.as_bytes() == words[2].as_bytes();
                let at = peer.unsure.iter().position(is_about);
                peer.unsure
                    .swap_remove(at.unwrap_or_else(|| panic!("an answer failed: {text}")));
            }
            "E_PUB_FAILED" | "E_MPUB_FAILED" | "E_DPUB_FAILED" | "E_SUB_FAILED" => {
                self.reached.note("refused");
                if text.contains("draining") {
                    self.reached.note("refused in a drain");
                }
                peer.was_refused = true;
                peer.awaiting.clear();
            }
            "E_AUTH_FIRST" | "E_AUTH_FAILED" | "E_UNAUTHORIZED" if self.on_offer.is_some() => {
                self.reached.note("not granted");
                peer.was_refused = true;
                peer.awaiting.clear();
            }
            _ if peer.is_cut_short && text.contains("failed to read") => peer.was_refused = true,
            _ => panic!("an unexpected error: {text}"),
        }
    }

    fn take_message(&mut self, index: usize, data: &[u8]) {
        let message = Message::parse(data).expect("a whole message");
        let number = contents::number(message.body);
        let peer = &self.peers[index];
        let delivered = Delivered {
            place: peer.subscription.expect("only consumers get messages"),
            peer: index,
            number,
            body: message.body,
            attempts: message.attempts,
            ready: peer.ready,
            is_late: peer.is_slow,
        };
        if delivered.place.0 == DEAD {
            self.reached.note("dead letter delivered");
            self.model.deliver_dead_letter(&delivered);
            let peer = &mut self.peers[index];
            peer.holds.retain(|(_, held)| *held != number);
            peer.holds.push((message.id, number));
            return;
        }
        self.reached.note("delivered");
        self.model.check_copy(number, message.id, delivered.is_late);
        if message.attempts > 1 {
            self.reached.note("redelivered");
        }
        if self.topology.is_some() {
            self.reached.note(if peer.is_near {
                "delivered to a near consumer"
            } else {
                "delivered to a far consumer"
            });
        }
        // The shard may have counted the time of the delivery from an old clock.
        let now = peer
            .at
            .map_or(self.mono, |(shard, _)| self.clock(shard).mono);
        if self.model.deliver(&delivered, now) {
            self.reached.note("timed out");
        }
        let peer = &mut self.peers[index];
        peer.holds.retain(|(_, held)| *held != number);
        peer.holds.push((message.id, number));
    }
}

impl TestClient {
    /// Returns true if the peer may send a command.
    pub(crate) fn may_send(&self) -> bool {
        !self.input_ended && !self.is_reset && !self.is_upgrading
    }

    /// Notes that the peer waits for the agreement to number its messages.
    pub(crate) fn await_numbers(&mut self) {
        self.awaiting.push_back(Awaited::Numbers);
    }
}
