//! The health of the process: of the last attempt to store messages, on every shard.
//!
//! Shared between threads, but touched only when it changes and by /ping and /stats: not on the
//! message path.

use engine_core::ShardId;
use std::sync::{Arc, Mutex, PoisonError};

/// One health value for all shards.
#[derive(Clone)]
pub(crate) struct Health {
    of_shards: Arc<Mutex<Vec<Result<(), String>>>>,
}

impl Health {
    /// Everything is well on `shards` shards.
    pub(crate) fn new(shards: u32) -> Health {
        Health {
            of_shards: Arc::new(Mutex::new(vec![Ok(()); shards as usize])),
        }
    }

    /// Notes what a shard's last attempt came to.
    pub(crate) fn set(&self, shard: ShardId, health: Result<(), String>) {
        let mut of_shards = self
            .of_shards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        of_shards[shard.0 as usize] = health;
    }

    /// The first complaint, if there is one.
    pub(crate) fn get(&self) -> Result<(), String> {
        let of_shards = self
            .of_shards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        of_shards
            .iter()
            .find(|health| health.is_err())
            .cloned()
            .unwrap_or(Ok(()))
    }
}
