//! The nsqlookupds: this node tells them which topics and channels it has, and asks them which channels a new topic has
//! elsewhere.
//!
//! ```text
//!   shards ──announce──► thread "lookup": Registry ──REGISTER, PING──► Peer ──► nsqlookupd (TCP)
//!     ▲                                                                 │
//!     │                                              who can be asked ◄─┘
//!     └──── channels ◄── ThreadPool ◄──ask── shards        GET /channels ──► nsqlookupd (HTTP)
//! ```
//!
//! No message and no shard waits for this thread. An nsqlookupd that cannot be reached costs the thread a
//! second now and then. The changes of that time are then told together. An nsqlookupd that was away is
//! told everything. The end of the process does not wait for the thread: the connections close with the
//! process, which is all that nsqlookupd needs to know.
//!
//! An address with a name can stand for several nsqlookupds. Threads of their own resolve names, however long that
//! takes, and send the thread what they found.

mod directory;
mod inquiry;
mod peer;
mod registry;
#[cfg(feature = "srv")]
mod srv;

use crate::config::Config;
use crate::process::Ports;
use crate::thread_pool::{Bounds, ThreadPool};
use crate::tls::LookupSettings;
use directory::{Directory, Resolution};
use engine_rules::Change;
use inquiry::{Inquiry, Question, Source};
use parking_lot::Mutex;
use peer::{Node, Peer};
use program::check::Finding;
use program::http_client::{HttpClient, HttpSettings};
use program::{log_debug, log_error, log_info};
use registry::{Command, Registry};
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The time between two PINGs, which tell an nsqlookupd that this node is alive. With each PING, names are resolved
/// again.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// Questions to nsqlookupds at the same time: topics that are created together, times nsqlookupds.
const INQUIRIES_MAX: usize = 16;

/// The bounds of the questions to nsqlookupds. A question beyond them fails, as if the nsqlookupd were away. A
/// topic that is deleted and made again while its question waits adds another one.
const INQUIRIES: Bounds = Bounds {
    threads_max: INQUIRIES_MAX,
    waiting_max: 100_000,
    bytes_max: 0,
};

/// The bounds of the resolutions of names. A name whose resolution does not fit in is resolved with the next PING.
const RESOLUTIONS: Bounds = Bounds {
    threads_max: 4,
    waiting_max: 100,
    bytes_max: 0,
};

/// Resolves the addresses of the nsqlookupds and tries each, for `nsqd --check`. No nsqlookupd learns of this node. `None`:
/// there is no address. Blocks.
pub(crate) fn check(addresses: &[String], settings: &LookupSettings) -> Option<Finding> {
    let mut directory = Directory::default();
    directory.set(addresses.to_vec());
    let mut faults = Vec::new();
    for (text, address) in directory.questions() {
        let resolution = directory::resolve(&text, &address);
        let failures = directory.note(&text, resolution).into_iter();
        faults.extend(failures.map(|why| format!("{text}: {why} - {}", directory::advice(&text))));
    }
    let mut answering = Vec::new();
    for target in directory.targets() {
        match peer::try_out(&target, settings.tls.as_ref()) {
            Ok(()) => answering.push(target.label),
            Err(why) => faults.push(format!("{}: {why}", target.label)),
        }
    }
    (!addresses.is_empty()).then(|| judge(&answering, faults))
}

fn judge(answering: &[String], faults: Vec<String>) -> Finding {
    let data = json!({ "answering": answering, "faults": faults });
    let found = match answering {
        [] => "no nsqlookupd answers".to_owned(),
        answering => format!("answering: {}", answering.join(", ")),
    };
    if faults.is_empty() {
        return Finding::ok(found).with(faults, data);
    }
    Finding::warning(
        format!("{found}; not answering: {}", faults.len()),
        "start them or correct --lookupd-tcp-address: consumers that ask them do not find this nsqd",
    )
    .with(faults, data)
}

/// The nsqlookupds of this node.
#[derive(Clone)]
pub(crate) struct LookupPeers {
    shared: Arc<Shared>,
}

struct Shared {
    messages: Sender<Message>,
    /// Is told whether there is an nsqlookupd to ask, each time the list changes.
    tell_has_peers: Box<dyn Fn(bool) + Send + Sync>,
    /// The addresses as they were set last, for `/config` and for [`LookupPeers::begin`]. Whoever changes them keeps the lock
    /// until the change is told.
    addresses: Mutex<Option<Vec<String>>>,
    sources: Arc<Mutex<Sources>>,
    pool: ThreadPool,
    http: Arc<HttpClient>,
}

/// The nsqlookupds that can be asked.
#[derive(Clone, Default)]
struct Sources {
    list: Vec<Source>,
    /// True if the list has every nsqlookupd for which an address stands.
    is_all: bool,
}

enum Message {
    Changes(Vec<Change>),
    /// The list of addresses is another one.
    Addresses(Vec<String>),
    /// The outcome of the resolution of an address.
    Resolved(String, Resolution),
    Stop,
}

impl LookupPeers {
    /// Starts the threads, which talk to nobody before [`LookupPeers::begin`]. `tell_has_peers` is told whether there
    /// is an nsqlookupd to ask, each time the list changes.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        config: &Config,
        ports: Ports,
        settings: LookupSettings,
        tell_has_peers: impl Fn(bool) + Send + Sync + 'static,
    ) -> io::Result<LookupPeers> {
        let (messages, queue) = channel();
        let sources = Arc::<Mutex<Sources>>::default();
        let registrar = Registrar {
            node: Node::new(config, ports, settings.tls),
            registry: Registry::default(),
            directory: Directory::default(),
            peers: Vec::new(),
            sources: sources.clone(),
            resolvers: ThreadPool::start("lookup-dns", RESOLUTIONS)?,
            messages: messages.clone(),
        };
        Builder::new()
            .name("lookup".to_owned())
            .spawn(move || registrar.run(&queue))?;
        let http = HttpClient::new(HttpSettings {
            idle_connections_max: INQUIRIES_MAX,
            ..settings.http
        });
        Ok(LookupPeers {
            shared: Arc::new(Shared {
                messages,
                tell_has_peers: Box::new(tell_has_peers),
                addresses: Mutex::new(config.lookupd_tcp_addresses.clone()),
                sources,
                pool: ThreadPool::start("lookup-http", INQUIRIES)?,
                http: Arc::new(http),
            }),
        })
    }

    /// The addresses of the nsqlookupds as they were set last; `None`: to `null`, which is none.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        self.shared.addresses.lock().clone()
    }

    /// Replaces the list of nsqlookupds: those not in `addresses` are left, new ones are connected to, the others notice
    /// nothing. Never waits.
    pub(crate) fn set_addresses(&self, addresses: Option<Vec<String>>) {
        let mut set = self.shared.addresses.lock();
        *set = addresses;
        self.follow(set.as_deref());
    }

    /// Connects to the nsqlookupds of the configuration, or to those that an operator has set since the shards listen.
    pub(crate) fn begin(&self) {
        self.follow(self.shared.addresses.lock().as_deref());
    }

    /// Tells everybody the list. The caller holds its lock: all others learn two changes in the order of the list itself.
    fn follow(&self, addresses: Option<&[String]>) {
        let addresses = addresses.unwrap_or_default().to_vec();
        let has_peers = !addresses.is_empty();
        self.shared.sources.lock().is_all = false;
        self.send(Message::Addresses(addresses));
        (self.shared.tell_has_peers)(has_peers);
    }

    /// Tells every nsqlookupd what came or went, soon. Never waits.
    pub(crate) fn announce(&self, changes: Vec<Change>) {
        self.send(Message::Changes(changes));
    }

    /// Asks every nsqlookupd for the channels of a topic that is new here. Never waits. `is_repeated` says that the
    /// topic asked before. `answer` gets all channels that are not ephemeral, and whether every nsqlookupd has answered,
    /// on another thread. If nobody can be asked or too many questions wait, this call may run `answer` itself.
    pub(crate) fn ask(
        &self,
        topic: &str,
        is_repeated: bool,
        answer: impl FnOnce(Vec<String>, bool) + Send + 'static,
    ) {
        let is_configured = self.addresses().is_some_and(|all| !all.is_empty());
        let Sources { mut list, is_all } = self.shared.sources.lock().clone();
        let count = list.len();
        list.retain(Source::is_known);
        let is_everyone = is_all && list.len() == count;
        if list.is_empty() {
            if is_configured && !is_repeated {
                log_error!(
                    "no available nsqlookupd to query for channels to pre-create for topic {topic}"
                );
            }
            return answer(Vec::new(), !is_configured);
        }
        let (pool, http) = (&self.shared.pool, &self.shared.http);
        let question = Question {
            topic: topic.to_owned(),
            is_repeated,
        };
        Inquiry::start(pool, http, question, list, move |channels, is_complete| {
            answer(channels, is_complete && is_everyone);
        });
    }

    /// Ends the connections.
    pub(crate) fn stop(&self) {
        log_info!("LOOKUP: closing");
        self.send(Message::Stop);
    }

    fn send(&self, message: Message) {
        // The thread ends after `stop` only, and then nobody is to be told anything.
        let _ = self.shared.messages.send(message);
    }
}

/// Tells every nsqlookupd what this node has, on a thread of its own.
struct Registrar {
    node: Node,
    registry: Registry,
    directory: Directory,
    peers: Vec<Peer>,
    /// The same nsqlookupds for questions over HTTP.
    sources: Arc<Mutex<Sources>>,
    resolvers: ThreadPool,
    /// The way to this thread, for the resolvers.
    messages: Sender<Message>,
}

impl Registrar {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut next_ping = Instant::now() + PING_INTERVAL;
        loop {
            let timeout = if self.directory.is_empty() {
                Duration::MAX
            } else {
                next_ping.saturating_duration_since(Instant::now())
            };
            match messages.recv_timeout(timeout) {
                Ok(first) => {
                    // All messages that have gathered are told together, so a peer that is away costs one try.
                    let gathered = std::iter::once(first).chain(messages.try_iter());
                    if !self.take(gathered) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if now >= next_ping {
                next_ping = now + PING_INTERVAL;
                self.resolve();
                self.tell(&[Command::Ping]);
            }
        }
    }

    /// Returns false when that was all.
    fn take(&mut self, messages: impl Iterator<Item = Message>) -> bool {
        let mut commands = Vec::new();
        let mut is_list_new = false;
        for message in messages {
            match message {
                Message::Changes(changes) => {
                    for change in changes {
                        commands.extend(self.registry.apply(change));
                    }
                }
                Message::Addresses(addresses) => {
                    self.directory.set(addresses);
                    self.resolve();
                    is_list_new = true;
                }
                Message::Resolved(address, resolution) => {
                    for why in self.directory.note(&address, resolution) {
                        log_error!(
                            "LOOKUP: resolving {address} - {why}; nsqd keeps the nsqlookupds that it knows, and tries \
                             again every {PING_INTERVAL:?} ({})",
                            directory::advice(&address)
                        );
                    }
                    is_list_new = true;
                }
                Message::Stop => return false,
            }
        }
        if !commands.is_empty() {
            self.tell(&commands);
        }
        if is_list_new {
            self.follow_directory();
        }
        true
    }

    /// Sends commands, one at least, to every peer. If a connection breaks, names are resolved again: the peer may have
    /// gone to another address.
    fn tell(&mut self, commands: &[Command]) {
        let mut is_broken = false;
        for peer in &mut self.peers {
            let label = &peer.target.label;
            for command in commands {
                match command {
                    Command::Ping => log_debug!("LOOKUPD({label}): sending heartbeat"),
                    _ => log_info!("LOOKUPD({label}): {} {command}", command.subject()),
                }
            }
            let was_connected = peer.is_connected();
            peer.tell(&self.node, &self.registry, commands);
            is_broken |= was_connected && !peer.is_connected();
        }
        if is_broken {
            self.resolve();
        }
    }

    /// Has all names resolved that are not being resolved now.
    fn resolve(&mut self) {
        for (text, address) in self.directory.questions() {
            let (messages, asked) = (self.messages.clone(), text.clone());
            let resolve = move || {
                let resolution = directory::resolve(&asked, &address);
                // The thread ends after `stop` only.
                let _ = messages.send(Message::Resolved(asked, resolution));
            };
            if self.resolvers.give(0, Box::new(resolve)).is_err() {
                let why = "too many other names are being resolved".to_owned();
                let resolution = Resolution {
                    hosts: Vec::new(),
                    failures: vec![why],
                };
                let _ = self.messages.send(Message::Resolved(text, resolution));
            }
        }
    }

    /// Ends the connections to peers that the directory no longer has, and connects to new ones.
    fn follow_directory(&mut self) {
        let mut before = std::mem::take(&mut self.peers);
        let mut is_new = Vec::new();
        for target in self.directory.targets() {
            let same = before.iter().position(|peer| peer.is_at(&target));
            is_new.push(same.is_none());
            self.peers.push(match same {
                None => Peer::new(target),
                Some(index) => before.remove(index).renamed(target),
            });
        }
        for peer in before {
            log_info!("LOOKUP({}): removing peer", peer.target.label);
        }
        let sources = self.peers.iter().map(|peer| peer.source.clone());
        *self.sources.lock() = Sources {
            list: sources.collect(),
            is_all: self.directory.is_resolved(),
        };
        let peers = self.peers.iter_mut().zip(is_new);
        for (peer, _) in peers.filter(|(_, is_new)| *is_new) {
            log_info!("LOOKUP({}): adding peer", peer.target.label);
            // Like nsqd, silently: the next ping says why.
            let _ = peer.connect(&self.node, &self.registry);
        }
    }
}

#[cfg(test)]
mod tests;
