//! Chromium, a real browser, without a window. One process serves all tests, and each visit has a page of its own.
//!
//! The test speaks the browser's protocol for tools (<https://chromedevtools.github.io/devtools-protocol/>) over a pipe:
//! JSON messages that end with a zero byte. The browser ends when the pipe ends, and so with the test's process.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

/// The longest wait for a message of the browser. Other tests run on the machine at the same time.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The browser without windows, which starts faster, and the usual one.
const PROGRAMS: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// The color scheme that the user's system asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

/// Returns the browser that can be run. Otherwise prints a notice and returns `None`, so that the test can end without
/// failing. With `CI` set, panics instead.
fn program() -> Option<&'static str> {
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let found = PROGRAMS.into_iter().find(is_there);
    if found.is_none() {
        let message = "NOT TESTED: chromium is missing. Install it: apt-get install chromium";
        assert!(std::env::var_os("CI").is_none(), "{message}");
        eprintln!("\n{}\n{message}\n{}\n", "=".repeat(80), "=".repeat(80));
    }
    found
}

/// The pipe to a running browser.
pub(crate) struct Browser {
    commands: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    /// The events that came while a command waited for its answer.
    events: Vec<Value>,
}

/// Returns the browser, for one test at a time. The first call starts the browser. `None`: there is no Chromium.
pub(crate) fn browser() -> Option<MutexGuard<'static, Browser>> {
    static PROGRAM: LazyLock<Option<&str>> = LazyLock::new(program);
    static BROWSER: OnceLock<Mutex<Browser>> = OnceLock::new();
    let program = (*PROGRAM)?;
    Some(
        BROWSER
            .get_or_init(|| Mutex::new(Browser::start(program)))
            .lock(),
    )
}

impl Browser {
    fn start(program: &str) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // Chromium reads commands from descriptor 3, and writes messages to descriptor 4. The profile goes with the browser.
        let script = "trap 'rm -rf \"$PROFILE\"' EXIT; \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", program])
            .args(["--remote-debugging-pipe", "--headless", "--no-sandbox"])
            .args(["--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-dev-shm-usage"])
            .args(["--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("PROFILE", profile.keep())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in messages_of(output) {
                // The receiver lives as long as the process.
                let _ = sender.send(message);
            }
            child.wait().unwrap();
        });
        Browser {
            commands,
            messages,
            last_id: 0,
            events: Vec::new(),
        }
    }

    /// Sends a command to a page, or to the browser itself, and returns the result.
    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut command = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        let bytes = format!("{command}\0");
        self.commands.write_all(bytes.as_bytes()).unwrap();
        loop {
            let message = self.next_message(method);
            if message["id"] == self.last_id {
                assert_eq!(message.get("error"), None, "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn next_message(&self, awaited: &str) -> Value {
        let message = self.messages.recv_timeout(TIMEOUT);
        message.unwrap_or_else(|error| panic!("chromium, {awaited}: {error}"))
    }

    /// Opens a file in a page `width` pixels wide. The page runs `init` before its own scripts.
    pub(crate) fn visit(
        &mut self,
        file: &Path,
        scheme: Scheme,
        width: u32,
        init: &str,
    ) -> Visit<'_> {
        let created = self.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let target = created["targetId"].as_str().unwrap().to_owned();
        let attach = json!({"targetId": target, "flatten": true});
        let attached = self.call(None, "Target.attachToTarget", attach);
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let mut visit = Visit {
            browser: self,
            target,
            session,
            width,
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            visit.call(&format!("{domain}.enable"), json!({}));
        }
        visit.resize(1000);
        let value = format!("{scheme:?}").to_lowercase();
        let media = json!([{"name": "prefers-color-scheme", "value": value}]);
        visit.call("Emulation.setEmulatedMedia", json!({"features": media}));
        let add = "Page.addScriptToEvaluateOnNewDocument";
        visit.call(add, json!({"source": init}));
        let url = format!("file://{}", file.display());
        visit.call("Page.navigate", json!({"url": url}));
        visit.wait_for("Page.loadEventFired");
        visit
    }
}

/// Returns the messages of the pipe.
fn messages_of(output: ChildStdout) -> impl Iterator<Item = Value> {
    let messages = BufReader::new(output).split(b'\0');
    messages.map_while(|bytes| serde_json::from_slice(&bytes.ok()?).ok())
}

/// An open page. A drop closes the page.
pub(crate) struct Visit<'a> {
    browser: &'a mut Browser,
    target: String,
    session: String,
    width: u32,
}

impl Visit<'_> {
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    fn resize(&mut self, height: u32) {
        let size =
            json!({"width": self.width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Returns the parameters of the page's events of this kind so far.
    fn events(&self, method: &str) -> Vec<&Value> {
        let events = self.browser.events.iter();
        let own =
            events.filter(|event| event["method"] == method && event["sessionId"] == *self.session);
        own.map(|event| &event["params"]).collect()
    }

    fn wait_for(&mut self, method: &str) {
        while self.events(method).is_empty() {
            let message = self.browser.next_message(method);
            self.browser.events.push(message);
        }
    }

    /// Evaluates an expression in the page, and waits for its value if it is a promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let expression =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut evaluated = self.call("Runtime.evaluate", expression);
        assert_eq!(evaluated.get("exceptionDetails"), None);
        evaluated["result"]["value"].take()
    }

    /// Returns what the page has written on the console: its errors, and violations of its policy.
    pub(crate) fn console(&self) -> Vec<String> {
        let kinds = [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ];
        let events = kinds.iter().flat_map(|kind| self.events(kind));
        events.map(Value::to_string).collect()
    }

    /// Returns every address that the page has asked for, except its own, and those that its policy forbids.
    pub(crate) fn requests(&self) -> Vec<String> {
        let failures = self.events("Network.loadingFailed");
        let is_forbidden = |request: &&&Value| {
            let mut failures = failures.iter();
            failures.any(|failure| {
                failure["blockedReason"] == "csp" && failure["requestId"] == request["requestId"]
            })
        };
        let requests = self.events("Network.requestWillBeSent");
        let requests = requests
            .iter()
            .filter(|request| request["type"] != "Document" && !is_forbidden(request));
        requests
            .map(|request| request["request"]["url"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Saves a picture of the page, `height` pixels high.
    pub(crate) fn picture(&mut self, height: u32, picture: &Path) {
        self.resize(height);
        let taken = self.call("Page.captureScreenshot", json!({}));
        let bytes = BASE64_STANDARD
            .decode(taken["data"].as_str().unwrap())
            .unwrap();
        assert!(bytes.len() > 10_000, "the picture is empty");
        fs::write(picture, bytes).unwrap();
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let target = json!({"targetId": self.target});
            self.browser.call(None, "Target.closeTarget", target);
            self.browser.events.clear();
        }
    }
}
