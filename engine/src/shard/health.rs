//! [`Health`]: whether the logs of all shards take messages.
//!
//! A shard complains of a log that takes no messages, and of a topic that is set aside. Threads share the complaints.
//! Only a change of a complaint, /ping and /stats touch them: no message does.

use engine_core::ShardId;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// What a shard complains of.
type Complaint = Option<Arc<str>>;

/// One health value for all shards.
#[derive(Clone)]
pub(crate) struct Health {
    of_shards: Arc<Mutex<Vec<Complaint>>>,
}

impl Health {
    /// Everything is well on `shards` shards.
    pub(crate) fn new(shards: u32) -> Health {
        Health {
            of_shards: Arc::new(Mutex::new(vec![None; shards as usize])),
        }
    }

    /// The first complaint, if there is one.
    pub(crate) fn get(&self) -> Result<(), String> {
        let of_shards = self
            .of_shards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match of_shards.iter().flatten().next() {
            Some(complaint) => Err(complaint.to_string()),
            None => Ok(()),
        }
    }

    fn set(&self, shard: ShardId, complaint: Complaint) {
        let mut of_shards = self
            .of_shards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        of_shards[shard.0 as usize] = complaint;
    }
}

/// What a shard says of its own health: only changes reach the others.
pub(crate) struct ShardHealth {
    shard: ShardId,
    told: RefCell<Complaint>,
    health: Health,
}

impl ShardHealth {
    /// Everything is well on `shard`.
    pub(crate) fn new(shard: ShardId, health: Health) -> ShardHealth {
        ShardHealth {
            shard,
            told: RefCell::default(),
            health,
        }
    }

    /// Tells the others what the shard complains of now. Costs a comparison when that is what it was.
    pub(crate) fn report(&self, complaint: Option<&Arc<str>>) {
        let mut told = self.told.borrow_mut();
        if told.as_ref() != complaint {
            *told = complaint.cloned();
            self.health.set(self.shard, told.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complaint_of_the_first_shard_that_has_one_is_shown() {
        let health = Health::new(2);
        let shards = [0, 1].map(|shard| ShardHealth::new(ShardId(shard), health.clone()));
        let note = |shard: usize, complaint: &str| {
            let complaint = (!complaint.is_empty()).then(|| Arc::from(complaint));
            shards[shard].report(complaint.as_ref());
            health.get().err().unwrap_or_default()
        };
        assert_eq!(note(1, ""), "");
        assert_eq!(note(1, "full"), "full");
        assert_eq!(note(0, "no descriptor"), "no descriptor");
        // It stays bad, for another reason.
        assert_eq!(note(0, "sync failed"), "sync failed");
        assert_eq!(note(0, "sync failed"), "sync failed");
        assert_eq!(note(0, ""), "full");
        assert_eq!(health.get(), Err("full".to_owned()));
        assert_eq!(note(1, ""), "");
    }
}
