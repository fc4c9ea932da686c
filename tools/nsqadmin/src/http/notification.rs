//! Notifications: each action is told to an endpoint, one at a time, in the background.
//!
//! A failure of the endpoint is logged and changes nothing else. An endpoint that is too slow gets a part of the notifications.
//! The log names the first one that is dropped, and tells the number of all when the endpoint takes notifications again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use program::{log_error, log_info, log_warn};
use reqwest::Client;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use wire::go_json::to_string;
use wire::json_object;

use crate::audit::Entry;
use crate::tally::{Tally, Told};
use crate::upstream;

/// Most notifications that wait for the endpoint. Further ones are dropped.
const WAITING_MAX: usize = 1000;

/// Returns a notification as JSON. `via` is the name of this machine.
fn json(entry: &Entry, via: &str) -> String {
    let actor = &entry.actor;
    let (user, claimed_user) = (known(&actor.user), known(&actor.claimed_user));
    to_string(&json_object! {
        action: &entry.action,
        #[serde(flatten)]
        subject: &entry.subject,
        timestamp: entry.unix_seconds,
        #[serde(flatten)]
        user: user.map(|user| json_object! { user }),
        #[serde(flatten)]
        claimed_user: claimed_user.map(|claimed_user| json_object! { claimed_user }),
        remote_ip: &actor.remote_address,
        user_agent: &actor.user_agent,
        url: &actor.url,
        via,
        #[serde(flatten)]
        details: &entry.subject.details,
    })
}

fn known(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// The queue of notifications.
#[derive(Clone, Debug)]
pub struct Notifier {
    sender: Option<mpsc::Sender<Entry>>,
    /// The notifications that were dropped since the last one that was not.
    dropped: Arc<AtomicU64>,
    tally: Tally,
}

impl Notifier {
    /// Starts the task that sends notifications to `endpoint`. An empty endpoint gets none.
    pub fn start(endpoint: String, client: Client, tally: Tally) -> Notifier {
        let mut notifier = Notifier {
            sender: None,
            dropped: Arc::default(),
            tally: tally.clone(),
        };
        if endpoint.is_empty() {
            return notifier;
        }
        let (sender, mut waiting) = mpsc::channel::<Entry>(WAITING_MAX);
        let via = program::hostname();
        tokio::spawn(async move {
            while let Some(entry) = waiting.recv().await {
                let told = send(&client, &endpoint, json(&entry, &via)).await;
                tally.count_notification(told);
            }
        });
        notifier.sender = Some(sender);
        notifier
    }

    /// Sends the notification of an act, if there is an endpoint. Does not wait.
    pub fn notify(&self, entry: Entry) {
        let Some(sender) = &self.sender else {
            return;
        };
        let Err(TrySendError::Full(entry) | TrySendError::Closed(entry)) = sender.try_send(entry)
        else {
            return self.tell_dropped();
        };
        self.tally.count_notification(Told::Dropped);
        if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            let (action, topic) = (entry.action, entry.subject.topic);
            log_error!(
                "failed to POST notification - {action} of {topic} is dropped: the endpoint is too slow, and \
                 {WAITING_MAX} notifications wait for it"
            );
        }
    }

    /// Logs how many notifications were dropped since the last line with their number, and how many will not be sent because
    /// the process ends.
    pub fn log_unsent(&self) {
        self.tell_dropped();
        let Some(sender) = &self.sender else {
            return;
        };
        let waiting = sender.max_capacity() - sender.capacity();
        if waiting > 0 {
            log_warn!("{waiting} notifications still waited for the endpoint, and are not sent");
        }
    }

    /// Logs how many notifications were dropped. The log has named a single one already.
    fn tell_dropped(&self) {
        let count = self.dropped.swap(0, Ordering::Relaxed);
        if count > 1 {
            log_error!(
                "failed to POST notification - {count} were dropped: the endpoint was too slow"
            );
        }
    }
}

async fn send(client: &Client, endpoint: &str, json: String) -> Told {
    log_info!("POSTing notification to {}", shown(endpoint));
    let request = client
        .post(endpoint)
        .header("content-type", "application/json")
        .body(json);
    // The status of an answer does not matter, unless another address should have got the notification.
    match request.send().await {
        Ok(answer) if answer.status().is_redirection() => {
            log_error!(
                "failed to POST notification - the answer {} sends it elsewhere without its body: name the last URL with \
                 --notification-http-endpoint",
                answer.status()
            );
            Told::Failed
        }
        Ok(_) => Told::Sent,
        Err(error) => {
            log_error!(
                "failed to POST notification - {}",
                upstream::reason(endpoint, &error)
            );
            Told::Failed
        }
    }
}

/// Returns a URL without its user, password and query, which may be secrets.
fn shown(endpoint: &str) -> String {
    match url::Url::parse(endpoint) {
        Ok(url) => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        Err(_) => "an endpoint that is not a URL".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::audit::{Actor, Subject};

    use super::*;

    #[test]
    fn keys_have_the_originals_order_and_empty_ones_are_left_out() {
        let mut entry = Entry {
            action: "tombstone_topic_producer".to_owned(),
            unix_seconds: 1_795_252_474,
            subject: Subject {
                topic: "t".to_owned(),
                node: "127.0.0.1:4151".to_owned(),
                ..Subject::default()
            },
            actor: Actor {
                remote_address: "127.0.0.1:40184".to_owned(),
                user_agent: "curl/7.88.1".to_owned(),
                url: "http://h/api/nodes/127.0.0.1:4151".to_owned(),
                ..Actor::default()
            },
            ..Entry::default()
        };
        let expected = r#"{"action":"tombstone_topic_producer","topic":"t","node":"127.0.0.1:4151","timestamp":1795252474,"remote_ip":"127.0.0.1:40184","user_agent":"curl/7.88.1","url":"http://h/api/nodes/127.0.0.1:4151","via":"host-a"}"#;
        assert_eq!(json(&entry, "host-a"), expected);
        entry.subject.node.clear();
        entry.subject.channel = "c".to_owned();
        entry.actor.user = "carol".to_owned();
        let text = json(&entry, "host-a");
        assert!(
            text.contains(r#""topic":"t","channel":"c","timestamp":1795252474,"user":"carol","#)
        );
        entry.actor.user.clear();
        entry.actor.claimed_user = "ann".to_owned();
        let text = json(&entry, "host-a");
        assert!(text.contains(r#""timestamp":1795252474,"claimed_user":"ann","remote_ip":"#));
        entry.subject.details.note = "x".to_owned();
        entry.subject.details.messages = Some(7);
        let text = json(&entry, "host-a");
        assert!(text.ends_with(r#""via":"host-a","note":"x","messages":7}"#));
    }

    #[test]
    fn the_log_shows_no_secrets_of_the_endpoint() {
        assert_eq!(shown("http://u:p@h:1/x?token=1"), "http://h:1/x");
        assert_eq!(shown("p@ss"), "an endpoint that is not a URL");
    }
}
