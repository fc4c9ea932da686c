//! One core's worth of work: the broker's rules driven by one reactor.
//!
//! ```text
//!   readers ──► with_broker: receive ──► (turn is due) ─┐
//!   inbox   ──► keeper replies, forwards, moves ────────┤
//!   timer   ──► handle_timeout ─────────────────────────┤
//!                                                       ▼
//!   turn: end_turn (deliveries) ─► perform outputs ─► one write per connection ─► batches to peers
//!                                                     (io_uring: small ones together)
//! ```
//!
//! The turn's task queues behind all readers that are ready, so that one turn serves what all of
//! them brought: under load writes batch by themselves, when quiet a message leaves at once.
//! No message on this path takes a lock or waits: what may block goes to the keeper.

pub(crate) mod connection;
pub(crate) mod health;
pub(crate) mod mail;
pub(crate) mod metadata;
pub(crate) mod storage;
mod task;

use crate::auth::AuthServers;
use crate::drain::{DrainSwitch, log_level};
use crate::lookup::LookupPeers;
use crate::net::input::Buffers;
use crate::process::Info;
use crate::reactor;
use crate::thread_pool::{Full, ThreadPool};
use crate::tls::ListenerTls;
use connection::Connection;
use diskq::{Keeper, OsFiles, Tombstone};
use engine_rules::{AuthQuery, Broker, ClientId, Grants, Now, Output, ShardId, TopicKey};
use futures_lite::future;
use health::Health;
use mail::{Inbox, Mail, Post};
use metadata::MetadataWriter;
use program::{log_at, log_repeated, log_warn};
use slotmap::SecondaryMap;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};
use storage::{KeeperJob, Storage};
use task::{Gathering, Task, Tasks, Wake};
use wire::name::ChannelName;

/// The handles to the parts of the process that all shards share. Each shard has a copy of the handles.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) post: Post,
    pub(crate) metadata: MetadataWriter,
    pub(crate) lookup: LookupPeers,
    pub(crate) auth: Option<AuthServers>,
    pub(crate) health: Health,
    pub(crate) drain: DrainSwitch,
    /// True when all shards serve.
    pub(crate) is_started: Arc<AtomicBool>,
    pub(crate) info: Info,
    pub(crate) tls: Option<ListenerTls>,
    /// The threads that prepare long answers to HTTP requests.
    pub(crate) reports: ThreadPool,
    /// The threads that read and search for peeks. A disk that is slow for them delays no report.
    pub(crate) peek_threads: ThreadPool,
    /// Reads messages for peeks, on the threads of `peek_threads`. Gets no other jobs.
    pub(crate) peeks: Keeper<OsFiles>,
}

/// A shard, as its tasks see it.
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) shared: Shared,
    /// The reason why the shard is unhealthy, as the others know it.
    told_health: RefCell<Option<Arc<str>>>,
    /// The buffers into which sockets are read. One reader at a time has them, never across an await.
    buffers: RefCell<Buffers>,
    pub(crate) broker: RefCell<Broker>,
    outputs: RefCell<Vec<Output>>,
    /// Empty between turns: the connections whose output is about to leave.
    staged: RefCell<Vec<Rc<Connection>>>,
    connections: RefCell<SecondaryMap<ClientId, Rc<Connection>>>,
    storage: Storage,
    /// The clocks as last read: once per batch of input, not per message.
    pub(crate) now: Cell<Now>,
    turn: Wake,
    /// Turns so far.
    pub(crate) turn_count: Cell<u64>,
    gathering: Gathering,
    timer: Wake,
    /// The time at which the timer's task will look next.
    timer_at: Cell<Duration>,
    tasks: Rc<Tasks>,
    metadata_changed: Wake,
    /// The tombstones of deleted topics that nsqd.dat may still list.
    tombstones: RefCell<Vec<Tombstone>>,
}

impl Shard {
    pub(crate) fn new(
        id: ShardId,
        shared: Shared,
        broker: Broker,
        storage: Storage,
        tombstones: Vec<Tombstone>,
    ) -> Rc<Shard> {
        Rc::new(Shard {
            id,
            told_health: RefCell::default(),
            buffers: RefCell::default(),
            broker: RefCell::new(broker),
            outputs: RefCell::default(),
            staged: RefCell::default(),
            connections: RefCell::default(),
            storage,
            now: Cell::new(shared.clock.now()),
            turn: Wake::default(),
            turn_count: Cell::default(),
            gathering: Gathering::default(),
            timer: Wake::default(),
            timer_at: Cell::new(Duration::MAX),
            tasks: Rc::default(),
            metadata_changed: Wake::default(),
            tombstones: RefCell::new(tombstones),
            shared,
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

    /// Reads the clocks. Code that brings something in (bytes, mail, a connection, a timer) calls this first.
    pub(crate) fn read_clock(&self) {
        self.now.set(self.shared.clock.now());
    }

    // --- waiting for the broker

    /// Starts a task that the broker can wake.
    pub(crate) fn start_task(&self) -> Task {
        self.read_clock();
        self.tasks.start()
    }

    /// Returns true when the broker ends. Then nothing new may begin.
    pub(crate) fn is_stopping(&self) -> bool {
        self.broker.borrow().is_stopping()
    }

    // --- the turn

    async fn run_turns(self: Rc<Self>) {
        let mut to_flush = Vec::new();
        loop {
            self.turn.wait().await;
            self.take_turn(&mut to_flush);
            // A turn that left something to do is followed by the readers, then by the next.
            if self.turn.is_set() {
                future::yield_now().await;
            }
        }
    }

    fn take_turn(self: &Rc<Self>, to_flush: &mut Vec<ClientId>) {
        self.turn_count.set(self.turn_count.get() + 1);
        self.with_broker_in_turn(|broker, now, out| broker.end_turn(now, out));
        self.perform_outputs();
        self.broker.borrow_mut().take_clients_to_flush(to_flush);
        connection::flush_all(self, to_flush, &mut self.staged.borrow_mut());
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
        let mut told = self.told_health.borrow_mut();
        if told.as_ref() != broker.health() {
            *told = broker.health().cloned();
            self.shared.health.set(self.id, told.clone());
        }
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
            Output::Close(id) => self.at_connection(id, |connection| connection.close()),
            Output::Move(id, to) => {
                self.at_connection(id, |connection| connection.move_to(self, to));
            }
            Output::Upgrade(id, upgrade) => {
                self.at_connection(id, |connection| connection.upgrade(self, upgrade));
            }
            Output::Resume(id) => self.at_connection(id, |connection| connection.wake_reader()),
            Output::Expired(id) => self.at_connection(id, |connection| connection.expire(self)),
            Output::WriteExpired(id) => {
                self.at_connection(id, |connection| connection.expire_output(self));
            }
            Output::UpgradeExpired(id) => {
                self.at_connection(id, |connection| connection.expire_upgrade(self));
            }
            Output::Wake(task, wakeup) => self.tasks.wake(task, wakeup),
            Output::Keeper(key, topic, request) => {
                self.storage.give(KeeperJob::Log(key, topic, request))
            }
            Output::Free(memory) => self.storage.give(KeeperJob::Free(memory)),
            Output::DeleteLog(log) => self.storage.give(KeeperJob::Delete(log)),
            Output::MetadataChanged => self.metadata_changed.set(),
            Output::Changed(change) => self.shared.lookup.announce(vec![change]),
            Output::AskForChannels(key, topic) => self.ask_for_channels(key, &topic, false),
            Output::AskAgain(key, topic) => self.ask_for_channels(key, &topic, true),
            Output::Authorize(id, query) => self.authorize(id, query),
            Output::Log(level, line) => log_at!(log_level(level), "{line}"),
            Output::Repeated { level, cause, line } => {
                log_repeated!(log_level(level), cause, "{line}");
            }
        }
    }

    /// Lets a connection act, unless it has ended meanwhile.
    fn at_connection(&self, id: ClientId, act: impl FnOnce(&Rc<Connection>)) {
        if let Some(connection) = self.connection(id) {
            act(&connection);
        }
    }

    fn connection(&self, id: ClientId) -> Option<Rc<Connection>> {
        self.connections.borrow().get(id).cloned()
    }

    fn send_batches(&self) {
        let post = &self.shared.post;
        let is_disk_full = self.broker.borrow_mut().take_full_disk();
        for peer in post.shards() {
            if is_disk_full && peer != self.id {
                post.send(peer, Mail::DiskFull);
            }
            let mut broker = self.broker.borrow_mut();
            if let Some(batch) = broker.take_forwards(peer) {
                post.send(peer, Mail::Forwards(batch));
            }
            if let Some(replies) = broker.take_forward_replies(peer) {
                post.send(peer, Mail::ForwardReplies(replies));
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
                self.with_broker(|broker, now, out| {
                    broker.handle_forward_replies(now, replies, out);
                });
            }
            Mail::DiskFull => self.with_broker(|broker, _, out| broker.drop_undos(out)),
            Mail::Connection(moving) => {
                if !self.is_stopping() {
                    connection::resume(self, *moving);
                }
            }
            Mail::Call(call) => call(self),
        }
    }

    // --- questions to other programs, whose answers come back as mail

    /// Asks the nsqlookupds which channels a topic has elsewhere. `is_repeated` says that the topic asked before.
    fn ask_for_channels(&self, key: TopicKey, topic: &str, is_repeated: bool) {
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
    fn authorize(&self, client: ClientId, query: AuthQuery) {
        let auth = self.shared.auth.as_ref();
        let auth = auth.expect("the broker asks where auth servers are configured");
        let (post, id) = (self.shared.post.clone(), self.id);
        let asked = auth.ask(query, move |answer| {
            let grant = Mail::Call(Box::new(move |shard| shard.handle_grants(client, answer)));
            post.send(id, grant);
        });
        if asked == Err(Full) {
            let why = "too many questions wait for an auth server".to_owned();
            self.handle_grants(client, Err(why));
        }
    }

    fn handle_grants(&self, client: ClientId, answer: Result<Grants, String>) {
        self.with_broker(|broker, now, out| broker.handle_grants(now, client, answer, out));
    }

    // --- the end

    /// Closes every connection of the NSQ protocol, makes everything durable, and returns. HTTP connections end with
    /// the reactor.
    pub(crate) async fn stop(self: Rc<Self>) {
        self.with_broker(|broker, _, out| broker.begin_stop(out));
        self.perform_outputs();
        while self.with_broker(|broker, now, out| broker.drive_stop(now, out)) {
            reactor::sleep(Duration::from_millis(1)).await;
            self.read_clock();
        }
        self.perform_outputs();
        // The logs have what could not be written to nsqd.dat.
        self.persist_metadata().await;
        self.storage.give(KeeperJob::Stop);
    }
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
