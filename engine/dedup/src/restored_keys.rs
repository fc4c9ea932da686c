//! [`RestoredKeys`]: reads the keys of a topic at the start, from the saved file and the newest messages of the log.

use crate::content_key::ContentKey;
use crate::fingerprint::KeyHasher;
use crate::generation::Lost;
use crate::generations::{Generations, clock_ms};
use crate::rules::ContentRule;
use crate::saved_keys::SavedKeys;
use diskq_log::range::within;
use diskq_log::{NewestMessages, Now, Seq, SeqRange, plant};
use std::time::Duration;

/// The most bytes of segments that a start reads for the keys of a topic: 256 MiB, which take about a second.
const READ_BYTES_MAX: u64 = 256 << 20;

/// The keys of a topic while the process starts: those of the saved state, and those of the later messages in the log.
#[derive(Debug)]
pub struct RestoredKeys {
    rule: ContentRule,
    now: Now,
    from: Seq,
    /// True if there are keys that the saved state does not have, or if it has keys of lost messages.
    has_unsaved: bool,
    pub(crate) generations: Generations,
}

impl RestoredKeys {
    /// Starts from the saved state. Starts empty if there is none, or if another rule has saved it. `seed` is a random
    /// number of this process and topic.
    #[must_use]
    pub fn new(
        rule: &ContentRule,
        now: Now,
        saved: Option<&SavedKeys<'_>>,
        seed: u64,
    ) -> RestoredKeys {
        let saved = saved.filter(|saved| is_of(rule.key(), saved));
        let plan = rule.plan();
        let new = || Generations::new(plan, KeyHasher::seeded(seed), clock_ms(now.mono));
        RestoredKeys {
            rule: rule.clone(),
            now,
            from: saved.map_or(Seq(0), SavedKeys::boundary),
            has_unsaved: false,
            generations: saved.map_or_else(new, |saved| saved.restore(now, plan)),
        }
    }

    /// Returns the key that the rule has now, if the saved state is of another one. Then its keys are not used.
    #[must_use]
    pub fn replaces(&self, saved: &SavedKeys<'_>) -> Option<&ContentKey> {
        let key = self.rule.key();
        (!is_of(key, saved)).then_some(key)
    }

    /// Returns the time of the start, if the saved state does not have the same keys.
    pub(crate) fn unsaved_since(&self) -> Option<Duration> {
        self.has_unsaved.then_some(self.now.mono)
    }
}

fn is_of(key: &ContentKey, saved: &SavedKeys<'_>) -> bool {
    saved.rule() == key.to_string()
}

impl NewestMessages for RestoredKeys {
    /// The newest messages that the saved state does not cover count: no more than the window has room for, and no more
    /// than 256 MiB.
    fn from(&self, segments: &[(Seq, u64, u64)]) -> Seq {
        let (mut messages, mut bytes, mut from) = (0, 0, Seq(u64::MAX));
        for (base, count, segment_bytes) in segments.iter().rev() {
            bytes += segment_bytes;
            if bytes > READ_BYTES_MAX {
                break;
            }
            messages += count;
            from = *base;
            let excess = messages.saturating_sub(self.rule.plan().keys());
            if excess > 0 {
                from = base.offset(excess.min(*count));
                break;
            }
        }
        plant!(NewestKeysNotRead, return Seq(u64::MAX));
        from.max(self.from)
    }

    fn begin(&mut self, next: Seq, lost: &[SeqRange]) {
        if self.from > next {
            // The log does not know the newest messages of the state: a power failure took its files, and the clock was
            // set back. It gives their seqs to other messages.
            let hasher = self.generations.hasher;
            self.generations = Generations::new(self.rule.plan(), hasher, clock_ms(self.now.mono));
            self.from = Seq(0);
        }
        // The messages that the state does not cover are taken from the log, so they are there.
        let covered = SeqRange::new(Seq(0), self.from);
        let lost = Lost::from_sorted(within(covered, lost));
        if self.generations.names_any(&lost) {
            self.generations.set_lost(lost);
            self.has_unsaved = true;
        }
    }

    fn add(&mut self, seq: Seq, published_ns: u64, body: &[u8]) {
        let hasher = self.generations.hasher;
        let Some(fingerprint) = self.rule.key().fingerprint(&hasher, body) else {
            return;
        };
        let age_ms = self.now.wall_ns.saturating_sub(published_ns) / 1_000_000;
        let at_ms = clock_ms(self.now.mono).saturating_sub(age_ms);
        self.generations.restore_key(at_ms, fingerprint, seq);
        self.has_unsaved = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::KeyWindow;

    fn restored(window: u64) -> RestoredKeys {
        let rule = ContentRule::new(ContentKey::Body, KeyWindow::Count(window), None);
        let now = Now {
            mono: Duration::ZERO,
            wall_ns: 5_000_000_000,
        };
        RestoredKeys::new(&rule.expect("small"), now, None, 1)
    }

    #[test]
    fn a_start_reads_the_newest_messages() {
        let keys = restored(700);
        let most = keys.rule.plan().keys();
        assert_eq!(most, 800);
        assert_eq!(keys.from(&[]), Seq(u64::MAX));
        assert_eq!(keys.from(&[(Seq(10), 5, 99), (Seq(15), 5, 99)]), Seq(10));
        assert_eq!(
            keys.from(&[(Seq(10), 5, 99), (Seq(100), 1000, 99)]),
            Seq(300)
        );
        let large = READ_BYTES_MAX / 2 + 1;
        let segments = [(Seq(1), 9, 9), (Seq(10), 5, large), (Seq(15), 5, large)];
        assert_eq!(keys.from(&segments), Seq(15));
    }

    /// Regression: a power failure took a log's newest files, but not its file of keys, and the clock was set back. So
    /// new messages had seqs below those of older keys, and the next file of keys contradicted itself.
    #[test]
    fn keys_above_the_next_message_are_forgotten() {
        for (next, is_known) in [(9, true), (8, true), (7, false)] {
            let mut keys = restored(700);
            keys.add(Seq(7), 4_000_000_000, b"a");
            keys.from = Seq(8);
            keys.begin(Seq(next), &[]);
            let found = keys.rule.key().fingerprint(&keys.generations.hasher, b"a");
            let found = found.and_then(|it| keys.generations.find(it));
            assert_eq!(found.is_some(), is_known, "{next}");
            assert_eq!(keys.from, Seq(if is_known { 8 } else { 0 }));
        }
    }

    #[test]
    fn messages_of_the_log_are_remembered() {
        let mut keys = restored(700);
        keys.add(Seq(7), 4_000_000_000, b"a");
        // The clock was set back.
        keys.add(Seq(8), 9_000_000_000, b"b");
        let find = |body: &[u8]| {
            let hasher = keys.generations.hasher;
            let fingerprint = keys.rule.key().fingerprint(&hasher, body)?;
            keys.generations.find(fingerprint)
        };
        assert_eq!(
            (find(b"a"), find(b"b"), find(b"c")),
            (Some(Seq(7)), Some(Seq(8)), None)
        );
    }
}
