//! Random histories of the database, next to a model that is as simple as the original: one map
//! from keys to producers, which every operation searches. `RINGQ_SEED` repeats one history,
//! `RINGQ_SIM_COUNT` sets the number of histories.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nsqlookupd::database::{ClientKey, Database, Lifetimes, Now};
use nsqlookupd::peer::{Peer, PeerInfo};

const INACTIVE: Duration = Duration::from_secs(30);
const TOMBSTONE: Duration = Duration::from_secs(10);
const STEPS: usize = 150;
const TOPICS: [&str; 4] = ["a", "a-b", "e#ephemeral", "f#ephemeral"];
const CHANNELS: [&str; 3] = ["c", "d", "x#ephemeral"];

/// Category, key and subkey of a registration.
type Key = (&'static str, String, String);

/// A client of the model.
struct Client {
    key: ClientKey,
    name: String,
    last_update: Duration,
}

/// The producers of each key by their names, with the time of their tombstones.
#[derive(Default)]
struct Model {
    keys: BTreeMap<Key, BTreeMap<String, Option<Duration>>>,
}

impl Model {
    fn key(topic: &str, channel: Option<&str>) -> Key {
        match channel {
            Some(channel) => ("channel", topic.to_string(), channel.to_string()),
            None => ("topic", topic.to_string(), String::new()),
        }
    }

    fn add(&mut self, client: &str, key: Key) {
        let producers = self.keys.entry(key).or_default();
        producers.entry(client.to_string()).or_insert(None);
    }

    fn remove(&mut self, client: &str, key: &Key, is_ephemeral: bool) {
        if let Some(producers) = self.keys.get_mut(key) {
            producers.remove(client);
            if producers.is_empty() && is_ephemeral {
                self.keys.remove(key);
            }
        }
    }

    fn unregister(&mut self, client: &str, topic: &str, channel: Option<&str>) {
        if channel.is_none() {
            for channel in self.channels(topic) {
                self.remove(client, &Model::key(topic, Some(&channel)), false);
            }
        }
        let is_ephemeral = channel.unwrap_or(topic).ends_with("#ephemeral");
        self.remove(client, &Model::key(topic, channel), is_ephemeral);
    }

    fn topics(&self) -> Vec<String> {
        let keys = self
            .keys
            .keys()
            .filter(|(category, ..)| *category == "topic");
        keys.map(|(_, topic, _)| topic.clone()).collect()
    }

    fn channels(&self, of: &str) -> Vec<String> {
        let keys = self.keys.keys();
        let keys = keys.filter(|(category, topic, _)| *category == "channel" && topic == of);
        keys.map(|(_, _, channel)| channel.clone()).collect()
    }
}

struct World {
    database: Database,
    model: Model,
    clients: Vec<Client>,
    now: Now,
    joined: usize,
    random: fastrand::Rng,
}

#[test]
fn the_database_does_what_a_simple_map_does() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let seeds = match number("RINGQ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RINGQ_SIM_COUNT").unwrap_or(300),
    };
    for seed in seeds {
        println!("RINGQ_SEED={seed}");
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            world.compare();
        }
    }
}

impl World {
    fn new(seed: u64) -> World {
        World {
            database: Database::new(Lifetimes {
                inactive: INACTIVE,
                tombstone: TOMBSTONE,
            }),
            model: Model::default(),
            clients: Vec::new(),
            now: Now::default(),
            joined: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of[self.random.usize(..of.len())]
    }

    fn step(&mut self) {
        let topic = self.pick(&TOPICS);
        let channel = self.pick(&CHANNELS);
        let some_channel = Some(channel).filter(|_| self.random.bool());
        let client = match self.clients.len() {
            0 => None,
            count => Some(self.random.usize(..count)),
        };
        let events = &mut Vec::new();
        match (self.random.u8(..20), client) {
            (0..2, _) | (_, None) => self.join(),
            (2..8, Some(client)) => {
                let Client { key, name, .. } = &self.clients[client];
                self.database.register(*key, topic, some_channel, events);
                if some_channel.is_some() {
                    self.model.add(name, Model::key(topic, some_channel));
                }
                self.model.add(name, Model::key(topic, None));
            }
            (8..12, Some(client)) => {
                let Client { key, name, .. } = &self.clients[client];
                self.database.unregister(*key, topic, some_channel, events);
                self.model.unregister(name, topic, some_channel);
            }
            (12, Some(client)) => self.leave(client),
            (13, Some(client)) => {
                let client = &mut self.clients[client];
                self.database.ping(client.key, self.now, events);
                client.last_update = self.now.monotonic;
            }
            (14, Some(client)) => {
                let name = self.clients[client].name.clone();
                self.database
                    .tombstone(topic, &format!("{name}:4151"), self.now);
                let producers = self.model.keys.get_mut(&Model::key(topic, None));
                let producer = producers.and_then(|producers| producers.get_mut(&name));
                if let Some(tombstone) = producer {
                    *tombstone = Some(self.now.monotonic);
                }
            }
            (15, _) => {
                self.database.delete_topic(topic, events);
                let keys = &mut self.model.keys;
                keys.retain(|(category, key, _), _| *category == "client" || key != topic);
            }
            (16, _) => {
                let is_known = self.database.delete_channel(topic, channel, events);
                let removed = self.model.keys.remove(&Model::key(topic, Some(channel)));
                assert_eq!(is_known, removed.is_some());
            }
            (17, _) => {
                self.database.create_channel(topic, channel);
                for key in [Model::key(topic, Some(channel)), Model::key(topic, None)] {
                    self.model.keys.entry(key).or_default();
                }
            }
            (_, _) => self.now.monotonic += Duration::from_secs(self.random.u64(1..8)),
        }
    }

    fn join(&mut self) {
        let name = format!("b{}", self.joined);
        self.joined += 1;
        let info = PeerInfo {
            broadcast_address: name.clone(),
            tcp_port: 4150,
            http_port: 4151,
            version: "1".to_string(),
            ..PeerInfo::default()
        };
        let peer = Arc::new(Peer::new(name.as_str().into(), info));
        self.clients.push(Client {
            key: self.database.join(peer, self.now, &mut Vec::new()),
            name,
            last_update: self.now.monotonic,
        });
    }

    fn leave(&mut self, client: usize) {
        let Client { key, name, .. } = self.clients.swap_remove(client);
        let limit = self.random.usize(1..4);
        while !self.database.leave(key, limit, &mut Vec::new()) {
            self.database.check();
        }
        for producers in self.model.keys.values_mut() {
            producers.remove(&name);
        }
    }

    fn is_active(&self, name: &str) -> bool {
        let client = self.clients.iter().find(|client| client.name == name);
        let last_update = client.expect("producers are clients").last_update;
        self.now.monotonic - last_update <= INACTIVE
    }

    fn has_tombstone(&self, tombstone: Option<Duration>) -> bool {
        tombstone.is_some_and(|set| self.now.monotonic - set < TOMBSTONE)
    }

    fn compare(&self) {
        self.database.check();
        assert_eq!(
            self.database.topics().collect::<Vec<_>>(),
            self.model.topics()
        );
        for topic in TOPICS {
            let channels: Vec<&str> = self.database.channels(topic).collect();
            assert_eq!(channels, self.model.channels(topic), "{topic}");
            let producers = self.database.producers(topic, self.now);
            let shown = producers.map(|producers| {
                let mut names: Vec<String> = producers
                    .map(|peer| peer.info.broadcast_address.clone())
                    .collect();
                names.sort();
                names
            });
            let wanted = self
                .model
                .keys
                .get(&Model::key(topic, None))
                .map(|producers| {
                    let shown = producers.iter().filter(|(name, tombstone)| {
                        self.is_active(name) && !self.has_tombstone(**tombstone)
                    });
                    shown.map(|(name, _)| name.clone()).collect::<Vec<_>>()
                });
            assert_eq!(shown, wanted, "{topic}");
        }
        for client in &self.clients {
            self.compare_node(client);
        }
    }

    /// Compares the topics and tombstones of one client in `/nodes`.
    fn compare_node(&self, client: &Client) {
        let mut json = String::new();
        let is_shown = self.database.append_node(client.key, self.now, &mut json);
        assert_eq!(is_shown, self.is_active(&client.name));
        if !is_shown {
            return;
        }
        let node: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        let strings = |field: &str| {
            let values = node[field].as_array().expect("a list").iter();
            values.map(ToString::to_string).collect::<Vec<_>>()
        };
        let mut shown: Vec<(String, String)> = strings("topics")
            .into_iter()
            .zip(strings("tombstones"))
            .collect();
        shown.sort();
        let topics = self
            .model
            .keys
            .iter()
            .filter(|((category, ..), producers)| {
                *category == "topic" && producers.contains_key(&client.name)
            });
        let wanted: Vec<(String, String)> = topics
            .map(|((_, topic, _), producers)| {
                let has_tombstone = self.has_tombstone(producers[&client.name]);
                (format!("\"{topic}\""), has_tombstone.to_string())
            })
            .collect();
        assert_eq!(shown, wanted, "{}", client.name);
    }
}
