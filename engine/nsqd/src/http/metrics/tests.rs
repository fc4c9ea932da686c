//! The page, the dashboard and the alerts against the tables of the code. `engine/nsqd/tests/monitoring/prometheus.rs` has the
//! answers of a real broker.

mod promql;

use super::families::*;
use program::metrics::{Family, Kind};
use promql::Served;
use std::collections::BTreeSet;
use test_support::{pages, tables};

/// Returns all metrics with the names of their labels, for the table of the page.
fn all() -> Vec<(Family, &'static str)> {
    fn of<T>(rows: &[Row<T>], labels: &'static str) -> Vec<(Family, &'static str)> {
        rows.iter().map(|row| (row.family, labels)).collect()
    }
    let channel = "topic, channel";
    let mut all = vec![(BUILD, "version, ringq_version")];
    all.extend(of(NODE, ""));
    all.extend(program::metrics::PROCESS.iter().map(|family| (*family, "")));
    all.extend(of(SHARD, "shard"));
    all.extend(of(TOPIC, "topic"));
    all.push((TOPIC_LATENCY, "topic, quantile"));
    all.extend(of(CHANNEL, channel));
    all.push((DELIVERIES, "topic, channel, locality"));
    all.push((CHANNEL_LATENCY, "topic, channel, quantile"));
    all.push((LATENCY_SAMPLES, channel));
    all.push((LATENCY_HISTOGRAM, "topic, channel, le"));
    all.extend(of(
        CLIENT,
        "topic, channel, client_id, hostname, remote_address",
    ));
    all
}

/// docs/reference/metrics.md holds a table of all metrics, and it is this one. To write it anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_metric() {
    let table = tables::of_metrics(&all());
    pages::check("reference/metrics.md", |page| {
        tables::page_with_table(page, "nsqd's metrics", &table)
    });
}

#[test]
fn names_follow_the_conventions() {
    let mut seen = BTreeSet::new();
    for (family, _) in all() {
        let name = family.name;
        assert!(seen.insert(name), "{name} is there twice");
        let kind = family.kind.word();
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(name.bytes().all(is_plain), "{name}");
        let units = [
            "_ms",
            "_milliseconds",
            "_microseconds",
            "_nanoseconds",
            "_kb",
            "_percent",
            "_minutes",
        ];
        assert!(!units.iter().any(|unit| name.contains(unit)), "{name}");
        let help = family.help;
        assert!(
            help.ends_with('.') && !help.contains(['\\', '\n', '|']),
            "{name}: {help}"
        );
    }
}

/// Returns the names of a metric's samples.
fn samples_of(family: &Family) -> Vec<String> {
    let suffixes: &[&str] = match family.kind {
        Kind::Histogram => &["_bucket", "_count", "_sum"],
        _ => &[""],
    };
    let names = suffixes
        .iter()
        .map(|suffix| format!("{}{suffix}", family.name));
    names.collect()
}

/// Returns what `/metrics` serves. The metrics of nsqlookupd and nsqadmin are in the page, and tests of these programs
/// compare the page with their code.
fn served() -> Served {
    let mut metrics = Vec::new();
    for (family, labels) in all() {
        let labels = match family.kind {
            Kind::Histogram => format!("{labels}, le"),
            _ => labels.to_owned(),
        };
        let names = samples_of(&family).into_iter();
        metrics.extend(names.map(|name| (name, labels.clone())));
    }
    let text = pages::read("reference/metrics.md");
    for program in ["nsqlookupd", "nsqadmin"] {
        let (_, table) = text
            .split_once(&format!("<!-- {program}'s metrics -->"))
            .expect("the page has it");
        let (table, _) = table
            .split_once(&format!("<!-- end of {program}'s metrics -->"))
            .expect("it ends");
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(cells.len() >= 4 && cells[1] != "histogram", "{row}");
            let name = cells[0].trim_matches(['|', ' ', '`']);
            metrics.push((name.to_owned(), cells[2].trim().to_owned()));
        }
    }
    Served::new(metrics)
}

/// Returns the labels that the template of a summary names.
fn labels_in(summary: &str) -> impl Iterator<Item = &str> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let parts = summary.split("$labels.").skip(1);
    parts.filter_map(move |part| part.split(|character| !is_name(character)).next())
}

#[test]
fn the_alerts_use_metrics_that_are_served() {
    let text = pages::read("operate/monitoring/alerts.yml");
    let rules: serde_json::Value = serde_norway::from_str(&text).expect("YAML");
    let explained = pages::read("operate/monitoring.md");
    let served = served();
    let mut count = 0;
    for group in rules["groups"].as_array().expect("groups") {
        for rule in group["rules"].as_array().expect("rules") {
            let name = rule["alert"].as_str().expect("a name");
            let row = explained
                .lines()
                .find(|line| line.contains(&format!("`{name}`")));
            let cells: Vec<&str> = row.unwrap_or_default().split(" | ").collect();
            let is_told = cells.len() == 3 && cells.iter().all(|cell| cell.len() > 4);
            assert!(is_told, "{name}: the page needs its meaning and what to do");
            let summary = rule["annotations"]["summary"].as_str().expect("a text");
            let severity = rule["labels"]["severity"].as_str();
            assert!(matches!(severity, Some("critical" | "warning")), "{name}");
            let expression = rule["expr"].as_str().expect("an expression");
            let labels = served.check(expression).expect(name);
            for label in labels_in(summary) {
                assert!(labels.contains(label), "{name}: {label} in {summary}");
            }
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
    let text = pages::read("operate/monitoring/prometheus.yml");
    let config: serde_json::Value = serde_norway::from_str(&text).expect("YAML");
    let jobs = config["scrape_configs"].as_array().expect("jobs");
    let jobs: Vec<_> = jobs.iter().map(|job| job["job_name"].as_str()).collect();
    assert_eq!(jobs, [Some("nsqd"), Some("nsqlookupd"), Some("nsqadmin")]);
}

#[test]
fn the_dashboard_uses_metrics_that_are_served() {
    let text = pages::read("operate/monitoring/grafana.json");
    let board: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let served = served();
    let mut count = 0;
    let mut ids = BTreeSet::new();
    for panel in board["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            served.check(expression).expect("a valid expression");
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
    for variable in board["templating"]["list"].as_array().expect("variables") {
        if let Some(question) = variable["definition"].as_str() {
            served
                .check_label_values(question)
                .expect("a valid question");
            assert_eq!(variable["query"]["query"], question);
        }
    }
}
