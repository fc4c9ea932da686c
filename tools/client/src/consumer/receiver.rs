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

/// Puts the messages of one connection into the inbox, once per read.
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
    pub(crate) fn sort_by(&mut self, sieve: Option<Arc<Sieve>>) {
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

    /// Passes the messages on, or back to nsqd if the consumer is stopping.
    fn flush(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let Source { hub, line } = &*self.source;
        hub.count_received(now(), line, self.messages.len() as u64);
        #[cfg(feature = "dedup")]
        if let Some(sieve) = &self.sieve {
            sieve.sort(&mut self.messages);
        }
        self.inbox.push(&mut self.messages);
        for message in self.messages.drain(..) {
            // The answer is on its way without being awaited.
            message.delivery().give_back();
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
            self.flush();
            self.source.line.drain();
        }
        Ok(())
    }

    fn error(&mut self, error: ErrorFrame) -> Result<(), ConnectionError> {
        let Source { hub, line } = &*self.source;
        hub.events.emit(Event::ErrorFrame {
            client: hub.client.clone(),
            node: line.node.clone(),
            error,
        });
        Ok(())
    }

    fn read_done(&mut self) {
        self.flush();
    }
}
