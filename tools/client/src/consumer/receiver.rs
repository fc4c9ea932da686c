//! [`Receiver`]: what a consumer does with what an nsqd sends. It never waits.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::inbox::Inbox;
#[cfg(feature = "dedup")]
use super::sieve::Sieve;
use super::touching::Touching;
use crate::core::Batch;
use crate::error::{ConnectionError, ErrorFrame};
use crate::event::Event;
use crate::hub::now;
use crate::link::Recipient;
use crate::message::Message;
use crate::message::delivery::{Delivery, Source};

/// nsqd's answer to CLS: no more messages come.
const CLOSE_WAIT: &[u8] = b"CLOSE_WAIT";

/// The most messages of a connection that may wait for the application, as a multiple of the highest RDY that the
/// connection had. nsqd has at most RDY messages in flight. To the client, there may be more: nsqd's clock for a
/// timeout begins when it sends the message, and the client's when it reads the message. So a client that is held up
/// reads messages together with those that nsqd sends in their place.
const WAITING_FACTOR: usize = 4;

/// Puts the messages of one connection into the inbox, once per read.
///
/// The messages that wait are bounded by [`WAITING_FACTOR`], copies of messages in progress included. If there are
/// more, those that have timed out are dropped: nsqd delivers them again. If there are still too many, nsqd ignores
/// RDY, and the connection ends.
pub(crate) struct Receiver {
    source: Arc<Source>,
    inbox: Arc<Inbox>,
    /// The messages to touch. `None` if the library touches no message.
    touching: Option<Arc<Touching>>,
    /// The messages of this read.
    messages: Vec<Message>,
    /// Recognises messages. `None` if the consumer has no filter.
    #[cfg(feature = "dedup")]
    sieve: Option<Arc<Sieve>>,
}

impl Receiver {
    pub(crate) fn new(
        source: Arc<Source>,
        inbox: Arc<Inbox>,
        touching: Option<Arc<Touching>>,
    ) -> Receiver {
        Receiver {
            source,
            inbox,
            touching,
            messages: Vec::new(),
            #[cfg(feature = "dedup")]
            sieve: None,
        }
    }

    /// Sets the part that recognises messages.
    #[cfg(feature = "dedup")]
    pub(crate) fn set_sieve(&mut self, sieve: Option<Arc<Sieve>>) {
        self.sieve = sieve;
    }

    fn add(&mut self, now: Instant, batch: Batch) {
        self.messages.reserve(batch.len());
        for raw in batch {
            let delivery = Delivery::new(&self.source, now, &raw);
            self.messages.push(match &self.touching {
                None => Message::new(raw.body, delivery),
                Some(touching) => {
                    let delivery = Arc::new(delivery);
                    touching.add(&delivery);
                    Message::shared(raw.body, delivery)
                }
            });
        }
    }

    /// Passes the messages on, or back to nsqd if the consumer is stopping. Fails if too many wait.
    fn flush(&mut self) -> Result<(), ConnectionError> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let Source { hub, line } = &*self.source;
        hub.count_received(now(), line, self.messages.len() as u64);
        #[cfg(feature = "dedup")]
        if let Some(sieve) = &self.sieve {
            sieve.keep_fresh(&mut self.messages);
        }
        self.inbox.push(line.id, &mut self.messages);
        for message in self.messages.drain(..) {
            message.delivery().give_back();
        }
        let waiting_max = (line.ready_peak() as usize).saturating_mul(WAITING_FACTOR);
        if self.waiting() > waiting_max {
            self.drop_timed_out(waiting_max)
        } else {
            Ok(())
        }
    }

    /// Returns the number of messages of the connection that wait for the application, or for the answer to their first
    /// copy, or of the store.
    fn waiting(&self) -> usize {
        let line = &self.source.line;
        let waiting = self.inbox.waiting(line.id);
        #[cfg(feature = "dedup")]
        let waiting = waiting + self.sieve.as_ref().map_or(0, |sieve| sieve.waiting(line));
        waiting
    }

    /// Drops the messages that have timed out. Fails if more than `waiting_max` of this connection are left.
    fn drop_timed_out(&self, waiting_max: usize) -> Result<(), ConnectionError> {
        let Source { hub, line } = &*self.source;
        let timed_out = self.inbox.remove_timed_out(now());
        for message in &timed_out {
            message.delivery().time_out();
        }
        if !timed_out.is_empty() {
            hub.events.emit(Event::TimedOut {
                client: hub.client.clone(),
                node: line.node.clone(),
                count: timed_out.len(),
            });
        }
        match self.waiting() {
            waiting if waiting > waiting_max => Err(ConnectionError::ReadyExceeded {
                waiting,
                ready: line.ready_peak(),
            }),
            _ => Ok(()),
        }
    }
}

impl Recipient for Receiver {
    fn messages(&mut self, batch: Batch) -> Result<(), ConnectionError> {
        self.add(now(), batch);
        Ok(())
    }

    fn response(&mut self, data: Bytes) -> Result<(), ConnectionError> {
        if data == CLOSE_WAIT {
            // The messages before it count as in flight.
            self.flush()?;
            self.source.line.drain();
        }
        Ok(())
    }

    fn error(&mut self, error: ErrorFrame) -> Result<(), ConnectionError> {
        let Source { hub, line } = &*self.source;
        // nsqd keeps the connection only after E_FIN_FAILED, E_REQ_FAILED and E_TOUCH_FAILED: the message was not in flight.
        let is_too_late = !error.is_fatal();
        hub.events.emit(Event::ErrorFrame {
            client: hub.client.clone(),
            node: line.node.clone(),
            error,
        });
        if is_too_late && hub.take_lateness() {
            hub.events.emit(Event::AnswerTooLate {
                client: hub.client.clone(),
                node: line.node.clone(),
                msg_timeout: line.msg_timeout,
            });
        }
        Ok(())
    }

    fn read_done(&mut self) -> Result<(), ConnectionError> {
        self.flush()
    }
}
