//! The page of `nsq-bench report` in a real browser, light and dark, wide and narrow.
//!
//! The tests need chromium. If it is missing, they say so and do nothing, or fail if `CI` is set.
//! The pages and pictures stay in `target/tmp/report`. With `PAGE_PICTURES=1`, a picture has the
//! whole page, and takes long.

mod browser;

use crate::fixtures;
use std::fs;
use std::path::{Path, PathBuf};

use browser::{Scheme, browser};
use nsq_bench::report::{Args, run};
use nsq_bench::result::{Outcome, SavedResult};
use serde_json::Value;

const PROBE_HEAD: &str = include_str!("report/probe_head.js");
const PROBE: &str = include_str!("report/probe.js");
/// The library that draws the charts, as each page contains it.
const UPLOT: &str = include_str!("../../tools/nsqadmin/page/vendor/uplot/uPlot.iife.min.js");

fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Saves the results and makes a page of them.
fn page(name: &str, results: &[(&str, SavedResult)]) -> PathBuf {
    let inputs = directory().join(format!("{name}-results"));
    fs::create_dir_all(&inputs).unwrap();
    let save = |(stem, result): &(&str, SavedResult)| {
        let path = inputs.join(format!("{stem}.json"));
        fs::write(&path, result.to_json()).unwrap();
        path
    };
    let out = directory().join(format!("{name}.html"));
    run(&Args {
        results: results.iter().map(save).collect(),
        out: out.clone(),
    })
    .unwrap();
    out
}

/// Opens a page in all schemes and widths and checks the properties that all pages share. `charts`
/// are the ids of its charts, and `texts` are texts on it.
fn check(page: &Path, charts: &str, texts: &[&str]) {
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains(UPLOT));
    // The library contains addresses: its home and the values it checks for. The requests that the
    // browser makes are checked below.
    let html = html.replace(UPLOT, "");
    let strange = "NaN|inf |undefined|http://|https://|@import|url(";
    for word in strange.split('|') {
        assert!(!html.contains(word), "`{word}` on {}", page.display());
    }
    let Some(mut browser) = browser() else {
        return;
    };
    for scheme in [Scheme::Light, Scheme::Dark] {
        let widths: &[u32] = if scheme == Scheme::Light {
            &[1280, 420]
        } else {
            &[1280]
        };
        for &width in widths {
            let mut visit = browser.visit(page, scheme, width, PROBE_HEAD);
            let seen = visit.evaluate(PROBE);
            // The page makes no request and causes no error message.
            let told = [visit.console(), visit.requests()].concat();
            assert_eq!(told, [""; 0]);
            assert_eq!(seen["dark"], scheme == Scheme::Dark);
            let is_dark_ground = brightness(&seen["ground"]) < 0.2;
            assert_eq!(is_dark_ground, scheme == Scheme::Dark, "{}", seen["ground"]);
            let is_light_ink = brightness(&seen["ink"]) > 0.5;
            assert_eq!(is_light_ink, scheme == Scheme::Dark, "{}", seen["ink"]);
            // Figures or axes that are wrong, texts outside of their chart, texts that overlap.
            for flaws in ["wrong", "outside", "overlaps"] {
                assert_eq!(seen[flaws], Value::Array(Vec::new()), "{flaws}");
            }
            assert_eq!(seen["images"], 0);
            assert_eq!(seen["resources"], 0);
            assert!(
                seen["overflow"].as_i64().unwrap() <= 0,
                "{width}: the page scrolls sideways"
            );
            for id in charts.split(' ') {
                let all = seen["charts"].as_array().unwrap();
                let chart = all.iter().find(|chart| chart["id"] == id);
                let chart = chart.unwrap_or_else(|| panic!("no chart {id}"));
                assert!(
                    chart["shapes"].as_u64().unwrap() > 0,
                    "nothing drawn: {chart}"
                );
                let texts = chart["texts"].as_array().unwrap();
                assert!(texts.len() >= 4, "no ticks: {chart}");
                if id == "spectrum" {
                    // A narrow chart has no room for all labels.
                    let last = if width < 500 { "99 %" } else { "99.9 %" };
                    for label in ["0 %", "90 %", last] {
                        assert!(texts.contains(&label.into()), "no {label}: {chart}");
                    }
                }
                let tooltips = chart["tooltips"].as_array().unwrap();
                assert!(!tooltips.is_empty(), "no tooltips: {chart}");
                for tooltip in tooltips {
                    let tooltip = tooltip.as_str().unwrap();
                    let strange = ["NaN", "undefined", "Infinity", "null"];
                    assert!(
                        !strange.iter().any(|word| tooltip.contains(word)),
                        "{tooltip}"
                    );
                }
                assert!(
                    chart["width"].as_f64().unwrap() > 300.0,
                    "too small: {chart}"
                );
            }
            let text = seen["text"].as_str().unwrap();
            for expected in texts {
                assert!(
                    text.contains(expected),
                    "`{expected}` is not on {}:\n{text}",
                    page.display()
                );
            }
            let is_whole = std::env::var_os("PAGE_PICTURES").is_some();
            let height_max = if is_whole { 12_000 } else { 1_000 };
            let height = seen["height"].as_u64().unwrap().min(height_max) as u32;
            let name = format!("{scheme:?}-{width}.png").to_lowercase();
            visit.picture(height, &page.with_extension(name));
        }
    }
}

/// Returns the brightness of a CSS `rgb(r, g, b)`, 0 to 1.
fn brightness(colour: &Value) -> f64 {
    let text = colour.as_str().unwrap();
    let parts = text
        .trim_start_matches("rgb(")
        .trim_end_matches(')')
        .split(',');
    let parts: Vec<f64> = parts.map(|part| part.trim().parse().unwrap()).collect();
    parts.iter().sum::<f64>() / 3.0 / 255.0
}

const COMMAND: [&str; 6] = [
    "nsq-bench",
    "run",
    "--rate",
    "50000",
    "--size",
    "list:200*9,4000*1",
];

#[test]
fn one_run() {
    let run = Outcome::Run(fixtures::run(fixtures::CALM).into());
    let page = page("one-run", &[("calm", fixtures::saved(&COMMAND, run))]);
    let charts = "spectrum delivery-latency-1 publish-latency-1 rate-1 depth-1 cpu-1 memory-1 disk-1 lateness-1";
    let texts = [
        "Ledger: everything arrived once, intact",
        "Self-check: the figures are the daemon's",
        "Open loop",
        "from the intended send time",
        "Fictional Processor 9000",
        "nsq-bench run --rate 50000 --size 'list:200*9,4000*1'",
        "2026-01-01 10:00 UTC",
        "99.9 %",
        "50,000/s",
    ];
    check(&page, charts, &texts);
}

#[test]
fn two_runs_stand_side_by_side() {
    let saved =
        |behaviour| fixtures::saved(&COMMAND, Outcome::Run(fixtures::run(behaviour).into()));
    let results = [
        ("ringq", saved(fixtures::CALM)),
        ("nsqd", saved(fixtures::STALLING)),
    ];
    let page = page("two-runs", &results);
    let charts = "spectrum delivery-latency-1 delivery-latency-2 cpu-1 cpu-2";
    let texts = ["ringq: delivery", "nsqd: delivery", "(2.81 x)"];
    check(&page, charts, &texts);
}

#[test]
fn a_bad_run_says_so_and_its_texts_stay_texts() {
    let run = Outcome::Run(fixtures::bad().into());
    let saved = fixtures::saved(&[fixtures::HOSTILE], run);
    let page = page("bad-run", &[("<b>bad", saved)]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(!html.contains("<script>") && !html.contains("<img") && !html.contains("<b>bad"));
    // The page has three scripts: the data, the library, and the code that uses it.
    assert_eq!(html.matches("<script ").count(), 3);
    assert_eq!(html.matches("</script").count(), 3);
    let texts = [
        "Ledger: 12 lost, 1 corrupted",
        "Self-check: the generator was the bottleneck",
        "(generator's limit)",
        "Closed loop",
        "CLOSED LOOP (<b>bad)",
        "stalls are hidden",
        "Failed",
        fixtures::HOSTILE,
    ];
    check(&page, "spectrum rate-1 cpu-1", &texts);
}

#[test]
fn a_comparison() {
    let compare = Outcome::Compare(fixtures::compare());
    let saved = fixtures::saved(&["nsq-bench", "compare"], compare);
    let page = page("comparison", &[("compare", saved)]);
    let charts = "compare-1 compare-2 compare-3 compare-4 spectrum memory-1 memory-2";
    let texts = [
        "ringq against nsqd",
        "better in every round",
        "no difference that all",
        "at most 0.5 x",
    ];
    check(&page, charts, &texts);
}

#[test]
fn a_sweep() {
    let sweep = fixtures::saved(&["nsq-bench", "sweep"], Outcome::Sweep(fixtures::sweep()));
    let page = page("sweep", &[("staircase", sweep)]);
    let charts = "knee-1 carried-1 sweep-cpu-1 sweep-spectrum-1";
    let knee = "The knee is at 240,000/s";
    let texts = [knee, "the generator's limit", "In 1 of 8 steps"];
    check(&page, charts, &texts);
}

#[test]
fn a_search_for_the_highest_rate() {
    let found = Outcome::FindMax(fixtures::find_max().into());
    let saved = fixtures::saved(&["nsq-bench", "find-max"], found);
    let page = page("find-max", &[("profile", saved)]);
    let texts = [
        "212,000/s held and confirmed",
        "42 %",
        "missed: p99<5ms: 7.1ms",
        "Headroom",
    ];
    check(&page, "search-1 spectrum delivery-latency-1", &texts);
}

/// The other tests rely on these reports.
#[test]
fn the_browser_notices_requests_and_errors() {
    let Some(mut browser) = browser() else {
        return;
    };
    let page = directory().join("control.html");
    let html = "<body><img src='http://127.0.0.1:9/pixel.png'><script>missing()</script></body>";
    fs::write(&page, html).unwrap();
    let visit = browser.visit(&page, Scheme::Light, 800, "");
    assert_eq!(visit.requests(), ["http://127.0.0.1:9/pixel.png"]);
    let console = visit.console().concat();
    assert!(console.contains("missing is not defined"), "{console}");
    drop(visit);
    // With the policy of the report, the browser does not make the request, and reports an error.
    let policy = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">";
    fs::write(
        &page,
        html.replace("<body>", &format!("<head>{policy}</head><body>")),
    )
    .unwrap();
    let visit = browser.visit(&page, Scheme::Light, 800, "");
    assert_eq!(visit.requests(), [""; 0]);
    assert!(!visit.console().is_empty());
}

#[test]
fn a_file_without_a_result_is_refused_by_name() {
    let check = |name: &str, content: Option<&str>, expected: &str| {
        let path = directory().join(name);
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let out = directory().join("never.html");
        let args = Args {
            results: vec![path.clone()],
            out: out.clone(),
        };
        let text = run(&args).unwrap_err();
        let stem = name.trim_end_matches(".json");
        assert!(text.contains(stem) && text.contains(expected), "{text}");
        assert!(!out.exists());
    };
    check("missing.json", None, "cannot read");
    check(
        "no-json.json",
        Some("hello"),
        "is not a result of nsq-bench",
    );
    check("newer.json", Some(r#"{"schema": 99}"#), "layout 99");
    let mut run = fixtures::run(fixtures::CALM);
    run.histograms[0].hdr_base64.truncate(40);
    let damaged = fixtures::saved(&COMMAND, Outcome::Run(run.into()));
    check("damaged.json", Some(&damaged.to_json()), "histogram");
}
