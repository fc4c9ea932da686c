//! `nsq-bench sink`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::{EXIT_FAILED, stop_flag};
use crate::scenario::upgrades::server_config;
use crate::sink::{Mode, Sink, SinkOptions};

/// The flags of `sink`.
#[derive(Debug, Args)]
pub(super) struct SinkArgs {
    #[command(flatten)]
    options: SinkOptions,
    /// Core to run on [left to the system]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Certificate (PEM) to grant TLS with [no TLS]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authority (PEM) of the certificates that clients must show for TLS [none asked for]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

/// Runs a sink until a signal, then prints its counts.
pub(super) fn main(args: &SinkArgs) -> Result<u8, String> {
    let faults = &args.options.faults;
    let faults = [
        faults.drop_one_in,
        faults.duplicate_one_in,
        faults.alter_one_in,
    ];
    if faults.iter().any(Option::is_some) && args.options.mode == Mode::Null {
        return Err("--drop, --duplicate and --alter need --mode echo".into());
    }
    let stop = stop_flag()?;
    if let Some(id) = args.core {
        // The sink's thread inherits the core of this thread.
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
    let files = args.tls_cert.as_ref().zip(args.tls_key.as_ref());
    let tls = files.map(|(cert, key)| server_config(cert, key, args.tls_client_ca.as_deref()));
    let tls = tls.transpose().map_err(|error| error.to_string())?;
    let sink = Sink::start(args.options, tls)
        .map_err(|error| format!("cannot listen at {}: {error}", args.options.address))?;
    println!("sink: listening on {}", sink.address);
    while !stop.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(50));
    }
    match sink.stop() {
        Ok(counts) => {
            println!(
                "sink: published {}, delivered {}, finished {}, dropped {}, duplicated {}, altered {}, \
                 stalls {}",
                counts.published,
                counts.delivered,
                counts.finished,
                counts.dropped,
                counts.duplicated,
                counts.altered,
                counts.stalls
            );
            Ok(0)
        }
        Err(error) => {
            eprintln!("nsq-bench: the sink ended: {error}");
            Ok(EXIT_FAILED)
        }
    }
}
