//! The questions of a shard to other programs: to nsqlookupd for the channels of a new topic, and to auth servers for
//! the rights of a client. The answers come back as mail.

use crate::shard::Shard;
use crate::shard::mail::Mail;
use crate::thread_pool::Full;
use engine_rules::{AuthQuery, ClientId, Grants, TopicKey};
use program::log_warn;
use std::rc::Rc;
use wire::name::ChannelName;

impl Shard {
    /// Asks the nsqlookupds which channels a topic has elsewhere. `is_repeated` says that the topic asked before.
    pub(super) fn ask_for_channels(&self, key: TopicKey, topic: &str, is_repeated: bool) {
        let (post, id) = (self.shared.post.clone(), self.id);
        let answer = move |channels: Vec<String>, is_complete| {
            let handle =
                move |shard: &Rc<Shard>| shard.handle_channels(key, &channels, is_complete);
            post.send(id, Mail::Call(Box::new(handle)));
        };
        self.shared.lookup.ask(topic, is_repeated, answer);
    }

    fn handle_channels(&self, key: TopicKey, channels: &[String], is_complete: bool) {
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
        self.with_broker(|broker, now, out| {
            broker.handle_channels(now, key, &names, is_complete, out);
        });
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
