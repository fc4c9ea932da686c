//! [`Publication`]: the messages of one publish command, and their [`Fates`].

use diskq_log::Seq;
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

/// What becomes of the messages of a publish: the fresh ones are to be stored.
#[derive(Debug, Default)]
pub struct Fates {
    /// The number of fresh messages.
    pub count: u32,
    /// The bytes of their bodies.
    pub bytes: u64,
    /// The places of the other messages in the publish, in order.
    pub(crate) duplicates: Vec<u32>,
    /// The seq of the first fresh message, if the messages are appended now.
    pub(crate) start: Seq,
    /// The origin of the first message of the publish.
    pub(crate) origin: Option<Origin>,
    /// Duplicates that were not compared with their first copies.
    pub(crate) unverified: u64,
    /// Messages without the key.
    pub(crate) keyless: u64,
    /// Fresh messages whose keys are not remembered.
    pub(crate) unremembered: u64,
    /// Fresh messages of which nobody can tell whether they were stored before.
    pub(crate) unchecked: u64,
}

impl Fates {
    /// Adds the message at the next place of the publish.
    #[inline]
    pub(crate) fn add(&mut self, place: u32, body: &[u8], is_fresh: bool) {
        if is_fresh {
            self.count += 1;
            self.bytes += body.len() as u64;
        } else {
            self.duplicates.push(place);
        }
    }

    /// The seq of the next fresh message.
    pub(crate) fn next_seq(&self) -> Seq {
        self.start.offset(u64::from(self.count))
    }

    /// Returns the fresh messages of the publication, with their origins.
    pub fn fresh<'b>(
        &self,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> impl Iterator<Item = (&'b [u8], Option<Origin>)> {
        let mut duplicates = self.duplicates.iter().copied().peekable();
        let messages = (0..).zip(publication.bodies.clone());
        let fresh = messages.filter(move |(place, _)| duplicates.next_if_eq(place).is_none());
        fresh.map(move |(place, body)| (body, self.origin.map(|first| first.offset(place))))
    }
}
