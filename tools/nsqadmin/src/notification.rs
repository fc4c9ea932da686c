//! Notifications: each action is told to an endpoint, one at a time, in the background.
//!
//! A failure of the endpoint is logged and changes nothing else. An endpoint that is too slow gets a part of the notifications.
//! The log names the first one that is dropped, and tells the number of all once a minute.

use program::{log_error, log_info, log_warn};
use reqwest::Client;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use wire::go_json::{is_default, to_string};

use crate::audit::Details;
use crate::left_out::LeftOut;
use crate::tally::{Tally, Told};
use crate::upstream;

/// Most notifications that wait for the endpoint. Further ones are dropped.
const WAITING_MAX: usize = 1000;

/// One notification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Notification {
    /// The action: `create_topic`, `pause_channel`, ...
    pub action: String,
    /// The topic.
    pub topic: String,
    /// The channel, or an empty text.
    #[serde(skip_serializing_if = "is_default")]
    pub channel: String,
    /// The node, or an empty text.
    #[serde(skip_serializing_if = "is_default")]
    pub node: String,
    /// Seconds since 1970.
    #[serde(rename = "timestamp")]
    pub unix_seconds: i64,
    /// The user that a trusted proxy has named, or an empty text.
    #[serde(skip_serializing_if = "is_default")]
    pub user: String,
    /// The name that a client without a user gives itself, in basic authentication or in a header, or an empty text. Nobody
    /// has checked it.
    #[serde(skip_serializing_if = "is_default")]
    pub claimed_user: String,
    /// The client's address with its port.
    pub remote_ip: String,
    /// The client's name for itself.
    pub user_agent: String,
    /// The URL of the request.
    pub url: String,
    /// The name of this machine.
    pub via: String,
    /// The terms.
    #[serde(flatten)]
    pub details: Details,
}

impl Notification {
    /// Returns the notification as JSON.
    pub fn json(&self) -> String {
        to_string(self)
    }
}

/// The queue of notifications.
#[derive(Clone, Debug)]
pub struct Notifier {
    sender: Option<mpsc::Sender<Notification>>,
    dropped: LeftOut,
    tally: Tally,
}

impl Notifier {
    /// Starts the task that sends notifications to `endpoint`. An empty endpoint gets none.
    pub fn start(endpoint: String, client: Client, tally: Tally) -> Notifier {
        let mut notifier = Notifier {
            sender: None,
            dropped: LeftOut::default(),
            tally: tally.clone(),
        };
        if endpoint.is_empty() {
            return notifier;
        }
        let (sender, mut waiting) = mpsc::channel::<Notification>(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(notification) = waiting.recv().await {
                let told = send(&client, &endpoint, &notification).await;
                tally.count_notification(told);
            }
        });
        notifier.sender = Some(sender);
        notifier
    }

    /// Sends a notification, if there is an endpoint. Does not wait.
    pub fn notify(&self, notification: Notification) {
        let Some(sender) = &self.sender else {
            return;
        };
        if let Err(TrySendError::Full(notification) | TrySendError::Closed(notification)) =
            sender.try_send(notification)
        {
            self.tally.count_notification(Told::Dropped);
            if self.dropped.add(|count| async move { tell_dropped(count) }) {
                let Notification { action, topic, .. } = notification;
                log_error!(
                    "failed to POST notification - {action} of {topic} is dropped: the endpoint is too slow, and \
                     {WAITING_MAX} notifications wait for it"
                );
            }
        }
    }

    /// Logs how many notifications were dropped since the last line with their number, and how many will not be sent because
    /// the process ends.
    pub fn log_unsent(&self) {
        tell_dropped(self.dropped.take());
        let Some(sender) = &self.sender else {
            return;
        };
        let waiting = sender.max_capacity() - sender.capacity();
        if waiting > 0 {
            log_warn!("{waiting} notifications still waited for the endpoint, and are not sent");
        }
    }
}

/// Logs how many notifications were dropped. The log has named a single one already.
fn tell_dropped(count: u64) {
    if count > 1 {
        log_error!(
            "failed to POST notification - {count} were dropped within a minute: the endpoint is too slow"
        );
    }
}

async fn send(client: &Client, endpoint: &str, notification: &Notification) -> Told {
    log_info!("POSTing notification to {}", shown(endpoint));
    let request = client
        .post(endpoint)
        .header("content-type", "application/json")
        .body(notification.json());
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
    use super::*;

    #[test]
    fn keys_have_the_originals_order_and_empty_ones_are_left_out() {
        let mut notification = Notification {
            action: "tombstone_topic_producer".to_owned(),
            topic: "t".to_owned(),
            node: "127.0.0.1:4151".to_owned(),
            unix_seconds: 1_795_252_474,
            remote_ip: "127.0.0.1:40184".to_owned(),
            user_agent: "curl/7.88.1".to_owned(),
            url: "http://h/api/nodes/127.0.0.1:4151".to_owned(),
            via: "host-a".to_owned(),
            ..Notification::default()
        };
        let expected = r#"{"action":"tombstone_topic_producer","topic":"t","node":"127.0.0.1:4151","timestamp":1795252474,"remote_ip":"127.0.0.1:40184","user_agent":"curl/7.88.1","url":"http://h/api/nodes/127.0.0.1:4151","via":"host-a"}"#;
        assert_eq!(notification.json(), expected);
        notification.node.clear();
        notification.channel = "c".to_owned();
        notification.user = "carol".to_owned();
        let json = notification.json();
        assert!(
            json.contains(r#""topic":"t","channel":"c","timestamp":1795252474,"user":"carol","#)
        );
        notification.user.clear();
        notification.claimed_user = "ann".to_owned();
        let json = notification.json();
        assert!(json.contains(r#""timestamp":1795252474,"claimed_user":"ann","remote_ip":"#));
        notification.details.note = "x".to_owned();
        notification.details.messages = Some(7);
        let json = notification.json();
        assert!(json.ends_with(r#""via":"host-a","note":"x","messages":7}"#));
    }

    #[test]
    fn the_log_shows_no_secrets_of_the_endpoint() {
        assert_eq!(shown("http://u:p@h:1/x?token=1"), "http://h:1/x");
        assert_eq!(shown("p@ss"), "an endpoint that is not a URL");
    }
}
