//! [`Health`]: whether the logs of all shards take messages.
//!
//! A shard is unhealthy if one of its logs takes no messages, or a topic is set aside. Threads share the reasons. Only
//! a change of a reason, /ping and /stats touch them: no message does.

use engine_rules::ShardId;
use parking_lot::Mutex;
use std::sync::Arc;

/// One health value for all shards.
#[derive(Clone)]
pub(crate) struct Health {
    of_shards: Arc<Mutex<Vec<Option<Arc<str>>>>>,
}

impl Health {
    /// Everything is well on `shards` shards.
    pub(crate) fn new(shards: u32) -> Health {
        Health {
            of_shards: Arc::new(Mutex::new(vec![None; shards as usize])),
        }
    }

    /// Returns the reason of the first unhealthy shard as an error.
    pub(crate) fn get(&self) -> Result<(), String> {
        let of_shards = self.of_shards.lock();
        match of_shards.iter().flatten().next() {
            Some(reason) => Err(reason.to_string()),
            None => Ok(()),
        }
    }

    /// Tells why a shard is unhealthy, if it is. A shard calls this only when the reason has changed.
    pub(super) fn set(&self, shard: ShardId, reason: Option<Arc<str>>) {
        self.of_shards.lock()[shard.0 as usize] = reason;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_reason_of_the_first_shard_that_has_one_is_shown() {
        let health = Health::new(2);
        let note = |shard, reason: &str| {
            let reason = (!reason.is_empty()).then(|| Arc::from(reason));
            health.set(ShardId(shard), reason);
            health.get().err().unwrap_or_default()
        };
        assert_eq!(note(1, ""), "");
        assert_eq!(note(1, "full"), "full");
        assert_eq!(note(0, "no descriptor"), "no descriptor");
        // It stays bad, for another reason.
        assert_eq!(note(0, "sync failed"), "sync failed");
        assert_eq!(note(0, ""), "full");
        assert_eq!(health.get(), Err("full".to_owned()));
        assert_eq!(note(1, ""), "");
    }
}
