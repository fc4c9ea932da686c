//! `nsqd --check` with the real binary. The check names each fault of a machine and what to do
//! about it. It changes no files and does not disturb a running broker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{
    Answer, Broker, Certificates, Exit, Lookupd, Tmpfs, answer_io_uring_with, assert_like,
    contents, first_core, has_io_uring, is_installed, limited, nsqd_path, rows, run, serve_http,
    wait_until, without_privileges,
};
use serde_json::Value;

/// The longest time of a check. An address in use takes a second, and the syncs take as long as the
/// disk needs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the command of a check with two shards and free ports. Later flags override these.
fn check(via: &[String], data_path: &Path, args: &[&str]) -> Command {
    let mut words = via.to_vec();
    words.push(nsqd_path().display().to_string());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"])
        .arg(format!("--data-path={}", data_path.display()))
        .args(["--shards=2", "--check=json"])
        .args(args);
    command
}

/// Returns the findings of a check with these flags.
fn found(data_path: &Path, flags: &[&str]) -> Report {
    Report::of(check(&[], data_path, flags))
}

/// The findings of a check in JSON.
struct Report {
    exit: Exit,
    json: Value,
}

impl Report {
    fn of(mut command: Command) -> Report {
        let exit = run(&mut command, TIMEOUT);
        assert_eq!(exit.stderr, "", "{exit}");
        let json: Value = serde_json::from_str(&exit.stdout)
            .unwrap_or_else(|error| panic!("{error}: only JSON is expected: {exit}"));
        let is_failure = json["state"] == "failure";
        assert_eq!(exit.code(), i32::from(is_failure), "{exit}");
        Report { exit, json }
    }

    #[track_caller]
    fn finding(&self, name: &str) -> &Value {
        let checks = self.json["checks"].as_array().expect("an array");
        let mut found = checks.iter().filter(|check| check["name"] == name);
        match (found.next(), found.next()) {
            (Some(finding), None) => finding,
            _ => panic!("one {name} is expected: {}", self.exit),
        }
    }

    /// Checks that the finding has this state, contains these parts, which `…` separates, and has a remedy.
    #[track_caller]
    fn says(&self, name: &str, state: &str, parts: &str) {
        let finding = self.finding(name);
        assert_eq!(finding["state"], state, "{finding}");
        let text = format!("{} {}", finding["found"], finding["advice"]);
        assert_like(text, &format!("…{parts}…"));
        let has_advice = finding["advice"] != "";
        let needs_advice = state == "warning" || state == "failure";
        assert_eq!(has_advice, needs_advice, "{finding}");
    }

    /// Checks that this finding is the only failure, and contains these parts.
    #[track_caller]
    fn fails(&self, name: &str, parts: &str) {
        self.fail(&[name]);
        self.says(name, "failure", parts);
    }

    /// Checks which findings are failures.
    #[track_caller]
    fn fail(&self, names: &[&str]) {
        assert_eq!(self.names("failure"), names, "{}", self.exit);
    }

    /// Returns the names of the checks with this state.
    fn names(&self, state: &str) -> Vec<&str> {
        let checks = self.json["checks"].as_array().expect("an array");
        checks
            .iter()
            .filter(|check| check["state"] == state)
            .map(|check| check["name"].as_str().expect("a text"))
            .collect()
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("nsqd-check-")
        .tempdir()
        .expect("a temporary directory can be made")
}

#[test]
fn a_good_machine_is_ready_and_stays_as_it_is() {
    let data = scratch();
    for via in [Vec::new(), without_privileges()] {
        let report = Report::of(check(&via, data.path(), &[]));
        report.fail(&[]);
        let fine = "flags open-files mappings data-path permissions nsqd.dat segments";
        for name in fine.split(' ').chain(["tcp-address", "http-address"]) {
            report.says(name, "ok", "");
        }
        // With epoll, nsqd is ready too.
        let io = if has_io_uring() { "ok" } else { "warning" };
        report.says("io", io, "");
        // These checks may give warnings on a good machine.
        for name in ["cores", "file-system", "free-space", "sync-speed"] {
            report.finding(name);
        }
        assert!(contents(data.path()).is_empty(), "{}", report.exit);
    }
}

/// Both forms have the same names, states and sentences. Times and free bytes differ from run to
/// run.
#[test]
fn text_and_json_have_the_same_findings() {
    let data = scratch();
    let missing = data.path().join("missing");
    let json = Report::of(check(&[], &missing, &[]));
    let text = run(&mut check(&[], &missing, &["--check"]), TIMEOUT);
    assert_eq!((text.code(), text.stderr.as_str()), (1, ""), "{text}");
    let word = |state: &Value| match state.as_str() {
        Some("ok") => "ok",
        Some("warning") => "warn",
        _ => "FAIL",
    };
    let expected: Vec<_> = json.json["checks"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|check| {
            (
                word(&check["state"]),
                check["name"].as_str().expect("a text"),
            )
        })
        .collect();
    let lines: Vec<_> = text.stdout.lines().collect();
    let (summary, lines) = lines.split_last().expect("a summary");
    let shown: Vec<_> = lines
        .iter()
        .filter(|line| !line.starts_with(' '))
        .map(|line| {
            let mut words = line.split_whitespace();
            (
                words.next().expect("a state"),
                words.next().expect("a name"),
            )
        })
        .collect();
    assert_eq!(shown, expected, "{text}");
    let begin = "This machine is not ready for nsqd with these flags: 1 failure, ";
    assert!(summary.starts_with(begin), "{text}");
    let advice = json.finding("data-path")["advice"].as_str();
    let advice = format!("What to do: {}", advice.expect("a text"));
    assert!(lines.iter().any(|line| line.trim() == advice), "{text}");
}

#[test]
fn a_data_path_that_cannot_be_used_is_named() {
    let data = scratch();
    let missing = data.path().join("missing");
    let shown = missing.display().to_string();
    let why = format!("{shown} does not exist…mkdir -p {shown}");
    found(&missing, &[]).fails("data-path", &why);
    assert!(!missing.exists(), "a data path is never created");

    let file = data.path().join("file");
    std::fs::write(&file, "x").expect("written");
    found(&file, &[]).says("data-path", "failure", "is not a directory");

    let closed = data.path().join("closed");
    std::fs::create_dir(&closed).expect("created");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o500)).expect("ours");
    let report = Report::of(check(&without_privileges(), &closed, &[]));
    report.fails("data-path", "permission denied…chown");
    assert!(contents(&closed).is_empty());
}

/// Returns the modes of everything below a directory, by path.
fn modes(directory: &Path) -> BTreeMap<PathBuf, u32> {
    let mut modes = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let metadata = path.symlink_metadata().expect("the broker has stopped");
        modes.insert(path.clone(), metadata.permissions().mode() & 0o7777);
        if metadata.is_dir() {
            modes.append(&mut self::modes(&path));
        }
    }
    modes
}

/// Returns the only mode of the files, and the only mode of the directories.
fn one_mode_each(directory: &Path) -> (u32, u32) {
    let mut files = BTreeSet::new();
    let mut directories = BTreeSet::new();
    for (path, mode) in modes(directory) {
        if path.is_dir() {
            directories.insert(mode)
        } else {
            files.insert(mode)
        };
    }
    let only = |modes: BTreeSet<u32>| match modes.len() {
        1 => modes.into_iter().next().expect("there is one"),
        _ => panic!("{modes:?} in decimals"),
    };
    (only(files), only(directories))
}

/// Everybody could read what producers published.
#[test]
fn messages_are_closed_to_other_users_and_files_that_are_open_are_told() {
    let mut broker = Broker::start(1, &["--dedup=orders=publisher", "--dedup=clicks=body"]);
    let data_path = broker.data_path().to_owned();
    std::fs::set_permissions(&data_path, Permissions::from_mode(0o755)).expect("ours");
    for topic in ["orders", "clicks", "gone"] {
        for target in ["topic/create", "channel/create", "pub"] {
            let body: &[u8] = if target == "pub" { b"body" } else { b"" };
            let target = format!("/{target}?topic={topic}&channel=billing");
            assert_eq!(broker.post(&target, body).status, 200, "{target}");
        }
    }
    let deleted = broker.post("/topic/delete?topic=gone", b"");
    assert_eq!(deleted.status, 200);
    assert!(broker.sigterm_and_wait().success());
    assert_eq!(one_mode_each(&data_path), (0o600, 0o700));
    found(&data_path, &[]).says("permissions", "ok", "");

    // A backup was restored so, with the usual umask.
    for path in modes(&data_path).keys() {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    }
    let before = modes(&data_path);
    let parts = "clicks.log (mode 0755) and 2 more…chmod -R go=";
    found(&data_path, &[]).says("permissions", "warning", parts);
    assert_eq!(modes(&data_path), before, "a check changes nothing");
    broker.restart();
    broker.wait_for_log("other users of this machine");
    assert!(broker.sigterm_and_wait().success());
}

#[test]
fn a_takeover_that_is_due_is_announced() {
    let data = scratch();
    let listed = r#"{"topics":[{"channels":[],"name":"orders","paused":false}],"version":"1.3.0"}"#;
    let write = |name: &str, text: &str| {
        std::fs::write(data.path().join(name), text).expect("written");
    };
    write("nsqd.dat", listed);
    write("orders.diskqueue.000000.dat", &"x".repeat(1000));
    let report = found(data.path(), &[]);
    let parts = "takes over 1 queue…1000 bytes, 0 messages…except for what cannot be read";
    report.says("takeover", "warning", parts);
    let faults = report.finding("takeover")["data"]["faults"].to_string();
    assert_like(&faults, "…its last 1000 bytes are not imported…");
    let original = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../diskq/import/tests/data/nsqd/two-channels");
    let parts = "3 queues…45 messages…in about a second";
    found(&original, &[]).says("takeover", "ok", parts);
    write("clicks.diskqueue.000000.dat", "x");
    let parts = "nsqd.dat does not list clicks";
    found(data.path(), &[]).says("takeover", "warning", parts);
    write("nsqd.dat", "{");
    let parts = "bring back an nsqd.dat";
    found(data.path(), &[]).says("nsqd.dat", "failure", parts);
    std::fs::create_dir(data.path().join("import.done")).expect("the name is free");
    write("import.done/manifest", "damaged");
    write("nsqd.dat", listed);
    let parts = "a start fails…manifest is damaged";
    found(data.path(), &[]).says("takeover", "failure", parts);
}

#[test]
fn a_value_with_which_nothing_works_is_named() {
    let report = found(scratch().path(), &["--max-msg-size=0"]);
    let parts = "--max-msg-size=0…every publish is refused";
    report.says("flags", "warning", parts);
}

#[test]
fn a_read_only_file_system_is_named() {
    let Some(tmpfs) = Tmpfs::mount("1m") else {
        return;
    };
    tmpfs.make_read_only();
    let parts = "mounted read-only…remount,rw";
    found(&tmpfs.path(), &[]).says("data-path", "failure", parts);
}

#[test]
fn a_tiny_file_system_in_memory_is_named() {
    let Some(tmpfs) = Tmpfs::mount("2m") else {
        return;
    };
    let report = found(&tmpfs.path(), &[]);
    report.fail(&[]);
    let in_memory = format!("tmpfs…{}…is memory…on a disk", tmpfs.path().display());
    report.says("file-system", "warning", &in_memory);
    let room = "2.0 MiB of 2.0 MiB are free…larger file system";
    report.says("free-space", "warning", room);
    report.says("segments", "ok", "");
    assert!(contents(&tmpfs.path()).is_empty());
    let filler = tmpfs.fill("filler");
    let report = found(&tmpfs.path(), &[]);
    report.fail(&["free-space", "segments"]);
    report.says("free-space", "failure", "publishes would be refused");
    let full = "no space left on device…free some room";
    report.says("segments", "failure", full);
    let names: Vec<_> = contents(&tmpfs.path())
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(names, [filler]);
}

#[test]
fn a_taken_port_is_named_and_so_is_a_port_that_is_given_twice() {
    let data = scratch();
    // Nobody else uses this address.
    let holder = TcpListener::bind("127.0.23.3:0").expect("a port is free");
    let taken = holder.local_addr().expect("bound").to_string();
    let flag = format!("--http-address={taken}");
    let report = found(data.path(), &[&flag]);
    let parts = format!("{taken}…address already in use…choose another port");
    report.fails("http-address", &parts);
    report.says("tcp-address", "ok", "is free");
    // systemd starts an nsqd at the first connection to its socket.
    holder.set_nonblocking(true).expect("ours");
    let connected = holder.accept().map_err(|error| error.kind());
    assert_eq!(connected.unwrap_err(), ErrorKind::WouldBlock);
    drop(holder);
    // A program that another test starts just now has a copy of the socket until its exec.
    let is_free = || TcpStream::connect(&taken).is_err();
    assert!(wait_until(TIMEOUT, is_free));
    let twice = format!("--tcp-address={taken}");
    let report = found(data.path(), &[&flag, &twice]);
    report.says("tcp-address", "ok", &taken);
    report.fails("http-address", &parts);
}

#[test]
fn a_unix_socket_is_tried_and_removed() {
    let data = scratch();
    let socket = data.path().join("n.sock");
    let flag = format!("--tcp-address={}", socket.display());
    found(data.path(), &[&flag]).says("tcp-address", "ok", "n.sock is free");
    assert!(contents(data.path()).is_empty());
}

#[test]
fn forbidden_io_uring_is_a_warning_and_a_failure_if_it_is_asked_for() {
    let data = scratch();
    let forbidden = |io: &str| {
        let mut command = check(&[], data.path(), &[io]);
        answer_io_uring_with(&mut command, libc::EPERM);
        Report::of(command)
    };
    let report = forbidden("--io=auto");
    report.fail(&[]);
    let why = "not allowed to use io_uring…seccomp…docker: --security-opt";
    report.says("io", "warning", why);
    let cost = "with epoll; it takes more processor time for many small requests";
    report.says("io", "warning", cost);
    forbidden("--io=io_uring").fails("io", why);
    forbidden("--io=epoll").says("io", "ok", "epoll works for 2 shards");
}

#[test]
fn few_descriptors_are_named() {
    if !is_installed("prlimit", "util-linux") {
        return;
    }
    let data = scratch();
    let report = |limit: &str| {
        let via = limited(&format!("--nofile={limit}"));
        Report::of(check(&via, data.path(), &[]))
    };
    let raise = "systemd: LimitNOFILE=; docker: --ulimit nofile=";
    let few = report("256:512");
    few.fail(&[]);
    let parts = format!("up to 512…2 shards and 416 clients…{raise}");
    few.says("open-files", "warning", &parts);
    let parts = format!("is 64, but 2 shards need at least 96…{raise}");
    report("64:64").says("open-files", "failure", &parts);
}

#[test]
fn values_that_a_start_refuses_are_named() {
    let data = scratch();
    for [flags, why] in rows(
        "--max-deflate-level=10           | --max-deflate-level must be [1,9]
         --io=magic                       | --io must be auto, io_uring, epoll
         --tls-required                   | without TLS key and cert
         --tls-cert=/nope --tls-key=/nope | open /nope: no such file",
    ) {
        let flags: Vec<&str> = flags.split(' ').collect();
        let report = found(data.path(), &flags);
        assert_eq!(report.names("failure")[0], "flags", "{}", report.exit);
        report.says("flags", "failure", why);
    }
    let report = found(data.path(), &["--max-rdy-count=7", "true", "--io=magic"]);
    report.says("flags", "warning", "is ignored: true --io=magic");
    std::fs::write(data.path().join("nsqd.dat"), "{").expect("written");
    found(data.path(), &[]).fails("nsqd.dat", "nsqd.dat…move the file aside");
    let exit = run(&mut check(&[], data.path(), &["--check=xml"]), TIMEOUT);
    assert_eq!((exit.code(), exit.stdout.as_str()), (2, ""), "{exit}");
}

#[test]
fn more_shards_than_cores_are_named() {
    if !is_installed("taskset", "util-linux") {
        return;
    }
    let data = scratch();
    let via = ["taskset", "-c", &first_core()].map(str::to_owned);
    let report = Report::of(check(&via, data.path(), &[]));
    let parts = "2 shards, but this process may use only 1 core…--shards=0";
    report.says("cores", "warning", parts);
}

/// Repeats the check on the data path and the addresses of a running broker.
#[test]
fn a_running_broker_is_not_disturbed() {
    let mut broker = Broker::start_on("127.0.23.4", 2, &[]);
    let path = broker.data_path().to_path_buf();
    let mut client = broker.consumer("busy", "channel", 1);
    let mut producer = broker.client();
    let tcp = format!("--tcp-address={}", broker.tcp_addr());
    let http = format!("--http-address={}", broker.http_addr());
    // Each address in use was that of the broker.
    let stranger = TcpListener::bind("127.0.23.4:0").expect("a port is free");
    let stranger = format!("--tcp-address={}", stranger.local_addr().expect("bound"));
    found(&path, &[&stranger, &http]).fail(&["tcp-address"]);
    for round in 0..3 {
        let report = found(&path, &[&tcp, &http]);
        report.fail(&[]);
        let taken = ["data-path", "tcp-address", "http-address"];
        assert_eq!(report.names("waiting"), taken, "{}", report.exit);
        report.says("data-path", "waiting", "the directory is fine");
        // A client is a producer after its first publish.
        let connections = if round == 0 { 1 } else { 2 };
        let figures = format!("1 topics, 1 channels, {connections} connections");
        report.says("running-nsqd", "ok", &figures);
        // The check still examines the disk.
        report.says("segments", "ok", "");
        report.finding("sync-speed");
        let body = format!("round {round}");
        producer.publish("busy", body.as_bytes());
        let message = client.message();
        assert_eq!(message.body, body.as_bytes());
        client.finish(&message.id);
    }
    let left = contents(&path).into_iter().map(|(path, _)| path);
    let left: Vec<_> = left
        .filter(|path| path.to_string_lossy().contains("check"))
        .filter(|path| path.parent() == Some(broker.data_path()))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    broker.get("/ping").expect_status(200);
    let log = broker.log();
    for word in ["WARNING", "ERROR", "FATAL"] {
        assert!(!log.contains(word), "{log}");
    }
    broker.sigterm_and_wait();
    let report = found(&path, &[&tcp, &http]);
    report.fail(&[]);
    report.says("nsqd.dat", "ok", "lists 1 topic");
}

/// It has no nsqd's data, so a start there would leave the messages behind.
#[test]
fn a_running_broker_with_another_data_path_is_named() {
    let mut broker = Broker::start_on("127.0.23.5", 1, &[]);
    let data = scratch();
    let http = format!("--http-address={}", broker.http_addr());
    let like = format!("--like=http://{}", broker.http_addr());
    let exit = run(
        &mut check(&[], data.path(), &["--check", &like, "--", &http]),
        TIMEOUT,
    );
    assert_eq!((exit.code(), exit.stderr.as_str()), (0, ""), "{exit}");
    let parts = "…with another data path…is in use by the nsqd that runs here…";
    assert_like(&exit.stdout, parts);
    broker.sigterm_and_wait();
}

/// Returns the findings about an nsqd that answers in this way.
fn like(info: &'static str, stats: &'static str) -> Report {
    let node = serve_http(move |request| match request.target() {
        "/info" => Answer::new(200, info),
        _ => Answer::new(if stats.is_empty() { 500 } else { 200 }, stats),
    });
    let flag = format!("--like=http://{node}");
    found(scratch().path(), &[&flag])
}

#[test]
fn the_nsqd_to_be_replaced_is_described() {
    let info = r#"{"version":"1.2.1","tcp_port":4150,"http_port":4151}"#;
    let stats = r#"{"version":"1.2.1","topics":[{"topic_name":"orders","depth":1,"backend_depth":1,
        "message_count":1,"message_bytes":994,"channels":[{"channel_name":"billing","clients":[
        {"remote_address":"a:1","user_agent":"go-nsq/1.1.0","tls":true,"tls_version":"TLS1.1"},
        {"remote_address":"a:2","user_agent":"billing/2.1","sample_rate":10}]}]}],
        "producers":[{"remote_address":"a:1","user_agent":"go-nsq/1.1.0","tls":true}]}"#;
    let report = like(info, stats);
    report.fail(&[]);
    for [name, state, parts] in rows(
        "running-nsqd | ok      | nsqd 1.2.1: 1 topics, 1 channels, 2 connections…of nsqd 1.3.0
         clients      | warning | 1 connections of tried…1 of others
         features     | warning | TLS 1, sampling 1…but not TLS1.1
         backlog      | ok      | 1 messages, 1 of them on disk…1.0 KiB",
    ) {
        report.says(name, state, parts);
    }
}

/// A start does not need the other node.
#[test]
fn a_node_that_cannot_be_described_is_one_sentence() {
    let info = r#"{"version":"1.3.0","tcp_port":4150,"http_port":4151}"#;
    for (report, part) in [
        (like("{}", "{}"), "is no nsqd"),
        (like(r#"{"version":"0.2.0","tcp_port":1}"#, "{}"), "too old"),
        (like(info, ""), "does not tell its figures"),
        (like(info, "[1]"), "does not tell its figures"),
    ] {
        report.says("running-nsqd", "warning", part);
    }
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let flag = format!("--like={}", nobody.local_addr().expect("bound"));
    drop(nobody);
    let report = found(scratch().path(), &[&flag]);
    report.says("running-nsqd", "warning", "connection refused…4151");
}

#[test]
fn a_node_is_asked_over_https_too() {
    let certificates = Certificates::new();
    let mut broker = certificates.broker(1, &["--tls-required"]);
    let ca = certificates.flag("tls-root-ca-file", "ca.pem");
    // The node refuses HTTP and names its port for HTTPS.
    let flags = certificates.flags(&[
        "--tls-required",
        &ca,
        &format!("--like={}", broker.http_addr()),
    ]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    found(scratch().path(), &flags).says("running-nsqd", "ok", "the nsqd of ringq");
    broker.sigterm_and_wait();
}

/// An nsqlookupd that was told of this node would send it consumers.
#[test]
fn nsqlookupds_are_tried_and_not_told() {
    let lookupd = Lookupd::start(&[]);
    let good = format!("--lookupd-tcp-address={}", lookupd.address());
    let data = scratch();
    let report = found(data.path(), &[&good]);
    report.says("nsqlookupds", "ok", &lookupd.address());
    lookupd.wait_for("closed");
    assert_eq!(lookupd.told(), ["connected", "PING", "closed"]);
    let bad = "--lookupd-tcp-address=127.0.23.6:1";
    let report = found(data.path(), &[&good, bad]);
    let parts = format!("{}…not answering: 1", lookupd.address());
    report.says("nsqlookupds", "warning", &parts);
    let faults = report.finding("nsqlookupds")["data"]["faults"].to_string();
    assert!(faults.contains("127.0.23.6:1: dial tcp"), "{faults}");
}
