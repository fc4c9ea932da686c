//! What nsqds and HTTP clients see is recorded (`tests/differential/*.case`). What is here needs a clock, or shows inside.

use super::*;
use crate::peer::PeerInfo;

/// A database with its clock, and the lines that it logged.
struct World {
    database: Database,
    now: Now,
    events: Vec<Event>,
}

impl World {
    fn new() -> World {
        World {
            database: Database::new(Lifetimes {
                inactive: Duration::from_secs(300),
                tombstone: Duration::from_secs(45),
            }),
            now: Now::default(),
            events: Vec::new(),
        }
    }

    fn join(&mut self, name: &str) -> ClientKey {
        let info = PeerInfo {
            broadcast_address: name.to_string(),
            tcp_port: 4150,
            http_port: 4151,
            version: "1.3.0".to_string(),
            ..PeerInfo::default()
        };
        let peer = Arc::new(Peer::new(format!("{name}:9").into(), info));
        self.database.join(peer, self.now, &mut self.events)
    }

    fn register(&mut self, client: ClientKey, topic: &str, channel: Option<&str>) {
        self.database
            .register(client, topic, channel, &mut self.events);
        self.database.check();
    }

    fn unregister(&mut self, client: ClientKey, topic: &str, channel: Option<&str>) {
        self.database
            .unregister(client, topic, channel, &mut self.events);
        self.database.check();
    }

    fn pass(&mut self, seconds: u64) {
        self.now.monotonic += Duration::from_secs(seconds);
    }

    fn producers(&self, topic: &str) -> Option<Vec<&str>> {
        let producers = self.database.producers(topic, self.now)?;
        Some(
            producers
                .map(|peer| peer.info.broadcast_address.as_str())
                .collect(),
        )
    }

    fn topics(&self) -> Vec<&str> {
        self.database.topics().collect()
    }

    fn channels(&self, topic: &str) -> Vec<&str> {
        self.database.channels(topic).collect()
    }

    fn nodes(&self) -> String {
        let mut json = String::new();
        for client in self.database.clients() {
            self.database.append_node(client, self.now, &mut json);
        }
        json
    }
}

#[test]
fn an_unregister_deletes_ephemeral_keys_without_producers() {
    let mut world = World::new();
    let (one, two) = (world.join("b1"), world.join("b2"));
    world.register(one, "e#ephemeral", Some("x#ephemeral"));
    world.register(two, "e#ephemeral", Some("x#ephemeral"));
    world.unregister(one, "e#ephemeral", Some("x#ephemeral"));
    world.unregister(one, "e#ephemeral", None);
    assert_eq!(world.channels("e#ephemeral"), ["x#ephemeral"]);
    world.unregister(two, "e#ephemeral", None);
    assert!(world.topics().is_empty());
    // The key of the channel stays behind, as in the original, and can be deleted.
    assert_eq!(world.channels("e#ephemeral"), ["x#ephemeral"]);
    assert_eq!(world.producers("e#ephemeral"), None);
    world.unregister(two, "e#ephemeral", Some("x#ephemeral"));
    assert!(world.channels("e#ephemeral").is_empty());
    assert!(world.database.topics_by_name.is_empty());
}

#[test]
fn silent_producers_are_hidden() {
    let mut world = World::new();
    let node = world.join("b1");
    world.register(node, "t", None);
    world.pass(300);
    assert_eq!(world.producers("t"), Some(vec!["b1"]));
    world.pass(1);
    assert_eq!(world.producers("t"), Some(vec![]));
    assert_eq!(world.nodes(), "");
    assert_ne!(world.database.debug(), "{}");
    let now = world.now;
    world.database.ping(node, now, &mut world.events);
    assert_eq!(world.producers("t"), Some(vec!["b1"]));
}

#[test]
fn tombstones_hide_until_they_expire_or_the_registration_is_new() {
    let mut world = World::new();
    let node = world.join("b1");
    world.register(node, "t", None);
    world.register(node, "u", None);
    let now = world.now;
    world.database.tombstone("t", "b1:4152", now);
    world.database.tombstone("t", "b1", now);
    world.database.tombstone("nope", "b1:4151", now);
    assert_eq!(world.producers("t"), Some(vec!["b1"]));
    world.database.tombstone("t", "b1:4151", now);
    assert_eq!(world.producers("t"), Some(vec![]));
    assert_eq!(world.producers("u"), Some(vec!["b1"]));
    let tombstones = r#""tombstones":[true,false],"topics":["t","u"]}"#;
    assert!(world.nodes().ends_with(tombstones), "{}", world.nodes());
    world.register(node, "t", None);
    assert_eq!(world.producers("t"), Some(vec![]), "it is no news");
    world.pass(45);
    assert_eq!(world.producers("t"), Some(vec!["b1"]));
    assert!(world.database.debug().contains("\"tombstoned\":true"));
    let now = world.now;
    world.database.tombstone("t", "b1:4151", now);
    world.unregister(node, "t", None);
    world.register(node, "t", None);
    assert_eq!(world.producers("t"), Some(vec!["b1"]));
    assert!(!world.database.debug().contains("\"tombstoned\":true"));
}

#[test]
fn debug_shows_every_registration() {
    let mut world = World::new();
    world.now.unix_nanos = 1_795_252_910_461_076_181;
    let node = world.join("b1");
    world.register(node, "t-x", Some("c"));
    world.register(node, "t", Some("c"));
    let entry = r#"[{"broadcast_address":"b1","hostname":"","http_port":4151,"id":"b1:9","last_update":1795252910461076181,"tcp_port":4150,"tombstoned":false,"tombstoned_at":-6795364578871345152,"topology_region":"","topology_zone":"","version":"1.3.0"}]"#;
    // The order is that of the whole keys.
    let keys = [
        "channel:t-x:c",
        "channel:t:c",
        "client::",
        "topic:t-x:",
        "topic:t:",
    ];
    let fields = keys.map(|key| format!("\"{key}\":{entry}")).join(",");
    assert_eq!(world.database.debug(), format!("{{{fields}}}"));
}

/// An UNREGISTER of a topic went through all channels of the topic, also those of others. So one client could keep the
/// database busy for minutes with a few kilobytes.
#[test]
fn an_unregister_costs_as_much_as_the_client_has() {
    let mut world = World::new();
    for n in 0..50_000 {
        world.database.create_channel("t", &format!("c{n}"));
    }
    let client = world.join("a");
    let started = std::time::Instant::now();
    for _ in 0..5_000 {
        let World {
            database, events, ..
        } = &mut world;
        database.register(client, "t", Some("own"), events);
        database.unregister(client, "t", None, events);
        // The client has nothing to lose.
        database.unregister(client, "t", None, events);
        events.clear();
    }
    world.database.check();
    // Half a billion steps take longer, on any machine.
    let taken = started.elapsed();
    assert!(taken < Duration::from_secs(20), "{taken:?}");
}

#[test]
fn debug_in_pieces_is_the_same() {
    let mut world = World::new();
    // The colon behind a topic sorts after the minus sign.
    for topic in ["a", "a-b", "a.c", "ab"] {
        for name in ["n1", "n2", "n3"] {
            let client = world.join(name);
            world.register(client, topic, Some("x"));
            world.register(client, topic, Some("x-y"));
        }
        world.database.create_channel(topic, "unused");
    }
    let whole = world.database.debug();
    let value: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 1 + 4 * 3);
    let names = whole
        .match_indices("\"topic:")
        .map(|(at, _)| &whole[at..at + 10]);
    let names: Vec<&str> = names.collect();
    assert_eq!(
        names,
        ["\"topic:a-b", "\"topic:a.c", "\"topic:a:\"", "\"topic:ab:"]
    );
    for bytes in [1, 1000, 5000] {
        let mut progress = world.database.debug_start();
        let mut pieces = Vec::new();
        loop {
            let mut piece = String::new();
            let is_last = world.database.debug_piece(&mut progress, bytes, &mut piece);
            assert!(is_last || piece.len() >= bytes);
            pieces.push(piece);
            if is_last {
                break;
            }
        }
        assert!(pieces.len() > 1, "{bytes}");
        assert_eq!(pieces.concat(), whole, "{bytes}");
    }
}

#[test]
fn debug_goes_on_after_changes() {
    let mut world = World::new();
    let client = world.join("n");
    for topic in ["a", "b", "c"] {
        world.register(client, topic, Some("x"));
    }
    let mut progress = world.database.debug_start();
    let mut json = String::new();
    assert!(!world.database.debug_piece(&mut progress, 1, &mut json));
    world.database.delete_topic("b", &mut world.events);
    world.register(client, "d", None);
    assert!(
        world
            .database
            .debug_piece(&mut progress, usize::MAX, &mut json)
    );
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    let expected = [
        "channel:a:x",
        "channel:c:x",
        "client::",
        "topic:a:",
        "topic:c:",
    ];
    assert_eq!(keys, expected);
}
