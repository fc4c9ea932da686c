//! The life of the process: checks, shards, and the end.

mod options;
mod recovery;
mod reload;
mod rule_memory;
#[cfg(target_os = "linux")]
mod scheduler_slice;
mod shard_thread;

use crate::auth::AuthServers;
use crate::config::{Config, Rules};
use crate::drain::{self, DrainedShards};
use crate::lookup::LookupPeers;
use crate::net::address::Addresses;
use crate::preflight::data_path;
use crate::process::Info;
use crate::shard::health::Health;
use crate::shard::mail::{Inbox, Mail, Post};
use crate::shard::metadata::MetadataWriter;
use crate::shard::storage::Storage;
use crate::shard::{Clock, Shard, Shared};
use crate::thread_pool::{Bounds, ThreadPool};
use crate::tls::ListenerTls;
use crate::{config, preflight, statsd, tls};
use diskq::{DataPath, DataPathLock, Keeper, OsFiles};
use diskq_import::Metadata;
use engine_rules::{Owed, ShardId};
use futures_channel::oneshot;
use futures_lite::future::block_on;
use program::check::State;
use program::inherited::InheritedSockets;
use program::{log, log_error, log_info, log_warn, version};
use recovery::StoredTopics;
use shard_thread::{Plan, ShardThread};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// The bounds of the threads that prepare long answers, and of those that peek: a scrape of `/metrics` takes some 10 ms of
/// one thread. A shard waits for none of them.
const REPORTS: Bounds = Bounds {
    threads_max: 2,
    waiting_max: 64,
    bytes_max: usize::MAX,
};

/// A running broker.
pub struct Daemon {
    /// The addresses at which the broker listens.
    pub addresses: Addresses,
    shared: Shared,
    stops: Vec<oneshot::Sender<()>>,
    shards: Vec<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    statsd: Option<statsd::Pushing>,
    lock: DataPathLock,
}

impl Daemon {
    /// Starts a broker, which listens on the inherited sockets where there are some. `end` ends the process by a call of [`Daemon::stop`], when a drain is over.
    ///
    /// # Errors
    /// Why it cannot start, and what to do, for the FATAL line. Nothing was changed on disk by a broker that did not
    /// get the lock of its data path.
    pub fn start(
        mut config: Config,
        inherited: InheritedSockets,
        end: impl FnOnce() + Send + 'static,
    ) -> Result<Daemon, String> {
        let lock = lock(&config.data_path)?;
        let checked = tls::check(&mut config).map_err(not_instantiated)?;
        tell_start(&config);
        let ready = preflight::prepare(&config, inherited)
            .map_err(|finding| not_instantiated(finding.to_string()))?;
        let shard_count = u32::try_from(config.shard_count.get()).unwrap_or(u32::MAX);
        let stored = stored_topics(&config, &checked.rules, shard_count)?;
        let (post, inboxes) = Post::new(shard_count);
        let data_path = DataPath::from(config.data_path.clone());
        let (metadata, writer) =
            MetadataWriter::start(shard_count, data_path.clone()).map_err(no_thread)?;
        let auth = AuthServers::start(&config, checked.http).map_err(no_thread)?;
        let info = Info::new(Arc::new(config), ready.addresses.ports(), SystemTime::now());
        let teller = has_peers_teller(&post);
        let lookup = LookupPeers::start(&info.config, info.announced, checked.lookup, teller)
            .map_err(no_thread)?;
        let peeks = Keeper::new(OsFiles, data_path.clone());
        let drain = drain::start(post.clone(), info.config.drain_timeout, end);
        let plan = Plan {
            engine: ready.engine,
            addresses: ready.addresses,
            shard_count,
            seed: draw_seed(),
            data_path,
            rules: checked.rules,
            shared: Shared {
                clock: Clock::start(),
                post,
                metadata,
                lookup,
                auth,
                health: Health::new(shard_count),
                drain: drain.map_err(no_thread)?,
                is_started: Arc::default(),
                info,
                tls: checked.tls.map(ListenerTls::new),
                reports: ThreadPool::start("reports", REPORTS).map_err(no_thread)?,
                peek_threads: ThreadPool::start("peeks", REPORTS).map_err(no_thread)?,
                peeks,
            },
        };
        let mut daemon = Daemon {
            addresses: plan.addresses.clone(),
            shared: plan.shared.clone(),
            stops: Vec::new(),
            shards: Vec::new(),
            threads: vec![writer],
            statsd: None,
            lock,
        };
        daemon.start_shards(&plan, inboxes, stored)?;
        // Now the shards' listeners hold the addresses.
        drop(ready.reserved);
        let Shared { info, post, .. } = &plan.shared;
        daemon.statsd = statsd::start(info, post.clone()).map_err(no_thread)?;
        for (name, address) in daemon.addresses.named() {
            log_info!("{name}: listening on {address}");
        }
        plan.shared.lookup.begin();
        plan.shared.is_started.store(true, Ordering::Relaxed);
        Ok(daemon)
    }

    /// Starts all shards, and returns when they listen.
    fn start_shards(
        &mut self,
        plan: &Plan,
        inboxes: Vec<Inbox>,
        stored: Vec<StoredTopics>,
    ) -> Result<(), String> {
        let (started, starts) = mpsc::channel();
        for ((index, inbox), stored) in (0..).zip(inboxes).zip(stored) {
            let id = ShardId(index);
            let (storage, threads) =
                Storage::start(id, &plan.data_path, &plan.shared.post).map_err(no_thread)?;
            self.threads.extend(threads);
            let (stop, stopped) = oneshot::channel();
            self.stops.push(stop);
            let shard = ShardThread {
                plan: plan.clone(),
                id,
                inbox,
                stored,
                storage,
            };
            let thread = shard.spawn(started.clone(), stopped);
            self.shards.push(thread.map_err(no_thread)?);
        }
        drop(started);
        for _ in 0..plan.shard_count {
            let result = starts
                .recv()
                .map_err(|_| "a shard ended at once".to_owned())?;
            // The other shards may hold the sockets to the end of the process.
            result.inspect_err(|_| self.addresses.retire())?;
        }
        Ok(())
    }

    /// Begins a drain at SIGTERM, if `--drain-on-sigterm` says so and no drain is under way. Returns false if the
    /// process is to stop.
    pub fn drains_instead(&self) -> bool {
        let drain = &self.shared.drain;
        self.config().drain_on_sigterm
            && !drain.is_draining()
            && block_on(drain.set(true, "SIGTERM")).is_ok()
    }

    fn config(&self) -> &Config {
        &self.shared.info.config
    }

    /// Stops the broker: closes connections, makes everything durable, releases the data path.
    pub fn stop(self) {
        for (name, address) in self.addresses.named() {
            log_info!("{name}: closing {address}");
        }
        self.addresses.retire();
        log_info!("NSQ: closing topics");
        for stop in self.stops {
            // A shard that ended by itself needs no telling.
            let _ = stop.send(());
        }
        for shard in self.shards {
            if shard.join().is_err() {
                log_error!("a shard did not end well");
            }
        }
        log_info!("NSQ: stopping subsystems");
        if let Some(pushing) = self.statsd {
            log_info!("STATSD: closing");
            drop(pushing);
        }
        self.shared.lookup.stop();
        self.shared.metadata.stop();
        for thread in self.threads {
            if thread.join().is_err() {
                log_error!("a thread did not end well");
            }
        }
        drop(self.lock);
        log_info!("NSQ: bye");
        log::flush();
    }
}

fn lock(data_path: &Path) -> Result<DataPathLock, String> {
    DataPathLock::acquire(data_path)
        .and_then(|lock| diskq::check_writable(data_path).map(|()| lock))
        .map_err(|error| data_path::lock_failed(data_path, &error))
}

/// Logs the first lines of a start.
fn tell_start(config: &Config) {
    log_info!("{}", config::version_line());
    log_info!("{}", version::of_ringq());
    log_info!("ID: {}", config.node_id);
    for ignored in config.options.ignored() {
        log_warn!("{ignored}");
    }
    for useless in config.useless() {
        log_warn!("{useless}");
    }
}

/// Reads what the locked data path has for each shard, after a takeover of the original nsqd's files.
fn stored_topics(
    config: &Config,
    rules: &Rules,
    shard_count: u32,
) -> Result<Vec<StoredTopics>, String> {
    let metadata = data_path::load_metadata(&config.data_path).map_err(|finding| {
        format!(
            "failed to load metadata - {} ({})",
            finding.found, finding.advice
        )
    })?;
    recovery::take_over(config, &metadata)?;
    let permissions = data_path::permissions(&config.data_path);
    if permissions.state == State::Warning {
        log_warn!("{permissions}");
    }
    if let Err(error) = Metadata::remove_leftovers(&config.data_path) {
        log_warn!("a file of an interrupted write of nsqd.dat stays - {error}");
    }
    let stored = recovery::divide(config, metadata, shard_count)?;
    let topics = stored.iter().flat_map(|stored| stored.topics.keys());
    rule_memory::tell(rules, topics.map(String::as_str))?;
    Ok(stored)
}

/// Returns a function that tells every shard whether there is an nsqlookupd to ask.
fn has_peers_teller(post: &Post) -> impl Fn(bool) + Send + Sync + 'static {
    let post = post.clone();
    move |has_peers| {
        for shard in post.shards() {
            let call = Mail::Call(Box::new(move |shard| {
                shard.with_broker(|broker, _, _| broker.set_asks_for_channels(has_peers));
            }));
            post.send(shard, call);
        }
    }
}

impl DrainedShards for Post {
    fn set_draining(&self, is_draining: bool) {
        let call = move |shard: Rc<Shard>| async move {
            shard.with_broker(|broker, _, out| broker.set_draining(is_draining, out));
        };
        // A shard that has stopped takes no publishes.
        let _: Vec<()> = block_on(self.call_all(call));
    }

    fn owed(&self) -> Option<Owed> {
        let call = |shard: Rc<Shard>| async move {
            shard.with_broker(|broker, now, out| broker.drain(now, out))
        };
        let of_shards = block_on(self.call_all(call));
        let mut owed = Owed::default();
        let has_all = of_shards.len() == self.shards().count();
        of_shards.into_iter().for_each(|it| owed.add(it));
        has_all.then_some(owed)
    }
}

fn not_instantiated(why: String) -> String {
    format!("failed to instantiate nsqd - {why}")
}

fn no_thread(error: io::Error) -> String {
    program::thread_refused("a thread", &error)
}

/// Draws 64 bits from the system's randomness. The secrets of the keys of `--dedup` follow from them, so nobody may guess
/// them from what `/stats` says, such as the time of the start.
fn draw_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::draw_seed;

    /// The upper bits were those of the clock and the process id, and so the same for days.
    #[test]
    fn all_bits_of_a_seed_are_random() {
        let seeds: Vec<u64> = (0..64).map(|_| draw_seed()).collect();
        let (all, any) = seeds
            .iter()
            .fold((u64::MAX, 0), |(all, any), seed| (all & seed, any | seed));
        // A bit is the same in all seeds with a probability of 2^-63.
        assert_eq!((all, any), (0, u64::MAX));
    }
}
