//! The outcome of questions to several servers: data with warnings, or a refusal.

use http::StatusCode;

use crate::upstream::{Failed, FailureKind, Refused, Server};

/// The data of the servers that answered, and the failures of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered<T> {
    /// The data, in the order of the servers.
    pub data: Vec<T>,
    /// The failures, in the order of the servers.
    pub failures: Vec<Failed>,
}

/// The failures of the stages of one request that did not fail as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings(Vec<String>);

/// A request that failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The text for the client.
    pub message: String,
}

impl<T> FromIterator<Result<T, Failed>> for Gathered<T> {
    fn from_iter<I: IntoIterator<Item = Result<T, Failed>>>(results: I) -> Gathered<T> {
        let (mut data, mut failures) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(part) => data.push(part),
                Err(failed) => failures.push(failed),
            }
        }
        Gathered { data, failures }
    }
}

impl<T> Gathered<T> {
    /// Returns the data, and adds the failures to the warnings.
    ///
    /// # Errors
    /// No server answered, or there is none. If all refuse with the same words, these are passed on: the status is 404
    /// if no server knows the topic or the channel.
    pub fn or_refuse(self, server: Server, warnings: &mut Warnings) -> Result<Vec<T>, Refusal> {
        if self.data.is_empty() {
            return Err(self.refusal(server));
        }
        warnings.add(&self.failures);
        Ok(self.data)
    }

    /// Does the same for servers that carry out an action. Servers without the topic or the channel
    /// have nothing to do, so they only cause warnings. An action without servers succeeds.
    ///
    /// # Errors
    /// All servers failed, and one of them for another reason.
    pub fn or_refuse_action(self, server: Server, warnings: &mut Warnings) -> Result<(), Refusal> {
        let is_missing = |failed: &Failed| failed.kind == FailureKind::NotFound;
        if self.data.is_empty() && !self.failures.iter().all(is_missing) {
            return Err(self.refusal(server));
        }
        warnings.add(&self.failures);
        Ok(())
    }

    fn refusal(&self, server: Server) -> Refusal {
        match self.refused_by_all() {
            Some(refused) => Refusal::new(refused.status, refused.text()),
            None => Refusal::upstream(format!(
                "failed to query any {}: {}",
                server.name(),
                joined(&self.failures)
            )),
        }
    }

    /// Returns the words with which all servers refuse. A server without the topic or the channel does not count if
    /// others have more to say.
    fn refused_by_all(&self) -> Option<&Refused> {
        let failures = self.failures.iter();
        let refused: Option<Vec<&Refused>> =
            failures.map(|failed| failed.refused.as_ref()).collect();
        let mut refused = refused?;
        for missing in ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"] {
            if refused.iter().any(|one| one.code != missing) {
                refused.retain(|one| one.code != missing);
            }
        }
        let (first, others) = refused.split_first()?;
        others.iter().all(|other| other == first).then_some(*first)
    }
}

impl Warnings {
    /// Adds the failures of a stage.
    pub fn add(&mut self, failures: &[Failed]) {
        if !failures.is_empty() {
            self.0.push(joined(failures));
        }
    }

    /// Adds the warnings of another question.
    pub fn add_all(&mut self, others: &Warnings) {
        self.0.extend_from_slice(&others.0);
    }

    /// Adds another warning.
    pub fn add_text(&mut self, text: String) {
        self.0.push(text);
    }

    /// Returns the failures of an action, whose stages count as one.
    #[must_use]
    pub fn of_one_stage(self) -> Warnings {
        if self.0.is_empty() {
            self
        } else {
            Warnings(vec![self.0.join("\n")])
        }
    }

    /// Returns true if there is no warning.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of `message` in the answer: empty without warnings.
    pub fn message(&self) -> String {
        if self.0.is_empty() {
            String::new()
        } else {
            format!("WARNING: {}", self.text())
        }
    }

    /// Returns all warnings as one text.
    pub fn text(&self) -> String {
        self.0.join("; ")
    }
}

impl Refusal {
    /// Returns a refusal with this status and text.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            message: message.into(),
        }
    }

    /// Returns the refusal of a request because of other servers.
    pub fn upstream(why: impl std::fmt::Display) -> Refusal {
        Refusal::new(StatusCode::BAD_GATEWAY, format!("UPSTREAM_ERROR: {why}"))
    }

    /// Returns a refusal with status 400.
    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    /// Returns a refusal with status 404.
    pub fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, message)
    }
}

fn joined(failures: &[Failed]) -> String {
    let texts: Vec<&str> = failures.iter().map(|failed| &*failed.why).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(why: &str, kind: FailureKind) -> Failed {
        Failed {
            why: why.to_owned(),
            kind,
            refused: None,
        }
    }

    #[test]
    fn what_all_servers_refuse_with_the_same_words_is_passed_on() {
        let refusal = |refused: &[Option<(u16, &str, &str)>]| {
            let failures = refused.iter().map(|refused| Failed {
                refused: refused.map(|(status, code, reason)| Refused {
                    status: StatusCode::from_u16(status).unwrap(),
                    code: code.to_owned(),
                    reason: reason.to_owned(),
                }),
                ..failed("x", FailureKind::Refused)
            });
            let gathered: Gathered<()> = Gathered {
                data: Vec::new(),
                failures: failures.collect(),
            };
            let refusal = gathered.or_refuse(Server::Nsqd, &mut Warnings::default());
            let refusal = refusal.unwrap_err();
            (refusal.status.as_u16(), refusal.message)
        };
        let invalid = Some((400, "INVALID_FOR", "no unit"));
        let no_undo = Some((404, "UNDO_NOT_FOUND", ""));
        let no_channel = Some((404, "CHANNEL_NOT_FOUND", ""));
        let no_topic = Some((404, "TOPIC_NOT_FOUND", ""));
        for (refused, status, message) in [
            (&[invalid, invalid][..], 400, "INVALID_FOR: no unit"),
            (&[no_channel, no_undo, no_topic], 404, "UNDO_NOT_FOUND"),
            (&[no_topic, no_channel], 404, "CHANNEL_NOT_FOUND"),
            (&[no_topic, no_topic], 404, "TOPIC_NOT_FOUND"),
        ] {
            assert_eq!(refusal(refused), (status, message.to_owned()));
        }
        for refused in [&[invalid, None][..], &[invalid, no_undo], &[]] {
            let (status, message) = refusal(refused);
            assert_eq!(status, 502);
            assert!(message.starts_with("UPSTREAM_ERROR: "), "{message}");
        }
    }

    #[test]
    fn some_failures_are_a_warning_and_all_are_a_refusal() {
        let failures = vec![
            failed("a", FailureKind::Refused),
            failed("b", FailureKind::Refused),
        ];
        let mut warnings = Warnings::default();
        let some = Gathered {
            data: vec![1],
            failures: failures.clone(),
        };
        assert_eq!(some.or_refuse(Server::Nsqd, &mut warnings), Ok(vec![1]));
        warnings.add(&[]);
        warnings.add(&failures[..1]);
        assert_eq!(warnings.message(), "WARNING: a\nb; a");
        assert_eq!(
            warnings.clone().of_one_stage().message(),
            "WARNING: a\nb\na"
        );
        let none: Gathered<u8> = Gathered {
            data: Vec::new(),
            failures,
        };
        let refusal = none
            .or_refuse(Server::Nsqlookupd, &mut warnings)
            .unwrap_err();
        assert_eq!(refusal.status, StatusCode::BAD_GATEWAY);
        let text = "UPSTREAM_ERROR: failed to query any nsqlookupd: a\nb";
        assert_eq!(refusal.message, text);
        assert_eq!(Warnings::default().message(), "");
    }

    #[test]
    fn an_action_that_no_server_could_carry_out_is_refused() {
        let act = |kinds: &[FailureKind]| {
            let gathered: Gathered<()> = Gathered {
                data: Vec::new(),
                failures: kinds.iter().map(|kind| failed("x", *kind)).collect(),
            };
            gathered.or_refuse_action(Server::Nsqd, &mut Warnings::default())
        };
        assert!(act(&[]).is_ok());
        assert!(act(&[FailureKind::NotFound, FailureKind::NotFound]).is_ok());
        assert!(act(&[FailureKind::NotFound, FailureKind::Unreachable]).is_err());
    }
}
