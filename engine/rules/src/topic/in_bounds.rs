//! A topic without channels drops the oldest messages that are beyond its bounds: see [`Unclaimed`].
//!
//! Such a topic keeps its messages for its first channel. A topic in grace keeps all of them. So does a topic that has
//! not started, because its channels are not known yet.
//!
//! [`Unclaimed`]: super::unclaimed::Unclaimed

use super::Topic;
use super::pieces::{Pieces, release_below};
use crate::now::Now;
use crate::work::Work;
use diskq_log::plant;
use std::time::Duration;

impl Topic {
    /// Drops the oldest messages that no channel owns, if there are too many. Call this when the topic cannot
    /// distribute messages, at the end of a turn and when [`Topic::unclaimed_timeout`] is due.
    pub(super) fn bound_unclaimed(&mut self, now: Now, work: &mut Work) {
        let totals = self.totals();
        let has_channels = !self.by_name.is_empty();
        plant!(BoundsBehindPause, let has_channels = false);
        let is_in_grace = self.grace.is_some();
        plant!(BoundsInGrace, let is_in_grace = false);
        let is_unclaimed = self.started && !has_channels && !is_in_grace;
        let Some(unclaimed) = &mut self.unclaimed else {
            return;
        };
        let kept = &self.undistributed;
        let Some(end) = kept.end() else {
            return;
        };
        if !is_unclaimed {
            unclaimed.pieces = None;
            return;
        }
        let bounds = unclaimed.bounds;
        let pieces = unclaimed
            .pieces
            .get_or_insert_with(|| Pieces::of_log(&self.log, kept.iter(), totals, now));
        pieces.add(end, totals, now, bounds);
        let Some(below) = pieces.cut(now, bounds) else {
            return;
        };
        let (messages, deferred) = (&mut self.undistributed, &mut self.undistributed_deferred);
        let count = release_below(below, messages, deferred, &mut self.log, work);
        if count == 0 {
            return;
        }
        if unclaimed.dropped_count == 0 {
            let name = &self.name;
            self.news.push(format!(
                "TOPIC({name}): messages that no channel owns are dropped (--unclaimed-messages); unclaimed_dropped_count \
                 in /stats says how many"
            ));
        }
        unclaimed.dropped_count += count;
        self.make_checkpoint_due();
    }

    /// Returns the time at which the oldest message that no channel owns is too old.
    pub(super) fn unclaimed_timeout(&self) -> Option<Duration> {
        let unclaimed = self.unclaimed.as_ref();
        let unclaimed = unclaimed.filter(|_| !self.undistributed.is_empty())?;
        let since = unclaimed.pieces.as_ref()?.since()?;
        since.checked_add(unclaimed.bounds.age)
    }

    /// Discards the count of the messages that no channel owns. Call this when the topic was emptied or gets a channel.
    pub(super) fn recount_unclaimed(&mut self) {
        if let Some(unclaimed) = &mut self.unclaimed {
            unclaimed.pieces = None;
        }
    }

    /// Returns the number of messages that were dropped since the process started, because no channel owned them.
    pub(crate) fn unclaimed_dropped_count(&self) -> u64 {
        let unclaimed = self.unclaimed.as_ref();
        unclaimed.map_or(0, |unclaimed| unclaimed.dropped_count)
    }
}
