//! [`Inquiry`]: the question which channels a new topic has elsewhere. It goes to every nsqlookupd at the same time,
//! and puts the answers together.

use crate::thread_pool::ThreadPool;
use nsq_http::query;
use parking_lot::Mutex;
use program::http_client::HttpClient;
use program::{log_debug, log_info, log_warn};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use wire::go_json::{self, array, object, text};
use wire::name::is_ephemeral;

/// An nsqlookupd as questions see it. Clones share the state.
#[derive(Clone, Default)]
pub(super) struct Source(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    /// `http://host:port`; `None` before the nsqlookupd has told it.
    url: Option<String>,
    /// The time and reason of the last failure to answer.
    failure: Option<(Instant, String)>,
}

impl Source {
    /// Sets the URL that the nsqlookupd has told.
    pub(super) fn set_url(&self, url: Option<String>) {
        self.0.lock().url = url;
    }

    /// Returns true if the nsqlookupd has told its URL.
    pub(super) fn is_known(&self) -> bool {
        self.0.lock().url.is_some()
    }

    /// Asks an nsqlookupd, unless it has failed since the question came up. So topics that are made at the same time
    /// wait for one timeout together, not for one after the other.
    fn ask(
        &self,
        http: &HttpClient,
        question: &Question,
        asked_at: Instant,
    ) -> Result<Vec<u8>, String> {
        let url = match &*self.0.lock() {
            Asked {
                failure: Some((at, why)),
                ..
            } if *at > asked_at => return Err(why.clone()),
            Asked { url, .. } => format!(
                "{}/channels{}",
                url.as_deref().unwrap_or_default(),
                query(&[("topic", &question.topic)])
            ),
        };
        if question.is_repeated {
            log_debug!("CI: querying nsqlookupd {url}")
        } else {
            log_info!("CI: querying nsqlookupd {url}")
        }
        let answer = http.get(&url);
        if let Err(why) = &answer {
            self.0.lock().failure = Some((Instant::now(), why.clone()));
        }
        answer
    }
}

/// A question.
pub(super) struct Question {
    /// The topic whose channels are asked for.
    pub(super) topic: String,
    /// True if the topic asked before. Then the log has nothing new to say.
    pub(super) is_repeated: bool,
}

/// One question to several nsqlookupds.
pub(super) struct Inquiry<F> {
    question: Question,
    state: Mutex<State<F>>,
}

struct State<F> {
    asked: usize,
    outstanding: usize,
    channels: BTreeSet<String>,
    errors: Vec<String>,
    answer: Option<F>,
}

impl<F: FnOnce(Vec<String>, bool) + Send + 'static> Inquiry<F> {
    /// Asks each of `sources`, one at least. `answer` gets the channels of all answers, without duplicates and in
    /// order, and whether all sources have answered. A source that fails contributes no channels, and its failure is
    /// logged.
    pub(super) fn start(
        pool: &ThreadPool,
        http: &Arc<HttpClient>,
        question: Question,
        sources: Vec<Source>,
        answer: F,
    ) {
        let inquiry = Arc::new(Inquiry {
            question,
            state: Mutex::new(State {
                asked: sources.len(),
                outstanding: sources.len(),
                channels: BTreeSet::new(),
                errors: Vec::new(),
                answer: Some(answer),
            }),
        });
        let asked_at = Instant::now();
        for source in sources {
            let (asking, http) = (inquiry.clone(), http.clone());
            let ask = move || {
                let answer = source.ask(&http, &asking.question, asked_at);
                asking.add_answer(answer.and_then(|body| channels(&body)));
            };
            if pool.give(0, Box::new(ask)).is_err() {
                inquiry.add_answer(Err("too many questions wait for nsqlookupds".to_owned()));
            }
        }
    }

    fn add_answer(&self, result: Result<Vec<String>, String>) {
        let mut state = self.state.lock();
        match result {
            Ok(channels) => state.channels.extend(channels),
            Err(error) => state.errors.push(error),
        }
        state.outstanding -= 1;
        if state.outstanding > 0 {
            return;
        }
        let is_complete = state.errors.is_empty();
        if !is_complete && !self.question.is_repeated {
            let nobody = if state.errors.len() == state.asked {
                "failed to query any nsqlookupd: "
            } else {
                ""
            };
            log_warn!(
                "failed to query nsqlookupd for channels to pre-create for topic {} - {nobody}{}",
                self.question.topic,
                state.errors.join("\n")
            );
        }
        let channels = std::mem::take(&mut state.channels);
        // An ephemeral channel belongs to the node of its consumers.
        let channels = channels
            .into_iter()
            .filter(|name| !is_ephemeral(name.as_bytes()));
        if let Some(answer) = state.answer.take() {
            answer(channels.collect(), is_complete);
        }
    }
}

/// Decodes the answer of an nsqlookupd.
fn channels(body: &[u8]) -> Result<Vec<String>, String> {
    let value = go_json::parse(body)?;
    let Some(fields) = object(&value, "channels")? else {
        return Ok(Vec::new());
    };
    let names = array(fields, "channels")?.iter();
    let names = names.map(|name| text(name, "channels").map(str::to_owned));
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an answer of another form counted as the answer that there are no channels.
    #[test]
    fn answers_are_read_as_go_reads_them() {
        let names = |body: &str| channels(body.as_bytes()).map(|names| names.join(" "));
        assert_eq!(names(r#"{"channels":["a","b"]}"#), Ok("a b".to_owned()));
        assert_eq!(names(r#"{"Channels":["a"]}"#), Ok("a".to_owned()));
        assert_eq!(names("{}"), Ok(String::new()));
        for other in ["[]", "[null]", r#"{"channels":[1]}"#, "no JSON"] {
            assert!(names(other).is_err(), "{other}");
        }
    }
}
