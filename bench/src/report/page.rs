//! The page as a whole.

use super::markup::{escape, put};
use super::verdict;
use super::view::{Column, Named, columns};
use super::{ReportError, comparison, search, spectrum, summary, sweep, timeline};
use crate::result::{Outcome, RunResult};

const STYLE: &str = include_str!("style.css");

/// The whole page of these results.
pub(crate) fn render(named: &[Named]) -> Result<String, ReportError> {
    let columns = columns(named)?;
    let mut out = String::with_capacity(256 << 10);
    let title = title(named);
    // The policy makes the browser itself refuse whatever is not in this file.
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
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
    let tools: Vec<&str> = named
        .iter()
        .map(|named| named.result.tool.as_str())
        .collect();
    put!(
        out,
        "<footer>Measured by {}. 1 MB is 1,000,000 bytes. This page loads nothing from anywhere.\
         </footer>\n</body>\n</html>\n",
        escape(&unique(&tools).join(", "))
    );
    Ok(out)
}

fn title(named: &[Named]) -> String {
    match named {
        [one] => match &one.result.outcome {
            Outcome::Run(run) if !run.scenario.name.is_empty() => {
                format!("{} · {}", run.scenario.name, one.name)
            }
            Outcome::Compare(compare) => {
                format!(
                    "{} against {}: {}",
                    compare.b.name, compare.a.name, compare.scenario
                )
            }
            _ => one.name.clone(),
        },
        many => many
            .iter()
            .map(|named| named.name.as_str())
            .collect::<Vec<_>>()
            .join(" · "),
    }
}

fn header(named: &[Named], title: &str, out: &mut String) {
    put!(out, "<header>\n<h1>{}</h1>\n", escape(title));
    let is_many = named.len() > 1;
    for named in named {
        let result = &named.result;
        let what = match &result.outcome {
            Outcome::Run(run) => summary::scenario(run),
            Outcome::Sweep(sweep) => format!("sweep over {} rates", sweep.steps.len()),
            Outcome::FindMax(found) => format!("search for the highest rate within {}", found.slo),
            Outcome::Compare(compare) => format!("comparison over {} rounds", compare.rounds),
        };
        let started = date(result.started_unix_ms);
        let text = format!(
            "{what}. {started}, on {}.",
            summary::machine(&result.machine)
        );
        put!(out, "<p class=\"sub\">");
        if is_many {
            put!(out, "<b>{}</b>: ", escape(&named.name));
        }
        put!(out, "{}</p>\n", escape(&text));
    }
    out.push_str("</header>\n");
}

fn verdicts(named: &[Named], columns: &[Column<'_>], out: &mut String) {
    let is_many = named.len() > 1;
    for named in named {
        if let Outcome::Compare(compare) = &named.result.outcome {
            comparison::judgement(compare).render(out);
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
        out.push_str("<div class=\"verdicts\">\n");
        let judgements = match column.runs.as_slice() {
            [run] => verdict::of_run(run),
            runs => verdict::of_many(runs, "round"),
        };
        for judgement in judgements {
            judgement.render(out);
        }
        out.push_str("</div>\n");
    }
    for named in named {
        if let Outcome::Sweep(sweep) = &named.result.outcome {
            if is_many {
                put!(out, "<h3>{}</h3>\n", escape(&named.name));
            }
            out.push_str("<div class=\"verdicts\">\n");
            let steps: Vec<&RunResult> = sweep.steps.iter().collect();
            for judgement in verdict::of_many(&steps, "step") {
                judgement.render(out);
            }
            out.push_str("</div>\n");
        }
    }
    out.push_str("</section>\n");
}

/// The sections of single runs.
fn measured(columns: &[Column<'_>], out: &mut String) {
    out.push_str("<h2>Latency</h2>\n<div class=\"grid\">\n");
    if let Some(chart) = spectrum::chart(columns) {
        out.push_str(&chart.render());
    }
    out.push_str("</div>\n<h3>Percentiles</h3>\n");
    summary::percentiles(columns).render(out);
    out.push_str("<h2>Over time</h2>\n");
    out.push_str("<p class=\"sub\">Point at a chart for its values. Shaded: not measured.</p>\n");
    out.push_str("<div class=\"grid\">\n");
    for chart in timeline::charts(columns).into_iter().flatten() {
        out.push_str(&chart.render());
    }
    out.push_str("</div>\n");
    // One run's tables are narrow: two beside each other.
    let class = if columns.len() == 1 { "grid" } else { "" };
    put!(out, "<div class=\"{class}\"><div>\n<h2>Figures</h2>\n");
    summary::figures(columns).render(out);
    out.push_str("</div><div>\n<h2>Ledger</h2>\n");
    summary::ledger(columns).render(out);
    out.push_str("</div></div>\n");
    out.push_str("<h2>Set-up</h2>\n");
    summary::setup(columns).render(out);
}

fn commands(named: &[Named], out: &mut String) {
    let plural = if named.len() == 1 {
        "Command"
    } else {
        "Commands"
    };
    put!(out, "<h2>{plural}</h2>\n");
    for named in named {
        let words = named.result.command.iter().map(|word| quoted(word));
        put!(
            out,
            "<pre>{}</pre>\n",
            escape(&words.collect::<Vec<_>>().join(" "))
        );
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

fn unique<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut words = words.to_vec();
    words.sort_unstable();
    words.dedup();
    words
}

/// Unix milliseconds as a date in UTC, by the calendar's 400-year cycle.
fn date(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0: leap days come last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02} UTC",
        second / 3600,
        second % 3600 / 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399_000), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599_000), "2024-12-31 23:59 UTC");
    }

    #[test]
    fn commands_can_be_pasted() {
        assert_eq!(quoted("--rate=5e4"), "--rate=5e4");
        assert_eq!(quoted("p99<5ms,lost=0"), "'p99<5ms,lost=0'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
