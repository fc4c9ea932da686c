//! Failures at the start. Each failure ends the program with code 1 (2 for the command line) and
//! one FATAL line, and changes no file. The line says what is wrong and what to do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    Broker, Certificates, Client, Confinement, Exit, IoUringSwitch, Launch, Tmpfs,
    answer_io_uring_with, assert_like, contents, has_io_uring, is_root, kernel, limited, nsqd_path,
    rows, run, run_nsqd, without_privileges,
};
use test_support::daemon::send_signal;

/// The longest wait. A refusal takes milliseconds. An address in use is tried for a second.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a broker that must refuse to start on `data_path`, with a FATAL line like this.
#[track_caller]
fn refused(command: &mut Command, data_path: &Path, fatal: &str) {
    let exists = data_path.is_dir();
    let before = if exists {
        contents(data_path)
    } else {
        Vec::new()
    };
    let exit = run(command, TIMEOUT);
    assert_eq!(exit.code(), 1, "{exit}");
    assert_eq!(exit.stdout, "", "nothing but the log: {exit}");
    if exists {
        assert!(
            before == contents(data_path),
            "a refused start changed the data path: {exit}"
        );
    } else {
        assert!(!data_path.is_dir(), "a data path is never created: {exit}");
    }
    assert_like(fatal_text(&exit), fatal);
}

/// Returns the text after `FATAL: `. Panics unless exactly one line has it, and that line is the
/// last one.
fn fatal_text(exit: &Exit) -> String {
    let lines: Vec<&str> = exit.stderr.lines().collect();
    let (last, others) = lines.split_last().expect("a FATAL line");
    for other in others {
        assert_like(other, "… INFO: …");
        assert!(!other.contains(" FATAL: "), "the only FATAL line: {exit}");
    }
    assert!(last.starts_with("[nsqd] 20"), "{exit}");
    let (_, text) = last.split_once(" FATAL: ").expect("the line has FATAL");
    text.to_owned()
}

/// Returns the command `via... nsqd` with two shards, free ports and this data path.
fn nsqd(via: &[String], data_path: &Path) -> Command {
    nsqd_on(via, data_path, "127.0.0.1:0", "127.0.0.1:0")
}

fn nsqd_on(via: &[String], data_path: &Path, tcp: &str, http: &str) -> Command {
    let mut command = match via.split_first() {
        None => Command::new(nsqd_path()),
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(nsqd_path());
            command
        }
    };
    command
        .arg(format!("--tcp-address={tcp}"))
        .arg(format!("--http-address={http}"))
        .arg(format!("--data-path={}", data_path.display()))
        .arg("--shards=2");
    command
}

fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("nsqd-start-")
        .tempdir()
        .expect("a temporary directory can be made")
}

// --- addresses

#[test]
fn an_address_in_use_is_refused_with_the_address_and_what_to_do() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = holder.local_addr().expect("bound").to_string();
    let data = scratch();
    let free = "127.0.0.1:0";
    for (tcp, http) in [(taken.as_str(), free), (free, taken.as_str())] {
        let why = format!(
            "failed to instantiate nsqd - listen ({taken}) failed - listen tcp {taken}: bind: \
             address already in use…another process listens there…choose another port…"
        );
        let mut command = nsqd_on(&[], data.path(), tcp, http);
        refused(&mut command, data.path(), &why);
    }
}

/// The shards bind with SO_REUSEPORT. Without a check, a second broker of the same user would start
/// and get half of the connections.
#[test]
fn another_broker_of_ours_on_the_same_port_is_refused_and_the_first_one_unharmed() {
    let first = Broker::start(2, &[]);
    let data = scratch();
    let (tcp, http) = (first.tcp_addr().to_string(), first.http_addr().to_string());
    let free = "127.0.0.1:0";
    for (tcp, http) in [(tcp.as_str(), free), (free, http.as_str())] {
        let mut command = nsqd_on(&[], data.path(), tcp, http);
        let why = "…address already in use…perhaps another nsqd…";
        refused(&mut command, data.path(), why);
    }
    for _ in 0..20 {
        first.client().publish("unharmed", b"x");
    }
    let stats = first.topic("unharmed");
    assert_eq!(stats["message_count"], 20);
}

#[test]
fn one_port_for_both_protocols_is_refused() {
    let data = scratch();
    let port = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = port.local_addr().expect("bound").to_string();
    drop(port);
    let mut command = nsqd_on(&[], data.path(), &address, &address);
    let why = format!("…listen ({address}) failed…address already in use…");
    refused(&mut command, data.path(), &why);
}

/// The unit tests of `preflight::addresses` have the words for other addresses.
#[test]
fn addresses_that_mean_nothing_are_refused_in_nsqds_words() {
    let data = scratch();
    let unknown = "no-such-host.invalid:4150";
    for (address, why) in [
        (
            unknown,
            &*format!("…listen ({unknown}) failed - listen tcp: lookup …"),
        ),
        (
            "/n/n.sock",
            "…listen unix /n/n.sock: bind: no such file or directory…",
        ),
    ] {
        let mut command = nsqd_on(&[], data.path(), address, "127.0.0.1:0");
        refused(&mut command, data.path(), why);
    }
}

// --- TLS

/// The order of the checks is nsqd's, and so are the words, if nsqd has such a check.
#[test]
fn certificates_that_cannot_be_used_are_refused() {
    let files = Certificates::new();
    let data = scratch();
    std::fs::write(files.path("garbage.pem"), b"garbage").expect("written");
    let file = |name: &str| match name {
        "" | "/nope" => name.to_owned(),
        name => files.text(name),
    };
    let check = |flags: &[(&str, &str)], why: &str| {
        let mut command = nsqd(&[], data.path());
        for (flag, value) in flags {
            command.arg(format!("--{flag}={value}"));
        }
        let why = format!("failed to instantiate nsqd - {why}…");
        refused(&mut command, data.path(), &why);
    };
    let pair = |cert: &str, key: &str, why: &str| {
        let why = format!("failed to build TLS config - {why}");
        check(&[("tls-cert", &file(cert)), ("tls-key", &file(key))], &why);
    };
    let switched = "tls: failed to find certificate PEM data in certificate input, but did find a \
                    private key; PEM inputs may have been switched";
    pair("server-key.pem", "server.pem", switched);
    for [cert, key, why] in rows(
        "server.pem  |                | open : no such file or directory
                     | server-key.pem | open : no such file or directory
         /nope       | /nope          | open /nope: no such file or directory
         server.pem  | client-key.pem | tls: private key does not match public key
         garbage.pem | server-key.pem | tls: failed to find any PEM data in certificate input
         server.pem  | garbage.pem    | tls: failed to find any PEM data in key input
         server.pem  | server.pem     | tls: found a certificate rather than a key in the PEM for the private key",
    ) {
        pair(cert, key, why);
    }

    let own = [
        ("tls-cert", &*file("server.pem")),
        ("tls-key", &*file("server-key.pem")),
    ];
    let garbage = file("garbage.pem");
    let append = "TLS config - failed to append certificate to pool";
    let nope = "TLS config - open /nope: no such file or directory";
    for (file, why) in [(&*garbage, append), ("/nope", nope)] {
        let flag = ("tls-root-ca-file", file);
        check(&[own[0], own[1], flag], &format!("failed to build {why}"));
        check(&[flag], &format!("failed to build client {why}"));
    }
    let policy = ("tls-client-auth-policy", "require-verify");
    let why =
        "failed to build TLS config - tls: no authorities to verify client certificates with: ";
    check(&[own[0], own[1], policy], why);
    for flag in [
        ("tls-required", "true"),
        ("tls-required", "tcp-https"),
        ("tls-client-auth-policy", "anything"),
    ] {
        let why = "cannot require TLS client connections without TLS key and cert";
        check(&[flag], why);
    }
}

/// A rule whose memory the system refuses ended the process at a later publish, with a signal.
#[test]
fn memory_of_rules_that_the_system_refuses_is_named() {
    for (rule, kib) in [
        ("*=publisher,memory=1073741824", 1 << 20),
        ("*=body,window=1h,memory=68719476736", 8 << 20),
    ] {
        let data = scratch();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\"")]);
        command.arg(nsqd_path()).arg("--shards=1");
        command.arg(format!("--dedup={rule}"));
        command.arg(format!("--data-path={}", data.path().display()));
        command.args(["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]);
        let why = "…--dedup: the system does not give the memory for the rule of the pattern *";
        refused(
            &mut command,
            data.path(),
            &format!("{why}…smaller memory=…"),
        );
    }
}

// --- the data path

#[test]
fn a_data_path_that_is_no_directory_is_refused() {
    let data = scratch();
    let missing = data.path().join("missing");
    let shown = missing.display();
    let why = format!(
        "failed to instantiate nsqd - failed to lock data-path: open {shown}: no such file or \
         directory…create it…"
    );
    refused(&mut nsqd(&[], &missing), &missing, &why);

    let file = data.path().join("file");
    std::fs::write(&file, b"not a directory").expect("written");
    let why = format!(
        "…failed to lock data-path…{}…not a directory…",
        file.display()
    );
    refused(&mut nsqd(&[], &file), data.path(), &why);
}

#[test]
fn a_data_path_without_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let data = scratch();
    let closed = data.path().join("closed");
    std::fs::create_dir(&closed).expect("created");
    // The directory is neither readable nor writable, or readable only.
    for mode in [0o000, 0o500] {
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).expect("ours");
        let mut command = nsqd(&without_privileges(), &closed);
        let exit = run(&mut command, TIMEOUT);
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("ours");
        assert_eq!(exit.code(), 1, "{exit}");
        let why = format!("…data-path…{}…ermission denied…", closed.display());
        assert_like(fatal_text(&exit), &why);
        assert!(contents(&closed).is_empty(), "nothing was written");
    }
}

#[test]
fn a_data_path_on_a_read_only_file_system_is_refused() {
    let Some(tmpfs) = Tmpfs::mount("1m") else {
        return;
    };
    tmpfs.make_read_only();
    let path = tmpfs.path();
    let why = format!("…data-path…{}…ead-only file system…", path.display());
    refused(&mut nsqd(&[], &path), &path, &why);
}

#[test]
fn metadata_that_cannot_be_read_is_refused_and_left_alone() {
    for (content, why) in [
        (&b""[..], "unexpected end of JSON input"),
        (b"{\"topics\":[", "unexpected end of JSON input"),
        (b"\0\0\0\0", "at line 1 column 1"),
        (b"{\"topics\":17}", "cannot unmarshal"),
    ] {
        let data = scratch();
        let path = data.path().join("nsqd.dat");
        std::fs::write(&path, content).expect("written");
        let start = "failed to load metadata - failed to parse metadata in";
        let why = format!("{start} {} - …{why}…", path.display());
        refused(&mut nsqd(&[], data.path()), data.path(), &why);
    }
    let data = scratch();
    let path = data.path().join("nsqd.dat");
    std::fs::create_dir(&path).expect("created");
    let why = "…failed to load metadata - failed to read metadata from…is a directory…";
    refused(&mut nsqd(&[], data.path()), data.path(), why);
}

#[test]
fn odd_but_valid_metadata_starts_with_warnings() {
    let data = scratch();
    let odd = br#" {"TOPICS":[null,{"name":"good","Channels":[{"name":"bad name"},{"name":"c"}]},
        {"name":"bad:name"},{"name":"good","paused":true}],"extra":[1,2]} "#;
    std::fs::write(data.path().join("nsqd.dat"), odd).expect("written");
    let broker = Launch::new(2, &[]).at(data.path()).start();
    broker.wait_for_log("WARNING: skipping creation of invalid topic bad:name");
    broker.wait_for_log("WARNING: skipping creation of invalid channel bad name");
    let stats = broker.stats();
    let topics = stats["topics"].as_array().expect("an array");
    assert_eq!(topics.len(), 1, "{stats}");
    assert_eq!(topics[0]["topic_name"], "good");
    assert_eq!(
        topics[0]["paused"], true,
        "duplicates merge towards pausing"
    );
    assert_eq!(topics[0]["channels"][0]["channel_name"], "c");
}

// --- the command line

/// The unit tests of `config` have the texts of other mistakes.
#[test]
fn a_bad_command_line_ends_with_code_2_and_the_usage() {
    let data = scratch();
    let mut command = Command::new(nsqd_path());
    let exit = run(command.arg("--nope").current_dir(data.path()), TIMEOUT);
    let first_lines = "flag provided but not defined: -nope\nUsage of nsqd:\n";
    exit.expect(2, &format!("{first_lines}…  -tcp-address string\n…"));
    assert!(contents(data.path()).is_empty(), "nothing was written");
}

/// The unit tests of `config` have the texts of other values.
#[test]
fn values_that_cannot_be_used_end_with_code_1() {
    let data = scratch();
    for [flag, why] in rows(
        r#"--node-id=1024                                 | failed to instantiate nsqd - --node-id must be [0,1024)
         --dead-letter=dead/*,max-attempts=3,topic=dead   | …--dead-letter: "dead/*,max-attempts=3,topic=dead" may send dead letters round in a circle: dead has a rule of its own, which must stand behind this one…
         --create=orders/                                 | …--create: "orders/" is not topic or topic/channel: "" is not a valid name…
         --create=x#ephemeral                             | …x#ephemeral is ephemeral…
         --dedup=t=json:id                                | …the pointer "id" must begin with a slash, as /id or /order/id…
         --dedup=t=body,window=9999999,memory=100000      | …the memory 100000 does not fit the window, 228571520 would…
         --unclaimed-messages=logs.*=1GB                  | …--unclaimed-messages: "logs.*=1GB" is not <topic pattern>=keep, drop, bytes:<n>, age:<duration>, or bytes:<n>+age:<duration>: "1GB" is no policy…"#,
    ) {
        refused(nsqd(&[], data.path()).arg(flag), data.path(), why);
    }
}

/// With several faults, the first one in nsqd's order is reported: configuration file, data path,
/// values, addresses.
#[test]
fn the_first_of_several_reasons_is_that_of_nsqd() {
    let data = scratch();
    let file = data.path().join("nsqd.toml");
    std::fs::write(&file, "msg_timeout = 1.5\n").expect("written");
    let config = format!("--config={}", file.display());
    let missing = data.path().join("missing");
    let start = |data_path: &Path, args: &[&str]| {
        let mut command = nsqd_on(&[], data_path, "127.0.0.1:99999", "127.0.0.1:0");
        command.args(args);
        let exit = run(&mut command, TIMEOUT);
        assert_eq!(exit.code(), 1, "{exit}");
        exit
    };
    let bad_value = "--max-deflate-level=0";
    let exit = start(&missing, &[&config, bad_value]);
    assert_eq!(exit.stderr.lines().count(), 1, "{exit}");
    assert!(exit.stderr.starts_with("20"), "no prefix: {exit}");
    let why = format!(
        " ERROR: Resolve failed to coerce value 1.5 (1m0s) for field MsgTimeout - invalid time.Duration value type float64 \
         (key msg_timeout in {})\n",
        file.display()
    );
    assert!(exit.stderr.ends_with(&why), "{exit}");
    let exit = start(&missing, &[bad_value]);
    assert_like(fatal_text(&exit), "…failed to lock data-path…");
    let exit = start(data.path(), &[bad_value, "--node-id=-1"]);
    let text = "failed to instantiate nsqd - --max-deflate-level must be [1,9]";
    assert_eq!(fatal_text(&exit), text);
    assert_eq!(
        exit.stderr.lines().count(),
        1,
        "the error comes before the version: {exit}"
    );
    let exit = start(data.path(), &[]);
    assert_like(fatal_text(&exit), "…invalid port…");
    assert_like(&exit.stderr, "…INFO: nsqd v1.3.0 (built w/…INFO: ID: …");
}

#[test]
fn a_config_file_is_read_and_its_unknown_keys_are_named() {
    let data = scratch();
    let file = data.path().join("nsqd.toml");
    let text = "id = 5\nlog_prefix = \"[own] \"\nmax_rdy_count = 7\nnode_id = 6\n[other]\nx = 1\n";
    std::fs::write(&file, text).expect("written");
    let config = format!("--config={}", file.display());
    let broker = Broker::start(1, &[&config, "--max-rdy-count=8"]);
    let line = broker.wait_for_log("INFO: ID: 5");
    assert!(line.starts_with("[own] 20"), "{line}");
    broker.wait_for_log(
        "WARNING: keys in the config file that mean nothing, ignored: node_id, other",
    );
    for (key, value) in [
        ("id", "5"),
        ("max_rdy_count", "8"),
        ("log_prefix", "[own] "),
    ] {
        let shown = broker.get(&format!("/config/{key}")).expect_status(200);
        assert_eq!(shown.text(), value, "{key}");
    }
}

/// Clients choose parts of some messages. No such part breaks out of its JSON string.
#[test]
fn each_log_line_is_an_object_if_json_is_asked_for() {
    let data = scratch();
    let mut child = nsqd(&[], data.path())
        .args(["--log-format=json", "--log-prefix=[own] "])
        .stderr(Stdio::piped())
        .spawn()
        .expect("nsqd can be run");
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
    let next = |stderr: &mut BufReader<_>| {
        let mut line = String::new();
        stderr.read_line(&mut line).expect("stderr is text");
        (!line.is_empty()).then(|| LogObject::parse(&line))
    };
    let mut objects = Vec::new();
    let address = loop {
        let object = next(&mut stderr).expect("nsqd starts");
        let message = object.message.clone();
        objects.push(object);
        if let Some(address) = message.strip_prefix("TCP: listening on ") {
            break address.to_owned();
        }
    };
    let mut client = TcpStream::connect(address).expect("nsqd listens");
    client.write_all(b"\n\"\x1b}").expect("nsqd reads");
    client.read_to_end(&mut Vec::new()).expect("nsqd answers");
    send_signal(child.id(), "TERM");
    while let Some(object) = next(&mut stderr) {
        objects.push(object);
    }
    assert!(child.wait().expect("nsqd ends").success());
    let has = |level: &str, message: &str| {
        let found = objects
            .iter()
            .any(|object| object.level == level && object.message.contains(message));
        assert!(found, "{level} {message:?} is missing in {objects:?}");
    };
    has("info", "nsqd v1.3.0 (built w/");
    has("error", "bad protocol magic '\n\"\u{1b}}'");
    has("info", "NSQ: bye");

    let mut command = nsqd_on(&[], data.path(), "127.0.0.1:99999", "127.0.0.1:0");
    let exit = run(command.arg("--log-format=json"), TIMEOUT);
    assert_eq!(exit.code(), 1, "{exit}");
    let lines = exit.stderr.split_inclusive('\n');
    let objects: Vec<LogObject> = lines.map(LogObject::parse).collect();
    let last = objects.last().expect("a reason");
    assert_eq!(last.level, "fatal");
    assert_like(&last.message, "…failed to instantiate nsqd - listen (…");
}

/// A log line in JSON.
#[derive(Debug)]
struct LogObject {
    level: String,
    message: String,
}

impl LogObject {
    /// Parses the line. Panics unless it is the object that the documentation promises.
    fn parse(line: &str) -> LogObject {
        let text = line.strip_suffix('\n').expect("whole lines");
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        assert_eq!(keys, ["level", "message", "program", "time"], "{text}");
        let field = |key: &str| object[key].as_str().expect("a text").to_owned();
        assert_eq!(field("program"), "nsqd");
        let time = field("time");
        time.parse::<jiff::Timestamp>().expect("RFC 3339");
        assert_eq!(time.find('.'), Some(19), "{time}");
        LogObject {
            level: field("level"),
            message: field("message"),
        }
    }
}

#[test]
fn help_and_version_are_answers() {
    for flag in ["--version", "-version"] {
        let exit = run_nsqd(&[flag], TIMEOUT);
        assert_eq!((exit.code(), exit.stderr.as_str()), (0, ""), "{exit}");
        assert!(exit.stdout.starts_with("nsqd v1.3.0 (built w/"), "{exit}");
        let (_, second) = exit.stdout.split_once('\n').expect("two lines");
        assert_eq!(second, format!("ringq {}\n", env!("CARGO_PKG_VERSION")));
    }
    for flag in ["--help", "-h"] {
        let exit = run_nsqd(&[flag], TIMEOUT);
        assert_eq!((exit.code(), exit.stdout.as_str()), (0, ""), "{exit}");
        let parts = "-data-path string\n…-mem-queue-size int\n…(default 10000)";
        assert_like(&exit.stderr, &format!("Usage of nsqd:\n…{parts}…"));
    }
}

// --- the system

#[test]
fn io_uring_forbidden_by_seccomp_is_explained() {
    // Some filters answer ENOSYS on a kernel with io_uring. A unit test covers really old kernels,
    // because the judgement depends on the version.
    for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
        let data = scratch();
        let mut command = nsqd(&[], data.path());
        command.arg("--io=io_uring");
        answer_io_uring_with(&mut command, errno);
        let why = if is_old_kernel() && errno == libc::ENOSYS {
            "too old for io_uring…use Linux"
        } else {
            "not allowed to use io_uring…seccomp…docker: --security-opt"
        };
        let why = format!("failed to instantiate nsqd - …{why}…");
        refused(&mut command, data.path(), &why);
    }
    // The message contains any other error.
    let data = scratch();
    let mut command = nsqd(&[], data.path());
    command.arg("--io=io_uring");
    answer_io_uring_with(&mut command, libc::ENOMEM);
    let why = "…io_uring does not work here…allocate memory…";
    refused(&mut command, data.path(), why);
}

fn is_old_kernel() -> bool {
    kernel() < (5, 11)
}

/// The kernel's answer with the switch at 1 is EPERM. Source: `io_uring_disabled` in
/// Documentation/admin-guide/sysctl/kernel.rst of Linux.
#[test]
fn io_uring_switched_off_by_sysctl_is_explained() {
    let Some(switch) = IoUringSwitch::showing("1") else {
        return;
    };
    let data = scratch();
    let why = "…kernel.io_uring_disabled = 1…sysctl -w kernel.io_uring_disabled=0…";
    let mut command = nsqd(&switch.via(), data.path());
    answer_io_uring_with(&mut command, libc::EPERM);
    refused(command.arg("--io=io_uring"), data.path(), why);
    // A broker without `--io=io_uring` serves without io_uring.
    let launch = Launch::new(2, &["--io=auto"])
        .via(switch.via())
        .confined(Confinement::NoIoUring(libc::EPERM))
        .at(data.path());
    assert_like(served_without_io_uring(launch), why);
}

/// Starts a broker that must not use io_uring, and publishes and consumes a message. Returns the
/// log line with the reason.
fn served_without_io_uring(launch: Launch) -> String {
    let broker = launch.start();
    let mut producer = broker.client();
    producer.publish("t", b"x");
    let mut consumer = broker.consumer("t", "c", 1);
    assert_eq!(consumer.message().body, b"x");
    let line = broker.wait_for_log("nsqd uses epoll instead");
    let parts = "WARNING: io_uring cannot be used: …more processor time for many small requests";
    assert_like(&line, &format!("…{parts}…"));
    line
}

#[test]
fn without_io_uring_a_broker_serves_with_epoll_and_says_so() {
    let denied = "…not allowed to use io_uring…";
    for (confinement, line) in [
        (Confinement::NoIoUring(libc::EPERM), denied),
        (
            Confinement::NoIoUring(libc::ENOMEM),
            "…io_uring does not work here…",
        ),
        (Confinement::LikeContainer, denied),
    ] {
        let launch = Launch::new(2, &["--io=auto"]).confined(confinement);
        assert_like(served_without_io_uring(launch), line);
    }
}

#[test]
fn a_ring_that_does_not_receive_serves_and_says_so() {
    if !has_io_uring() {
        return;
    }
    let broker = Launch::new(2, &["--io=io_uring"])
        .confined(Confinement::NoReceiving)
        .start();
    broker.wait_for_log("the ring does not receive for connections with small requests");
    let mut producer = broker.client();
    let mut consumer = broker.consumer("t", "c", 1);
    // More than the small reads after which a ring would receive.
    for number in 0..100u8 {
        producer.publish("t", &[number]);
        let message = consumer.message();
        assert_eq!(message.body, [number]);
        consumer.finish(&message.id);
    }
}

#[test]
fn too_little_locked_memory_is_explained() {
    let data = scratch();
    let via = limited("--memlock=4096:4096");
    let mut command = nsqd(&via, data.path());
    command.arg("--io=io_uring");
    if !charges_locked_memory() {
        // Linux 5.12 to 6.12 do not need locked memory.
        let launch = Launch::new(2, &[]).via(via).at(data.path());
        let mut client = Client::connect(launch.start().tcp_addr());
        client.send(b"PUB t\n\0\0\0\x01x");
        return client.expect_ok();
    }
    let why = "…the limit on locked memory is 4 KiB, but 2 shards need 128 KiB…";
    let remedy = "ulimit -l…LimitMEMLOCK=…--shards…";
    refused(&mut command, data.path(), &format!("{why}{remedy}"));
}

fn charges_locked_memory() -> bool {
    !((5, 12)..(6, 13)).contains(&kernel())
}

#[test]
fn too_few_descriptors_are_explained() {
    let data = scratch();
    let via = limited("--nofile=64:64");
    let why = "…the limit on open files is 64…ulimit -n…LimitNOFILE=…--shards…";
    refused(&mut nsqd(&via, data.path()), data.path(), why);
}

/// The broker raises a soft limit up to the hard limit, because a soft limit is only a default.
#[test]
fn soft_limits_are_raised() {
    let via = limited("--nofile=64:4096");
    let broker = Launch::new(2, &[]).via(via).start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", broker.pid())).expect("runs");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("listed");
    let soft = files.split_whitespace().nth(3).expect("a number");
    assert_eq!(soft, "4096", "{files}");
    if !is_root() {
        return;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).expect("runs");
    assert_like(&status, "…CapEff:\t0000000000000000…");
}

/// A supervisor restarts a broker at once. The addresses of a killed broker, and of a broker with
/// lingering connections, are free again within a second. The start tries them for this long.
#[test]
fn a_restart_on_the_same_ports_succeeds_at_once() {
    let mut broker = Broker::start_on("127.0.23.2", 2, &[]);
    let tcp = broker.tcp_addr();
    for round in 0..3 {
        let mut client = broker.client();
        client.publish("restart", b"x");
        if round == 0 {
            broker.sigterm_and_wait();
        } else {
            broker.kill9();
        }
        broker.restart_on_same_ports();
        assert_eq!(broker.tcp_addr(), tcp);
    }
}
