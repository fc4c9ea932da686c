//! nsqlookupd: the commands that it gets, the effect of a misbehaving nsqlookupd on a broker, and
//! the requests for a new topic.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::support::{Answer, Broker, Client, Lookupd, Manner, TIMEOUT, serve_http, wait_until};

fn flag(lookupd: &Lookupd) -> String {
    format!("--lookupd-tcp-address={}", lookupd.address())
}

fn registrations(lookupd: &Lookupd) -> Vec<String> {
    let told = lookupd.told().into_iter();
    told.filter(|line| line.contains("REGISTER")).collect()
}

#[test]
fn an_nsqlookupd_gets_the_state_and_every_change() {
    let lookupd = Lookupd::start(&[]);
    let mut broker = Broker::start(
        2,
        &[
            &flag(&lookupd),
            "--broadcast-address=b<1>",
            "--broadcast-tcp-port=1234",
            "--topology-zone=z",
            "--topology-region=r",
        ],
    );
    lookupd.wait_for("connected");
    assert!(wait_until(TIMEOUT, || lookupd.told().len() > 1));
    let hostname = broker.get("/info").json()["hostname"].clone();
    let identify = format!(
        "IDENTIFY {{\"broadcast_address\":\"b\\u003c1\\u003e\",\"hostname\":{hostname},\
         \"http_port\":{},\"tcp_port\":1234,\"topology_region\":\"r\",\"topology_zone\":\"z\",\
         \"version\":\"1.3.0\"}}",
        broker.http_addr().port()
    );
    assert_eq!(lookupd.told()[..2], ["connected".to_owned(), identify]);

    let mut client = broker.client();
    client.publish("orders", b"x");
    lookupd.wait_for("REGISTER orders");
    client.subscribe("orders", "billing");
    lookupd.wait_for("REGISTER orders billing");
    let other = broker.subscribe("live#ephemeral", "tail#ephemeral");
    lookupd.wait_for("REGISTER live#ephemeral tail#ephemeral");
    drop(other);
    lookupd.wait_for("UNREGISTER live#ephemeral tail#ephemeral");
    lookupd.wait_for("UNREGISTER live#ephemeral");
    broker.create("gone", "c");
    broker.admin("/channel/create?topic=gone&channel=d");
    broker.admin("/channel/delete?topic=gone&channel=d");
    broker.admin("/topic/delete?topic=gone");
    lookupd.wait_for("UNREGISTER gone");
    let told = registrations(&lookupd);
    let of_gone: Vec<&String> = told.iter().filter(|line| line.contains("gone")).collect();
    assert_eq!(
        of_gone,
        [
            "REGISTER gone",
            "REGISTER gone c",
            "REGISTER gone d",
            "UNREGISTER gone d",
            "UNREGISTER gone c",
            "UNREGISTER gone"
        ]
    );
    broker.admin("/topic/create?topic=bare");
    lookupd.wait_for("REGISTER bare");

    // A clean end sends nothing. The next start sends the whole state.
    lookupd.forget();
    assert!(broker.sigterm_and_wait().success());
    lookupd.wait_for("closed");
    assert_eq!(lookupd.told(), ["closed"]);
    lookupd.forget();
    broker.restart();
    lookupd.wait_for("REGISTER orders billing");
    let mut told = registrations(&lookupd);
    told.sort();
    assert_eq!(told, ["REGISTER bare", "REGISTER orders billing"]);
}

/// The broker pings every 15 s. So it notices a lost connection.
#[test]
fn a_broker_pings_and_reconnects() {
    let lookupd = Lookupd::start(&[]);
    let broker = Broker::start(1, &[&flag(&lookupd)]);
    broker.admin("/topic/create?topic=t");
    lookupd.wait_for("REGISTER t");
    let timeout = Duration::from_secs(60);
    let is_pinged = || lookupd.told().iter().any(|line| line == "PING");
    assert!(wait_until(timeout, is_pinged), "{:?}", lookupd.told());
    lookupd.cut();
    lookupd.forget();
    // The ping after the cut fails or connects at once. The next ping certainly connects.
    assert!(wait_until(timeout, || {
        lookupd.told().iter().any(|line| line == "REGISTER t")
    }));
}

/// The changes gather while another nsqlookupd is silent for a second.
#[test]
fn a_topic_that_is_deleted_and_made_again_is_told_in_this_order() {
    let silent = Lookupd::start(&[]);
    let lookupd = Lookupd::start(&[]);
    let broker = Broker::start(1, &[&flag(&silent), &flag(&lookupd)]);
    let post = |target: &str| broker.admin(target);
    post("/topic/create?topic=t");
    lookupd.wait_for("REGISTER t");
    silent.answers("REGISTER", Manner::Silent);
    lookupd.forget();
    post("/topic/create?topic=other");
    for _ in 0..3 {
        post("/topic/delete?topic=t");
        post("/topic/create?topic=t");
    }
    let of_t = || {
        let told = registrations(&lookupd).into_iter();
        told.filter(|line| line.ends_with(" t")).collect::<Vec<_>>()
    };
    assert!(wait_until(TIMEOUT, || of_t().len() >= 6), "{:?}", of_t());
    assert_eq!(of_t(), ["UNREGISTER t", "REGISTER t"].repeat(3));
}

/// The broker serves clients without delay, whatever an nsqlookupd does in any state. When the
/// nsqlookupd behaves again, it gets the whole state.
#[test]
fn a_misbehaving_nsqlookupd_harms_no_client() {
    let manners = [
        Manner::Closes,
        Manner::Silent,
        Manner::Announces(5_242_881),
        Manner::Announces(-1),
        Manner::Announces(i32::MAX),
        Manner::Announces(100),
        Manner::Says("E_INVALID"),
        Manner::Says("garbage"),
        Manner::Says(""),
    ];
    thread::scope(|scope| {
        for command in ["IDENTIFY", "REGISTER", "UNREGISTER"] {
            for manner in manners {
                scope.spawn(move || misbehave(command, manner));
            }
        }
    });
}

fn misbehave(command: &'static str, manner: Manner) {
    let bad = Lookupd::start(&[]);
    bad.answers(command, manner);
    let good = Lookupd::start(&[]);
    let broker = {
        // A port that the system chooses is free only for a moment, so few starts may run at once.
        static STARTS: Mutex<()> = Mutex::new(());
        let _one = STARTS.lock();
        Broker::start(1, &[&flag(&bad), &flag(&good)])
    };
    let mut client = broker.consumer("t", "c", 10);
    let mut producer = broker.client();
    for topic in ["t", "u", "v#ephemeral"] {
        producer.publish(topic, b"x");
    }
    client.take();
    // A connection that is made after the deletion gets neither message.
    good.wait_for("REGISTER u");
    broker.admin("/topic/delete?topic=u");
    good.wait_for("UNREGISTER u");
    for line in ["REGISTER t c", "REGISTER v#ephemeral"] {
        assert!(good.told().contains(&line.to_owned()), "{line}");
    }
    bad.wait_for("connected");
    bad.answers("", Manner::Well);
    bad.forget();
    bad.cut();
    // Any event makes the broker try again. The command that finds the connection cut is not
    // repeated.
    let is_told = |n: usize| {
        let path = format!("/topic/create?topic=again{n}");
        broker.admin(&path);
        registrations(&bad).contains(&"REGISTER t c".to_owned())
    };
    let mut n = 0;
    assert!(
        wait_until(TIMEOUT, || {
            n += 1;
            is_told(n)
        }),
        "{command} {manner:?}: {:#?}",
        bad.told()
    );
}

#[test]
fn a_new_topic_gets_the_channels_that_others_know() {
    let one = Lookupd::start(&["b", "a", "live#ephemeral", "bad$name"]);
    let two = Lookupd::start(&["c", "a"]);
    let broker = Broker::start(2, &[&flag(&one), &flag(&two)]);
    for lookupd in [&one, &two] {
        lookupd.wait_for("connected");
    }
    broker.wait_for_log(&format!("LOOKUPD({}): peer info", two.address()));
    let mut client = broker.client();
    let names = |topic: &str| {
        let stats = broker.topic(topic);
        let channels = stats["channels"].as_array().expect("a list").clone();
        let show = |channel: &serde_json::Value| {
            format!("{} {}", channel["channel_name"], channel["depth"])
        };
        channels.iter().map(show).collect::<Vec<_>>()
    };
    let expected = ["\"a\" 1", "\"b\" 1", "\"c\" 1"];
    // Topics of both shards are created in every possible way.
    for n in 0..4 {
        client.publish(&format!("pub{n}"), b"x");
        assert_eq!(names(&format!("pub{n}")), expected);
        client.publish_many(&format!("mpub{n}"), &["x"]);
        assert_eq!(names(&format!("mpub{n}")), expected);
        broker
            .post(&format!("/pub?topic=http{n}"), b"x")
            .expect_status(200);
        assert_eq!(names(&format!("http{n}")), expected);
        broker.admin(&format!("/topic/create?topic=made{n}"));
        assert_eq!(
            names(&format!("made{n}")),
            ["\"a\" 0", "\"b\" 0", "\"c\" 0"]
        );
        let _consumer = broker.subscribe(&format!("sub{n}"), "own");
        assert_eq!(
            names(&format!("sub{n}")),
            ["\"a\" 0", "\"b\" 0", "\"c\" 0", "\"own\" 0"]
        );
    }
    broker.wait_for_log("skipping creation of invalid channel bad$name");
    one.wait_for("REGISTER pub0 a");
}

/// No message is lost while the creator waits.
#[test]
fn only_the_creator_of_a_topic_waits_for_an_answer() {
    let (open, gate) = mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = is_asked.clone();
    let http = serve_http(move |request| {
        assert_eq!(request.target(), "/channels?topic=slow.topic");
        let accepted = request.header("accept");
        assert_eq!(accepted, Some("application/vnd.nsq; version=1.0"));
        asked.store(true, Ordering::SeqCst);
        let gate = gate.lock();
        let _ = gate.recv();
        Answer::new(200, r#"{"channels":["known"]}"#)
    });
    let lookupd = Lookupd::start_with_http(http.port());
    let broker = Broker::start(1, &[&flag(&lookupd), "--http-client-request-timeout=60s"]);
    broker.wait_for_log("peer info");
    let mut creator = broker.client();
    creator.command("PUB slow.topic", b"first");
    assert!(wait_until(TIMEOUT, || is_asked.load(Ordering::SeqCst)));
    let mut other = broker.client();
    other.publish("slow.topic", b"second");
    broker.admin("/channel/create?topic=slow.topic&channel=own");
    let depth = |name: &str| {
        let stats = broker.topic("slow.topic");
        match name {
            "" => stats["depth"].clone(),
            name => {
                let channels = stats["channels"].as_array().expect("a list").clone();
                let found = channels.iter().find(|c| c["channel_name"] == name);
                found.map_or(serde_json::Value::Null, |channel| channel["depth"].clone())
            }
        }
    };
    assert_eq!((depth(""), depth("own")), (1.into(), 0.into()));
    open.send(()).expect("the server waits");
    creator.expect_ok();
    assert_eq!(
        (depth(""), depth("own"), depth("known")),
        (0.into(), 2.into(), 2.into())
    );
}

#[test]
fn an_unreachable_nsqlookupd_is_ignored() {
    let nobody = serve_http(|_| Answer::new(500, "boom"));
    let bad = Lookupd::start_with_http(nobody.port());
    let refusing = Lookupd::start_with_http(1);
    let broker = Broker::start(1, &[&flag(&bad), &flag(&refusing)]);
    broker.wait_for_log(&format!("LOOKUPD({}): peer info", refusing.address()));
    let mut client = broker.client();
    client.publish("t", b"x");
    let line = broker.wait_for_log("failed to query nsqlookupd for channels");
    let (_, why) = line
        .split_once("for topic t - failed to query any nsqlookupd: ")
        .expect("the reasons");
    // The reasons come in the order of the answers.
    let mut reasons: Vec<&str> = why.split("\\n").collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [
            "Get \"http://127.0.0.1:1/channels\": dial tcp 127.0.0.1:1: connect: connection refused",
            "got response 500 Internal Server Error \"boom\"",
        ]
    );
    // One nsqlookupd that answers is enough.
    let good = Lookupd::start(&["c"]);
    let broker = Broker::start(1, &[&flag(&bad), &flag(&good)]);
    broker.wait_for_log(&format!("LOOKUPD({}): peer info", good.address()));
    let mut client = broker.client();
    client.publish("t", b"x");
    assert!(broker.channel_stats("t", "c").is_some());
    broker.wait_for_log("for topic t - got response 500 Internal Server Error \"boom\"");
}

#[test]
fn many_topics_wait_for_one_timeout() {
    const TOPICS: usize = 64;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let http = serve_http(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        thread::sleep(TIMEOUT);
        Answer::new(200, "{}")
    });
    let lookupd = Lookupd::start_with_http(http.port());
    let broker = Broker::start(2, &[&flag(&lookupd), "--http-client-request-timeout=3s"]);
    broker.wait_for_log("peer info");
    let mut clients: Vec<Client> = (0..TOPICS).map(|_| broker.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.command(&format!("PUB t{n}"), b"x");
    }
    clients.iter_mut().for_each(Client::expect_ok);
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked < TOPICS, "{asked}");
}

/// Neither an nsqlookupd that refuses connections nor one that is always silent delays clients.
#[test]
fn an_absent_nsqlookupd_delays_no_client() {
    let silent = Lookupd::start(&[]);
    silent.answers("IDENTIFY", Manner::Silent);
    let broker = Broker::start(1, &["--lookupd-tcp-address=127.0.0.1:1", &flag(&silent)]);
    broker.wait_for_log("LOOKUP connecting to 127.0.0.1:1");
    let mut client = broker.client();
    let start = Instant::now();
    for n in 0..200 {
        client.publish(&format!("t{n}"), b"x");
    }
    // If the topics waited one after the other, the silent peer's second for each topic would add
    // up to minutes.
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(100), "{elapsed:?}");
    broker.wait_for_log("no available nsqlookupd to query for channels to pre-create for topic t0");
    broker.wait_for_log("dial tcp 127.0.0.1:1: connect: connection refused");
    broker.wait_for_log("IDENTIFY - read tcp");
}

/// The addresses of other ports and programs are mistaken for nsqlookupd's.
#[test]
fn a_wrong_port_is_named() {
    let other = Broker::start(1, &[]);
    let flag = |address: SocketAddr| format!("--lookupd-tcp-address={address}");
    let flags = [flag(other.tcp_addr()), flag(other.http_addr())];
    let broker = Broker::start(1, &[&flags[0], &flags[1]]);
    let advice = "the address must be nsqlookupd's --tcp-address (by default port 4160)";
    for answer in [
        "it answers E_BAD_PROTOCOL, as an nsqd does",
        "it answers in HTTP",
    ] {
        broker.wait_for_log(&format!("{answer}: {advice}"));
    }
}
