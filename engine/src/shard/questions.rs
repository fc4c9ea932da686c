//! The questions of a shard to other programs: to nsqlookupd for the channels of a new topic, and to auth servers for
//! the rights of a client. The answers come back as mail.

use crate::shard::Shard;
use crate::shard::mail::Mail;
use crate::thread_pool::Full;
use engine_core::{AuthQuery, ClientId, Grants, TopicKey};
use program::log_warn;
use wire::name::ChannelName;

impl Shard {
    /// Starts a new topic as soon as the nsqlookupds have said which channels it has elsewhere.
    pub(super) fn ask_for_channels(&self, key: TopicKey, topic: &str) {
        let (post, id) = (self.shared.post.clone(), self.id);
        self.shared.lookup.ask(topic, move |channels| {
            let start = Mail::Call(Box::new(move |shard| shard.start_topic(key, &channels)));
            post.send(id, start);
        });
    }

    fn start_topic(&self, key: TopicKey, channels: &[String]) {
        if self.is_stopping() {
            return;
        }
        let mut names = Vec::new();
        for channel in channels {
            match ChannelName::new(channel.as_bytes()) {
                Some(name) => names.push(name),
                None => log_warn!("skipping creation of invalid channel {channel}"),
            }
        }
        self.with_broker(|broker, now, out| broker.start_topic(now, key, &names, out));
    }

    /// Asks an auth server what a client may do.
    pub(super) fn authorize(&self, client: ClientId, query: AuthQuery) {
        let auth = self.shared.auth.as_ref();
        let auth = auth.expect("the broker asks where auth servers are configured");
        let (post, id) = (self.shared.post.clone(), self.id);
        let question = auth.ask(query, move |answer| {
            let grant = Mail::Call(Box::new(move |shard| shard.handle_grants(client, answer)));
            post.send(id, grant);
        });
        match question {
            Ok(question) => {
                if let Some(connection) = self.connections.get(client) {
                    connection.wait_for_answer(question);
                }
            }
            Err(Full) => {
                let why = "too many questions wait for an auth server".to_owned();
                self.handle_grants(client, Err(why));
            }
        }
    }

    fn handle_grants(&self, client: ClientId, answer: Result<Grants, String>) {
        if let Some(connection) = self.connections.get(client) {
            connection.end_wait();
        }
        self.with_broker(|broker, now, out| broker.handle_grants(now, client, answer, out));
    }
}
