//! The results of publishes over connections that break, beside what the nsqds have stored.

use std::collections::HashMap;

use bytes::Bytes;

use crate::address::Address;
use crate::error::Outcome;
use crate::producer::{PublishError, Receipt};
use crate::testing::MockBroker;

/// Checks that each confirmed message of `t` is stored once, where its receipt says, that each one with an unknown outcome
/// is stored once at most, and that no other one is stored. Returns the number of each.
pub(crate) fn check_outcomes(
    results: HashMap<Bytes, Result<Receipt, PublishError>>,
    brokers: &[MockBroker],
    seed: u64,
) -> [usize; 3] {
    let mut stored: HashMap<Bytes, Vec<Address>> = HashMap::new();
    for broker in brokers {
        for body in broker.published("t") {
            stored.entry(body).or_default().push(broker.address());
        }
    }
    let mut outcomes = [0; 3];
    for (body, result) in results {
        let places = stored.remove(&body).unwrap_or_default();
        let outcome = result.as_ref().map_err(PublishError::outcome);
        let (kind, is_right) = match outcome {
            Ok(receipt) => (0, places == [receipt.node().clone()]),
            Err(Outcome::Unknown) => (1, places.len() <= 1),
            Err(_) => (2, places.is_empty()),
        };
        outcomes[kind] += 1;
        assert!(is_right, "seed {seed}: {body:?} {result:?} {places:?}");
    }
    assert!(stored.is_empty(), "seed {seed}: {stored:?}");
    outcomes
}
