//! The thread of a shard: from its start to its end.

use super::recovery::StoredTopics;
#[cfg(target_os = "linux")]
use super::scheduler_slice;
use super::{options, recovery};
use crate::config::{Config, Rules};
use crate::http_server;
use crate::net::address::{Addresses, ListenAddress};
use crate::net::listener::Listener;
use crate::reactor::{self, Engine};
use crate::shard::mail::Inbox;
use crate::shard::storage::Storage;
use crate::shard::{Shard, Shared, connection};
use core_affinity::CoreId;
use diskq::DataPath;
use engine_rules::ShardId;
use futures_channel::oneshot;
#[cfg(target_os = "linux")]
use program::log_debug;
use program::{log_fatal, log_warn};
use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use wire::go_error::system_text;

/// The values with which each shard starts, by copies.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) engine: Engine,
    pub(super) addresses: Addresses,
    pub(super) shard_count: u32,
    pub(super) seed: u64,
    pub(super) data_path: DataPath,
    pub(super) rules: Rules,
    pub(super) shared: Shared,
}

/// Everything that the thread of a shard starts with.
pub(super) struct ShardThread {
    pub(super) plan: Plan,
    pub(super) id: ShardId,
    pub(super) inbox: Inbox,
    pub(super) stored: StoredTopics,
    pub(super) storage: Storage,
}

impl ShardThread {
    /// Starts the thread, which serves until `stopped`. `started` is told how the start went.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn spawn(
        self,
        started: mpsc::Sender<Result<(), String>>,
        stopped: oneshot::Receiver<()>,
    ) -> io::Result<JoinHandle<()>> {
        let (id, engine) = (self.id, self.plan.engine);
        let core = core(&self.plan.shared.info.config, id);
        let name = format!("shard-{}", id.0);
        Builder::new().name(name).spawn(move || {
            if let Some(core) = core
                && !core_affinity::set_for_current(core)
            {
                log_warn!("shard {} cannot be pinned to core {}", id.0, core.id);
            }
            #[cfg(target_os = "linux")]
            if let Err(error) = scheduler_slice::request_short() {
                log_debug!("shard {} gets no short slices - {error}", id.0);
            }
            let result = reactor::run(engine, self.run(started.clone(), stopped));
            if let Err(error) = result {
                give_up(engine, id, &started, &error);
            }
        })
    }

    /// Starts the shard, reports how the start went, and serves until the shard is told to stop.
    async fn run(self, started: mpsc::Sender<Result<(), String>>, stopped: oneshot::Receiver<()>) {
        let config = &self.plan.shared.info.config;
        reactor::look_for(config.look);
        let (count, seed) = (self.plan.shard_count, self.plan.seed);
        let options = options::broker_options(config, self.plan.rules, self.id, count, seed);
        let (path, clock) = (&self.plan.data_path, self.plan.shared.clock);
        let broker = recovery::restore(options, path, clock, self.stored.topics);
        let shared = self.plan.shared;
        shared.lookup.announce(broker.changes_so_far());
        let shard = Shard::new(
            self.id,
            shared,
            broker,
            self.storage,
            self.stored.tombstones,
        );
        let open = |address: &ListenAddress| {
            Listener::open(address).map_err(|error| listen_failed(address, &error))
        };
        let addresses = &self.plan.addresses;
        let listeners = || {
            let tcp: Result<Vec<_>, String> = addresses.of_nsq_clients().map(open).collect();
            let http: Result<Vec<_>, String> = addresses.of_http_clients().map(open).collect();
            let https = addresses.https.as_ref().map(open).transpose();
            Ok((tcp?, http?, https?))
        };
        let (tcp, http, https) = match listeners() {
            Ok(listeners) => listeners,
            Err(error) => return report(&started, Err(error)),
        };
        shard.with_broker(|broker, now, out| broker.make_all_required(now, out));
        shard.start(self.inbox);
        // A failure was logged and is tried again. The logs count more than nsqd.dat anyway.
        shard.persist_metadata().await;
        let mut tasks = Vec::new();
        for tcp in tcp {
            tasks.push(reactor::spawn(connection::serve(shard.clone(), tcp)));
        }
        for http in http {
            tasks.push(reactor::spawn(http_server::serve(shard.clone(), http)));
        }
        tasks.extend(
            https.zip(shard.shared.tls.clone()).map(|(https, tls)| {
                reactor::spawn(http_server::serve_tls(shard.clone(), https, tls))
            }),
        );
        report(&started, Ok(()));
        // The sender is dropped only together with the daemon: both mean the end.
        let _ = stopped.await;
        for task in tasks {
            task.cancel().await;
        }
        shard.stop().await;
    }
}

/// The core to pin a shard to, of those this process may use; more shards than cores share them.
fn core(config: &Config, id: ShardId) -> Option<CoreId> {
    if !config.pin_shards {
        return None;
    }
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let index = (id.0 as usize).checked_rem(cores.len())?;
    Some(cores[index])
}

fn report(started: &mpsc::Sender<Result<(), String>>, result: Result<(), String>) {
    // The receiver is gone only when another shard has failed already.
    let _ = started.send(result);
}

/// Reports that the engine of a shard failed. During the start, this is an error like any other. Later, the process
/// ends: without the engine, half a broker would take connections and answer nobody. What was acknowledged is in the
/// files.
fn give_up(
    engine: Engine,
    id: ShardId,
    started: &mpsc::Sender<Result<(), String>>,
    error: &io::Error,
) {
    let text = engine_failed(engine, id, error);
    if started.send(Err(text.clone())).is_err() {
        log_fatal!("{text}");
        std::process::exit(1);
    }
}

/// The text for the operator. Problems that can be known before the start were checked before: see `preflight`.
fn engine_failed(engine: Engine, id: ShardId, error: &io::Error) -> String {
    let why = system_text(error);
    let advice = match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            "allow this process more memory (systemd: MemoryMax=; docker: --memory=)"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit on open files (ulimit -n)",
        _ => "look for the cause in the kernel's log (dmesg) and report it",
    };
    let (engine, shard) = (engine.name(), id.0);
    format!(
        "{engine} failed: {why} - shard {shard} can serve nobody any more, nsqd ends. What was acknowledged is \
         in its files: start it again. If this comes again, {advice}"
    )
}

fn listen_failed(address: &ListenAddress, error: &io::Error) -> String {
    let why = system_text(error);
    format!("failed to instantiate nsqd - listen ({address}) failed - {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_without_its_engine_says_what_failed_and_what_to_do() {
        let check = |code, advice: &str| {
            let error = io::Error::from_raw_os_error(code);
            let text = engine_failed(Engine::Epoll, ShardId(3), &error);
            let expected = format!("epoll failed: {} - shard 3 ", system_text(&error));
            assert!(text.starts_with(&expected), "{text}");
            assert!(
                text.contains("start it again") && text.contains(advice),
                "{text}"
            );
        };
        check(libc::EBADR, "dmesg");
        check(libc::ENOMEM, "MemoryMax");
        check(libc::ENFILE, "ulimit -n");
    }
}
