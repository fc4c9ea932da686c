//! The checks before anything starts, and `nsqd --check`, which says whether this machine is ready for a start with these
//! flags, and what to do where it is not.
//!
//! ```text
//!                    a start                                     nsqd --check
//!   flags            are accepted                                and what each means compared with NSQ
//!   limits.rs        raises the limit on open files              cores, memory mappings
//!   engine.rs        one engine per shard reports one wake-up    and its price
//!   data_path.rs     locked, writable, closed to others; nsqd.dat can be read
//!   addresses.rs     reserved until the shards listen on them    free, and no two the same
//!   lookup.rs                                                    each nsqlookupd answers
//!   nsqd-check                                                   the disk, the takeover, the nsqd to be replaced
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer; the judgements are tested with the answers of
//! systems that we do not have. A [`Finding`] says what happened and what to do about it, to a reader who has never heard of
//! io_uring. A start logs it, and `nsqd --check` reports it.
//!
//! `nsqd --check` makes no directory and leaves no file. It holds the lock of the data path for an instant, and the addresses
//! that are free until all have been tried. A start in the instant of the lock fails; for an address, a start tries again
//! for a second. What the nsqd that runs here uses already is no failure: a start succeeds once that nsqd has stopped.

use nsqd_check::old_node::OldNode;
use nsqd_check::{disk, file_system, takeover};
use program::check::{self, Report, State};
use program::http_client::HttpClient;
use program::inherited::InheritedSockets;
use program::tcp_socket::BIND_TIMEOUT;

use crate::config::Config;
use crate::net::address::Addresses;
use crate::reactor::Engine;
use crate::{lookup, tls};

mod addresses;
pub(crate) mod data_path;
mod engine;
mod limits;

use addresses::{Place, Reserved, TriedPlace, places};
#[cfg(test)]
pub(crate) use engine::is_usable;
pub use engine::{is_kernel_too_old, prepare_system};
pub use program::check::Finding;

/// The result of the preparations for a start.
#[derive(Debug)]
pub(crate) struct StartPlan {
    /// The engine with which the shards wait for their sockets.
    pub(crate) engine: Engine,
    /// The addresses to listen at, with each port decided. Without a certificate there is none for HTTPS.
    pub(crate) addresses: Addresses,
    /// Keeps other processes from these addresses until the shards listen.
    pub(crate) reserved: Vec<Reserved>,
}

/// Prepares the system and the addresses for a start, in the order in which nsqd would fail.
pub(crate) fn prepare(config: &Config, inherited: InheritedSockets) -> Result<StartPlan, Finding> {
    let engine = prepare_system(&config.io, config.shard_count)?;
    let [tcp, http, https, unix, http_unix] = places(config, inherited)?;
    let mut reserved = Vec::new();
    let mut take = |place: Place<'_>| {
        if place.is_off() {
            return Ok(None);
        }
        let place = place.reserve(config.unix_socket_mode.0, BIND_TIMEOUT)?;
        let found = place.address.clone();
        reserved.push(place);
        Ok(Some(found))
    };
    let addresses = Addresses {
        tcp: take(tcp)?.expect("this flag switches nothing off"),
        http: take(http)?,
        https: take(https)?,
        unix: take(unix)?,
        http_unix: take(http_unix)?,
    };
    Ok(StartPlan {
        engine,
        addresses,
        reserved,
    })
}

/// Makes all checks. Blocks: some seconds on a slow disk, beside a backlog of the original nsqd, or if an nsqlookupd does not
/// answer.
pub fn examine(mut config: Config, inherited: InheritedSockets) -> Report {
    let refused = tls::check(&mut config).err();
    let has_good_flags = refused.is_none();
    let mut report = Report::new("nsqd");
    let mut doubts = config.options.ignored();
    doubts.extend(config.useless());
    report.add("flags", check::flags(&config.options, refused, &doubts));
    report.add("cores", limits::cores(config.shard_count));
    report.add("open-files", limits::open_files(config.shard_count));
    report.add("mappings", limits::mappings());
    // Without good flags nobody knows which engine is asked for, and for how many shards.
    if has_good_flags {
        report.add("io", engine::check(&config));
    }
    let path = &config.data_path;
    let data_path = data_path::check(path);
    let is_locked = data_path.state == State::Waiting;
    report.add("data-path", data_path);
    let mut places = addresses::check(&config, inherited);
    let local = local_node(&config, is_locked, &places);
    let node = old_node(&config, local.as_ref());
    let runs_here = is_locked || local.is_some();
    let has_port = |port| match &node {
        Some(node) => node.as_ref().is_ok_and(|node| node.has_port(port)),
        // Without HTTP, an nsqd cannot be asked.
        None => check::local_address(&config.http_address).is_none(),
    };
    for place in &mut places {
        place.judge_in_use(runs_here, has_port);
    }
    if local.is_some() && !is_locked && matches!(node, Some(Ok(_))) {
        report.add("other-nsqd", other_data_path(&config));
    }
    let is_writable = diskq::check_writable(path).is_ok();
    if path.is_dir() {
        report.add("file-system", file_system::check(path));
        report.add("free-space", disk::space(path));
    }
    if is_writable {
        report.add("permissions", data_path::permissions(path));
        report.add("nsqd.dat", data_path::metadata(path));
        let takeover = takeover::check(path, config.msg_bytes_max, is_locked);
        report.add("takeover", takeover);
        let syncs = disk::Syncs {
            before_each_ok: config.sync_every == 1,
            timeout: config.sync_timeout,
        };
        let (segments, syncs) = disk::trial(path, syncs);
        report.add("segments", segments);
        report.add("sync-speed", syncs);
    }
    report.extend(places.into_iter().map(|place| (place.flag, place.finding)));
    if has_good_flags {
        report.add("nsqlookupds", nsqlookupds(&config));
    }
    match node {
        Some(Ok(node)) => report.extend(node.judge(disk::free_bytes(path))),
        Some(Err(finding)) => report.add("running-nsqd", finding),
        None => {}
    }
    report
}

/// An nsqd answers at the HTTP address, and has another data path.
fn other_data_path(config: &Config) -> Finding {
    Finding::warning(
        format!(
            "an nsqd runs at {} with another data path: a start here takes over nothing of its messages",
            config.http_address
        ),
        "name the --data-path of that nsqd, unless it is meant to keep its messages",
    )
}

/// The nsqlookupds that this node would register at.
fn nsqlookupds(config: &Config) -> Option<Finding> {
    let addresses = config.lookupd_tcp_addresses.as_deref()?;
    let settings = tls::http_settings(config).and_then(|http| tls::lookup_settings(config, http));
    match settings {
        Ok(settings) => lookup::check(addresses, &settings),
        Err(why) => Some(Finding::failure(why, "")),
    }
}

/// Returns the HTTP address of the nsqd that runs here, if one does. A connection to a socket that systemd holds starts an
/// nsqd, so nothing is asked unless an nsqd has locked the data path, or --like names the address.
fn local_node(config: &Config, is_locked: bool, places: &[TriedPlace<'_>]) -> Option<String> {
    let is_taken = |place: &TriedPlace<'_>| {
        place.flag == "http-address" && place.finding.state == State::Waiting
    };
    let address = check::local_address(&config.http_address)?.to_string();
    let like = config.like.trim_start_matches("http://");
    let like = like.trim_end_matches('/');
    let is_named = like == address || like == config.http_address;
    (places.iter().any(is_taken) && (is_locked || is_named)).then_some(address)
}

/// Asks the nsqd that is to be replaced: that of `--like`, or else the one at the address `local`.
fn old_node(config: &Config, local: Option<&String>) -> Option<Result<OldNode, Finding>> {
    let named = Some(&config.like).filter(|like| !like.is_empty());
    let address = named.or(local)?;
    let settings = tls::http_settings_of_check(config).map_err(|why| Finding::warning(why, ""));
    Some(settings.and_then(|settings| OldNode::ask(&HttpClient::new(settings), address)))
}
