//! [`Pool`]: which node the next publish goes to. The time is an argument.

use std::time::{Duration, Instant};

use crate::address::Address;

/// The first time for which a node that failed is avoided.
const AVOID_MIN: Duration = Duration::from_secs(1);
/// The longest time for which a node that failed is avoided.
const AVOID_MAX: Duration = Duration::from_secs(60);

/// The order in which publishes go to several nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Each publish goes to the next node that works.
    #[default]
    RoundRobin,
    /// All publishes go to the first node that works, in the order in which the nodes were given.
    FirstThatWorks,
}

/// The nodes of a producer, with `T` for each. A node that failed is avoided for a while, which doubles with each
/// further failure. If all nodes are avoided, the one whose time ends first is tried.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    members: Vec<Member<T>>,
    spread: Spread,
    /// The place from which the next search begins.
    next: usize,
}

#[derive(Debug)]
struct Member<T> {
    address: Address,
    node: T,
    failures: u32,
    avoid_until: Option<Instant>,
}

impl<T: Clone> Pool<T> {
    pub(crate) fn new(spread: Spread) -> Pool<T> {
        Pool {
            members: Vec::new(),
            spread,
            next: 0,
        }
    }

    /// Adds a node, unless the pool has its address.
    pub(crate) fn add(&mut self, address: &Address, make: impl FnOnce() -> T) {
        if self.get(address).is_none() {
            self.members.push(Member {
                address: address.clone(),
                node: make(),
                failures: 0,
                avoid_until: None,
            });
        }
    }

    /// Removes the nodes for which `keep` is false, and returns them.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) -> Vec<T> {
        let (kept, removed) = std::mem::take(&mut self.members)
            .into_iter()
            .partition(|member: &Member<T>| keep(&member.node));
        self.members = kept;
        removed.into_iter().map(|member| member.node).collect()
    }

    /// Returns the node with this address.
    pub(crate) fn get(&self, address: &Address) -> Option<T> {
        let found = self
            .members
            .iter()
            .find(|member| member.address == *address);
        found.map(|member| member.node.clone())
    }

    /// Returns all nodes.
    pub(crate) fn all(&self) -> Vec<T> {
        self.members
            .iter()
            .map(|member| member.node.clone())
            .collect()
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the node for the next publish, which is none of `tried`.
    pub(crate) fn pick(&mut self, now: Instant, tried: &[Address]) -> Option<T> {
        let count = self.members.len();
        let first = match self.spread {
            Spread::RoundRobin => self.next,
            Spread::FirstThatWorks => 0,
        };
        let order = (0..count).map(|step| (first + step) % count);
        let untried = order.filter(|index| !tried.contains(&self.members[*index].address));
        // `min_by_key` returns the first of equal nodes: those that work have no time.
        let chosen = untried.min_by_key(|index| {
            self.members[*index]
                .avoid_until
                .filter(|until| *until > now)
        })?;
        self.next = (chosen + 1) % count;
        Some(self.members[chosen].node.clone())
    }

    /// States that a node answered.
    pub(crate) fn succeeded(&mut self, address: &Address) {
        if let Some(member) = self.member(address) {
            member.failures = 0;
            member.avoid_until = None;
        }
    }

    /// States that a node failed. Returns the time for which the pool avoids the node.
    pub(crate) fn failed(&mut self, address: &Address, now: Instant) -> Duration {
        let Some(member) = self.member(address) else {
            return Duration::ZERO;
        };
        // Failures of many publishes at the same moment are one failure.
        if let Some(until) = member.avoid_until.filter(|until| *until > now) {
            return until - now;
        }
        let factor = 2_u32.saturating_pow(member.failures);
        let avoid = AVOID_MIN.saturating_mul(factor).min(AVOID_MAX);
        // Producers that lost the same node do not come back at the same moment.
        let avoid = avoid.mul_f64(0.75 + 0.5 * fastrand::f64());
        member.failures = member.failures.saturating_add(1);
        member.avoid_until = Some(now + avoid);
        avoid
    }

    fn member(&mut self, address: &Address) -> Option<&mut Member<T>> {
        self.members
            .iter_mut()
            .find(|member| member.address == *address)
    }
}

#[cfg(test)]
mod tests;
