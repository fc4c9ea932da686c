//! Describes differences for a reader who has never seen the test.

use std::fmt::Write as _;

use super::Answers;
use super::case::Case;
use super::differences::{Difference, Known};

/// The most differences that are printed in full.
const PRINTED_MAX: usize = 50;

/// Collects differences. The test fails at its end if one of them is unknown.
#[derive(Default)]
pub(crate) struct Report {
    /// The package with the cases.
    package: &'static str,
    stale: Vec<String>,
    unknown: Vec<String>,
    gone: Vec<String>,
}

impl Report {
    pub(crate) fn new(package: &'static str) -> Report {
        Report {
            package,
            ..Report::default()
        }
    }

    /// Compares the original's answers with the recorded ones.
    pub(crate) fn original(&mut self, case: &Case, answers: &Answers) {
        let differing = differing_steps(case, answers);
        if !differing.is_empty() {
            self.stale.push(describe(case, &differing, self.package));
        }
    }

    /// Compares our answers with the recorded ones.
    pub(crate) fn ours(&mut self, case: &Case, answers: &Answers, known: &Known) {
        let differing = differing_steps(case, answers);
        if let Some(accepted) = known.accepted(case) {
            let (name, place) = (&case.name, &accepted.place);
            if differing.is_empty() {
                self.gone.push(format!("{name}: remove {place}"));
            } else if !is_as_accepted(&differing, accepted) {
                let what = describe(case, &differing, self.package);
                self.unknown
                    .push(format!("{what}    (accepted otherwise: {place})\n"));
            }
        } else if !differing.is_empty() {
            self.unknown.push(describe(case, &differing, self.package));
        }
    }

    /// Panics with all findings.
    pub(crate) fn end(self) {
        let mut text = String::new();
        for (title, found) in [
            (
                "the recorded answers differ from the original's",
                self.stale,
            ),
            ("our answers differ from the original's", self.unknown),
            ("accepted differences that no longer differ", self.gone),
        ] {
            if found.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n{title}: {}\n", found.len());
            for what in found.iter().take(PRINTED_MAX) {
                let _ = writeln!(text, "{what}");
            }
            if found.len() > PRINTED_MAX {
                let _ = writeln!(text, "... and {} more", found.len() - PRINTED_MAX);
            }
        }
        assert!(text.is_empty(), "{text}");
    }
}

/// A step of a case with a different answer.
struct Differing<'a> {
    step: &'a str,
    expected: &'a [String],
    got: &'a [String],
}

fn differing_steps<'a>(case: &'a Case, answers: &'a Answers) -> Vec<Differing<'a>> {
    let answers = match answers {
        Ok(answers) => answers,
        Err(why) => {
            return vec![Differing {
                step: "start",
                expected: &[],
                got: std::slice::from_ref(why),
            }];
        }
    };
    let steps = case.steps.iter().zip(answers);
    steps
        .filter(|(step, got)| step.answers != **got)
        .map(|(step, got)| Differing {
            step: &step.text,
            expected: &step.answers,
            got,
        })
        .collect()
}

fn is_as_accepted(differing: &[Differing<'_>], accepted: &Difference) -> bool {
    differing.len() == accepted.steps.len()
        && differing
            .iter()
            .zip(&accepted.steps)
            .all(|(differing, (step, got))| differing.step == step && differing.got == got)
}

fn describe(case: &Case, differing: &[Differing<'_>], package: &str) -> String {
    let mut text = format!("case {} ({})\n", case.name, case.place);
    for differing in differing {
        let (expected, got) = (in_one_line(differing.expected), in_one_line(differing.got));
        let equal = expected.chars().zip(got.chars());
        let equal = equal.take_while(|(one, other)| one == other).count();
        let _ = writeln!(text, "    {}", differing.step);
        for (title, answers) in [("expected", &expected), ("got     ", &got)] {
            let _ = writeln!(text, "      {title} {}", around(answers, equal));
        }
    }
    let name = &case.name;
    let _ = writeln!(
        text,
        "    alone: RINGQ_CASE={name} cargo test -p {package} --test {package} differential::"
    );
    text
}

fn in_one_line(answers: &[String]) -> String {
    match answers {
        [] => "no answer".to_owned(),
        answers => answers.join(" / "),
    }
}

/// Returns the text from shortly before the first difference on, or all of a short text.
fn around(text: &str, equal: usize) -> String {
    const BEFORE: usize = 80;
    const CHARS_MAX: usize = 600;
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    let shown = text.chars().skip(equal.saturating_sub(BEFORE));
    format!("... {} ...", shown.take(CHARS_MAX).collect::<String>())
}
