//! Messages as the copies that wait: [`Held`] for [`Message`].

use super::LIMIT_MAX;
use crate::consumer::waiting_copies::{Held, Limits};
use crate::message::Message;
use crate::ready::ConnectionId;

impl Held for Message {
    fn touch(&self) {
        // A connection that is lost needs no touch.
        drop(self.delivery().touch());
    }

    fn is_gone(&self) -> bool {
        self.delivery().source.line.is_lost()
    }

    fn may_go_back(&self) -> bool {
        self.delivery().may_go_back()
    }

    fn connection(&self) -> ConnectionId {
        self.delivery().source.line.id
    }

    fn limits(&self) -> Limits {
        let delivery = self.delivery();
        let line = &delivery.source.line;
        Limits {
            delivered_at: delivery.delivered_at,
            timeout: line.msg_timeout.min(LIMIT_MAX),
            timeout_max: line.msg_timeout_max.min(LIMIT_MAX),
        }
    }
}
