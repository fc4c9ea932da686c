//! The page as a whole.

use super::markup::escape;
use super::view::{Column, Named, columns};
use super::{comparison, search, spectrum, summary, sweep, timeline};
use crate::clock::Clock;
use crate::judgement::{self, Judgement, Tone};
use crate::random::Random;
use crate::result::{Outcome, RunResult};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
const UPLOT_STYLE: &str = include_str!("uplot/uPlot.min.css");
const UPLOT_SCRIPT: &str = include_str!("uplot/uPlot.iife.min.js");
const UPLOT_LICENSE: &str = include_str!("uplot/LICENSE");

/// The whole page of these results.
pub(crate) fn render(named: &[Named]) -> Result<String, String> {
    let columns = columns(named)?;
    let mut out = String::with_capacity(256 << 10);
    let title = title(named);
    // The policy makes the browser itself refuse what is not in this file, and each script that does
    // not know this page's number.
    let nonce = Random::new(Clock::new().now_ns()).bits();
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'nonce-{nonce:x}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>\n",
        escape(&title)
    );
    header(named, &title, &mut out);
    verdicts(named, &columns, &mut out);
    if let [column] = columns.as_slice() {
        summary::tiles(column, &mut out);
    }
    for (index, named) in named.iter().enumerate() {
        match &named.result.outcome {
            Outcome::Run(_) => {}
            Outcome::Sweep(found) => sweep::render(named, found, index + 1, &mut out)?,
            Outcome::FindMax(found) => search::render(named, found, index + 1, &mut out),
            Outcome::Compare(compare) => comparison::render(compare, &mut out),
        }
    }
    if !columns.is_empty() {
        measured(&columns, &mut out);
    }
    commands(named, &mut out);
    let mut tools: Vec<&str> = named
        .iter()
        .map(|named| named.result.tool.as_str())
        .collect();
    tools.sort_unstable();
    tools.dedup();
    put!(
        out,
        "<footer>Measured by {}. 1 MB is 1,000,000 bytes. This page loads nothing from anywhere.\
         </footer>\n<script nonce=\"{nonce:x}\">/*\n{UPLOT_LICENSE}\n*/\n{UPLOT_SCRIPT}</script>\n\
         <script nonce=\"{nonce:x}\">\n{SCRIPT}</script>\n</body>\n</html>\n",
        escape(&tools.join(", "))
    );
    Ok(out)
}

fn title(named: &[Named]) -> String {
    if let [one] = named {
        return match &one.result.outcome {
            Outcome::Run(run) if !run.scenario.name.is_empty() => {
                format!("{} · {}", run.scenario.name, one.name)
            }
            Outcome::Compare(compare) => {
                let (a, b) = (&compare.a.name, &compare.b.name);
                format!("{b} against {a}: {}", compare.scenario)
            }
            _ => one.name.clone(),
        };
    }
    let names: Vec<&str> = named.iter().map(|named| named.name.as_str()).collect();
    names.join(" · ")
}

fn header(named: &[Named], title: &str, out: &mut String) {
    put!(out, "<header>\n<h1>{}</h1>\n", escape(title));
    for one in named {
        let result = &one.result;
        let what = match &result.outcome {
            Outcome::Run(run) => run.scenario.summary(),
            Outcome::Sweep(sweep) => format!("sweep over {} rates", sweep.steps.len()),
            Outcome::FindMax(found) => format!("search for the highest rate within {}", found.slo),
            Outcome::Compare(compare) => format!("comparison over {} rounds", compare.rounds),
        };
        let started = date(result.started_unix_ms);
        let machine = summary::machine(&result.machine);
        out.push_str("<p class=\"sub\">");
        if named.len() > 1 {
            put!(out, "<b>{}</b>: ", escape(&one.name));
        }
        put!(
            out,
            "{}</p>\n",
            escape(&format!("{what}. {started}, on {machine}."))
        );
    }
    out.push_str("</header>\n");
}

fn verdicts(named: &[Named], columns: &[Column<'_>], out: &mut String) {
    for named in named {
        if let Outcome::Compare(compare) = &named.result.outcome {
            judgement(&judgement::comparison(compare), out);
        }
    }
    out.push_str("<section id=\"verdicts\">\n");
    for column in columns {
        if columns.len() > 1 {
            put!(out, "<h3>{}</h3>\n", escape(&column.name));
        }
        if !column.remark.is_empty() {
            put!(out, "<p class=\"note\">{}.</p>\n", escape(&column.remark));
        }
        judgements(
            &match column.runs.as_slice() {
                [run] => judgement::of_run(run),
                runs => judgement::of_many(runs, "round"),
            },
            out,
        );
    }
    for one in named {
        if let Outcome::Sweep(sweep) = &one.result.outcome {
            if named.len() > 1 {
                put!(out, "<h3>{}</h3>\n", escape(&one.name));
            }
            let steps: Vec<&RunResult> = sweep.steps.iter().collect();
            judgements(&judgement::of_many(&steps, "step"), out);
        }
    }
    out.push_str("</section>\n");
}

fn judgements(judgements: &[Judgement], out: &mut String) {
    out.push_str("<div class=\"verdicts\">\n");
    for one in judgements {
        judgement(one, out);
    }
    out.push_str("</div>\n");
}

fn judgement(judgement: &Judgement, out: &mut String) {
    let (class, sign) = match judgement.tone {
        Tone::Good => ("good", "✓"),
        Tone::Warn => ("warn", "!"),
        Tone::Bad => ("bad", "✗"),
    };
    let about = match judgement.about {
        "" => String::new(),
        about => format!("{about}: "),
    };
    put!(
        out,
        "<div class=\"verdict {class}\"><b>{sign} {about}{}</b>",
        escape(&judgement.head)
    );
    out.push_str(&escape(&judgement.text));
    if !judgement.reasons.is_empty() {
        out.push_str("<ul>");
        for reason in &judgement.reasons {
            put!(out, "<li>{}</li>", escape(reason));
        }
        out.push_str("</ul>");
    }
    out.push_str("</div>\n");
}

/// The sections of single runs.
fn measured(columns: &[Column<'_>], out: &mut String) {
    out.push_str("<h2>Latency</h2>\n<div class=\"grid\">\n");
    if let Some(chart) = spectrum::chart(columns) {
        chart.render(out);
    }
    out.push_str("</div>\n<h3>Percentiles</h3>\n");
    summary::percentiles(columns).render(out);
    out.push_str("<h2>Over time</h2>\n");
    out.push_str("<p class=\"sub\">Point at a chart for its values. Shaded: not measured.</p>\n");
    out.push_str("<div class=\"grid\">\n");
    for chart in timeline::charts(columns) {
        chart.render(out);
    }
    out.push_str("</div>\n");
    // One run's tables are narrow: two beside each other.
    let class = if columns.len() == 1 { "grid" } else { "" };
    put!(out, "<div class=\"{class}\"><div>\n<h2>Figures</h2>\n");
    summary::figures(columns).render(out);
    out.push_str("</div><div>\n<h2>Ledger</h2>\n");
    summary::ledger(columns).render(out);
    out.push_str("</div></div>\n<h2>Set-up</h2>\n");
    summary::setup(columns).render(out);
}

fn commands(named: &[Named], out: &mut String) {
    let plural = if named.len() == 1 { "" } else { "s" };
    put!(out, "<h2>Command{plural}</h2>\n");
    for named in named {
        let words: Vec<String> = named
            .result
            .command
            .iter()
            .map(|word| quoted(word))
            .collect();
        put!(out, "<pre>{}</pre>\n", escape(&words.join(" ")));
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Unix milliseconds as a date in UTC.
fn date(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    let date = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    date.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests;
