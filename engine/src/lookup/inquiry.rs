//! Which channels does a new topic have elsewhere? Every nsqlookupd is asked at the same time, and the
//! answers are put together.

use crate::go_json::{self, array, object, text};
use crate::http_client::{HttpClient, push_query_value};
use crate::workers::Workers;
use crate::{log_info, log_warn};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Channels of this kind belong to the node where somebody subscribed.
const EPHEMERAL: &str = "#ephemeral";

/// One question to several nsqlookupds.
pub(super) struct Inquiry<F> {
    topic: String,
    state: Mutex<State<F>>,
}

struct State<F> {
    asked: usize,
    outstanding: usize,
    channels: BTreeSet<String>,
    errors: Vec<String>,
    answer: Option<F>,
}

impl<F: FnOnce(Vec<String>) + Send + 'static> Inquiry<F> {
    /// Asks each of `peers` (`http://host:port`, one at least); `answer` gets the channels of all,
    /// without duplicates and in order. Those who fail have no say; that is logged.
    pub(super) fn start(
        workers: &Workers,
        http: &Arc<HttpClient>,
        topic: &str,
        peers: Vec<String>,
        answer: F,
    ) {
        let inquiry = Arc::new(Inquiry {
            topic: topic.to_owned(),
            state: Mutex::new(State {
                asked: peers.len(),
                outstanding: peers.len(),
                channels: BTreeSet::new(),
                errors: Vec::new(),
                answer: Some(answer),
            }),
        });
        for peer in peers {
            let (inquiry, http) = (inquiry.clone(), http.clone());
            workers.give(Box::new(move || {
                let mut url = format!("{peer}/channels?topic=");
                push_query_value(&mut url, inquiry.topic.as_bytes());
                log_info!("CI: querying nsqlookupd {url}");
                let answer = http.get(&url);
                inquiry.note(answer.and_then(|body| channels(&body)));
            }));
        }
    }

    fn note(&self, result: Result<Vec<String>, String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(channels) => state.channels.extend(channels),
            Err(error) => state.errors.push(error),
        }
        state.outstanding -= 1;
        if state.outstanding > 0 {
            return;
        }
        if !state.errors.is_empty() {
            let nobody = match state.errors.len() == state.asked {
                true => "failed to query any nsqlookupd: ",
                false => "",
            };
            log_warn!(
                "failed to query nsqlookupd for channels to pre-create for topic {} - {nobody}{}",
                self.topic,
                state.errors.join("\n")
            );
        }
        let channels = std::mem::take(&mut state.channels);
        let channels = channels
            .into_iter()
            .filter(|name| !name.ends_with(EPHEMERAL));
        if let Some(answer) = state.answer.take() {
            answer(channels.collect());
        }
    }
}

/// What an nsqlookupd answers.
fn channels(body: &[u8]) -> Result<Vec<String>, String> {
    let value = go_json::parse(body)?;
    let Some(fields) = object(&value, "channels")? else {
        return Ok(Vec::new());
    };
    let names = array(fields, "channels")?.iter();
    names
        .map(|name| text(name, "channels").map(str::to_owned))
        .collect()
}
