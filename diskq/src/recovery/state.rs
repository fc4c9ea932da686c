//! Start-up reads what the topic has saved of its messages: the newer of two files wins.

use diskq_log::plant;
use diskq_log::{DamageKind, STATE_FILES, SavedState, StateContent, States, decode_state};
use wire::go_error::system_text;
use wire::id::Seq;

use super::{NO_SEQS, Opening};
use crate::error::DiskError;
use crate::files::{Entry, Files};
use crate::keeper::is_media_error;

impl<F: Files> Opening<'_, F> {
    /// Reads the saved state, and decides from which seq on the origins of messages are wanted.
    pub(super) fn read_state(&mut self, entries: &[Entry]) -> Result<(), DiskError> {
        if !self.wants_origins {
            return Ok(());
        }
        let mut states: Vec<(usize, SavedState)> = Vec::new();
        let mut is_any_bad = false;
        for (file, name) in STATE_FILES.iter().enumerate() {
            let Some(entry) = entries.iter().find(|entry| entry.name == *name) else {
                continue;
            };
            let mut bytes = Vec::new();
            let read = bytes.try_reserve_exact(entry.bytes as usize);
            let read = read.map_err(std::io::Error::from).and_then(|()| {
                bytes.resize(entry.bytes as usize, 0);
                self.directory.read(name, 0, &mut bytes)
            });
            let trouble = match read.map(|()| decode_state(&bytes)) {
                Ok(StateContent::Empty) => continue,
                Ok(StateContent::State(state)) => {
                    // The origins of messages below the boundary are not read.
                    self.log.next = self.log.next.max(state.boundary);
                    states.push((file, state));
                    continue;
                }
                Ok(StateContent::Bad) => "does not agree with its CRC".to_owned(),
                Ok(StateContent::Newer(version)) => format!("is of unknown version {version}"),
                Err(error) if is_media_error(&error) => {
                    format!("cannot be read: {}", system_text(&error))
                }
                Err(error) => return Err(self.cannot_read(name, error)),
            };
            is_any_bad = true;
            let detail = format!("saved state {trouble}");
            self.report(DamageKind::State, name, NO_SEQS, detail);
        }
        states.sort_unstable_by_key(|(_, state)| state.number);
        let newest = states.pop();
        // A crash may have come before the sync of the newest state. If the other file is torn, a later state was being
        // written there, and the newest whole state was synced before.
        self.recovered.durable_boundary = match (states.pop(), &newest) {
            (Some((_, older)), Some((_, newest))) => older.boundary.min(newest.boundary),
            (None, Some((_, newest))) if is_any_bad => newest.boundary,
            (_, _) => Seq(0),
        };
        self.origins_from = match &newest {
            Some((_, state)) => state.boundary,
            // The numbers below the marks are lost. Messages that are sent again may be stored twice.
            None if is_any_bad => self.synced().min(self.checkpoint_next()),
            None => Seq(0),
        };
        plant!(NumbersNotRead, self.origins_from = Seq(u64::MAX));
        if let Some((file, state)) = newest {
            self.log.states = States::from_found(state.number, file);
            self.recovered.state = Some(state);
        }
        Ok(())
    }
}
