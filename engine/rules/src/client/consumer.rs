//! [`Consumer`]: what a connection is subscribed to, and what it may receive.

use crate::dirty_set::Listed;
use crate::ids::{ChannelId, TopicKey};
use crate::stats::ConsumerCounters;
use std::time::Duration;
use wire::identify::ClientSettings;

/// The delivery to a connection.
///
/// Invariant: `in_flight` is what the channel's window holds for it.
#[derive(Debug)]
pub(crate) struct Consumer {
    /// The settings of the first IDENTIFY. As in nsqd, a later IDENTIFY does not change deliveries.
    pub(crate) settings: ClientSettings,
    pub(crate) locality: Locality,
    pub(crate) subscription: Option<(TopicKey, ChannelId)>,
    pub(crate) ready_count: u32,
    pub(crate) in_flight: u32,
    /// In its channel's `ready`.
    pub(crate) in_ready: Listed,
    /// In its channel's `refills`: waits until it has credit for more than a few messages.
    pub(crate) in_refills: Listed,
    pub(crate) coalescing: Coalescing,
    pub(crate) counters: ConsumerCounters,
}

impl Consumer {
    /// A consumer without a channel.
    pub(super) fn new(settings: ClientSettings) -> Consumer {
        Consumer {
            settings,
            locality: Locality::default(),
            subscription: None,
            ready_count: 0,
            in_flight: 0,
            in_ready: Listed::default(),
            in_refills: Listed::default(),
            coalescing: Coalescing::default(),
            counters: ConsumerCounters::default(),
        }
    }

    /// Returns how many messages RDY still allows.
    #[inline]
    pub(super) fn credit(&self) -> u32 {
        self.ready_count.saturating_sub(self.in_flight)
    }

    /// Counts messages on their way to it.
    #[inline]
    pub(crate) fn delivered(&mut self, count: u32) {
        self.in_flight += count;
        self.counters.message_count += u64::from(count);
    }

    /// Forgets its channel, which is gone with its lists.
    pub(crate) fn channel_gone(&mut self) {
        self.subscription = None;
        self.in_flight = 0;
        self.in_ready = Listed::default();
        self.in_refills = Listed::default();
    }
}

/// The answers of a consumer with fewer messages in hand than this are read as they come.
const MANY: u32 = 64;
/// The time that a client needs for one message, as long as nothing else is known. Few clients need less.
const PER_MESSAGE_NS_MAX: u32 = 500;
const PER_MESSAGE_NS_MIN: u32 = 30;
const LONGEST: Duration = Duration::from_millis(1);
/// Less is not worth a timer.
const SHORTEST: Duration = Duration::from_micros(20);

/// Delays the next read of a consumer, so that its answers gather.
///
/// Many clients write each FIN by itself. If FINs are carried out one by one, each costs a turn of the
/// shard, and a write for the message that takes its place. FINs that gather cost one turn and one write
/// together. A consumer with many messages in hand does not notice the delay, as long as its FINs are
/// read before it has no message left. This type learns how long a consumer takes for a message. If
/// the consumer was nearly done at a read, the learned time is halved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coalescing {
    per_message_ns: u32,
    /// Answers since the last read.
    answered: u32,
    /// True if the last read was delayed, so that these answers could gather.
    has_waited: bool,
}

impl Default for Coalescing {
    fn default() -> Coalescing {
        Coalescing {
            per_message_ns: PER_MESSAGE_NS_MAX,
            answered: 0,
            has_waited: false,
        }
    }
}

impl Coalescing {
    /// Counts messages that were answered for.
    pub(crate) fn count(&mut self, answers: u32) {
        self.answered = self.answered.saturating_add(answers);
    }

    /// Returns after a read how long the next answers may gather, of the `left` messages still in hand. `None` if
    /// they may not.
    pub(crate) fn next_delay(&mut self, left: u32, may_wait: bool) -> Option<Duration> {
        let answered = u64::from(std::mem::take(&mut self.answered));
        if self.has_waited {
            let held = answered + u64::from(left);
            if answered * 4 >= held * 3 {
                self.per_message_ns = (self.per_message_ns / 2).max(PER_MESSAGE_NS_MIN);
            } else if answered * 4 < held {
                self.per_message_ns = (self.per_message_ns * 5 / 4).min(PER_MESSAGE_NS_MAX);
            }
        }
        let wait = Duration::from_nanos(u64::from(self.per_message_ns) * u64::from(left));
        self.has_waited = may_wait && left >= MANY && wait >= SHORTEST;
        self.has_waited.then(|| wait.min(LONGEST))
    }
}

/// The place of a consumer, as its first IDENTIFY says. Without the experiment, all consumers are [`Locality::Global`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Locality {
    /// In the node's zone.
    Zone,
    /// In the node's region.
    Region,
    /// Elsewhere, or not known.
    #[default]
    Global,
}

/// The place of this node: `--topology-zone` and `--topology-region`. With
/// `--enable-experiment=topology-aware-consumption`, a message goes to a consumer in the node's zone. If no such
/// consumer waits, the message goes to one in the node's region, else to any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Empty: not known.
    pub zone: String,
    /// Empty: not known.
    pub region: String,
}

impl Topology {
    /// Returns the locality of a consumer that names this zone and region. As in nsqd, a consumer without a zone counts
    /// as in the zone of a node without a zone.
    pub(crate) fn locality(&self, zone: &str, region: &str) -> Locality {
        if zone == self.zone {
            Locality::Zone
        } else if region == self.region {
            Locality::Region
        } else {
            Locality::Global
        }
    }

    /// Returns the rank of a consumer: the lowest comes first. Only a place with a name is preferred.
    pub(crate) fn rank(&self, locality: Locality) -> u8 {
        match locality {
            Locality::Zone if !self.zone.is_empty() => 0,
            Locality::Zone | Locality::Region if !self.region.is_empty() => 1,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consumer that takes `ns` for a message and always gets new ones, over `reads` reads. Returns
    /// how many of them it would have been idle before, and the last pause.
    fn play(ns: u64, rdy: u32, reads: u32) -> (u32, Option<Duration>) {
        let mut coalescing = Coalescing::default();
        let (mut idle, mut last) = (0, None);
        for _ in 0..reads {
            // The consumer finishes one message at once, after the last delivery.
            coalescing.count(1);
            last = coalescing.next_delay(rdy - 1, true);
            let Some(pause) = last else { continue };
            let done = (pause.as_nanos() as u64 / ns).min(u64::from(rdy - 1)) as u32;
            idle += u32::from(done == rdy - 1);
            coalescing.count(done);
            assert!(coalescing.next_delay(rdy - 1 - done, true) <= Some(LONGEST));
            // Delivered to again; it was not kept waiting for that read.
            coalescing.has_waited = false;
        }
        (idle, last)
    }

    #[test]
    fn a_slow_consumer_may_gather_for_long() {
        assert_eq!(play(1_000, 2500, 100), (0, Some(LONGEST)));
        assert_eq!(
            play(100_000, 200, 100),
            (0, Some(Duration::from_nanos(199 * 500)))
        );
    }

    #[test]
    fn a_fast_consumer_is_soon_read_before_it_is_idle() {
        let (idle, last) = play(150, 2500, 1000);
        assert!((1..20).contains(&idle), "{idle}");
        let last = last.unwrap();
        assert!(
            last < Duration::from_nanos(150 * 2500) && last >= SHORTEST,
            "{last:?}"
        );
    }

    #[test]
    fn with_little_in_hand_nothing_gathers() {
        assert_eq!(play(1_000, 64, 10).1, None);
        let mut coalescing = Coalescing::default();
        assert_eq!(coalescing.next_delay(0, true), None);
        assert_eq!(
            coalescing.next_delay(64, true),
            Some(Duration::from_micros(32))
        );
        assert_eq!(
            coalescing.next_delay(2500, false),
            None,
            "something is to be written first"
        );
    }

    #[test]
    fn near_ones_come_first_where_places_have_names() {
        let rank = |zone: &str, region: &str, client_zone, client_region| {
            let node = Topology {
                zone: zone.to_owned(),
                region: region.to_owned(),
            };
            let locality = node.locality(client_zone, client_region);
            (locality, node.rank(locality))
        };
        assert_eq!(rank("z", "r", "z", "r"), (Locality::Zone, 0));
        assert_eq!(rank("z", "r", "z", "other"), (Locality::Zone, 0));
        assert_eq!(rank("z", "r", "y", "r"), (Locality::Region, 1));
        assert_eq!(rank("z", "r", "", ""), (Locality::Global, 2));
        // Counted as near, as in nsqd, but not preferred.
        assert_eq!(rank("", "r", "", "q"), (Locality::Zone, 1));
        assert_eq!(rank("", "", "", ""), (Locality::Zone, 2));
        assert_eq!(rank("z", "", "y", ""), (Locality::Region, 2));
    }
}
