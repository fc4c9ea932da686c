//! `nsq-bench sink`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::{EXIT_FAILED, stop_flag};
use crate::header::HEADER_BYTES;
use crate::sink::{Faults, Mode, Sink, SinkOptions};
use crate::span::Span;
use crate::target::resolve;
use crate::upgrades::server_config;

/// The flags of `sink`.
#[derive(Debug, Args)]
pub(super) struct SinkArgs {
    /// Where to listen, for V2 and HTTP alike; port 0 leaves the choice to the system
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4150")]
    address: String,
    /// What becomes of published messages
    #[arg(long, value_enum, default_value = "null")]
    mode: Mode,
    /// Body size of the messages that `null` makes up, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 200,
          value_parser = parse_size)]
    size: usize,
    /// Core to run on [left to the system]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Stand still so long, so often: 200ms/1s
    #[arg(long, value_name = "TIME/TIME", value_parser = parse_stall)]
    stall: Option<(Span, Span)>,
    /// Acknowledge and drop one message in N: 1/N (mode echo)
    #[arg(long, value_name = "1/N", value_parser = parse_one_in)]
    drop: Option<u64>,
    /// Deliver one message in N twice: 1/N (mode echo)
    #[arg(long, value_name = "1/N", value_parser = parse_one_in)]
    duplicate: Option<u64>,
    /// Alter one byte of one message in N: 1/N (mode echo)
    #[arg(long, value_name = "1/N", value_parser = parse_one_in)]
    alter: Option<u64>,
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

fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if (HEADER_BYTES..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err(format!("a size in bytes, {HEADER_BYTES} to 1048576")),
    }
}

fn parse_stall(text: &str) -> Result<(Span, Span), String> {
    let (length, every) = text.split_once('/').ok_or("two times such as 200ms/1s")?;
    let (length, every): (Span, Span) = (length.parse()?, every.parse()?);
    if length.is_zero() || length >= every {
        return Err("the first time must be shorter than the second, and not zero".into());
    }
    Ok((length, every))
}

fn parse_one_in(text: &str) -> Result<u64, String> {
    let n = text.strip_prefix("1/").and_then(|n| n.parse().ok());
    n.filter(|n| *n > 0)
        .ok_or_else(|| "a share such as 1/10000".into())
}

/// Runs until a signal; says at the end what it did.
pub(super) fn main(args: &SinkArgs) -> Result<u8, String> {
    let faulty = args.drop.or(args.duplicate).or(args.alter).is_some();
    if faulty && args.mode == Mode::Null {
        return Err("--drop, --duplicate and --alter need --mode echo".into());
    }
    let stop = stop_flag()?;
    if let Some(id) = args.core {
        // The sink's thread inherits it.
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
    let address = resolve(&args.address)?;
    let options = SinkOptions {
        address,
        mode: args.mode,
        faults: Faults {
            stall: args.stall,
            drop_one_in: args.drop,
            duplicate_one_in: args.duplicate,
            alter_one_in: args.alter,
        },
        size: args.size,
    };
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => {
            let config = server_config(cert, key, args.tls_client_ca.as_deref());
            Some(config.map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let sink = Sink::start_with_tls(options, tls)
        .map_err(|error| format!("cannot listen at {address}: {error}"))?;
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
