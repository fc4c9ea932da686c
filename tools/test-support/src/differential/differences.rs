//! Reads `accepted.differences`: the known differences, which are by design.
//!
//! ```text
//! difference the_case
//! why the reason, for a user
//! doc words from docs/reference/differences.md or differences-nsqadmin.md
//! at ask a "PUB t\n"
//!   < our answer to that step
//! ```

use std::path::Path;

use super::case::Case;
use crate::pages;

/// The pages on which users read about differences.
const PAGES: [&str; 2] = [
    "reference/differences.md",
    "reference/differences-nsqadmin.md",
];

const ANSWER: &str = "  < ";

/// The known differences.
pub(crate) struct Known {
    accepted: Vec<Difference>,
}

impl Known {
    /// Reads the file in this directory.
    pub(crate) fn read(directory: &Path) -> Known {
        Known {
            accepted: read(&directory.join("accepted.differences")),
        }
    }

    /// Returns the difference of a case that is by design, if there is one.
    pub(crate) fn accepted(&self, case: &Case) -> Option<&Difference> {
        self.accepted.iter().find(|known| known.is_of(case))
    }

    /// Panics unless each listed difference names an existing case, has a reason, and is
    /// documented.
    pub(crate) fn check(&self, cases: &[&Case]) {
        for known in &self.accepted {
            let place = &known.place;
            assert!(!known.why.is_empty(), "{place}: the reason is missing");
            let exists = cases.iter().any(|case| known.is_of(case));
            assert!(exists, "{place}: there is no case {}", known.case);
        }
        let documented = PAGES.map(pages::read).concat();
        for Difference { place, doc, .. } in &self.accepted {
            assert!(
                !doc.is_empty() && documented.contains(doc),
                "{place}: no page of differences says {doc:?}"
            );
        }
    }
}

/// A case whose answers differ, and the answers.
pub(crate) struct Difference {
    /// `file:line`.
    pub(crate) place: String,
    case: String,
    why: String,
    doc: String,
    /// The differing steps as in the case, with our answers.
    pub(crate) steps: Vec<(String, Vec<String>)>,
}

impl Difference {
    fn is_of(&self, case: &Case) -> bool {
        case.name == self.case
    }
}

/// Reads a file of differences. Panics with the place of a line that it cannot parse.
fn read(path: &Path) -> Vec<Difference> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let file_name = path.file_name().expect("a file has a name");
    let mut all: Vec<Difference> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = format!("{}:{}", file_name.to_string_lossy(), index + 1);
        if let Err(why) = read_line(line, &place, &mut all) {
            panic!("{place}: {why}");
        }
    }
    all
}

fn read_line(line: &str, place: &str, all: &mut Vec<Difference>) -> Result<(), String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    if let Some(case) = line.strip_prefix("difference ") {
        all.push(Difference {
            place: place.to_owned(),
            case: case.to_owned(),
            why: String::new(),
            doc: String::new(),
            steps: Vec::new(),
        });
        return Ok(());
    }
    let difference = all.last_mut().ok_or("this line follows no difference")?;
    if let Some(why) = line.strip_prefix("why ") {
        difference.why = why.to_owned();
    } else if let Some(doc) = line.strip_prefix("doc ") {
        difference.doc = doc.to_owned();
    } else if let Some(step) = line.strip_prefix("at ") {
        difference.steps.push((step.to_owned(), Vec::new()));
    } else if let Some(answer) = line.strip_prefix(ANSWER) {
        let step = difference.steps.last_mut();
        let (_, answers) = step.ok_or("an answer follows no step")?;
        answers.push(answer.to_owned());
    } else {
        return Err(format!("an unknown line: {line}"));
    }
    Ok(())
}
