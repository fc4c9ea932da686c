//! `/metrics` of any program, read by Prometheus's own parser for Python.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::http::{Response, http};
use crate::packages;

/// The families of an answer.
#[derive(Debug)]
pub struct Metrics(pub Vec<Family>);

/// A metric with its samples.
#[derive(Debug, Deserialize)]
pub struct Family {
    /// The name, without `_total`.
    pub name: String,
    /// The word of `# TYPE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of `# HELP`.
    pub help: String,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// A sample.
#[derive(Debug, Deserialize)]
pub struct Sample {
    /// The name in its line.
    pub name: String,
    /// The labels by name.
    pub labels: BTreeMap<String, String>,
    /// The value as Python writes it.
    pub value: String,
}

impl Metrics {
    /// Returns the value of the one sample that has this name and, among its labels, these. Panics if
    /// there is none, or more than one.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found = self.find(name, labels);
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        found[0].value.parse().expect("a number")
    }

    /// Returns the samples that have this name and, among their labels, these.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Sample> {
        let samples = self.0.iter().flat_map(|family| &family.samples);
        samples
            .filter(|sample| sample.name == name)
            .filter(|sample| {
                let mut labels = labels.iter();
                labels.all(|(label, value)| sample.labels.get(*label).is_some_and(|it| it == value))
            })
            .collect()
    }
}

/// Asks for metrics, and checks the rules of the text format. `python` runs the Python in which [`install`] has
/// installed the parser. Panics if the answer breaks a rule.
pub fn scrape(python: &Path, address: SocketAddr, target: &str) -> Metrics {
    let answer = http(address, "GET", target, b"").expect_status(200);
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    let metrics = parse(python, &answer);
    for family in &metrics.0 {
        let is_counter = family.kind == "counter";
        for sample in &family.samples {
            let name = &sample.name;
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        }
    }
    metrics
}

/// Installs the parser below `root`, and returns the path of the Python that has it. The machine needs
/// Python with venv.
pub fn install(root: &Path) -> PathBuf {
    packages::python(root, &source())
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("prometheus")
}

fn parse(python: &Path, answer: &Response) -> Metrics {
    // Python must not write __pycache__ to the source tree.
    let mut parser = Command::new(python)
        .arg("-B")
        .arg(source().join("parse.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python can be started");
    let mut input = parser.stdin.take().expect("it is piped");
    input
        .write_all(&answer.body)
        .expect("the parser reads all input first");
    drop(input);
    let output = parser.wait_with_output().expect("the parser ends");
    assert!(output.status.success(), "{}", answer.text());
    let families: Vec<Family> = serde_json::from_slice(&output.stdout).expect("its JSON");
    for family in &families {
        assert!(
            !family.help.is_empty() && !family.samples.is_empty(),
            "{}",
            family.name
        );
        assert!(
            !["unknown", "untyped"].contains(&&*family.kind),
            "{}",
            family.name
        );
    }
    Metrics(families)
}
