//! [`HttpBroker`]: the broker as HTTP sees it, which is any topic, whichever shard has it. Names are valid when they get
//! here. A request whose peer has gone may be done or not done, but never half done.

use super::admin::{failure_of, failure_of_refusal};
use super::{Bodies, EXITING};
use crate::process::Info;
use crate::shard::mail::Post;
use crate::shard::{Shard, Shared};
use engine_rules::stats::{ShardStats, StatsFilter, StatsSnapshot, UnfinishedSnapshot};
use engine_rules::{
    Act, Outcome, PeekQuestion, PeekSlice, Publication, Refusal, ShardId, TaskId, Wakeup, shard_of,
};
use futures_lite::future;
use program::http::Failure;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use wire::name::{ChannelName, TopicName};
use wire::origin::Origin;

/// Answers the HTTP requests of one connection, with the help of the other shards.
pub(crate) struct HttpBroker {
    pub(super) shard: Rc<Shard>,
    /// True if the connection came over TLS.
    pub(super) is_secure: bool,
    /// The shard that owns the topic of the last publish, and how many publishes in a row went to topics of that shard.
    pub(super) streak: Cell<(ShardId, u32)>,
}

impl HttpBroker {
    /// Returns the broker of a new connection, which came over TLS or not.
    pub(crate) fn new(shard: Rc<Shard>, is_secure: bool) -> HttpBroker {
        HttpBroker {
            is_secure,
            streak: Cell::new((shard.id, 0)),
            shard,
        }
    }

    /// Returns the shard of the topic of the last publish.
    pub(crate) fn better_shard(&self) -> ShardId {
        self.streak.get().0
    }

    fn count_publish(&self, owner: ShardId) {
        let (last, count) = self.streak.get();
        let count = if last == owner { count } else { 0 };
        self.streak.set((owner, count.saturating_add(1)));
    }

    fn owner(&self, topic: &str) -> ShardId {
        shard_of(topic, self.shard.shared.post.shards().count() as u32)
    }

    /// Returns what all shards share.
    pub(super) fn shared(&self) -> &Shared {
        &self.shard.shared
    }

    /// Returns the facts about the process that do not change.
    pub(super) fn info(&self) -> &Info {
        &self.shared().info
    }

    /// Stores the messages, and creates the topic if it is missing. With `defer`, they are due that much later. `origin` is
    /// that of the first message, if the publisher numbers its messages.
    pub(super) async fn publish(
        &self,
        topic: &str,
        bodies: Bodies,
        defer: Option<Duration>,
        origin: Option<Origin>,
    ) -> Result<(), Refusal> {
        let owner = self.owner(topic);
        self.count_publish(owner);
        if owner == self.shard.id {
            publish(&self.shard, topic, &bodies, defer, origin).await
        } else {
            let name = topic.to_owned();
            let call = move |shard: Rc<Shard>| async move {
                publish(&shard, &name, &bodies, defer, origin).await
            };
            let published = self.shared().post.call(owner, call).await;
            published.unwrap_or(Err(Refusal::Exiting))
        }
    }

    /// Carries out an act on a topic, or on a channel of the topic. Returns when a checkpoint records the change, and for
    /// a pause when `nsqd.dat` was written, too. A failed write of `nsqd.dat` is no error here.
    pub(super) async fn administer(
        &self,
        topic: &str,
        channel: Option<&str>,
        act: Act,
    ) -> Result<(), Failure> {
        let (name, channel) = (topic.to_owned(), channel.map(str::to_owned));
        let call = move |shard: Rc<Shard>| async move {
            administer(&shard, &name, channel.as_deref(), &act).await
        };
        let done = self.shared().post.call(self.owner(topic), call).await;
        done.unwrap_or(Err(EXITING))
    }

    /// Returns the statistics of all shards together; see [`StatsFilter`] for what is to be in them.
    pub(super) async fn stats(&self, filter: &StatsFilter) -> StatsSnapshot {
        stats_of_all(&self.shared().post, filter).await
    }

    /// Returns a slice of the messages of a topic or channel. Nothing changes.
    pub(super) async fn peek(&self, question: &PeekQuestion) -> Result<PeekSlice, Failure> {
        let asked = question.clone();
        let call = move |shard: Rc<Shard>| async move {
            let broker = shard.broker.borrow();
            broker.peek(shard.now.get(), &asked).map_err(failure_of)
        };
        let owner = self.owner(&question.topic);
        let slice = self.shared().post.call(owner, call).await;
        slice.unwrap_or(Err(EXITING))
    }

    /// Returns the figures of all shards, in order.
    pub(super) async fn shards(&self) -> Vec<ShardStats> {
        let call = |shard: Rc<Shard>| async move { shard_stats(&shard) };
        self.shared().post.call_all(call).await
    }

    /// Returns the names of all topics, in no order.
    pub(super) async fn topic_names(&self) -> Vec<String> {
        let call = |shard: Rc<Shard>| async move {
            shard.with_broker(|broker, _, _| broker.topic_names())
        };
        self.shared().post.call_all(call).await.concat()
    }
}

/// Returns the statistics of all shards together.
pub(crate) async fn stats_of_all(post: &Post, filter: &StatsFilter) -> StatsSnapshot {
    let filter = filter.clone();
    let call = move |shard: Rc<Shard>| async move { snapshot(&shard, &filter).await };
    StatsSnapshot::merge(post.call_all(call).await)
}

/// Takes the snapshot of a shard in slices, with the shard's other work in between.
async fn snapshot(shard: &Rc<Shard>, filter: &StatsFilter) -> StatsSnapshot {
    let mut unfinished =
        shard.with_broker(|broker, _, _| UnfinishedSnapshot::begin(broker, filter));
    while !shard.with_broker(|broker, now, _| unfinished.proceed(broker, now)) {
        future::yield_now().await;
    }
    unfinished.finish()
}

/// Returns the figures of a shard. Call this on the shard's thread.
fn shard_stats(shard: &Rc<Shard>) -> ShardStats {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    let broker = shard.broker.borrow();
    ShardStats {
        shard: shard.id.0,
        topic_count: broker.topics_count() as u64,
        connection_count: broker.clients_count() as u64,
        turn_count: shard.turn_count.get(),
        cpu_time: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
    }
}

async fn publish(
    shard: &Rc<Shard>,
    topic: &str,
    bodies: &Bodies,
    defer: Option<Duration>,
    origin: Option<Origin>,
) -> Result<(), Refusal> {
    let name = topic_name(topic);
    let defer = defer.unwrap_or_default();
    let defer_ms = u32::try_from(defer.as_millis()).unwrap_or(u32::MAX);
    let publication = Publication {
        bodies: bodies.iter(),
        count: bodies.count(),
        body_bytes: bodies.body_bytes(),
        defer_ms,
        origin,
    };
    let attempt = |task| {
        shard.with_broker(|broker, now, out| {
            broker.publish_for_task(now, task, name, &publication, out)
        })
    };
    until_done(shard, attempt, |refusal| refusal).await
}

/// Begins an operation, as often as the broker wants another try, and waits until it is done. `refused` is the error of a
/// refusal that comes later.
async fn until_done<E>(
    shard: &Shard,
    begin: impl Fn(TaskId) -> Result<Outcome, E>,
    refused: fn(Refusal) -> E,
) -> Result<(), E> {
    loop {
        let task = shard.start_task();
        if begin(task.id)? == Outcome::Done {
            return Ok(());
        }
        match task.woken().await {
            Some(Wakeup::Retry) => {}
            Some(Wakeup::Done(result)) => return result.map_err(refused),
            None => return Err(refused(Refusal::Exiting)),
        }
    }
}

/// Carries an act out on the shard of its topic. Returns when the change is recorded.
async fn administer(
    shard: &Rc<Shard>,
    topic: &str,
    channel: Option<&str>,
    act: &Act,
) -> Result<(), Failure> {
    let channel = channel.map(|name| ChannelName::new(name.as_bytes()).expect(CHECKED));
    let place = (topic_name(topic), channel);
    let attempt = |task| {
        if shard.is_stopping() {
            return Err(EXITING);
        }
        let begun =
            shard.with_broker(|broker, now, out| broker.administer(now, place, act, task, out));
        begun.map_err(failure_of)
    };
    let done = until_done(shard, attempt, failure_of_refusal).await;
    if done.is_ok()
        && let Act::Pause(_) = act
    {
        // Pausing waits for nsqd.dat, like nsqd. A failed write is logged and tried again: the change counts
        // because a checkpoint has it.
        shard.persist_metadata().await;
    }
    done
}

fn topic_name(name: &str) -> TopicName<'_> {
    TopicName::new(name.as_bytes()).expect(CHECKED)
}

/// The reason why every name here is valid.
const CHECKED: &str = "crate::http has checked the name";
