//! Runs Chromium, a real browser, without a window.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

/// The longest time for one browser. Other tests run on the machine at the same time.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The number of attempts. Chromium sometimes hangs before it has loaded anything, which is no
/// fault of the page.
const ATTEMPTS: usize = 3;

/// Allows one browser at a time, because each has a dozen processes.
static TURN: Mutex<()> = Mutex::new(());

/// The color scheme that the user's system asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

/// The browser's view of a page.
pub(crate) struct Visit {
    /// The document after loading.
    pub(crate) dom: String,
    /// The lines on the console: errors, and violations of the page's policy.
    pub(crate) console: Vec<String>,
    /// Every address that the page requested from the network.
    pub(crate) requests: Vec<String>,
}

/// Returns true if Chromium can be run. Otherwise prints a notice and returns false, so that the
/// test can end without failing. With `CI` set, panics instead.
pub(crate) fn is_installed() -> bool {
    let found = Command::new("chromium")
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    match found {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => panic!("chromium cannot be run: {error}"),
        Ok(_) => return true,
    }
    let message = "NOT TESTED: chromium is missing. Install it: apt-get install chromium";
    assert!(std::env::var_os("CI").is_none(), "{message}");
    eprintln!("\n{}\n{message}\n{}\n", "=".repeat(80), "=".repeat(80));
    false
}

/// Opens `page` in a window `width` pixels wide, and saves a picture of the page beside it.
pub(crate) fn visit(page: &Path, scheme: Scheme, width: u32) -> Visit {
    let profile = tempfile::tempdir().unwrap();
    let net_log = profile.path().join("net.json");
    let dump = chromium(profile.path(), scheme, width)
        .arg(format!("--log-net-log={}", net_log.display()))
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(url(page))
        .finish();
    let (dom, log) = dump;
    let console = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .map(str::to_owned);
    Visit {
        dom,
        console: console.collect(),
        requests: requests(&net_log),
    }
}

/// Takes a picture of `page`, `height` pixels high.
pub(crate) fn picture(page: &Path, scheme: Scheme, width: u32, height: u32, picture: &Path) {
    let profile = tempfile::tempdir().unwrap();
    chromium(profile.path(), scheme, width)
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(url(page))
        .finish();
    assert!(
        fs::metadata(picture).unwrap().len() > 10_000,
        "the picture is empty"
    );
}

fn chromium(profile: &Path, scheme: Scheme, width: u32) -> Browser {
    // Blink's enumeration: 0 is dark, 1 is light.
    let preferred = match scheme {
        Scheme::Dark => 0,
        Scheme::Light => 1,
    };
    let mut command = Command::new("chromium");
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .args([
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--virtual-time-budget=2000",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--blink-settings=preferredColorScheme={preferred}"))
        .arg(format!("--window-size={width},1000"))
        .stdin(Stdio::null());
    Browser(command)
}

fn url(page: &Path) -> String {
    format!("file://{}", page.display())
}

/// Returns the addresses of the page's requests in Chromium's network log. Chromium's own requests
/// (updates, accounts), which are never resolved, name no page as their initiator.
fn requests(net_log: &Path) -> Vec<String> {
    let text = fs::read_to_string(net_log).unwrap();
    let log: serde_json::Value = serde_json::from_str(&text).unwrap();
    let started = &log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"];
    assert!(started.is_number(), "the log does not know its own events");
    let events = log["events"].as_array().expect("events are an array");
    let requests = events
        .iter()
        .filter(|event| &event["type"] == started)
        .filter(|event| event["params"]["initiator"] != "not an origin")
        .filter_map(|event| event["params"]["url"].as_str())
        .map(str::to_owned);
    requests.collect()
}

struct Browser(Command);

impl Browser {
    fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Browser {
        self.0.arg(arg);
        self
    }

    fn args<const N: usize>(mut self, args: [&str; N]) -> Browser {
        self.0.args(args);
        self
    }

    /// Runs the browser to its end. Returns its standard output and standard error.
    fn finish(mut self) -> (String, String) {
        let _turn = TURN.lock();
        for _ in 0..ATTEMPTS {
            if let Some(written) = self.attempt() {
                return written;
            }
        }
        panic!("chromium did not end within {TIMEOUT:?}, {ATTEMPTS} times");
    }

    /// Runs the browser once. Returns `None` if the browser does not end.
    fn attempt(&mut self) -> Option<(String, String)> {
        let mut child = self
            .0
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let drain = |mut pipe: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let out = drain(Box::new(child.stdout.take().unwrap()));
        let err = drain(Box::new(child.stderr.take().unwrap()));
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if started.elapsed() > TIMEOUT {
                // The children of the browser hold the pipes open.
                kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let (out, err) = (out.join().unwrap(), err.join().unwrap());
        let Some(status) = status else {
            eprintln!("chromium did not end within {TIMEOUT:?}:\n{err}");
            return None;
        };
        assert!(status.success(), "chromium: {status}\n{err}");
        Some((out, err))
    }
}
