//! nsqadmin's page in a real browser, with real daemons: every page, every action, both themes, a
//! phone's width, 10,000 topics, a node that dies. The checks are in `tests/page/*.mjs`.
//!
//! The test needs chromium, and Node.js 20 or later with npm, which installs Playwright and axe-core
//! into the target directory once. Without one of them, the test says so and does nothing, or fails
//! if `CI` is set. Each page opens in a third of the time with `chromium-headless-shell`,
//! the same browser without windows. Pictures of failures are in `target/tmp/page`, and with
//! `PAGE_PICTURES=1` those of all pages.
//!
//! One check alone: `PAGE_CHECK='actions: delete' cargo test -p nsqadmin --test nsqadmin page:: -- --nocapture`

use crate::hostile_nsqd;
use crate::large_cluster;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::Admin;
use nsqadmin::history::{History, Key, Point};
use serde_json::json;
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer, Received};
use test_support::original_nsqd;
use test_support::packages::{self, is_installed};
use test_support::process::run;
use test_support::tmpfs::Tmpfs;

/// The longest time for all checks. They take three minutes, and seventeen with fifteen times as many
/// processes as cores. Each gives up by itself.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(2_400);

/// Starts an nsqadmin. Everybody may read bodies, unless there are admins.
fn start(args: &[String]) -> Admin {
    let is_open = !args.iter().any(|arg| arg.starts_with("--admin-user"));
    let open = is_open.then_some("--peek-bodies=everybody");
    let args = args.iter().map(String::as_str);
    Admin::start(&open.into_iter().chain(args).collect::<Vec<_>>())
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page")
}

/// Starts an nsqd with peeks and a place, one that forbids peeks, and a server that answers as NSQ's own nsqd does.
/// Each has the topic `t` with the channel `c`. Also returns the flags of an nsqadmin for them.
fn nsqds_of_many_kinds() -> (Vec<Daemon>, Vec<String>) {
    let topics = json!([{"topic_name": "t", "channels": [{"channel_name": "c"}]}]);
    let original = original_nsqd::start(topics);
    let place = [
        "--topology-region=eu",
        "--topology-zone=eu-1",
        "--enable-experiment=topology-aware-consumption",
    ];
    let nsqds = vec![Daemon::nsqd(&place), Daemon::nsqd(&["--peek=false"])];
    for nsqd in &nsqds {
        nsqd.create_channel("t", "c");
        nsqd.publish("t", &["open"]);
    }
    let addresses = nsqds.iter().map(|nsqd| nsqd.http);
    let addresses = addresses.chain([original.address]);
    let flags = addresses.map(|address| format!("--nsqd-http-address={address}"));
    let flags = flags.collect();
    (nsqds, flags)
}

/// The cluster for faults: two nsqlookupds, three nsqds of which the last has a small disk, and nsqadmin.
struct Night {
    lookupds: [Daemon; 2],
    nsqds: Vec<Daemon>,
    admin: Admin,
    /// For servers that do not answer: it waits for a second only.
    hasty: Admin,
    // This field comes last, so the disk is unmounted after the nsqds have been killed.
    disk: Option<Tmpfs>,
}

impl Night {
    fn start() -> Night {
        let lookupds = [(); 2].map(|()| Daemon::nsqlookupd(&[]));
        let both = [&lookupds[0], &lookupds[1]];
        let disk = Tmpfs::mount("64m");
        let on_disk = |disk: &Tmpfs| format!("--data-path={}", disk.path().display());
        let last: Vec<String> = disk.iter().map(on_disk).collect();
        let last: Vec<&str> = last.iter().map(String::as_str).collect();
        let nsqds = [&[][..], &[], &last].map(|flags| Daemon::nsqd_at(&both, flags));
        let flags = both.map(|lookupd| format!("--lookupd-http-address={}", lookupd.http));
        let admin = start(&flags);
        let short = "--http-client-request-timeout=1s".to_owned();
        let hasty = start(&[&flags[..], &[short]].concat());
        Night {
            nsqds: nsqds.into(),
            admin,
            hasty,
            disk,
            lookupds,
        }
    }

    fn json(&self) -> serde_json::Value {
        let addresses = |daemon: &Daemon| json!({"http": daemon.http.to_string(), "tcp": daemon.tcp.to_string(), "pid": daemon.pid()});
        json!({
            "admin": self.admin.url("/"),
            "hasty": self.hasty.url("/"),
            "lookupds": self.lookupds.iter().map(addresses).collect::<Vec<_>>(),
            "nsqds": self.nsqds.iter().map(addresses).collect::<Vec<_>>(),
            "disk": self.disk.as_ref().map(Tmpfs::path),
        })
    }
}

/// The depths of the topic `remembered` in the saved history, by the age of a point in seconds.
const DEPTHS: [(i64, u64); 4] = [(600, 11), (3_600, 22), (21_600, 33), (604_800, 44)];

/// Returns the saved form of a history of seven days until now. The topic `remembered` has the depths of
/// [`DEPTHS`], all topics together have 100 times as much. The topic's channel has 2^24 + 1, which no f32 can have, and the
/// node 444. The topic `t` has another depth in each step, so its past takes 80 kB.
fn history_of_a_week(node: SocketAddr) -> Vec<u8> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = i64::try_from(since_1970.unwrap_or_default().as_secs()).expect("a time of today");
    let mut history = History::new(1 << 20);
    let point = |depth: u64| Point {
        depth,
        rate: Some(1.0),
        oldest_ms: 1_000,
    };
    let mut age = 604_800_i64;
    while age > 0 {
        let range = DEPTHS.iter().find(|(oldest, _)| age <= *oldest);
        let (_, depth) = range.expect("the ages are at most a week");
        let topic = "remembered".to_owned();
        let samples = [
            (Key::All, point(depth * 100)),
            (Key::Node(node.to_string()), point(444)),
            (Key::Topic(topic.clone()), point(*depth)),
            (Key::Channel(topic, "archive".to_owned()), point(16_777_217)),
            (Key::Topic("t".to_owned()), point(age.unsigned_abs())),
        ];
        let left_out = history.add(now - age, samples);
        assert_eq!(left_out, 0, "there is room");
        // The steps of the history's rings.
        age -= match age {
            ..=600 => 1,
            601..=21_600 => 10,
            _ => 60,
        };
    }
    history.to_bytes()
}

/// Starts a server that answers as graphite does: 7654 for each target, in each of the last ten minutes.
fn graphite() -> HttpServer {
    HttpServer::start(|request, _| {
        let query = request.target().split('?').nth(1).unwrap_or_default();
        let targets = query.split('&').filter(|part| part.starts_with("target="));
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let minute = since_1970.unwrap_or_default().as_secs() / 60;
        let points = (minute - 10..minute).map(|minute| json!([7654, minute * 60]));
        let points: Vec<_> = points.collect();
        let series = targets.map(|target| json!({"target": target, "datapoints": points}));
        let answer = Answer::from(json!(series.collect::<Vec<_>>()));
        answer.with("Content-Type: application/json")
    })
}

#[test]
fn the_page_in_a_browser() {
    let is_complete = is_installed("chromium", "apt-get install chromium")
        && is_installed("node", "Node.js 20 or later, such as nodejs")
        && is_installed("npm", "apt-get install npm");
    if !is_complete {
        return;
    }
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let modules = packages::npm(&tmp.with_file_name("interop"), &directory());
    let pictures = tmp.join("page");
    std::fs::create_dir_all(&pictures).expect("a directory in target can be made");

    let lookupd = Daemon::nsqlookupd(&[]);
    let flags = [
        "--e2e-processing-latency-percentile=0.99",
        "--e2e-processing-latency-percentile=0.5",
        "--dedup=repeated=body,window=10m",
        "--dedup=numbered=publisher",
    ];
    let nsqds: Vec<Daemon> = (0..3)
        .map(|_| Daemon::nsqd_at(&[&lookupd], &flags))
        .collect();
    let large = large_cluster::start();

    let at = |lookupd: &Daemon| format!("--lookupd-http-address={}", lookupd.http);
    let admin = start(&[at(&lookupd), "--base-path=/admin/nsq".to_owned()]);
    let acl = start(&[at(&lookupd), "--admin-user=alice".to_owned()]);
    let far = start(&[
        at(&lookupd),
        "--admin-user=alice".to_owned(),
        "--trusted-proxy-cidr=192.0.2.0/24".to_owned(),
    ]);
    let nsqd_flags = nsqds
        .iter()
        .map(|nsqd| format!("--nsqd-http-address={}", nsqd.http));
    let direct = start(&nsqd_flags.collect::<Vec<_>>());
    let many = start(&[
        format!("--lookupd-http-address={}", large.address),
        "--live-interval=5s".to_owned(),
    ]);
    let histories = tempfile::tempdir().expect("a temporary directory can be made");
    let history = history_of_a_week(nsqds[0].http);
    let history_file = |name: &str| {
        let path = histories.path().join(name);
        std::fs::write(&path, &history).expect("it can be written");
        format!("--history-file={}", path.display())
    };
    let file = history_file("past");
    let past = start(&[at(&lookupd), file]);
    let (peeked, mixed_flags) = nsqds_of_many_kinds();
    let mixed = start(&mixed_flags);
    let with_history = |flags: &[&str]| {
        let own = flags.iter().map(|flag| (*flag).to_owned());
        start(&mixed_flags.iter().cloned().chain(own).collect::<Vec<_>>())
    };
    // There is room for a day of this topic.
    let tight = with_history(&[&history_file("tight"), "--history-max-bytes=40000"]);
    let full = with_history(&["--history-max-bytes=1500"]);
    let night = Night::start();
    let hostile = hostile_nsqd::start();
    let huge = start(&[format!("--nsqd-http-address={}", hostile.address)]);
    let graphite = graphite();
    let graphed = start(&[at(&lookupd), format!("--graphite-url={}", graphite.url(""))]);

    let nsqds: Vec<_> = nsqds
        .iter()
        .map(|nsqd| json!({"http": nsqd.http.to_string(), "tcp": nsqd.tcp.to_string(), "pid": nsqd.pid()}))
        .collect();
    let cluster = json!({
        "admin": admin.url("/admin/nsq/"),
        "acl": acl.url("/"),
        "far": far.url("/"),
        "direct": direct.url("/"),
        "many": {"admin": many.url("/"), "switch": large.url("/switch")},
        "past": past.url("/"),
        "mixed": mixed.url("/"),
        "placed": {"http": peeked[0].http.to_string(), "tcp": peeked[0].tcp.to_string()},
        "unplaced": {"http": peeked[1].http.to_string(), "tcp": peeked[1].tcp.to_string()},
        "tight": tight.url("/"),
        "full": full.url("/"),
        "graphite": graphed.url("/"),
        "huge": huge.url("/"),
        "lookupd": lookupd.http.to_string(),
        "nsqds": nsqds,
        "night": night.json(),
        "pictures": pictures,
    });
    let mut command = Command::new("node");
    command
        .arg(directory().join("main.mjs"))
        .env("NODE_PATH", modules)
        .env("PAGE_TEST", cluster.to_string());
    let exit = run(&mut command, CHECKS_TIMEOUT);
    // What failed comes first: a report shows only the first lines.
    let (failures, passes) = (&exit.stderr, &exit.stdout);
    assert!(exit.status.success(), "{failures}{passes}");
    if std::env::var_os("PAGE_CHECK").is_none() {
        let requests = graphite.requests();
        let is_render = |request: &Received| request.target().starts_with("/render?target=");
        assert!(!requests.is_empty() && requests.iter().all(is_render));
    }
    eprintln!("{}", exit.stdout);
}
