//! [`RestoredKeys`]: reads the keys of a topic at the start, from the saved file and the newest messages of the log.

use crate::content_key::ContentKey;
use crate::key_table::Lost;
use crate::key_tables::{KeyTables, clock_ms};
use crate::keys::Keys;
use crate::rules::{DedupRule, DedupRules};
use crate::saved_keys::SavedKeys;
use diskq_log::range::within;
use diskq_log::{NewestMessages, Now, Seq, SeqRange, plant};
use wire::name::TopicName;

/// The most bytes of segments that a start reads for the keys of a topic: 256 MiB, which take about a second.
const READ_BYTES_MAX: u64 = 256 << 20;

/// The keys of a topic while the process starts: those of the saved state, and those of the later messages in the log.
#[derive(Debug)]
pub struct RestoredKeys {
    keys: Keys,
    now: Now,
    /// The seq from which messages may have keys that the saved state does not have.
    from: Seq,
    /// True if there are keys that the saved state does not have, or if it has keys of lost messages.
    has_unsaved: bool,
}

impl RestoredKeys {
    /// Begins without a key. `None`: the topic does not keep keys over a restart. `process_seed` is a random number of this
    /// process.
    #[must_use]
    pub fn new(
        rules: &DedupRules,
        topic: TopicName<'_>,
        now: Now,
        process_seed: u64,
    ) -> Option<RestoredKeys> {
        match rules.of(topic.as_str())? {
            DedupRule::Content(rule) if !topic.is_ephemeral() => Some(RestoredKeys {
                keys: Keys::new(rule, topic, process_seed, clock_ms(now.mono)),
                now,
                from: Seq(0),
                has_unsaved: false,
            }),
            _ => None,
        }
    }

    /// Takes the saved state.
    ///
    /// # Errors
    /// Another rule has saved the state, so its keys are not used. The error is the key that the rule has now.
    pub fn load(&mut self, saved: &SavedKeys<'_>) -> Result<(), &ContentKey> {
        if saved.rule() != self.keys.key.to_string() {
            return Err(&self.keys.key);
        }
        self.keys.tables = saved.restore(self.now, self.keys.tables.plan);
        self.from = saved.boundary();
        Ok(())
    }
}

impl From<RestoredKeys> for Keys {
    /// Keys that are in no file yet are saved, even if no new message comes: the log may give up their messages.
    fn from(restored: RestoredKeys) -> Keys {
        let mut keys = restored.keys;
        if restored.has_unsaved {
            keys.save_later(restored.now.mono);
        }
        keys
    }
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
            let excess = messages.saturating_sub(self.keys.tables.plan.keys());
            if excess > 0 {
                from = base.offset(excess.min(*count));
                break;
            }
        }
        plant!(NewestKeysNotRead, return Seq(u64::MAX));
        from.max(self.from)
    }

    fn begin(&mut self, next: Seq, lost: &[SeqRange]) {
        let tables = &mut self.keys.tables;
        if self.from > next {
            // The log does not know the newest messages of the state: a power failure took its files, and the clock was
            // set back. It gives their seqs to other messages.
            let (plan, hasher) = (tables.plan, tables.hasher);
            *tables = KeyTables::new(plan, hasher, clock_ms(self.now.mono));
            self.from = Seq(0);
        }
        // The messages that the state does not cover are taken from the log, so they are there.
        let covered = SeqRange::new(Seq(0), self.from);
        let lost = Lost::from_sorted(within(covered, lost));
        if tables.names_any(&lost) {
            tables.lost = lost;
            self.has_unsaved = true;
        }
    }

    fn add(&mut self, seq: Seq, published_ns: u64, body: &[u8]) {
        if let Some(fingerprint) = self.keys.fingerprint(body) {
            let age_ms = self.now.wall_ns.saturating_sub(published_ns) / 1_000_000;
            let at_ms = clock_ms(self.now.mono).saturating_sub(age_ms);
            self.keys.tables.restore_key(at_ms, fingerprint, seq);
            self.has_unsaved = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::KeyWindow;
    use crate::rules::ContentRule;
    use std::time::Duration;

    fn restored() -> RestoredKeys {
        let rule = ContentRule::new(ContentKey::Body, KeyWindow::Count(700), None);
        let mut rules = DedupRules::default();
        rules.add("*", DedupRule::Content(rule.expect("small")));
        let now = Now {
            mono: Duration::ZERO,
            wall_ns: 5_000_000_000,
        };
        let topic = TopicName::new(b"t").expect("a name");
        RestoredKeys::new(&rules, topic, now, 1).expect("there is a rule")
    }

    fn find(restored: &RestoredKeys, body: &[u8]) -> Option<Seq> {
        let fingerprint = restored.keys.fingerprint(body)?;
        restored.keys.tables.find(fingerprint)
    }

    #[test]
    fn a_start_reads_the_newest_messages() {
        let keys = restored();
        let most = keys.keys.tables.plan.keys();
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
            let mut keys = restored();
            keys.add(Seq(7), 4_000_000_000, b"a");
            keys.from = Seq(8);
            keys.begin(Seq(next), &[]);
            assert_eq!(find(&keys, b"a").is_some(), is_known, "{next}");
            assert_eq!(keys.from, Seq(if is_known { 8 } else { 0 }));
        }
    }

    #[test]
    fn messages_of_the_log_are_remembered() {
        let mut keys = restored();
        keys.add(Seq(7), 4_000_000_000, b"a");
        // The clock was set back.
        keys.add(Seq(8), 9_000_000_000, b"b");
        let found = [&b"a"[..], b"b", b"c"].map(|body| find(&keys, body));
        assert_eq!(found, [Some(Seq(7)), Some(Seq(8)), None]);
    }
}
