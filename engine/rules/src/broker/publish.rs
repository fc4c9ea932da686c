//! PUB, MPUB, DPUB, and publishing on behalf of the shell.

use super::admin::Outcome;
use super::authorize::Permit;
use super::output::Output;
use super::{Broker, Flow, Found, place};
use crate::client::Blocked;
use crate::client::output::Verb;
use crate::forward::Sender;
use crate::ids::{ClientId, ShardId, TaskId};
use crate::now::Now;
use crate::publication::Publication;
use crate::refusal::Refusal;
use crate::topic::{Published, Retrier, Waiter};
use diskq_log::AppendError;
use wire::name::TopicName;

/// A producer whose publishes went to the same other shard this often in a row moves there.
pub const REMOTE_STREAK_MAX: u32 = 16;

/// A connection with more bytes than this on their way to other shards waits for answers.
const FORWARDED_BYTES_MAX: usize = 1024 * 1024;

impl Broker {
    pub(super) fn publish<'b>(
        &mut self,
        id: ClientId,
        verb: Verb,
        name: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Flow {
        match self.permit(id, verb, (name, None)) {
            Permit::Granted => {}
            Permit::Refused => return Flow::Next,
            Permit::Asked => return Flow::Retry,
        }
        // Nearly always, a client publishes to the topic of its last publish.
        let hint = self.clients[id].producer.topic_hint;
        let hint = hint.filter(|key| {
            self.topics
                .get(*key)
                .is_some_and(|topic| topic.name.as_bytes() == name.as_bytes())
        });
        let key = match hint {
            Some(key) => key,
            None => {
                let shard = place(name.as_bytes(), self.options.shards);
                if shard != self.options.shard {
                    return self.publish_elsewhere(id, verb, shard, name, publication);
                }
                match self.topic_key(name) {
                    Ok(Found::Ready(key)) => key,
                    Ok(Found::Starting(key)) => return self.wait_for_topic(id, key),
                    Err(cause) => {
                        self.fail(id, verb.failed(&cause));
                        return Flow::Next;
                    }
                }
            }
        };
        let (topic, client) = (&mut self.topics[key], &mut self.clients[id]);
        client.producer.found_topic(key);
        // `pump_later` and `flush_later` would look up the topic and the client again.
        self.topics_to_pump.insert(key, &mut topic.in_to_pump);
        self.clients_to_flush
            .insert(id, &mut client.output.in_to_flush);
        match topic.publish(self.now, publication) {
            Ok(done) => {
                client
                    .producer
                    .count_published(name, u64::from(publication.count));
                match done {
                    Published::Done => client.reply(wire::encode::OK),
                    Published::AfterSync(upto) => {
                        let token = client.reply_later(verb);
                        topic.waiters.add_for_sync(upto, Waiter::Client(id, token));
                    }
                }
                Flow::Next
            }
            Err(AppendError::WouldBlock) => {
                client.block(Blocked::Room(key));
                topic.blocked_clients.push(id);
                Flow::Retry
            }
            Err(refused) => {
                topic.refused_count += u64::from(publication.count);
                self.refuse(id, verb.failed(&refused.to_string()));
                Flow::Next
            }
        }
    }

    fn publish_elsewhere<'b>(
        &mut self,
        id: ClientId,
        verb: Verb,
        shard: ShardId,
        name: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Flow {
        let client = &mut self.clients[id];
        let streak = client.producer.count_remote(shard);
        if streak > REMOTE_STREAK_MAX && client.consumer.subscription.is_none() {
            self.start_move(id, shard);
            return Flow::Retry;
        }
        if client.producer.forwarded_bytes > FORWARDED_BYTES_MAX {
            client.block(Blocked::Forwards);
            return Flow::Retry;
        }
        client
            .producer
            .count_published(name, u64::from(publication.count));
        let token = client.reply_later(verb);
        let batch = &mut self.forwards[shard.0 as usize];
        client.producer.forwarded_bytes += batch.push(Sender::Client(id, token), name, publication);
        Flow::Next
    }

    /// Publishes for a task of the shell, to a topic of this shard.
    ///
    /// # Errors
    /// The publish was refused.
    pub fn publish_for_task<'b>(
        &mut self,
        now: Now,
        task: TaskId,
        name: TopicName<'_>,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        out: &mut Vec<Output>,
    ) -> Result<Outcome, Refusal> {
        self.call(now, out, |broker| {
            if broker.is_stopping() {
                return Err(Refusal::Exiting);
            }
            if broker.is_draining {
                return Err(Refusal::Draining);
            }
            let found = broker.topic_key(name).map_err(Refusal::SetAside)?;
            let key = found.key();
            let topic = &mut broker.topics[key];
            if found == Found::Starting(key) {
                topic.retriers.push(Retrier::Task(task));
                return Ok(Outcome::Later);
            }
            let result = match topic.publish(now, publication) {
                Ok(Published::Done) => Ok(Outcome::Done),
                Ok(Published::AfterSync(upto)) => {
                    topic.waiters.add_for_sync(upto, Waiter::Task(task));
                    Ok(Outcome::Wait)
                }
                Err(AppendError::WouldBlock) => {
                    topic.blocked_tasks.push(task);
                    Ok(Outcome::Later)
                }
                Err(refused) => {
                    topic.refused_count += u64::from(publication.count);
                    Err(Refusal::Log(refused))
                }
            };
            broker.pump_later(key);
            result
        })
    }
}
