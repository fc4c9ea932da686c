//! `nsq-bench report`: saved results as one HTML page that needs nothing but a browser.
//!
//! ```text
//!   files ─► PageData ─► JSON in the page ─► page.js: texts and tables ─► charts.js, uPlot: charts
//! ```
//!
//! The page has no font, script or picture to load. Light and dark are variables of `style.css`.

mod view;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::clock::Clock;
use crate::result::SavedResult;
use fastrand::Rng;
use view::PageData;

const STYLE: &str = include_str!("report/style.css");
const CHARTS: &str = include_str!("report/charts.js");
const PAGE: &str = include_str!("report/page.js");
const UPLOT_STYLE: &str = include_str!("../../tools/nsqadmin/page/vendor/uplot/uPlot.min.css");
const UPLOT_SCRIPT: &str = include_str!("../../tools/nsqadmin/page/vendor/uplot/uPlot.iife.min.js");
const UPLOT_LICENSE: &str = include_str!("../../tools/nsqadmin/page/vendor/uplot/LICENSE");

/// The flags of `report`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Results that `--out` of run, sweep, find-max or compare saved; several stand side by side
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
}

/// Runs `report`: reads the results, writes the page.
/// Fails when a result cannot be read or the page not be written; in words for the user.
pub fn run(args: &Args) -> Result<(), String> {
    let mut named: Vec<(String, SavedResult)> = Vec::new();
    for path in &args.results {
        let stem = |path: &Path| path.file_stem().unwrap_or(path.as_os_str()).to_owned();
        let mut name = stem(path).to_string_lossy().into_owned();
        // Files of the same name get a number, so that the page can tell them apart.
        let earlier = args.results[..named.len()].iter();
        let same = earlier.filter(|other| stem(other) == stem(path)).count();
        if same > 0 {
            name += &format!(" ({})", same + 1);
        }
        named.push((name, SavedResult::load(path, "result")?));
    }
    let out = &args.out;
    std::fs::write(out, render(&PageData::new(named)?))
        .map_err(|error| format!("cannot write the page {}: {error}", out.display()))
}

fn render(data: &PageData) -> String {
    // The policy makes the browser itself refuse what is not in this file, and each script that does
    // not know this page's number.
    let nonce = Rng::with_seed(Clock::start().now_ns()).u64(..);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'nonce-{nonce:x}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>nsq-bench report</title>\n<style>\n{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page needs JavaScript. It loads nothing from anywhere.</noscript>\n\
         <script id=\"data\" type=\"application/json\">{}</script>\n\
         <script nonce=\"{nonce:x}\">/*\n{UPLOT_LICENSE}\n*/\n{UPLOT_SCRIPT}</script>\n\
         <script nonce=\"{nonce:x}\">\n{CHARTS}\n{PAGE}</script>\n</body>\n</html>\n",
        json(data)
    )
}

/// Writes data as JSON for a `<script>` element. No text can end the element: JSON has `<` in strings
/// only, where it may be escaped. A number that is not finite becomes `null`.
fn json(data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).expect("plain data");
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests;
