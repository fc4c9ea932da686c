//! What is known to differ: `accepted.differences`, by design, and `pending.differences`, not built
//! yet.
//!
//! ```text
//! difference the_case
//! why what a user would accept as the reason
//! doc words that stand in docs/compatibility.md
//! at ask a "PUB t\n"
//!   < what ours answers to that step
//! ```
//!
//! A pending difference has no `doc` and no `at`; its name may end in `*`.

use std::path::Path;

const ANSWER: &str = "  < ";

/// Cases that differ, and how.
#[derive(Debug)]
pub(crate) struct Difference {
    /// `file:line`.
    pub(crate) place: String,
    pub(crate) case: String,
    pub(crate) why: String,
    pub(crate) doc: String,
    /// Steps as they stand in the case, with our answers.
    pub(crate) steps: Vec<(String, Vec<String>)>,
}

impl Difference {
    /// Whether it speaks of this case.
    pub(crate) fn is_of(&self, case: &str) -> bool {
        match self.case.strip_suffix('*') {
            Some(start) => case.starts_with(start),
            None => case == self.case,
        }
    }
}

/// Reads a file of differences; panics with the place of what it cannot understand.
pub(crate) fn read(path: &Path) -> Vec<Difference> {
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
    let difference = all.last_mut().ok_or("this stands behind no difference")?;
    if let Some(why) = line.strip_prefix("why ") {
        difference.why = why.to_owned();
    } else if let Some(doc) = line.strip_prefix("doc ") {
        difference.doc = doc.to_owned();
    } else if let Some(step) = line.strip_prefix("at ") {
        difference.steps.push((step.to_owned(), Vec::new()));
    } else if let Some(answer) = line.strip_prefix(ANSWER) {
        let step = difference.steps.last_mut();
        let (_, answers) = step.ok_or("an answer stands behind no step")?;
        answers.push(answer.to_owned());
    } else {
        return Err(format!("what is this: {line}"));
    }
    Ok(())
}
