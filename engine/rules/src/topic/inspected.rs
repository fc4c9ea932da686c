//! Publishes of a topic that looks into its messages, to recognise those that come again.

use super::{Published, Topic};
use crate::freed_table::FreedTable;
use crate::now::Now;
use crate::publication::Publication;
use diskq_log::AppendError;

impl Topic {
    /// Does a publish of a topic that recognises messages.
    #[inline(never)]
    pub(super) fn publish_inspected<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        match (self.keys.take(), &self.numbers) {
            (Some(mut keys), _) => {
                let published = self.store_fresh_keys(now, publication, &mut keys);
                self.keys = Some(keys);
                published
            }
            (None, Some(_)) => self.store_fresh_numbers(now, publication),
            (None, None) => self.store(now, publication),
        }
    }

    /// Takes what recognises messages apart, at the deletion of the topic. Returns the tables that are to be freed.
    pub(super) fn take_tables(&mut self) -> Vec<Box<dyn FreedTable>> {
        let keys = self
            .keys
            .take()
            .map_or(Vec::new(), |keys| keys.into_tables());
        let numbers = self.numbers.take().map(|numbers| numbers.into_tables());
        let tables = keys.into_iter().map(boxed);
        tables.chain(numbers.into_iter().flatten()).collect()
    }
}

/// Returns a table of keys as one that is freed in slices.
pub(super) fn boxed(table: Vec<u128>) -> Box<dyn FreedTable> {
    Box::new(table)
}
