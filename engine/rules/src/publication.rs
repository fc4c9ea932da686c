//! [`Publication`]: the messages of one publish command.

use wire::origin::Origin;

/// Messages of one publish command, ready to be appended.
#[derive(Debug, Clone, Copy)]
pub struct Publication<B> {
    /// The bodies, in order.
    pub bodies: B,
    /// The number of messages.
    pub count: u32,
    /// The bytes of all bodies.
    pub body_bytes: u64,
    /// Milliseconds between the hand-over to a channel and the first delivery; 0 for none. Only a
    /// publish of one message can be deferred.
    pub defer_ms: u32,
    /// The origin of the first message. The numbers of the others follow. `None`: the publisher does not number its
    /// messages.
    pub origin: Option<Origin>,
}

impl<'b> Publication<std::iter::Once<&'b [u8]>> {
    /// Makes the publication of one message.
    pub fn one(body: &'b [u8], defer_ms: u32, origin: Option<Origin>) -> Self {
        let body_bytes = body.len() as u64;
        Publication {
            bodies: std::iter::once(body),
            count: 1,
            body_bytes,
            defer_ms,
            origin,
        }
    }
}
