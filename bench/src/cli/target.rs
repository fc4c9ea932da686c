//! Flags that several subcommands share.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;

use super::stop_flag;
use crate::result::Outcome;
use crate::run::{Finished, Options, check_topics};
use crate::save::Files;
use crate::scenario::span::Span;
use crate::scenario::{Client, Patch, Scenario, Via};
use crate::target::{Target, resolve};

/// nsqd's default ports for TCP and for HTTP.
const DEFAULT_PORTS: (u16, u16) = (4150, 4151);

/// The addresses and the process of the daemon: flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Daemon")]
struct TargetArgs {
    /// The daemon's TCP address [127.0.0.1:4150]
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:4150",
        hide_default_value = true
    )]
    tcp_address: String,
    /// The daemon's HTTP address, or `none` [port 4151 of the same host, if the TCP port is 4150]
    #[arg(long, value_name = "HOST:PORT")]
    http_address: Option<String>,
    /// The daemon's process, for its CPU and memory [who listens at the TCP address, if local]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

impl TargetArgs {
    /// Connects to the daemon and asks what it is.
    /// Fails when an address is wrong or the daemon does not answer; in words for the user.
    fn inspect(&self) -> Result<Target, String> {
        let tcp = resolve(&self.tcp_address)?;
        let http = match self.http_address.as_deref() {
            Some("none") => None,
            Some(address) => Some(resolve(address)?),
            None if tcp.port() == DEFAULT_PORTS.0 => Some((tcp.ip(), DEFAULT_PORTS.1).into()),
            None => None,
        };
        Target::inspect(tcp, http, self.pid)
    }
}

/// The scenario, and the options of its run: flags.
#[derive(Debug, Args)]
pub(super) struct PlayArgs {
    /// A scenario file (TOML), such as bench/scenarios/publish.toml; flags change what it says
    #[arg(long, value_name = "FILE", help_heading = "Scenario")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    patch: Patch,
    #[command(flatten)]
    options: Options,
    /// Where to save the result (JSON) and HDR logs: a directory, or a file NAME.json
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub(super) out: Option<PathBuf>,
}

impl PlayArgs {
    /// Returns the scenario of file and flags.
    /// Fails when the file cannot be read or the parts do not fit together; in words for the user.
    pub(super) fn scenario(&self) -> Result<Scenario, String> {
        let file = self.scenario.as_ref().map(read_scenario).transpose()?;
        let file = file.unwrap_or_default();
        let is_stated = |state: fn(&Patch) -> bool| state(&file) || state(&self.patch);
        let from_file = file.clone().apply(Scenario::default());
        let mut scenario = self.patch.clone().apply(from_file);
        if scenario.client == Client::Blocking {
            if is_stated(|patch| patch.window.is_some() || patch.arrivals.is_some()) {
                return Err("a blocking client has one command under way, and sends the next at the answer: \
                            leave window and arrivals out"
                    .into());
            }
            if !is_stated(|patch| patch.via.is_some()) {
                scenario.via = Via::Pub;
            }
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// Returns the options of the flags. A run ends early when `stop` is set.
    /// Fails when a core does not exist or the interval is too short; in words for the user.
    pub(super) fn options(&self, stop: Arc<AtomicBool>) -> Result<Options, String> {
        let known = core_affinity::get_core_ids().unwrap_or_default();
        let is_known = |core: &usize| known.iter().any(|id| id.id == *core);
        let given = &self.options;
        if let Some(core) = given.cores.iter().find(|core| !is_known(core)) {
            return Err(format!("--cores {core}: this machine has no such core"));
        }
        if given.interval < Span::from_millis(50) {
            return Err(format!("--interval {}: at least 50ms", given.interval));
        }
        Ok(Options {
            stop,
            progress: true,
            ..given.clone()
        })
    }

    /// Writes the HDR logs of a run, if `--out` asks for them. `name` is that of the files in a directory.
    /// Fails when a file cannot be written; in words for the user.
    pub(super) fn save_logs(&self, name: &str, finished: &mut Finished) -> Result<(), String> {
        match &self.out {
            Some(path) => Files::at(path, name)?.logs(finished, ""),
            None => Ok(()),
        }
    }

    /// Writes the result, if `--out` asks for it, and says where.
    /// Fails when the file cannot be written; in words for the user.
    pub(super) fn save(&self, name: &str, unix_ms: u64, outcome: Outcome) -> Result<(), String> {
        if let Some(path) = &self.out {
            let files = Files::at(path, name)?;
            println!("saved      {}", files.result(unix_ms, outcome)?.display());
        }
        Ok(())
    }
}

/// The flags of a measurement of one daemon.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    pub(super) play: PlayArgs,
}

impl RunArgs {
    /// Connects to the daemon and checks that the scenario may use its topics.
    /// Fails when it may not, or as [`PlayArgs::options`] and [`TargetArgs::inspect`] do.
    pub(super) fn prepare(&self, scenario: &Scenario) -> Result<(Target, Options), String> {
        let options = self.play.options(stop_flag()?)?;
        let target = self.target.inspect()?;
        check_topics(&target, scenario, &options)?;
        Ok((target, options))
    }
}

/// Reads a scenario file.
fn read_scenario(path: &PathBuf) -> Result<Patch, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read the scenario {}: {error}", path.display()))?;
    Patch::from_toml(&text).map_err(|error| format!("the scenario {}: {error}", path.display()))
}
