//! Flags that several subcommands share.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;

use crate::run::Options;
use crate::scenario::{Patch, Scenario};
use crate::span::Span;
use crate::target::{Target, resolve};

/// nsqd's port for HTTP where nothing else is said, beside the one for TCP.
const DEFAULT_PORTS: (u16, u16) = (4150, 4151);

/// Where the daemon is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Daemon")]
pub(super) struct TargetArgs {
    /// The daemon's TCP address [127.0.0.1:4150]
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:4150",
        hide_default_value = true
    )]
    tcp_address: String,
    /// The daemon's HTTP address, or `none`; for /stats, /pub, making and deleting topics
    /// [port 4151 of the same host, if the TCP port is 4150]
    #[arg(long, value_name = "HOST:PORT")]
    http_address: Option<String>,
    /// The daemon's process, for its CPU and memory [who listens at the TCP address, if local]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

impl TargetArgs {
    /// Looks at the daemon.
    pub(super) fn inspect(&self) -> Result<Target, String> {
        let tcp = resolve(&self.tcp_address)?;
        let http = match self.http_address.as_deref() {
            Some("none") => None,
            Some(address) => Some(resolve(address)?),
            None => {
                (tcp.port() == DEFAULT_PORTS.0).then(|| SocketAddr::new(tcp.ip(), DEFAULT_PORTS.1))
            }
        };
        Target::inspect(tcp, http, self.pid)
    }
}

/// The scenario, and how it is played.
#[derive(Debug, Args)]
pub(super) struct PlayArgs {
    /// A scenario file (TOML), such as bench/scenarios/publish.toml; flags change what it says
    #[arg(long, value_name = "FILE", help_heading = "Scenario")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    patch: Patch,
    /// Generator threads
    #[arg(long, value_name = "COUNT", default_value_t = 1, help_heading = "Generator",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Cores to pin the threads to, in turn, such as 0,2 [left to the system]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Generator"
    )]
    cores: Vec<usize>,
    /// Length of an interval of the time series
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        help_heading = "Output"
    )]
    interval: Span,
    /// Topic name; with several topics their prefix [made up, and deleted at the end]
    #[arg(long, value_name = "NAME", help_heading = "Topics and connections")]
    topic: Option<String>,
    /// Leave made-up topics in the daemon
    #[arg(long, help_heading = "Topics and connections")]
    keep_topics: bool,
    /// Where to save the result (JSON) and HDR logs: a directory, or a file NAME.json
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub(super) out: Option<PathBuf>,
}

impl PlayArgs {
    /// The scenario of file and flags.
    pub(super) fn scenario(&self) -> Result<Scenario, String> {
        let mut scenario = Scenario::default();
        if let Some(path) = &self.scenario {
            scenario = read_scenario(path)?.apply(scenario);
        }
        let scenario = self.patch.clone().apply(scenario);
        scenario.check()?;
        Ok(scenario)
    }

    /// The options of the flags.
    pub(super) fn options(&self, stop: Arc<AtomicBool>) -> Result<Options, String> {
        let known = core_affinity::get_core_ids().unwrap_or_default();
        let is_known = |core: &usize| known.iter().any(|id| id.id == *core);
        if let Some(core) = self.cores.iter().find(|core| !is_known(core)) {
            return Err(format!("--cores {core}: this machine has no such core"));
        }
        if self.interval < Span::from_millis(50) {
            return Err(format!("--interval {}: at least 50ms", self.interval));
        }
        Ok(Options {
            threads: usize::from(self.threads),
            cores: self.cores.clone(),
            topic: self.topic.clone(),
            keep_topics: self.keep_topics,
            interval: self.interval,
            stop,
            progress: true,
        })
    }
}

/// Reads a scenario file.
fn read_scenario(path: &PathBuf) -> Result<Patch, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read the scenario {}: {error}", path.display()))?;
    Patch::from_toml(&text).map_err(|error| format!("the scenario {}: {error}", path.display()))
}
