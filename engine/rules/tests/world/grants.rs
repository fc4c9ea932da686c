//! The auth servers of some histories. Their grants are for some topics, expire, come late and may be refused. A publish
//! or SUB that was carried out without a grant in force must not get OK.

use super::model::Action;
use super::peer::Awaited;
use super::{Mail, TOPICS, World};
use engine_rules::{AuthQuery, Authorization, ClientId, Grants};
use regex::Regex;
use std::time::Duration;
use wire::encode;

/// The grants of a peer, by the last answer that the broker took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Granted {
    /// One bit for each topic.
    topics: u64,
    until: Duration,
}

/// Returns what an auth server can grant, an entry for each topic. `None`: the history has no auth servers.
pub(crate) fn on_offer(seed: u64) -> Option<Vec<Authorization>> {
    let pattern = |text: &str| Regex::new(text).expect("a valid pattern");
    let authorization = |topic: &&str| Authorization {
        topic: pattern(&format!("^{topic}$")),
        channels: vec![pattern(".*")],
        may_subscribe: true,
        may_publish: true,
    };
    (seed % 11 == 3).then(|| TOPICS.iter().map(authorization).collect())
}

impl World {
    /// Makes a new peer ask for grants, if it needs some. A few peers forget it.
    pub(super) fn authenticate(&mut self, index: usize) {
        if self.on_offer.is_some() && (self.is_ending || self.random.below(16) > 0) {
            self.send(index, Action::Other, |out| encode::auth(out, b"secret"));
            self.peers[index].awaiting.push_back(Awaited::Auth);
        }
    }

    /// Has an auth server answer later.
    pub(super) fn authorize(&mut self, shard: usize, id: ClientId, query: &AuthQuery) {
        if query.is_renewal {
            self.reached.note("grants asked again");
        }
        self.shards[shard].inbox.push_back(Mail::Grants(id));
    }

    /// Gives the broker the answer of an auth server.
    pub(super) fn answer_with_grants(&mut self, shard: usize, id: ClientId) {
        let now = self.now();
        let all = (1 << TOPICS.len()) - 1;
        let (topics, ttl) = match self.random.below(12) {
            _ if self.is_ending => (all, 1_000_000),
            0 => (0, 1),
            1..=3 => (self.random.below(all + 1), 1_000_000),
            4..=6 => (all, [0, 2, 40][self.random.below(3) as usize]),
            _ => (all, 1_000_000),
        };
        let ttl = Duration::from_secs(ttl);
        let on_offer = self.on_offer.iter().flatten().enumerate();
        let granted = on_offer.filter(|(topic, _)| topics & (1 << topic) != 0);
        let is_refused = !self.is_ending && self.random.below(16) == 0;
        let answer = if is_refused {
            Err("no auth server answers".to_owned())
        } else {
            Ok(Grants {
                ttl,
                authorizations: granted.map(|(_, granted)| granted.clone()).collect(),
                ..Grants::default()
            })
        };
        match self.peer_of(shard, id) {
            None => self.reached.note("grants came too late"),
            Some(index) if !is_refused => {
                let until = now.mono + ttl;
                self.peers[index].granted = Granted { topics, until };
            }
            Some(_) => {}
        }
        let mut out = Vec::new();
        let broker = &mut self.shards[shard].broker;
        broker.handle_grants(now, id, answer, &mut out);
        self.perform(shard, out);
    }

    /// Returns true if a peer may use a topic at this moment.
    pub(super) fn is_granted(&self, index: usize, topic: usize) -> bool {
        let Granted { topics, until } = self.peers[index].granted;
        self.on_offer.is_none() || topics & (1 << topic) != 0 && until >= self.mono
    }
}
