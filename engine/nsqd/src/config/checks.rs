//! The checks of the values themselves, in nsqd's order and words. They come after the lock of the data path. Some come
//! before the loading of TLS material, and some after it: nsqd fails in this order.

use program::http::HostNames;
use program::{go_value, tcp_address};

use super::{Config, NSQD, Rules};
use crate::reactor::Engine;

/// The bytes of an IDENTIFY of go-nsq and pynsq, about.
const IDENTIFY_BYTES: u64 = 512;

impl Config {
    /// nsqd's checks before TLS material is loaded.
    ///
    /// # Errors
    /// Why the program cannot start, for the FATAL line.
    pub fn check_before_tls(&self) -> Result<(), String> {
        self.options.check_bounds("max-deflate-level")?;
        let node_id = self.options.check_bounds("node-id");
        node_id.map_err(|_| "--node-id must be [0,1024)".to_string())
    }

    /// nsqd's checks after TLS material is loaded, then our own: values with which nsqd crashes
    /// later, or which are of no use. Returns the rules among the values.
    ///
    /// # Errors
    /// Why the program cannot start, for the FATAL line.
    pub fn check_after_tls(&self) -> Result<Rules, String> {
        if !matches!(self.auth_http_request_method.as_str(), "get" | "post") {
            return Err("--auth-http-request-method must be post or get".to_string());
        }
        if self.io != "auto" && Engine::named(&self.io).is_none() {
            let names = Engine::ALL.iter().map(|engine| engine.name());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(format!("--io must be auto, {names}"));
        }
        for percentile in &self.e2e_percentiles {
            if !(*percentile > 0.0 && *percentile <= 1.0) {
                let percentile = go_value::float_text(*percentile);
                return Err(format!(
                    "invalid E2E processing latency percentile: {percentile}"
                ));
            }
        }
        HostNames::check_flag(&self.allowed_hosts)?;
        let rules = Rules::of(self)?;
        for flag in NSQD.all_flags() {
            let is_used = flag.name != "statsd-interval" || !self.statsd_address.is_empty();
            if is_used {
                self.options.check_bounds(flag.name)?;
            }
        }
        Ok(rules)
    }

    /// Returns sentences about values that are allowed, and that have no effect or let no client do its work.
    #[must_use]
    pub fn useless(&self) -> Vec<String> {
        let values = [
            (
                self.msg_bytes_max,
                1,
                "--max-msg-size=0 lets no message pass: every publish is refused",
            ),
            (
                self.body_bytes_max,
                IDENTIFY_BYTES,
                "--max-body-size is too small for the IDENTIFY of client libraries, about 500 bytes: nearly all clients are \
                 refused",
            ),
            (
                self.rdy_count_max,
                1,
                "--max-rdy-count lets no RDY above 0 pass: no consumer gets a message",
            ),
        ];
        let useless = values.iter().filter(|(value, least, _)| value < least);
        let useless = useless.map(|(.., sentence)| (*sentence).to_owned());
        let cannot_look = Engine::named(&self.io).is_some_and(|engine| !engine.is_io_uring());
        let look = (cannot_look && self.options.is_given("look"))
            .then(|| format!("--look has no effect with --io={}", self.io));
        let useless = useless.chain(look);
        useless.chain(self.doubtful_addresses()).collect()
    }

    /// Returns sentences about addresses that are allowed, as in nsqd, and that probably nobody meant.
    fn doubtful_addresses(&self) -> Vec<String> {
        let mut doubtful = Vec::new();
        let broadcast = &self.broadcast_address;
        if broadcast.is_empty() {
            doubtful.push(
                "--broadcast-address is empty, so consumers that ask nsqlookupd do not find this nsqd: leave the flag out for \
                 the host name, or set the variable that it takes"
                    .to_owned(),
            );
        } else if tcp_address::has_variable(broadcast) {
            doubtful.push(format!(
                "--broadcast-address={broadcast}: a variable was not replaced, so consumers that ask nsqlookupd do not find \
                 this nsqd"
            ));
        } else if broadcast.contains([',', '/']) || has_port(broadcast) {
            doubtful.push(format!(
                "--broadcast-address={broadcast}: consumers take it for a host, so leave out the scheme, the port and others"
            ));
        }
        for address in self.lookupd_tcp_addresses.iter().flatten() {
            // The name of an SRV record has no port.
            let is_service = address.starts_with('_') && !address.contains(':');
            if let Some(fault) = tcp_address::fault(address).filter(|_| !is_service) {
                doubtful.push(format!(
                    "--lookupd-tcp-address={address}: {fault}; consumers that ask this nsqlookupd do not find this nsqd"
                ));
            }
        }
        for address in &self.auth_http_addresses {
            let is_url = address.contains("://") && !tcp_address::has_variable(address);
            if let Some(fault) = tcp_address::fault(address).filter(|_| !is_url) {
                doubtful.push(format!(
                    "--auth-http-address={address}: {fault}; without a port, 80 is asked"
                ));
            }
        }
        let statsd = &self.statsd_address;
        if let Some(fault) = tcp_address::fault(statsd).filter(|_| !statsd.is_empty()) {
            doubtful.push(format!(
                "--statsd-address={statsd}: {fault}, so nothing is pushed"
            ));
        }
        doubtful
    }
}

/// Returns true if a host has a port behind it. An IPv6 address without brackets has none.
fn has_port(host: &str) -> bool {
    tcp_address::split_host_port(host).is_some()
}
