//! [`Consumers`]: the consumers of a channel, and whose turn it is.

use crate::client::{Client, Clients};
use crate::dirty_set::DirtySet;
use crate::ids::ClientId;
use std::time::Duration;

/// Messages a consumer gets before the next one has its turn. Measured: 16, 64 and 512 cost the
/// same, so fairness is free.
pub(super) const TURN_MESSAGES: u32 = 64;

/// The longest time for which a consumer with a little credit waits for its next messages. One new message for each
/// finished one would cost one write per message (TCP's silly window). So the consumer gets messages when it has credit
/// for an eighth of its RDY or for [`TURN_MESSAGES`], or after this time. With RDY below 16, an eighth is one message,
/// and the consumer does not wait.
const REFILL_DELAY: Duration = Duration::from_millis(1);

/// The consumers of a channel.
///
/// Invariant: a consumer with credit is in `ready` or `refills`.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    pub(crate) all: Vec<ClientId>,
    /// Consumers that may take messages, in turn.
    pub(super) ready: DirtySet<ClientId>,
    /// Consumers with some credit, but too little for a delivery of their own; see `REFILL_DELAY`.
    refills: DirtySet<ClientId>,
    /// The time at which the consumers of `refills` move to `ready`.
    pub(super) refill_at: Option<Duration>,
}

impl Consumers {
    /// Adds a consumer; it gets nothing before RDY.
    pub(crate) fn add(&mut self, id: ClientId) {
        self.all.push(id);
    }

    /// Removes a consumer. What it holds stays in flight until its timeout.
    pub(crate) fn remove(&mut self, id: ClientId, client: &mut Client) {
        self.all.retain(|consumer| *consumer != id);
        self.ready.remove(id, &mut client.consumer.in_ready);
        self.refills.remove(id, &mut client.consumer.in_refills);
        client.consumer.in_flight = 0;
    }

    /// Puts a consumer on the ready list if it may take messages.
    ///
    /// Call this after a change for which the consumer waits, such as RDY. After a FIN or REQ, call
    /// [`Consumers::refill`].
    pub(crate) fn make_ready(&mut self, id: ClientId, client: &mut Client) {
        if client.credit() > 0 {
            self.ready.insert(id, &mut client.consumer.in_ready);
        }
    }

    /// Lists a consumer that has finished or requeued messages. A consumer with enough credit goes on the ready list,
    /// and one with little credit on the list of refills.
    pub(crate) fn refill(&mut self, id: ClientId, client: &mut Client, now: Duration) {
        let credit = client.credit();
        if client.consumer.in_ready.is_set() || credit == 0 {
            return;
        }
        if credit >= (client.consumer.ready_count / 8).clamp(1, TURN_MESSAGES) {
            self.make_ready(id, client);
        } else {
            self.refills.insert(id, &mut client.consumer.in_refills);
            self.refill_at.get_or_insert(now + REFILL_DELAY);
        }
    }

    /// Puts the consumers of `refills` on the ready list, if their time has come. Returns true if one moved.
    pub(super) fn end_refills(&mut self, now: Duration, clients: &mut Clients) -> bool {
        let mut has_moved = false;
        if self.refill_at.take_if(|at| *at <= now).is_some() {
            while let Some(id) = self
                .refills
                .pop_first(|id| Some(&mut clients.get_mut(id)?.consumer.in_refills))
            {
                if let Some(client) = clients.get_mut(id) {
                    has_moved = true;
                    self.make_ready(id, client);
                }
            }
        }
        has_moved
    }

    /// Returns how many messages the consumers on the ready list may be sent.
    pub(super) fn ready_credit(&self, clients: &Clients) -> u64 {
        let credits = self.ready.iter().filter_map(|id| clients.get(id));
        credits.map(|client| u64::from(client.credit())).sum()
    }

    /// Asserts the invariant written on the type.
    pub(super) fn check(&self, clients: &Clients) {
        assert!(self.refills.is_empty() || self.refill_at.is_some());
        for id in &self.all {
            let client = clients.get(*id).expect("a consumer is connected");
            let (in_ready, in_refills) = (&client.consumer.in_ready, &client.consumer.in_refills);
            self.ready.check(*id, in_ready);
            self.refills.check(*id, in_refills);
            assert!(
                client.credit() == 0 || in_ready.is_set() || in_refills.is_set(),
                "credit puts it on one of the lists"
            );
        }
    }
}
