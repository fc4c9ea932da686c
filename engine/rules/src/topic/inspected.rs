//! Publishes of a topic that looks into its messages: it recognises those that come again, or measures how many do.

use super::{Published, Topic};
use crate::content::meter::MeterReport;
use crate::freed_table::FreedTable;
use crate::now::Now;
use crate::publication::Publication;
use diskq_log::AppendError;

impl Topic {
    /// Does a publish of a topic that recognises messages, or has a meter.
    #[inline(never)]
    pub(super) fn publish_inspected<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        let published = match (self.keys.take(), &self.numbers) {
            (Some(mut keys), _) => {
                let published = self.store_fresh_keys(now, publication, &mut keys);
                self.keys = Some(keys);
                published?
            }
            (None, Some(_)) => self.store_fresh_numbers(now, publication)?,
            (None, None) => self.store(now, publication)?,
        };
        if let Some(meter) = &mut self.meter {
            let bodies = publication.bodies.clone();
            bodies.for_each(|body| meter.see(now.mono, body));
        }
        Ok(published)
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

    /// Returns the result of the topic's meter. `None`: the topic has none.
    pub(crate) fn meter_report(&self) -> Option<MeterReport> {
        self.meter.as_ref().map(|meter| meter.report())
    }
}

/// Returns a table of keys as one that is freed in slices.
pub(super) fn boxed(table: Vec<u128>) -> Box<dyn FreedTable> {
    Box::new(table)
}
