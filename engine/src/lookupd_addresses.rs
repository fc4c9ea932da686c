//! Where nsqlookupd is. The list can be changed while the process runs, on any shard.

use std::sync::{Arc, Mutex, PoisonError};

/// The list, shared by all who hold a copy of this.
#[derive(Clone)]
pub(crate) struct LookupdAddresses {
    list: Arc<Mutex<Option<Vec<String>>>>,
}

impl LookupdAddresses {
    /// The list at start.
    pub(crate) fn new(list: Vec<String>) -> LookupdAddresses {
        LookupdAddresses {
            list: Arc::new(Mutex::new(Some(list))),
        }
    }

    /// The list now; `None`: it was set to `null`, which is an empty one.
    pub(crate) fn get(&self) -> Option<Vec<String>> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }

    /// Replaces the list.
    pub(crate) fn set(&self, list: Option<Vec<String>>) {
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = list;
    }
}
