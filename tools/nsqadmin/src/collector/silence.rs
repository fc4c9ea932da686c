//! [`Silence`]: logs once when an nsqlookupd stops answering, and once when it answers again.

use std::collections::{BTreeMap, BTreeSet};

use program::{log_info, log_warn};

use crate::checkup::LookupdRound;

/// The nsqlookupds that did not answer in the last round.
#[derive(Debug, Default)]
pub(super) struct Silence {
    silent: BTreeSet<String>,
}

impl Silence {
    /// Takes the answers of a round, and logs what has changed since the last one.
    pub(super) fn log_changes(&mut self, lookupds: &BTreeMap<String, LookupdRound>) {
        for (address, round) in lookupds {
            match round {
                Err(why) if self.silent.insert(address.clone()) => log_warn!(
                    "nsqlookupd {address} does not answer: {why}. Start it, or correct \
                     --lookupd-http-address, which takes addresses of HTTP such as 127.0.0.1:4161"
                ),
                Ok(_) if self.silent.remove(address) => {
                    log_info!("nsqlookupd {address} answers again");
                }
                _ => {}
            }
        }
        // An operator may have taken an address away.
        self.silent.retain(|address| lookupds.contains_key(address));
    }
}
