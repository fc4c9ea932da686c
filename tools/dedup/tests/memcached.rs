//! The shared store against a real memcached, of which each test starts its own.
#![cfg(feature = "memcached")]

use std::time::{Duration, Instant};

use ringq_dedup::{Fingerprint, Lease, Memcached, MemcachedOptions, SharedBegin, StoreError};
use test_support::memcached::{FakeMemcached, Memcached as Server};

const KEY: Fingerprint = Fingerprint(99);
const MSG_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a memcached. Ends the test if the machine has none.
macro_rules! server {
    () => {
        match Server::start() {
            Some(server) => server,
            None => return,
        }
    };
}

/// Returns a store at this server.
fn store(server: &Server, change: impl FnOnce(&mut MemcachedOptions)) -> Memcached {
    let mut options = MemcachedOptions::new(&server.address());
    options.timeout = Duration::from_secs(20);
    change(&mut options);
    Memcached::new(options).expect("valid options")
}

async fn begin(store: &Memcached) -> SharedBegin {
    let begun = store.begin(KEY, MSG_TIMEOUT).await;
    begun.expect("memcached answers")
}

async fn lease(store: &Memcached) -> Lease {
    match begin(store).await {
        SharedBegin::Fresh(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// Handles the message.
async fn commit(store: &Memcached) {
    let committed = lease(store).await.commit().await;
    committed.expect("memcached answers");
}

async fn is_in_progress(store: &Memcached) -> bool {
    matches!(begin(store).await, SharedBegin::InProgress)
}

async fn is_done(store: &Memcached) -> bool {
    matches!(begin(store).await, SharedBegin::Done)
}

#[tokio::test]
async fn several_consumers_share_the_states() {
    let server = server!();
    let (one, two) = (store(&server, |_| ()), store(&server, |_| ()));
    let other_topic = store(&server, |options| options.prefix = "other:".to_owned());
    let first = lease(&one).await;
    assert!(is_in_progress(&two).await);
    first.release().await.expect("memcached answers");
    let second = lease(&two).await;
    assert!(is_in_progress(&one).await);
    second.commit().await.expect("memcached answers");
    assert!(is_done(&one).await && is_done(&two).await);
    lease(&other_topic).await;
}

/// A consumer that dies keeps a message only until its lease ends. If the consumer lives after all, its commit counts,
/// and its release takes nothing from the new owner.
#[tokio::test]
async fn a_lease_ends_by_itself() {
    let server = server!();
    let (slow, taken) = leases_of_two_owners(&server, "release:").await;
    let one = named_store(&server, "release:", None);
    slow.release().await.expect("memcached answers");
    assert!(is_in_progress(&one).await, "the new owner keeps it");
    taken.commit().await.expect("memcached answers");
    assert!(is_done(&one).await);

    let (slow, taken) = leases_of_two_owners(&server, "commit:").await;
    let one = named_store(&server, "commit:", None);
    slow.commit().await.expect("memcached answers");
    assert!(is_done(&one).await, "the message was handled");
    taken.release().await.expect("memcached answers");
    assert!(is_done(&one).await, "the release of the other one");
}

/// Returns the lease of an owner who was too slow, and that of the next owner.
async fn leases_of_two_owners(server: &Server, prefix: &str) -> (Lease, Lease) {
    let one = named_store(server, prefix, Some(Duration::from_secs(1)));
    let two = named_store(server, prefix, None);
    let slow = lease(&one).await;
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match begin(&two).await {
            SharedBegin::Fresh(taken) => return (slow, taken),
            other => assert!(Instant::now() < end, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns a store whose keys have this prefix.
fn named_store(server: &Server, prefix: &str, lease: Option<Duration>) -> Memcached {
    store(server, |options| {
        options.prefix = prefix.to_owned();
        options.lease = lease;
    })
}

/// A memcached that was restarted has forgotten everything: messages are handled again, and none is lost.
#[tokio::test]
async fn a_restart_makes_duplicates_and_no_loss() {
    let mut server = server!();
    let store = store(&server, |_| ());
    commit(&store).await;
    assert!(is_done(&store).await);
    server.restart();
    let begun = store.begin(KEY, MSG_TIMEOUT).await;
    assert!(matches!(begun, Ok(SharedBegin::Fresh(_))), "{begun:?}");
}

/// The commit failed, so a copy of the message was handled again, although memcached could be reached.
#[tokio::test]
async fn a_connection_that_has_ended_since_its_last_question_is_made_again() {
    let mut server = server!();
    let store = store(&server, |_| ());
    let leased = lease(&store).await;
    server.restart();
    leased.commit().await.expect("memcached can be reached");
    assert!(is_done(&store).await);
}

/// memcached stood still, and stored the lease of a check that had failed meanwhile. The message then waited behind its own
/// lease.
#[tokio::test]
async fn a_lease_that_is_stored_too_late_is_that_of_the_next_try() {
    let server = server!();
    let late = store(&server, |options| options.timeout = Duration::from_secs(6));
    let prompt = store(&server, |_| ());
    for store in [&late, &prompt] {
        store.check().await.expect("memcached answers");
    }
    server.stand_still();
    let error = late.begin(KEY, MSG_TIMEOUT).await;
    assert!(matches!(error, Err(StoreError::Timeout(_))), "{error:?}");
    let dropped = prompt.begin(Fingerprint(7), MSG_TIMEOUT);
    let dropped = tokio::time::timeout(Duration::from_millis(200), dropped).await;
    assert!(dropped.is_err(), "{dropped:?}");
    server.go_on();
    // Without this, memcached may not have read the requests from their closed connections yet.
    let end = Instant::now() + Duration::from_secs(30);
    while server.stat("curr_items") < 2 {
        assert!(Instant::now() < end, "the requests are lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let other = store(&server, |_| ());
    assert!(is_in_progress(&other).await);
    // The short limit is for a server that stands still.
    let lease = loop {
        match late.begin(KEY, MSG_TIMEOUT).await {
            Ok(SharedBegin::Fresh(lease)) => break lease,
            Err(StoreError::Timeout(_)) => assert!(Instant::now() < end),
            other => panic!("{other:?}"),
        }
    };
    assert!(is_in_progress(&late).await, "a copy is not the message");
    lease.commit().await.expect("memcached answers");
    assert!(is_done(&other).await);
    let begun = prompt.begin(Fingerprint(7), MSG_TIMEOUT).await;
    assert!(matches!(begun, Ok(SharedBegin::Fresh(_))), "{begun:?}");
}

/// The library took the host for the scheme of a URL, so no IP address could be reached.
#[tokio::test]
async fn a_store_is_reached_by_its_ip_address_and_by_its_name() {
    let server = FakeMemcached::start_on_tcp();
    let address = server.address();
    let named = address.replace("127.0.0.1", "localhost");
    for address in [address.clone(), named, format!("tcp://{address}")] {
        let options = MemcachedOptions {
            timeout: Duration::from_secs(20),
            ..MemcachedOptions::new(&address)
        };
        let store = Memcached::new(options).expect("valid options");
        let begun = store.begin(KEY, MSG_TIMEOUT).await;
        assert!(
            matches!(begun, Ok(SharedBegin::Fresh(_))),
            "{address}: {begun:?}"
        );
    }
    assert_eq!(server.take_lives(), [61, 61, 61]);
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_an_error() {
    let mut server = server!();
    server.kill();
    let store = store(&server, |_| ());
    let done = store.begin(KEY, MSG_TIMEOUT).await;
    let error = done.expect_err("nobody listens").to_string();
    test_support::assert_like(&error, "memcached cannot be used: connect: …");
}

/// A question whose future is dropped at any point leaves no answer behind that another question could take for its
/// own. Otherwise a fresh message could be called done.
#[tokio::test]
async fn a_dropped_question_confuses_no_other_one() {
    let server = server!();
    let store = store(&server, |options| options.connections = 1);
    commit(&store).await;
    for round in 0..200_u128 {
        let done = store.begin(KEY, MSG_TIMEOUT);
        let at = Duration::from_micros(5 * round as u64);
        // Either end of the race is right. The question is what comes after it.
        let _ = tokio::time::timeout(at, done).await;
        let done = store.begin(Fingerprint(1000 + round), MSG_TIMEOUT).await;
        let fresh = done.expect("memcached answers");
        assert!(
            matches!(fresh, SharedBegin::Fresh(_)),
            "round {round}: {fresh:?}"
        );
    }
}

/// If many consumers ask at the same time, one of them gets the message.
#[tokio::test]
async fn one_of_many_gets_the_message() {
    let server = server!();
    let stores: Vec<_> = (0..10).map(|_| store(&server, |_| ())).collect();
    for round in 0..20 {
        let tasks = stores.iter().cloned().map(|store| {
            tokio::spawn(async move { store.begin(Fingerprint(round), MSG_TIMEOUT).await })
        });
        let tasks: Vec<_> = tasks.collect();
        let mut fresh = 0;
        for task in tasks {
            let begun = task.await.expect("no panic").expect("memcached answers");
            fresh += usize::from(matches!(begun, SharedBegin::Fresh(_)));
        }
        assert_eq!(fresh, 1, "round {round}");
    }
}

/// memcached counts whole seconds by a clock that ticks once per second, so a life of 60 may end after 59.01 s. It keeps a
/// state with a life of 0 for ever, and takes a life above 30 days as a date.
#[tokio::test]
async fn lives_are_whole_seconds_and_never_too_short() {
    let server = FakeMemcached::start();
    let (second, days) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));
    for (lease, msg_timeout, window, lives) in [
        (None, 60 * second, 3600 * second, [61, 3601]),
        (None, second * 3 / 2, second * 5 / 2, [3, 4]),
        (None, Duration::from_nanos(1), second, [2, 2]),
        (None, Duration::ZERO, second, [1, 2]),
        (None, 40 * days, 30 * days, [2_591_999, 2_591_999]),
        (Some(second * 21 / 2), 60 * second, days, [12, 86_401]),
    ] {
        let options = MemcachedOptions {
            timeout: Duration::from_secs(20),
            lease,
            window,
            ..MemcachedOptions::new(&server.address())
        };
        let store = Memcached::new(options).expect("valid options");
        let begun = store.begin(KEY, msg_timeout).await;
        let Ok(SharedBegin::Fresh(fresh)) = begun else {
            panic!("{begun:?}");
        };
        fresh.commit().await.expect("the server answers");
        assert_eq!(
            server.take_lives(),
            lives,
            "{lease:?} {msg_timeout:?} {window:?}"
        );
    }
}

#[test]
fn options_without_meaning_are_refused() {
    type Change = fn(&mut MemcachedOptions);
    let changes: [(Change, &str); 7] = [
        (
            |it| it.lease = Some(Duration::from_millis(999)),
            "the lease must be at least 1 s",
        ),
        (
            |it| it.window = Duration::from_millis(999),
            "the window must be at least 1 s",
        ),
        (
            |it| it.lease = Some(it.window + Duration::from_millis(1)),
            "the window must be at least as long as the lease",
        ),
        (
            |it| it.window = Duration::from_secs(31 * 86_400),
            "the window must be at most 30 days",
        ),
        (
            |it| it.timeout = Duration::ZERO,
            "the timeout of a request must be above zero",
        ),
        (
            |it| it.connections = 0,
            "the store needs at least one connection",
        ),
        (
            |it| it.prefix = "a b".to_owned(),
            "the prefix must have no spaces and no control characters",
        ),
    ];
    for (change, text) in changes {
        let mut options = MemcachedOptions::new("127.0.0.1:11211");
        change(&mut options);
        let error = Memcached::new(options).expect_err(text);
        assert_eq!(error.to_string(), text);
    }
    for address in [
        "",
        "127.0.0.1",
        ":11211",
        "cache:0",
        "[::1]:11211",
        "http://cache:11211",
        "unix:cache",
        "unix://cache",
    ] {
        let error = Memcached::new(MemcachedOptions::new(address)).expect_err(address);
        let text = "the address must be host:port with a name or an IPv4 address, or unix:///path";
        assert_eq!(error.to_string(), text, "{address}");
    }
    for address in ["10.0.0.1:11211", "my_cache:1", "unix:///run/cache"] {
        let made = Memcached::new(MemcachedOptions::new(address));
        assert!(made.is_ok(), "{address}: {made:?}");
    }
}
