//! [`MockBroker`]: a small nsqd in memory.

mod state;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;
use wire::encode;

use self::state::State;
use super::network::MockNetwork;
use super::received::Received;
use super::server::{MockConnection, Turn};
use super::stream::Cut;
use crate::address::Address;

/// A small nsqd. It stores messages in memory, delivers them to consumers as far as their RDY allows, requeues them, and
/// delivers what a lost consumer had. Messages never time out, and there are no heartbeats. With
/// [`take_numbers`](MockBroker::take_numbers), it recognises numbered messages that come again.
#[derive(Clone, Debug)]
pub struct MockBroker {
    network: MockNetwork,
    address: Address,
    state: Arc<Mutex<State>>,
}

impl MockBroker {
    pub(super) fn new(network: MockNetwork, address: Address) -> MockBroker {
        MockBroker {
            network,
            address,
            state: Arc::default(),
        }
    }

    /// Returns the address of the broker.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Returns the bodies of all messages of a topic, in the order in which they were stored.
    #[must_use]
    pub fn published(&self, topic: &str) -> Vec<Bytes> {
        self.state.lock().published(topic)
    }

    /// Stores a message, as a producer would.
    pub fn publish(&self, topic: &str, body: impl Into<Bytes>) {
        self.state.lock().store(topic, body.into());
    }

    /// Returns the number of messages of a channel that wait, and of those in flight.
    #[must_use]
    pub fn depth(&self, topic: &str, channel: &str) -> (usize, usize) {
        self.state.lock().depth(topic, channel)
    }

    /// Answers the next publish by an error, such as `E_PUB_FAILED PUB failed exiting`, and closes its connection. As with
    /// nsqd, the commands that the client has sent behind this publish are not carried out.
    pub fn refuse_publish(&self, error: &str) {
        self.state.lock().refusals.push_back(error.to_owned());
    }

    /// Takes the numbers of messages on further connections, as an nsqd with a rule `--dedup=*=publisher` does, or
    /// does not. All numbers are remembered.
    pub fn take_numbers(&self, takes_numbers: bool) {
        self.state.lock().takes_numbers = takes_numbers;
    }

    /// Returns the number of messages that came again and were not stored.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.state.lock().duplicates
    }

    /// Refuses further connections, or accepts them again.
    pub fn refuse(&self, is_refusing: bool) {
        self.network.refuse(&self.address, is_refusing);
    }

    /// Breaks the next connection. Each call counts for one connection.
    pub fn cut_next(&self, cut: Cut) {
        self.network.cut_next(&self.address, cut);
    }

    /// Returns the number of connections that were made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.network.connections(&self.address)
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(self, mut connection: MockConnection) {
        let (frames, mut outgoing) = mpsc::unbounded_channel();
        let number = {
            let mut state = self.state.lock();
            state.next_connection += 1;
            state.next_connection
        };
        while let Some(turn) = connection.command_or(&mut outgoing).await {
            match turn {
                Turn::Frame(frame) => connection.send(&frame).await,
                Turn::Command(command) => {
                    if let Received::Identify(body) = &command {
                        let answer = self.identify(number, body);
                        connection.agree(body, answer);
                        connection.respond(answer).await;
                    } else if self.handle(number, command, &frames).is_break() {
                        // Earlier answers and the error leave. The commands behind are lost, as in nsqd.
                        while let Ok(frame) = outgoing.try_recv() {
                            connection.send(&frame).await;
                        }
                        break;
                    }
                }
            }
        }
        self.state.lock().disconnect(number);
    }

    /// Carries an IDENTIFY out. Returns the answer.
    fn identify(&self, number: u64, body: &serde_json::Value) -> &'static str {
        let mut state = self.state.lock();
        match body["publisher_id"].as_str() {
            Some(id) if state.takes_numbers => {
                let id = id.to_owned();
                state.publishers.insert(number, id);
                r#"{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,"publisher_id":true}"#
            }
            _ => {
                r#"{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000}"#
            }
        }
    }

    /// Carries a command out. The answers go to `frames`. `Break` means an error after which nsqd closes the connection.
    fn handle(
        &self,
        number: u64,
        command: Received,
        frames: &mpsc::UnboundedSender<Vec<u8>>,
    ) -> ControlFlow<()> {
        let send = |frame: Vec<u8>| {
            // The receiver lives in the task that calls this function.
            let _ = frames.send(frame);
        };
        let respond = |data: &[u8]| {
            let mut frame = Vec::new();
            encode::response(&mut frame, data);
            send(frame);
        };
        let mut state = self.state.lock();
        match command {
            Received::Identify(_) => unreachable!("the caller answers it"),
            Received::Auth(_) => {
                respond(br#"{"identity":"","identity_url":"","permission_count":1}"#)
            }
            Received::Sub { topic, channel } => {
                state.subscribe(number, topic, channel, frames.clone());
                respond(b"OK");
            }
            Received::Pub { .. } | Received::Mpub { .. } | Received::Dpub { .. } => {
                if let Some(text) = state.refusals.pop_front() {
                    send(error(&text));
                    return ControlFlow::Break(());
                }
                self.store(&mut state, number, command);
                respond(b"OK");
            }
            Received::Rdy(count) => state.set_ready(number, count),
            Received::Fin(id) => {
                if !state.finish(number, &id) {
                    send(error("E_FIN_FAILED FIN failed ID not in flight"));
                }
            }
            Received::Req { id, delay, .. } => match state.take_in_flight(number, &id) {
                Some((topic, channel, stored)) => self.later(delay, move |state| {
                    state.requeue(&topic, &channel, stored);
                }),
                None => send(error("E_REQ_FAILED REQ failed ID not in flight")),
            },
            Received::Touch(_) | Received::Nop => {}
            Received::Cls => {
                state.set_ready(number, 0);
                respond(b"CLOSE_WAIT");
            }
        }
        ControlFlow::Continue(())
    }

    /// Stores the messages of a publish, but for those that were stored before.
    fn store(&self, state: &mut State, number: u64, publish: Received) {
        match publish {
            Received::Pub {
                topic,
                number: of,
                body,
            } => {
                if state.is_fresh(number, &topic, of) {
                    state.store(&topic, body);
                }
            }
            Received::Mpub {
                topic,
                number: first,
                bodies,
            } => {
                for (index, body) in (0_u64..).zip(bodies) {
                    let of = first.map(|first| first + index);
                    if state.is_fresh(number, &topic, of) {
                        state.store(&topic, body);
                    }
                }
            }
            Received::Dpub {
                topic,
                delay,
                number: of,
                body,
            } => {
                if state.is_fresh(number, &topic, of) {
                    self.later(delay, move |state| state.store(&topic, body));
                }
            }
            _ => unreachable!("the command publishes"),
        }
    }

    /// Changes the state after `delay`.
    fn later(&self, delay: Duration, change: impl FnOnce(&mut State) + Send + 'static) {
        let broker = self.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            change(&mut broker.state.lock());
        });
    }
}

fn error(text: &str) -> Vec<u8> {
    let size = u32::try_from(text.len() + 4).expect("an error is short");
    let mut frame = size.to_be_bytes().to_vec();
    frame.extend_from_slice(&1_u32.to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame
}

#[cfg(test)]
mod tests;
