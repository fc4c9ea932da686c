//! Cases: the steps to play to a broker, and the recorded answers of the original.
//!
//! A `.case` file is read line by line. docs/explain/testing.md explains the steps.

use std::path::{Path, PathBuf};

use super::sent_bytes::{SentBytes, quoted};

/// The mark of a recorded answer.
const ANSWER: &str = "  < ";

/// One file of cases.
pub(crate) struct CaseFile {
    pub(crate) path: PathBuf,
    pub(crate) cases: Vec<Case>,
    /// The lines, without answers.
    source: Vec<String>,
}

/// A conversation with a broker.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The name, which is unique and also names the topic.
    pub(crate) name: String,
    /// `file.case:line`.
    pub(crate) place: String,
    /// The flags of the broker, besides addresses and data path.
    pub(crate) flags: Vec<String>,
    /// True if no other case may use the broker.
    pub(crate) is_alone: bool,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The line in the file.
    pub(crate) text: String,
    pub(crate) action: Action,
    /// The answers of the original.
    pub(crate) answers: Vec<String>,
    /// The index of the line in `CaseFile::source`.
    source_line: usize,
}

/// One action. The case names its connections. The first `send` opens a connection.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Opens a connection without sending the magic.
    Raw(String),
    Send(String, SentBytes),
    /// Sends bytes and reads one frame.
    Ask(String, SentBytes),
    /// Reads this many frames and skips heartbeats.
    Read(String, usize),
    /// Reads one frame, which may be a heartbeat.
    Heartbeat(String),
    /// Expects that no bytes arrive for a while.
    Quiet(String),
    /// Ends the client's side and reads until the broker closes.
    Finish(String),
    /// Reads until the broker closes.
    End(String),
    /// Closes without reading.
    Close(String),
    Http(HttpRequest),
    /// Sends the unchanged bytes of an HTTP request and reads until the broker closes.
    HttpRaw(SentBytes),
    /// Requests an HTTP page until the page contains this text.
    Until(String, String),
}

#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Whole lines without line ends.
    pub(crate) headers: Vec<String>,
    pub(crate) body: SentBytes,
}

impl CaseFile {
    /// Reads a file. Panics with the place of a line that it cannot parse.
    pub(crate) fn read(path: &Path) -> CaseFile {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        let mut file = CaseFile {
            path: path.to_path_buf(),
            cases: Vec::new(),
            source: Vec::new(),
        };
        let file_name = path.file_name().expect("a file has a name");
        let mut flags = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let place = format!("{}:{}", file_name.to_string_lossy(), index + 1);
            if let Err(why) = file.read_line(line, &place, &mut flags) {
                panic!("{place}: {why}");
            }
        }
        file
    }

    fn read_line(
        &mut self,
        line: &str,
        place: &str,
        flags: &mut Vec<String>,
    ) -> Result<(), String> {
        if let Some(answer) = line.strip_prefix(ANSWER) {
            let step = self.cases.last_mut().and_then(|case| case.steps.last_mut());
            let step = step.ok_or("an answer follows no step")?;
            step.answers.push(answer.to_owned());
            return Ok(());
        }
        self.source.push(line.to_owned());
        let (word, rest) = split_word(line);
        match word {
            "" => return Ok(()),
            _ if word.starts_with('#') => return Ok(()),
            "flags" => {
                *flags = rest.split_whitespace().map(str::to_owned).collect();
                return Ok(());
            }
            "case" => {
                self.cases.push(Case {
                    name: rest.to_owned(),
                    place: place.to_owned(),
                    flags: flags.clone(),
                    is_alone: false,
                    steps: Vec::new(),
                });
                return Ok(());
            }
            _ => {}
        }
        let case = self.cases.last_mut().ok_or("a step is outside of a case")?;
        if word == "alone" {
            case.is_alone = true;
            return Ok(());
        }
        case.steps.push(Step {
            text: line.to_owned(),
            action: Action::parse(word, rest)?,
            answers: Vec::new(),
            source_line: self.source.len() - 1,
        });
        Ok(())
    }

    /// Writes the file again with new answers for each case and step. A case without new answers
    /// keeps its own.
    pub(crate) fn record(&self, answers: impl Fn(&Case) -> Option<Vec<Vec<String>>>) {
        let mut behind = vec![Vec::new(); self.source.len()];
        for case in &self.cases {
            let fresh = answers(case);
            for (index, step) in case.steps.iter().enumerate() {
                behind[step.source_line] = match &fresh {
                    Some(fresh) => fresh[index].clone(),
                    None => step.answers.clone(),
                };
            }
        }
        let mut text = String::new();
        for (line, answers) in self.source.iter().zip(behind) {
            text.push_str(line);
            text.push('\n');
            for answer in answers {
                text.push_str(ANSWER);
                text.push_str(&answer);
                text.push('\n');
            }
        }
        if let Err(error) = std::fs::write(&self.path, text) {
            panic!("{}: {error}", self.path.display());
        }
    }
}

impl Action {
    fn parse(word: &str, rest: &str) -> Result<Action, String> {
        let (first, behind) = split_word(rest);
        let connection = first.to_owned();
        match word {
            "raw" => Ok(Action::Raw(connection)),
            "send" => Ok(Action::Send(connection, SentBytes::parse(behind)?)),
            "ask" => Ok(Action::Ask(connection, SentBytes::parse(behind)?)),
            "read" if behind.is_empty() => Ok(Action::Read(connection, 1)),
            "read" => match behind.parse() {
                Ok(count) => Ok(Action::Read(connection, count)),
                Err(_) => Err(format!("not a count of frames: {behind}")),
            },
            "heartbeat" => Ok(Action::Heartbeat(connection)),
            "quiet" => Ok(Action::Quiet(connection)),
            "finish" => Ok(Action::Finish(connection)),
            "end" => Ok(Action::End(connection)),
            "close" => Ok(Action::Close(connection)),
            "http" => Ok(Action::Http(HttpRequest::parse(first, behind)?)),
            "http-raw" => Ok(Action::HttpRaw(SentBytes::parse(rest)?)),
            "until" => {
                let (text, behind) = quoted(behind)?;
                match behind {
                    "" => Ok(Action::Until(connection, text.to_owned())),
                    _ => Err(format!("an unknown line: {behind}")),
                }
            }
            _ => Err(format!("there is no step {word}")),
        }
    }
}

impl HttpRequest {
    /// Parses `METHOD target [Name:value]... [body]`. A header has no space. The body starts with a
    /// quote, `+` or `#`.
    fn parse(method: &str, rest: &str) -> Result<HttpRequest, String> {
        let (target, mut rest) = split_word(rest);
        let mut headers = Vec::new();
        while rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let (header, behind) = split_word(rest);
            headers.push(header.to_owned());
            rest = behind;
        }
        Ok(HttpRequest {
            method: method.to_owned(),
            target: target.to_owned(),
            headers,
            body: SentBytes::parse(rest)?,
        })
    }
}

fn split_word(text: &str) -> (&str, &str) {
    match text.split_once(' ') {
        Some((word, rest)) => (word, rest.trim()),
        None => (text, ""),
    }
}
