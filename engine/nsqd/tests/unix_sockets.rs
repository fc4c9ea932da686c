//! Clients over unix sockets, with the same protocol and the same shards.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Broker, Launch, TIMEOUT, is_installed, parse_http, wait_until};
use serde_json::Value;

/// Starts a broker with both sockets in a directory of its own.
fn broker(shards: usize) -> (tempfile::TempDir, Broker) {
    let directory = tempfile::Builder::new()
        .prefix("nsqd-unix-")
        .tempdir()
        .expect("a temporary directory can be made");
    let broker = Launch::new(shards, &[])
        .on(
            &path(&directory, "tcp").display().to_string(),
            &path(&directory, "http").display().to_string(),
        )
        .start();
    (directory, broker)
}

fn path(directory: &tempfile::TempDir, name: &str) -> PathBuf {
    directory.path().join(name)
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the broker listens");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("a time-out can be set");
    stream
}

/// Returns a client of the protocol.
fn client(path: &Path) -> UnixStream {
    let mut stream = connect(path);
    stream.write_all(b"  V2").expect("connected");
    stream
}

fn send(stream: &mut UnixStream, line: &str, body: Option<&[u8]>) {
    let mut bytes = format!("{line}\n").into_bytes();
    if let Some(body) = body {
        bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(body);
    }
    stream.write_all(&bytes).expect("connected");
}

/// Returns the content of the next frame, without its type.
fn frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut size = [0; 4];
    stream.read_exact(&mut size).expect("a frame comes");
    let mut content = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut content).expect("a frame is whole");
    content.split_off(4)
}

/// Publishes a message, and returns the answer.
fn frame_of_publish(path: &Path) -> Vec<u8> {
    let mut producer = client(path);
    send(&mut producer, "PUB topic", Some(b"x"));
    frame(&mut producer)
}

fn mode(path: &Path) -> u32 {
    let file = std::fs::metadata(path).expect("the file is there");
    assert!(file.file_type().is_socket());
    file.permissions().mode() & 0o7777
}

fn get(path: &Path, target: &str) -> String {
    let mut stream = connect(path);
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("connected");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer comes");
    parse_http(&answer, false)
        .expect("HTTP is answered")
        .expect_status(200)
        .text()
}

/// Connections over unix sockets also move between shards: each connection uses topics of all
/// shards.
#[test]
fn topics_of_every_shard_are_reached() {
    let (directory, broker) = broker(4);
    let tcp = path(&directory, "tcp");
    let mut producers: Vec<UnixStream> = (0..6).map(|_| client(&tcp)).collect();
    for topic in 0..12 {
        let mut consumer = client(&tcp);
        send(&mut consumer, &format!("SUB topic{topic} channel"), None);
        assert_eq!(frame(&mut consumer), b"OK");
        send(&mut consumer, "RDY 100", None);
        for producer in &mut producers {
            // These are more publishes than make a producer's connection move.
            for _ in 0..20 {
                send(producer, &format!("PUB topic{topic}"), Some(b"hello"));
                assert_eq!(frame(producer), b"OK");
                let message = frame(&mut consumer);
                assert_eq!(&message[26..], b"hello");
                let id = String::from_utf8_lossy(&message[10..26]).into_owned();
                send(&mut consumer, &format!("FIN {id}"), None);
            }
        }
    }
    broker.wait_for_log("INFO: TCP: new client(@)");
    let stats = get(
        &path(&directory, "http"),
        "/stats?format=json&include_mem=false",
    );
    assert!(stats.contains(r#""remote_address":"@""#), "{stats}");
    let info = get(&path(&directory, "http"), "/info");
    assert!(info.contains(r#""http_port":-1,"tcp_port":-1"#), "{info}");
    let port = get(&path(&directory, "http"), "/config/broadcast_tcp_port");
    assert_eq!(port, "0", "nothing that could be announced");
}

#[test]
fn the_files_come_and_go_with_the_broker() {
    let (directory, mut broker) = broker(2);
    let (tcp, http) = (path(&directory, "tcp"), path(&directory, "http"));
    let shell = Command::new("sh").args(["-c", "umask"]).output();
    let umask = String::from_utf8(shell.expect("there is a shell").stdout).expect("a number");
    let umask = u32::from_str_radix(umask.trim(), 8).expect("octal");
    assert_eq!(mode(&tcp), 0o777 & !umask);
    let line = broker.wait_for_log(" TCP: listening on ");
    assert!(line.ends_with(&tcp.display().to_string()), "{line}");

    let launch = Launch {
        tcp_address: tcp.display().to_string(),
        ..Launch::new(1, &[])
    };
    let Err(exit) = launch.clone().try_start() else {
        panic!("a second broker took the socket of the first one");
    };
    let why = format!(
        "listen unix {}: bind: address already in use",
        tcp.display()
    );
    assert!(exit.stderr.contains(&why), "{exit}");
    assert_eq!(get(&http, "/ping"), "OK", "the first one is unharmed");

    assert!(broker.sigterm_and_wait().success());
    assert!(!tcp.exists() && !http.exists(), "removed at the end");
    broker.restart();
    broker.kill9();
    assert!(tcp.exists(), "a killed process removes nothing");
    let mut next = launch.clone().start();
    assert_eq!(frame_of_publish(&tcp), b"OK", "the file was taken over");
    assert!(next.sigterm_and_wait().success());
    assert!(!tcp.exists() && http.exists());

    // A file that is no socket stays.
    std::fs::write(&tcp, "not a socket").expect("the name is free");
    let Err(exit) = launch.clone().try_start() else {
        panic!("a start replaced a file that is no socket");
    };
    assert!(exit.stderr.contains(&why), "{exit}");
    assert!(exit.stderr.contains("the file is no socket"), "{exit}");
    let kept = std::fs::read_to_string(&tcp).expect("the file is there");
    assert_eq!(kept, "not a socket");
    std::fs::remove_file(&tcp).expect("it is there");

    // A start that fails later removes its socket file.
    let launch = Launch {
        http_address: "127.0.0.1:99999".to_owned(),
        ..launch
    };
    assert!(launch.try_start().is_err());
    assert!(!tcp.exists());
}

#[test]
fn sockets_stand_beside_the_addresses_with_one_mode() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let (tcp, http) = (path(&directory, "nsqd"), path(&directory, "http:1"));
    let flags = [
        format!("--unix-socket={}", tcp.display()),
        format!("--http-unix-socket={}", http.display()),
        "--unix-socket-mode=0620".to_owned(),
    ];
    let mut broker = Launch::new(2, &flags.each_ref().map(String::as_str)).start();
    assert_eq!((mode(&tcp), mode(&http)), (0o620, 0o620));
    // All four listeners lead to the same broker.
    assert_eq!(frame_of_publish(&tcp), b"OK");
    let mut producer = broker.client();
    producer.publish("topic", b"y");
    let count = |stats: &Value| stats["topics"][0]["message_count"].clone();
    let target = "/stats?format=json&include_mem=false";
    let over_unix = serde_json::from_str(&get(&http, target)).expect("JSON");
    assert_eq!(count(&over_unix), 2);
    assert_eq!(count(&broker.get(target).json()), 2);
    let info = get(&http, "/info");
    let ports = [("http", broker.http_addr()), ("tcp", broker.tcp_addr())];
    for (name, address) in ports {
        let port = format!(r#""{name}_port":{}"#, address.port());
        assert!(info.contains(&port), "{info}");
    }
    for path in [&tcp, &http] {
        broker.wait_for_log(&format!(": listening on {}", path.display()));
    }

    // The sockets belong to a process that runs: its successor says so, and does not touch them.
    let second = Launch::new(1, &[flags[0].as_str()]);
    let Err(exit) = second.clone().try_start() else {
        panic!("a second broker took the socket of the first one");
    };
    assert!(
        exit.stderr.contains("belongs to a process that runs"),
        "{exit}"
    );
    assert_eq!(get(&http, "/ping"), "OK");
    assert_eq!(frame_of_publish(&tcp), b"OK");

    broker.kill9();
    broker.restart();
    assert_eq!((mode(&tcp), mode(&http)), (0o620, 0o620));
    assert_eq!(frame_of_publish(&tcp), b"OK");
    assert!(broker.sigterm_and_wait().success());
    assert!(!tcp.exists() && !http.exists(), "removed at the end");
}

/// The mode also counts for sockets instead of addresses. A mode that is no octal number ends the start.
#[test]
fn a_mode_is_an_octal_number() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let tcp = path(&directory, "nsqd");
    let launch = |mode: &str| Launch {
        tcp_address: tcp.display().to_string(),
        ..Launch::new(1, &[&format!("--unix-socket-mode={mode}")])
    };
    let broker = launch("600").start();
    assert_eq!(mode(&tcp), 0o600);
    drop(broker);
    for wrong in ["0o600", "1777", "689", "+600", "rw"] {
        let Err(exit) = launch(wrong).try_start() else {
            panic!("{wrong} is no mode");
        };
        let why = "--unix-socket-mode must be an octal number up to 0777";
        assert!(exit.stderr.contains(why), "{exit}");
    }
}

/// As in nsqd, where this is an accident, an empty address means a name that the system makes.
#[test]
fn an_empty_tcp_address_is_a_socket_without_a_file() {
    let launch = Launch {
        tcp_address: String::new(),
        ..Launch::new(1, &[])
    };
    let broker = launch.start();
    let line = broker.wait_for_log(" TCP: listening on @");
    let (_, name) = line.rsplit_once('@').expect("the line has an @");
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let mut client = UnixStream::connect_addr(&address).expect("the broker listens");
    client.write_all(b"  V2").expect("connected");
    send(&mut client, "PUB topic", Some(b"x"));
    assert_eq!(frame(&mut client), b"OK");
    assert!(wait_until(TIMEOUT, || broker
        .topic_stats("topic")
        .is_some()));
}

#[test]
fn curl_and_python_use_the_sockets() {
    if !is_installed("curl", "apt install curl") || !is_installed("python3", "apt install python3")
    {
        return;
    }
    let (directory, _broker) = broker(2);
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .arg("--unix-socket")
            .arg(path(&directory, "http"))
            .args(["-s", "-S", "--fail"])
            .args(arguments)
            .output()
            .expect("curl can be run");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(curl(&["http://nsqd/ping"]), "OK");
    assert_eq!(curl(&["-d", "by curl", "http://nsqd/pub?topic=t"]), "OK");
    let script = "
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
s.connect(sys.argv[1])
def frame():
    size = struct.unpack('>i', s.recv(4, socket.MSG_WAITALL))[0]
    return s.recv(size, socket.MSG_WAITALL)[4:]
s.sendall(b'  V2SUB t c\\n')
assert frame() == b'OK'
s.sendall(b'RDY 1\\n')
message = frame()
s.sendall(b'FIN ' + message[10:26] + b'\\n')
print(message[26:].decode())
";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(path(&directory, "tcp"))
        .output()
        .expect("python3 can be run");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "by curl\n",
        "{output:?}"
    );
}
