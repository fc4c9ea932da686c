//! TLS and compression over real sockets against the built-in sink. Every combination delivers
//! every message once and intact. If a daemon does not grant an upgrade, nothing is measured.

#[path = "../../wire/upgrade/tests/certificates/mod.rs"]
mod files;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::support::{check_refused, echo, options, program, scenario, start, target};
use nsq_bench::result::Ended;
use nsq_bench::run::run;
use nsq_bench::scenario::upgrades::server_config;
use nsq_bench::sink::{Faults, Sink};

/// A directory with certificates. See [`files::write`].
struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Certificates {
        let directory = tempfile::tempdir().unwrap();
        files::write(directory.path());
        Certificates { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// Starts a sink that grants TLS and may ask for the client's certificate.
    fn sink(&self, client_ca: Option<&Path>) -> Sink {
        let (cert, key) = (self.path("server.pem"), self.path("server-key.pem"));
        let config = server_config(&cert, &key, client_ca).unwrap();
        start(Faults::default(), Some(config))
    }
}

fn check_exact(sink: Sink, toml: &str, messages: u64) {
    let text = format!("messages = {messages}\nwarm-up = '0s'\nduration = '100s'\n{toml}");
    let finished = run(&target(&sink), &scenario(&text), &options()).unwrap();
    let counts = sink.stop().unwrap();
    let result = finished.result;
    assert_eq!(result.ended, Ended::Complete, "{toml}");
    assert!(result.ledger.is_clean(), "{toml}: {:?}", result.ledger);
    assert_eq!(result.ledger.sent, messages, "{toml}");
    assert_eq!(result.ledger.received, messages, "{toml}");
    assert_eq!(counts.published, messages, "{toml}");
    assert_eq!(counts.finished, messages, "{toml}");
}

#[test]
fn every_combination_delivers_exactly() {
    let certificates = Certificates::new();
    let tls = format!("tls = true\ntls-ca = '{}'\n", certificates.text("ca.pem"));
    let upgrades = [
        String::new(),
        tls.clone(),
        "snappy = true\n".into(),
        "deflate = 6\n".into(),
        "deflate = 1\n".into(),
        format!("{tls}snappy = true\n"),
        format!("{tls}deflate = 6\n"),
    ];
    let check = |upgrade: &str, toml: &str, messages| {
        let sink = certificates.sink(None);
        check_exact(sink, &format!("{upgrade}{toml}"), messages);
    };
    let runs = [
        ("via = 'mpub'\nproducers = 2\nconsumers = 2", 5000),
        ("via = 'pub'\nrate = '5k'\nsize = 'uniform:28-900'", 2000),
        // This message is larger than any buffer, record, chunk and window on its way.
        ("size = 'list:28*5,700000*1'\nbatch = 3\nwindow = 9", 300),
        // Half of these consumers connect again and again.
        (
            "rate = '5k'\nconsumers = 3\nstorm-every = '50ms'\nstorm = 0.5\nwork = '2ms'\nrdy = 20",
            1500,
        ),
        (
            "rate = '5k'\nconsumers = 3\nslow = 0.4\nrdy = 5\nbatch = 5",
            1000,
        ),
    ];
    // Most of the time passes in waits for messages that must not come.
    std::thread::scope(|scope| {
        for upgrade in &upgrades {
            scope.spawn(|| {
                for (toml, messages) in runs {
                    check(upgrade, toml, messages);
                }
            });
        }
    });
}

#[test]
fn a_client_shows_its_certificate() {
    let certificates = Certificates::new();
    let sink = || certificates.sink(Some(&certificates.path("ca.pem")));
    let tls = format!("tls = true\ntls-ca = '{}'\n", certificates.text("ca.pem"));
    let [cert, key] = ["client.pem", "client-key.pem"].map(|name| certificates.text(name));
    let shown = format!("{tls}tls-cert = '{cert}'\ntls-key = '{key}'\nsnappy = true");
    check_exact(sink(), &shown, 2000);
    let sink = sink();
    let error = run(&target(&sink), &scenario(&tls), &options()).unwrap_err();
    assert!(error.contains("CertificateRequired"), "{error}");
    sink.stop().unwrap();
}

/// Runs the program against an address, as [`check_refused`] does.
fn check_run_refused(address: SocketAddr, flags: &str, words: &str) {
    let line = format!("run --tcp-address {address} --http-address none {flags}");
    check_refused(&line, 2, words);
}

#[test]
fn a_daemon_that_grants_no_upgrade_is_not_measured() {
    let sink = echo(Faults::default());
    let grants = "the daemon does not grant TLS";
    check_run_refused(sink.address, "--tls --tls-insecure", grants);
    let flags = "--tls --tls-insecure --snappy --producers 0";
    check_run_refused(sink.address, flags, grants);
    sink.stop().unwrap();
    // One certificate is not the daemon's, and one is for another host.
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let sink = certificates.sink(None);
    let flags = format!("--tls --tls-ca {}", others.text("ca.pem"));
    check_run_refused(sink.address, &flags, "invalid peer certificate");
    let ours = certificates.text("ca.pem");
    let flags = format!("--tls --tls-ca {ours} --tls-name x.example");
    check_run_refused(sink.address, &flags, "not valid for name");
    sink.stop().unwrap();
}

fn read_frame(from: &mut impl Read) -> Vec<u8> {
    let mut size = [0; 4];
    from.read_exact(&mut size).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(size) as usize];
    from.read_exact(&mut frame).unwrap();
    frame.split_off(4)
}

#[test]
fn an_identify_sent_again_upgrades_nothing() {
    let sink = echo(Faults::default());
    let mut stream = TcpStream::connect(sink.address).unwrap();
    let body = br#"{"feature_negotiation":true,"snappy":true}"#;
    let mut identify = b"IDENTIFY\n\0\0\0".to_vec();
    identify.push(u8::try_from(body.len()).unwrap());
    identify.extend_from_slice(body);
    stream.write_all(b"  V2").unwrap();
    stream.write_all(&identify).unwrap();
    let answer = String::from_utf8(read_frame(&mut stream)).unwrap();
    assert!(answer.contains("\"snappy\":true"), "{answer}");
    // From here on, the reader of the snappy library reads the stream.
    let mut opened = snap::read::FrameDecoder::new(stream.try_clone().unwrap());
    let mut sealed = snap::write::FrameEncoder::new(stream);
    assert_eq!(read_frame(&mut opened), b"OK");
    sealed.write_all(&identify).unwrap();
    sealed.flush().unwrap();
    let answer = String::from_utf8(read_frame(&mut opened)).unwrap();
    assert!(answer.contains("\"snappy\":false"), "{answer}");
    sink.stop().unwrap();
}

#[test]
fn wrong_combinations_of_flags_are_refused() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    check_run_refused(nobody, "--tls", "either tls-ca");
    check_run_refused(nobody, "--snappy --deflate 6", "exclude each other");
    check_run_refused(nobody, "--deflate 10", "1 to 9");
    check_run_refused(nobody, "--snappy --via http-pub", "HTTP");
}

/// A program that is killed when the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_programs_find_each_other() {
    let certificates = Certificates::new();
    let [cert, key] = ["server.pem", "server-key.pem"].map(|name| certificates.text(name));
    let args = ["sink", "--address", "127.0.0.1:0", "--mode", "echo"];
    let mut sink = program(&args);
    sink.args(["--tls-cert", &cert, "--tls-key", &key]);
    let mut sink = Running(sink.spawn().unwrap());
    let mut line = String::new();
    let stdout = sink.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("sink: listening on ").unwrap();
    let out = certificates.text("out.json");
    let mut run = program(&["run", "--tcp-address", address, "--http-address", "none"]);
    run.args(["--messages", "3000", "--warm-up", "0s", "--duration", "60s"]);
    run.args(["--tls", "--tls-ca", &certificates.text("ca.pem")]);
    run.args(["--deflate", "6", "--snappy=false", "--out", &out]);
    let output = run.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("TLS, deflate at level 6"), "{stdout}");
}
