//! One core's worth of work: the broker's rules driven by one reactor.
//!
//! ```text
//!   readers ──► with_broker: receive ──► (turn is due) ─┐
//!   inbox   ──► keeper replies, forwards, moves ────────┤
//!   timer   ──► handle_timeout ─────────────────────────┤
//!                                                       ▼
//!   turn: end_turn (deliveries) ─► perform outputs ─► one write per connection ─► batches to peers
//! ```
//!
//! The turn's task queues behind all readers that are ready, so that one turn serves what all of
//! them brought: under load writes batch by themselves, when quiet a message leaves at once.
//! No message on this path takes a lock or waits: what may block goes to the keeper.

pub(crate) mod connection;
pub(crate) mod health;
pub(crate) mod http_broker;
pub(crate) mod mail;
pub(crate) mod storage;
pub(crate) mod task;

use crate::auth::AuthServers;
use crate::http_server;
use crate::lookup::LookupPeers;
use crate::metadata_writer::{MetadataWriter, NotPersisted};
use crate::net::input::Buffers;
use crate::process::Info;
use crate::reactor;
use crate::thread_pool::Full;
use connection::Connection;
use diskq::Tombstone;
use engine_core::{
    AuthQuery, Broker, ClientId, Grants, Level, Now, Output, ShardId, TaskId, TopicKey, Wakeup,
};
use futures_lite::{StreamExt, future};
use health::{Health, ShardHealth};
use mail::{Inbox, Mail, Post};
use program::{log_debug, log_error, log_info, log_repeated, log_warn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};
use storage::{KeeperJob, Storage};
use task::{Task, Tasks};
use upgrade::{Layer, ServerConfig, UpgradeError};
use wire::go_error::system_text;
use wire::name::ChannelName;

/// How long a connection that is to move waits for a descriptor: half a minute, in steps.
const MOVE_PAUSE: Duration = Duration::from_millis(100);
const MOVE_TRIES_MAX: u32 = 300;

/// The pause between a failed write of nsqd.dat and the next try. It doubles each time, up to the maximum.
const METADATA_RETRY_MIN: Duration = Duration::from_millis(250);
const METADATA_RETRY_MAX: Duration = Duration::from_secs(8);

/// A shard, as its tasks see it.
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) post: Post,
    pub(crate) metadata: MetadataWriter,
    pub(crate) lookup: LookupPeers,
    auth: Option<AuthServers>,
    pub(crate) health: ShardHealth,
    pub(crate) info: Info,
    tls: Option<Arc<ServerConfig>>,
    /// What sockets are read into; lent to one reader at a time, never across an await.
    pub(crate) buffers: RefCell<Buffers>,
    broker: RefCell<Broker>,
    outputs: RefCell<Vec<Output>>,
    connections: RefCell<Vec<Option<Rc<Connection>>>>,
    storage: Storage,
    clock: Clock,
    /// The clocks as last read: once per batch of input, not per message.
    now: Cell<Now>,
    turn: Wake,
    /// When the input that gathers is looked at, and who waits for that.
    gathering_until: Cell<Option<Duration>>,
    gathering: RefCell<Vec<Waker>>,
    timer: Wake,
    /// When the timer's task will look next.
    timer_at: Cell<Duration>,
    tasks: Rc<Tasks>,
    metadata_changed: Wake,
    /// The tombstones of deleted topics that nsqd.dat may still list.
    tombstones: RefCell<Vec<Tombstone>>,
    is_stopping: Cell<bool>,
}

/// What a shard is given besides its broker and its keeper.
pub(crate) struct Parts {
    pub(crate) id: ShardId,
    pub(crate) clock: Clock,
    pub(crate) post: Post,
    pub(crate) metadata: MetadataWriter,
    pub(crate) lookup: LookupPeers,
    pub(crate) auth: Option<AuthServers>,
    pub(crate) health: Health,
    pub(crate) info: Info,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) tombstones: Vec<Tombstone>,
}

/// Both clocks, from one start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            start: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // A wall clock before 1970 is no clock; seqs and timestamps stay valid with zero.
        let wall_ns = unix.map_or(0, |since| since.as_nanos() as u64);
        Now {
            mono: self.start.elapsed(),
            wall_ns,
        }
    }
}

/// Tells one task of the same shard that there is something to do.
#[derive(Default)]
struct Wake {
    is_set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Wake {
    fn set(&self) {
        if !self.is_set.replace(true)
            && let Some(waker) = self.waker.borrow_mut().take()
        {
            waker.wake();
        }
    }

    async fn wait(&self) {
        future::poll_fn(|cx| self.poll(cx.waker())).await;
    }

    fn poll(&self, waker: &Waker) -> Poll<()> {
        if self.is_set.replace(false) {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(waker.clone());
        Poll::Pending
    }
}

impl Shard {
    pub(crate) fn new(broker: Broker, storage: Storage, parts: Parts) -> Rc<Shard> {
        let Parts {
            id,
            clock,
            post,
            metadata,
            lookup,
            auth,
            health,
            info,
            tls,
            tombstones,
        } = parts;
        Rc::new(Shard {
            id,
            post,
            metadata,
            lookup,
            auth,
            health: ShardHealth::new(id, health),
            info,
            tls,
            buffers: RefCell::default(),
            broker: RefCell::new(broker),
            outputs: RefCell::default(),
            connections: RefCell::default(),
            storage,
            now: Cell::new(clock.now()),
            clock,
            turn: Wake::default(),
            gathering_until: Cell::new(None),
            gathering: RefCell::default(),
            timer: Wake::default(),
            timer_at: Cell::new(Duration::MAX),
            tasks: Rc::default(),
            metadata_changed: Wake::default(),
            tombstones: RefCell::new(tombstones),
            is_stopping: Cell::new(false),
        })
    }

    /// Starts the tasks that serve everything but the listeners.
    pub(crate) fn start(self: &Rc<Self>, inbox: Inbox) {
        reactor::spawn(self.clone().run_turns()).detach();
        reactor::spawn(self.clone().run_timer()).detach();
        reactor::spawn(self.clone().run_inbox(inbox)).detach();
        reactor::spawn(self.clone().run_metadata()).detach();
        self.turn.set();
    }

    /// Lets `act` change the broker, and has a turn follow.
    pub(crate) fn with_broker<R>(
        &self,
        act: impl FnOnce(&mut Broker, Now, &mut Vec<Output>) -> R,
    ) -> R {
        self.turn.set();
        self.with_broker_in_turn(act)
    }

    /// Lets `act` change the broker without asking for a turn. The caller runs within a turn, or asks for one itself.
    pub(crate) fn with_broker_in_turn<R>(
        &self,
        act: impl FnOnce(&mut Broker, Now, &mut Vec<Output>) -> R,
    ) -> R {
        act(
            &mut self.broker.borrow_mut(),
            self.now.get(),
            &mut self.outputs.borrow_mut(),
        )
    }

    /// Reads the clocks. Whoever brings something in does: bytes, mail, a connection, the timer.
    pub(crate) fn read_clock(&self) {
        self.now.set(self.clock.now());
    }

    /// True while commands of a connection are carried out as they come.
    pub(crate) fn is_reading(&self, id: ClientId) -> bool {
        self.broker.borrow().is_reading(id)
    }

    /// True when `bytes` bytes of a connection's input have more to be carried out.
    pub(crate) fn has_more(&self, id: ClientId, bytes: usize) -> bool {
        self.broker.borrow().has_more(id, bytes)
    }

    /// How long a connection's input must be for its next command; 0 when that is not known.
    pub(crate) fn needs(&self, id: ClientId) -> usize {
        self.broker.borrow().needs(id)
    }

    /// Lets input gather for `time` at most. Those that may wait together are woken together: a turn
    /// for all of them instead of one for each.
    pub(crate) async fn gather(&self, time: Duration) {
        let end = self.clock.now().mono + time;
        match self.gathering_until.get() {
            Some(until) if until <= end => {
                let mut is_over = false;
                future::poll_fn(|cx| {
                    if std::mem::replace(&mut is_over, true) {
                        return Poll::Ready(());
                    }
                    self.gathering.borrow_mut().push(cx.waker().clone());
                    Poll::Pending
                })
                .await;
            }
            // Others wait for longer than this one may.
            Some(_) => reactor::sleep(time).await,
            None => {
                self.gathering_until.set(Some(end));
                reactor::sleep(time).await;
                self.gathering_until.set(None);
                self.gathering.borrow_mut().drain(..).for_each(Waker::wake);
            }
        }
    }

    /// How long the next FINs of a consumer may gather.
    pub(crate) fn coalescing_delay(&self, id: ClientId) -> Option<Duration> {
        self.broker.borrow_mut().coalescing_delay(id)
    }

    // --- connections

    /// The daemon's side of TLS.
    pub(crate) fn tls_layer(&self) -> Result<Layer, UpgradeError> {
        let config = self.tls.as_ref();
        Layer::tls_server(config.expect("IDENTIFY grants TLS only where there is a certificate"))
    }

    pub(crate) fn add_connection(&self, connection: Rc<Connection>) {
        let mut connections = self.connections.borrow_mut();
        let index = connection.id.index as usize;
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        connections[index] = Some(connection);
    }

    pub(crate) fn remove_connection(&self, id: ClientId) {
        let mut connections = self.connections.borrow_mut();
        if let Some(slot) = connections.get_mut(id.index as usize)
            && slot.as_ref().is_some_and(|connection| connection.id == id)
        {
            *slot = None;
        }
    }

    fn connection(&self, id: ClientId) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        let connection = connections.get(id.index as usize)?.as_ref()?;
        (connection.id == id).then(|| connection.clone())
    }

    // --- waiting for the broker

    /// Something that the broker can wake.
    pub(crate) fn start_task(&self) -> Task {
        self.read_clock();
        self.tasks.start()
    }

    /// True when the broker ends: nothing new is begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    // --- the turn

    async fn run_turns(self: Rc<Self>) {
        let mut to_flush = Vec::new();
        loop {
            self.turn.wait().await;
            self.take_turn(&mut to_flush);
            // A turn that left something to do is followed by the readers, then by the next.
            if self.turn.is_set.get() {
                future::yield_now().await;
            }
        }
    }

    fn take_turn(self: &Rc<Self>, to_flush: &mut Vec<ClientId>) {
        self.with_broker_in_turn(|broker, now, out| broker.end_turn(now, out));
        self.perform_outputs();
        self.broker.borrow_mut().take_clients_to_flush(to_flush);
        for id in to_flush.iter() {
            if let Some(connection) = self.connection(*id) {
                connection.flush(self);
            }
        }
        self.send_batches();
        let broker = self.broker.borrow();
        if broker.is_turn_open() || !self.outputs.borrow().is_empty() {
            // Writes made room for more deliveries: another turn, behind the readers.
            self.turn.set();
        }
        if broker
            .next_timeout()
            .is_some_and(|at| at < self.timer_at.get())
        {
            self.timer.set();
        }
        self.health.report(broker.health());
    }

    fn perform_outputs(self: &Rc<Self>) {
        let mut outputs = std::mem::take(&mut *self.outputs.borrow_mut());
        for output in outputs.drain(..) {
            self.perform(output);
        }
        // Keep the buffer, unless performing brought new outputs.
        let mut current = self.outputs.borrow_mut();
        if current.is_empty() {
            *current = outputs;
        }
    }

    fn perform(self: &Rc<Self>, output: Output) {
        match output {
            Output::Close(id) => {
                if let Some(connection) = self.connection(id) {
                    connection.close();
                }
            }
            Output::Move(id, to) => self.move_connection(id, to),
            Output::Upgrade(id, upgrade) => {
                if let Some(connection) = self.connection(id) {
                    connection.upgrade(self, upgrade);
                }
            }
            Output::Resume(id) => {
                if let Some(connection) = self.connection(id) {
                    connection.read_on();
                }
            }
            Output::Expired(id) => {
                if let Some(connection) = self.connection(id) {
                    connection.expire(self);
                }
            }
            Output::WriteExpired(id) => {
                if let Some(connection) = self.connection(id) {
                    connection.expire_output(self);
                }
            }
            Output::UpgradeExpired(id) => {
                if let Some(connection) = self.connection(id) {
                    connection.expire_upgrade(self);
                }
            }
            Output::Wake(task, wakeup) => self.tasks.wake(task, wakeup),
            Output::Keeper(key, topic, request) => {
                self.storage.give(KeeperJob::Log(key, topic, request))
            }
            Output::Free(memory) => self.storage.give(KeeperJob::Free(memory)),
            Output::DeleteLog(log) => self.storage.give(KeeperJob::Delete(log.into())),
            Output::MetadataChanged => self.metadata_changed.set(),
            Output::Changed(change) => self.lookup.announce(vec![change]),
            Output::AskForChannels(key, topic) => self.ask_for_channels(key, &topic),
            Output::Authorize(id, query) => self.authorize(id, query),
            Output::Log(Level::Debug, line) => log_debug!("{line}"),
            Output::Log(Level::Info, line) => log_info!("{line}"),
            Output::Log(Level::Warning, line) => log_warn!("{line}"),
            Output::Log(Level::Error, line) => log_error!("{line}"),
            Output::Complaint { cause, line } => log_repeated!(cause, "{line}"),
        }
    }

    /// Starts a new topic as soon as the nsqlookupds have said which channels it has elsewhere.
    fn ask_for_channels(&self, key: TopicKey, topic: &str) {
        let (post, id) = (self.post.clone(), self.id);
        self.lookup.ask(topic, move |channels| {
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

    /// Has an auth server asked what a client may do.
    fn authorize(&self, client: ClientId, query: AuthQuery) {
        let auth = self.auth.as_ref();
        let auth = auth.expect("the broker asks where auth servers are configured");
        let (post, id) = (self.post.clone(), self.id);
        let question = auth.ask(query, move |answer| {
            let grant = Mail::Call(Box::new(move |shard| shard.handle_grants(client, answer)));
            post.send(id, grant);
        });
        match question {
            Ok(question) => {
                if let Some(connection) = self.connection(client) {
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
        if let Some(connection) = self.connection(client) {
            connection.end_wait();
        }
        self.with_broker(|broker, now, out| broker.handle_grants(now, client, answer, out));
    }

    fn move_connection(self: &Rc<Self>, id: ClientId, to: ShardId) {
        self.try_move(id, to, MOVE_TRIES_MAX);
    }

    /// Moves a connection, which takes one more descriptor for a moment. If no descriptor is left, the client waits
    /// until others have left, as newcomers do.
    fn try_move(self: &Rc<Self>, id: ClientId, to: ShardId, tries: u32) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        match connection.pack(self) {
            Ok(Some(moving)) => self.post.send(to, Mail::Connection(Box::new(moving))),
            Ok(None) => {}
            Err(error) if tries == 0 => {
                let why = system_text(&error);
                log_error!("cannot move a connection to shard {}: {why}", to.0);
                connection.close();
            }
            Err(error) => {
                if tries == MOVE_TRIES_MAX {
                    let why = system_text(&error);
                    log_warn!("a connection waits to move to shard {}: {why}", to.0);
                }
                let shard = self.clone();
                reactor::spawn(async move {
                    reactor::sleep(MOVE_PAUSE).await;
                    shard.try_move(id, to, tries - 1);
                })
                .detach();
            }
        }
    }

    fn send_batches(&self) {
        for peer in self.post.shards() {
            let mut broker = self.broker.borrow_mut();
            if let Some(batch) = broker.take_forwards(peer) {
                self.post.send(peer, Mail::Forwards(batch));
            }
            if let Some(replies) = broker.take_forward_replies(peer) {
                self.post.send(peer, Mail::ForwardReplies(replies));
            }
        }
    }

    // --- time

    async fn run_timer(self: Rc<Self>) {
        loop {
            self.read_clock();
            let now = self.now.get().mono;
            let next = self.broker.borrow().next_timeout();
            self.timer_at.set(next.unwrap_or(Duration::MAX));
            match next {
                Some(at) if at <= now => {
                    self.with_broker(|broker, now, out| broker.handle_timeout(now, out));
                    future::yield_now().await;
                }
                Some(at) => {
                    let sleep = reactor::sleep(at - now);
                    future::or(sleep, self.timer.wait()).await;
                }
                None => self.timer.wait().await,
            }
        }
    }

    // --- mail

    async fn run_inbox(self: Rc<Self>, mut inbox: Inbox) {
        while let Some(mail) = inbox.next().await {
            self.handle_mail(mail);
        }
    }

    fn handle_mail(self: &Rc<Self>, mail: Mail) {
        self.read_clock();
        match mail {
            Mail::Keeper(key, reply) => {
                self.with_broker(|broker, now, out| broker.handle_reply(now, key, reply, out));
            }
            Mail::Deleted(task, result) => self.handle_deleted(task, result),
            Mail::Forwards(batch) => {
                self.with_broker(|broker, now, out| broker.handle_forwards(now, &batch, out));
            }
            Mail::ForwardReplies(replies) => {
                self.with_broker(|broker, _, out| broker.handle_forward_replies(replies, out));
            }
            Mail::Connection(moving) => {
                if !self.is_stopping.get() {
                    connection::resume(self, *moving);
                }
            }
            Mail::HttpConnection(moving) => {
                if !self.is_stopping.get() {
                    http_server::resume(self, *moving);
                }
            }
            Mail::Call(call) => call(self),
        }
    }

    /// Tells the waiters that a log is deleted, or that its deletion failed.
    fn handle_deleted(&self, task: Option<TaskId>, result: Result<Option<Tombstone>, String>) {
        let result = result.map(|tombstone| {
            if let Some(tombstone) = tombstone {
                self.tombstones.borrow_mut().push(tombstone);
                self.metadata_changed.set();
            }
        });
        if let Some(task) = task {
            self.tasks.wake(task, Wakeup::Done(result));
        }
    }

    // --- nsqd.dat

    /// Writes the durable topics and channels of this shard to nsqd.dat, and waits until they are on disk. Then the
    /// tombstones of the topics that were deleted before are no longer needed.
    ///
    /// # Errors
    /// It could not be written, which is logged, and is tried again.
    pub(crate) async fn persist_metadata(&self) -> Result<(), NotPersisted> {
        let tombstones = self.tombstones.take();
        let facts = self.broker.borrow().durable_topics();
        let written = self.metadata.store(self.id, facts).await;
        match written {
            Ok(()) if tombstones.is_empty() => {}
            Ok(()) => self.storage.give(KeeperJob::Bury(tombstones)),
            Err(_) => {
                self.tombstones.borrow_mut().extend(tombstones);
                self.metadata_changed.set();
            }
        }
        written
    }

    async fn run_metadata(self: Rc<Self>) {
        let mut pause = METADATA_RETRY_MIN;
        loop {
            self.metadata_changed.wait().await;
            if self.persist_metadata().await.is_ok() {
                pause = METADATA_RETRY_MIN;
            } else {
                reactor::sleep(pause).await;
                pause = (pause * 2).min(METADATA_RETRY_MAX);
            }
        }
    }

    // --- the end

    /// Closes every connection of the NSQ protocol, makes everything durable, and returns. HTTP connections end with
    /// the reactor.
    pub(crate) async fn stop(self: Rc<Self>) {
        self.is_stopping.set(true);
        let connections: Vec<_> = self
            .connections
            .borrow()
            .iter()
            .flatten()
            .cloned()
            .collect();
        for connection in connections {
            connection.close();
        }
        while self.broker.borrow().clients_count() > 0 {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        self.with_broker(|broker, _, out| broker.announce_end(out));
        self.perform_outputs();
        while self.with_broker(|broker, _, _| broker.shut_down()) > 0 {
            reactor::sleep(Duration::from_millis(1)).await;
            self.read_clock();
        }
        // The logs have what could not be written to nsqd.dat.
        let _ = self.persist_metadata().await;
        self.storage.give(KeeperJob::Stop);
    }
}
