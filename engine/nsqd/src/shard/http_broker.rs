//! The broker as HTTP sees it: any topic, whichever shard it lives on.

use crate::drain::Ending;
use crate::http::{
    self, AdminError, Background, Bodies, Busy, ColdFrame, ColdReader, Command, PublishError,
};
use crate::process::Info;
use crate::shard::Shard;
use crate::shard::mail::Post;
use crate::thread_pool::Full;
use diskq::{Keeper, OsFiles, Reply};
use engine_rules::stats::{ShardStats, StatsFilter, StatsSnapshot, UnfinishedSnapshot};
use engine_rules::{
    AdminError as CoreError, ColdMessage, Outcome, PeekBudget, PeekQuestion, PeekSlice,
    PeekedFrame, Publication, REMOTE_STREAK_MAX, Refusal, Seq, ShardId, TaskId, Wakeup, shard_of,
};
use futures_lite::future;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::name::{ChannelName, TopicName};
use wire::origin::Origin;

/// Answers the HTTP requests of one connection, with the help of the other shards.
pub(crate) struct HttpBroker {
    shard: Rc<Shard>,
    is_secure: bool,
    /// The shard that owns the topic of the last publish, and how many publishes in a row went to topics of that shard.
    streak: Cell<(ShardId, u32)>,
}

impl HttpBroker {
    /// Returns the broker of a new connection, which came over TLS or not.
    pub(super) fn new(shard: Rc<Shard>, is_secure: bool) -> HttpBroker {
        HttpBroker {
            is_secure,
            streak: Cell::new((shard.id, 0)),
            shard,
        }
    }

    /// Returns the shard of the topic of the last publish.
    pub(super) fn better_shard(&self) -> ShardId {
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

    /// Runs a future on the shard that owns a topic.
    async fn call_owner<R: Send + 'static, F>(
        &self,
        topic: &str,
        call: impl FnOnce(Rc<Shard>) -> F + Send + 'static,
    ) -> Result<R, AdminError>
    where
        F: Future<Output = Result<R, AdminError>> + 'static,
    {
        let done = self.shard.shared.post.call(self.owner(topic), call).await;
        done.unwrap_or(Err(AdminError::Exiting))
    }
}

impl http::Broker for HttpBroker {
    async fn publish(
        &self,
        topic: &str,
        bodies: Bodies,
        defer: Option<Duration>,
        origin: Option<Origin>,
    ) -> Result<(), PublishError> {
        let owner = self.owner(topic);
        self.count_publish(owner);
        if owner == self.shard.id {
            publish(&self.shard, topic, &bodies, defer, origin).await
        } else {
            let name = topic.to_owned();
            let call = move |shard: Rc<Shard>| async move {
                publish(&shard, &name, &bodies, defer, origin).await
            };
            let published = self.shard.shared.post.call(owner, call).await;
            published.unwrap_or(Err(PublishError::Exiting))
        }
    }

    async fn administer(
        &self,
        topic: &str,
        channel: Option<&str>,
        command: Command,
    ) -> Result<(), AdminError> {
        let (topic_name, channel) = (topic.to_owned(), channel.map(str::to_owned));
        let call = move |shard: Rc<Shard>| async move {
            administer(&shard, &topic_name, channel.as_deref(), &command).await
        };
        self.call_owner(topic, call).await
    }

    async fn stats(&self, filter: &StatsFilter) -> StatsSnapshot {
        stats_of_all(&self.shard.shared.post, filter).await
    }

    async fn peek(&self, question: &PeekQuestion) -> Result<PeekSlice, AdminError> {
        let asked = question.clone();
        let call = move |shard: Rc<Shard>| async move {
            let broker = shard.broker.borrow();
            broker.peek(shard.now.get(), &asked).map_err(admin_error)
        };
        self.call_owner(&question.topic, call).await
    }

    async fn peek_again(
        &self,
        topic: &str,
        seqs: Vec<Seq>,
        budget: PeekBudget,
    ) -> Result<Vec<PeekedFrame>, AdminError> {
        let name = topic.to_owned();
        let call = move |shard: Rc<Shard>| async move {
            let broker = shard.broker.borrow();
            let frames = broker.peek_again(&name, &seqs, &budget);
            frames.map_err(admin_error)
        };
        self.call_owner(topic, call).await
    }

    fn cold_reader(&self) -> ColdReader {
        let keeper = self.shard.shared.peeks.clone();
        Box::new(move |topic, first, count, bytes_max| {
            read_cold(&keeper, topic, first, count, bytes_max)
        })
    }

    async fn shards(&self) -> Vec<ShardStats> {
        let call = |shard: Rc<Shard>| async move { shard_stats(&shard) };
        self.shard.shared.post.call_all(call).await
    }

    fn begin_in_background(
        &self,
        kind: Background,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), Busy> {
        let shared = &self.shard.shared;
        let threads = match kind {
            Background::Report => &shared.reports,
            Background::Peek => &shared.peek_threads,
        };
        let given = threads.give(0, Box::new(job));
        given.map(drop).map_err(|Full| Busy)
    }

    async fn topic_names(&self) -> Vec<String> {
        let call = |shard: Rc<Shard>| async move {
            shard.with_broker(|broker, _, _| broker.topic_names())
        };
        self.shard.shared.post.call_all(call).await.concat()
    }

    fn health(&self) -> Result<(), String> {
        self.shard.shared.health.get()
    }

    fn is_started(&self) -> bool {
        self.shard.shared.is_started.load(Ordering::Relaxed)
    }

    fn is_stopping(&self) -> bool {
        self.shard.is_stopping()
    }

    fn is_draining(&self) -> bool {
        self.shard.shared.drain.is_draining()
    }

    async fn set_draining(&self, is_draining: bool) -> Result<(), AdminError> {
        let drain = &self.shard.shared.drain;
        let done = drain.set(is_draining, "PUT /config/drain").await;
        done.map_err(|Ending| AdminError::Exiting)
    }

    fn lookupd_addresses(&self) -> Option<Vec<String>> {
        self.shard.shared.lookup.addresses()
    }

    fn set_lookupd_addresses(&self, addresses: Option<Vec<String>>) {
        self.shard.shared.lookup.set_addresses(addresses);
    }

    fn is_secure(&self) -> bool {
        self.is_secure
    }

    fn info(&self) -> &Info {
        &self.shard.shared.info
    }

    fn is_better_elsewhere(&self) -> bool {
        let (owner, count) = self.streak.get();
        owner != self.shard.id && count >= REMOTE_STREAK_MAX
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
) -> Result<(), PublishError> {
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
    until_done(shard, |task| {
        let publish = shard.with_broker(|broker, now, out| {
            broker.publish_for_task(now, task, name, &publication, out)
        });
        publish.map_err(PublishError::from)
    })
    .await
}

/// Begins an operation, as often as the broker wants another try, and waits until it is done.
async fn until_done<E: From<Refusal>>(
    shard: &Shard,
    begin: impl Fn(TaskId) -> Result<Outcome, E>,
) -> Result<(), E> {
    loop {
        let task = shard.start_task();
        if begin(task.id)? == Outcome::Done {
            return Ok(());
        }
        match task.woken().await {
            Some(Wakeup::Retry) => {}
            Some(Wakeup::Done(result)) => return result.map_err(E::from),
            None => return Err(Refusal::Exiting.into()),
        }
    }
}

fn admin_error(error: CoreError) -> AdminError {
    match error {
        CoreError::TopicNotFound => AdminError::TopicNotFound,
        CoreError::ChannelNotFound => AdminError::ChannelNotFound,
        CoreError::NoUndo(why) => AdminError::NoUndo(why),
        CoreError::SetAside(cause) => AdminError::Backend(cause.to_string()),
    }
}

/// Reads neighbours from a segment, and checks each. A file that was used again in the meantime has another head, so none
/// of its messages is whole.
fn read_cold(
    keeper: &Keeper<OsFiles>,
    topic: &str,
    first: &ColdMessage,
    count: u32,
    bytes_max: u32,
) -> Vec<ColdFrame> {
    let request = first.read_request(count, bytes_max);
    let Some(Reply::Peeked {
        piece: Some(piece), ..
    }) = keeper.handle(topic, request)
    else {
        return Vec::new();
    };
    let bytes = piece.memory.as_ref();
    let indices = first.index..first.index + piece.seqs.len() as u32;
    let frames = indices.map_while(|index| {
        let slot = diskq::segment::slot_at(bytes, first.head.slots, index)?;
        let frame = bytes.get(slot.start as usize..slot.end as usize)?;
        let shown = &frame[..frame.len().min(http::FRAME_BYTES_MAX)];
        Some((shown.to_vec(), frame.len()))
    });
    let frames = frames.collect();
    keeper.free(piece.memory);
    frames
}

/// Carries a command out on the shard of its topic. Returns when the change is recorded.
async fn administer(
    shard: &Rc<Shard>,
    topic: &str,
    channel: Option<&str>,
    command: &Command,
) -> Result<(), AdminError> {
    let done = until_done(shard, |task| {
        if shard.is_stopping() {
            return Err(AdminError::Exiting);
        }
        begin(shard, topic, channel, command, task).map_err(admin_error)
    })
    .await;
    if done.is_ok()
        && let Command::Pause(_) | Command::Unpause = command
    {
        // Pausing waits for nsqd.dat, like nsqd. A failed write is logged and tried again: the change counts
        // because a checkpoint has it.
        shard.persist_metadata().await;
    }
    done
}

/// Begins a command. If it is not done at once, the task is woken to try again or with the result.
fn begin(
    shard: &Rc<Shard>,
    topic: &str,
    channel: Option<&str>,
    command: &Command,
    task: TaskId,
) -> Result<Outcome, CoreError> {
    let pause = match command {
        Command::Pause(pause) => Some(pause),
        _ => None,
    };
    shard.with_broker(|broker, now, out| match (channel, command) {
        (None, Command::Create) => broker.create_topic(topic_name(topic), task, out),
        (None, Command::Delete) => broker.delete_topic(now, topic, task, out),
        (None, Command::Empty(undo)) => broker.empty_topic(now, topic, *undo, task),
        (None, Command::Unempty) => broker.unempty_topic(now, topic, task),
        (None, Command::Pause(_) | Command::Unpause) => {
            broker.pause_topic(now, topic, pause, task, out)
        }
        (Some(channel), Command::Create) => {
            let channel = ChannelName::new(channel.as_bytes()).expect(CHECKED);
            broker.create_channel(now, topic, channel, task, out)
        }
        (Some(channel), Command::Delete) => broker.delete_channel(now, topic, channel, task, out),
        (Some(channel), Command::Empty(undo)) => {
            broker.empty_channel(now, (topic, channel), *undo, task)
        }
        (Some(channel), Command::Unempty) => broker.unempty_channel(now, topic, channel, task),
        (Some(channel), Command::Pause(_) | Command::Unpause) => {
            broker.pause_channel(now, topic, channel, pause, task, out)
        }
    })
}

fn topic_name(name: &str) -> TopicName<'_> {
    TopicName::new(name.as_bytes()).expect(CHECKED)
}

/// The reason why every name here is valid.
const CHECKED: &str = "crate::http has checked the name";
