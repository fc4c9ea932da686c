//! The checks of the values at the start, in the original's order, and the values that they lead to.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::thread;

use ipnet::IpNet;
use program::go_value::{PARSE_ERROR, parse_int};
use program::http::HostNames;
use program::log_warn;
use program::tcp_address::{fault, split_host_port};
use program::tls::error_text;
use upgrade::{
    ClientConfig, ClientTls, ConfigError, RootCertStore, authorities, client_config,
    system_authorities,
};
use url::Url;

use crate::access::parse_range;

use super::{ClientFlags, Config, UrlMap, not_parsed};

/// The values that the checks of a [`Config`] lead to.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The TLS of requests to nsqds, nsqlookupds, graphite and the endpoint of notifications.
    pub client_tls: ClientConfig,
    /// Clients of `/config`. `None` allows everybody.
    pub config_clients: Option<IpNet>,
    /// Proxies whose header counts. An empty list has no proxy.
    pub trusted_proxies: Vec<IpNet>,
    /// Where to reach nsqds whose broadcast address cannot be reached.
    pub url_map: UrlMap,
}

impl Config {
    /// Checks the values, and reads the files that they name.
    ///
    /// # Errors
    /// The reason why nsqadmin cannot start, for the FATAL line.
    pub fn check(&self) -> Result<Checked, String> {
        self.check_addresses_are_given()?;
        let client_tls = client_tls(&self.client)?;
        resolve_any("lookupd-http-address", &self.lookupd_http_addresses)?;
        resolve_any("nsqd-http-address", &self.nsqd_http_addresses)?;
        if self.graphite.is_proxied {
            check_graphite_url(&self.graphite.url)?;
        }
        let config_clients = match self.allow_config_from_cidr.as_str() {
            "" => None,
            text => Some(range("allow-config-from-cidr", text)?),
        };
        let proxies = self.trusted_proxy_cidrs.iter();
        let proxies = proxies.flat_map(|texts| texts.split(','));
        let trusted_proxies = proxies.map(|text| range("trusted-proxy-cidr", text));
        for origin in &self.allowed_origins {
            check_origin(origin)?;
        }
        HostNames::check_flag(&self.allowed_hosts)?;
        for name in &self.admin_users {
            check_admin(name)?;
        }
        check_notification_endpoint(&self.notification_http_endpoint)?;
        for name in [
            "max-nodes",
            "max-answer-size",
            "live-interval",
            "history-max-bytes",
            "http-read-timeout",
            "http-write-timeout",
        ] {
            self.options.check_bounds(name)?;
        }
        self.check_history_has_room()?;
        Ok(Checked {
            client_tls,
            config_clients,
            trusted_proxies: trusted_proxies.collect::<Result<_, _>>()?,
            url_map: UrlMap::parse(&self.nsqd_url_map)?,
        })
    }

    /// Refuses a file for a past that has no room: the first save would replace the past that the file has.
    fn check_history_has_room(&self) -> Result<(), String> {
        let file = &self.live.file;
        if self.collection().is_none() || self.live.history_bytes_max > 0 || file.is_empty() {
            return Ok(());
        }
        Err(format!(
            "--history-max-bytes=0 keeps no past, and --history-file ({file}) would be saved without one: leave one of the two \
             out"
        ))
    }

    fn check_addresses_are_given(&self) -> Result<(), String> {
        let lookupds = &self.lookupd_http_addresses;
        let why = match (lookupds.is_empty(), self.nsqd_http_addresses.is_empty()) {
            (true, true) => "--nsqd-http-address or --lookupd-http-address required",
            (false, false) => "use --nsqd-http-address or --lookupd-http-address not both",
            _ => return Ok(()),
        };
        Err(why.to_owned())
    }
}

/// Returns the base path with a slash in front and none behind, except for the root.
pub(super) fn base_path(given: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in given.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// Returns the TLS of the requests that nsqadmin makes.
fn client_tls(flags: &ClientFlags) -> Result<ClientConfig, String> {
    let (cert, key) = (&*flags.cert, &*flags.key);
    let alone = |given, missing| format!("--{missing} must be specified with --{given}");
    let cert_and_key = match (cert, key) {
        ("", "") => None,
        (_, "") => return Err(alone("http-client-tls-cert", "http-client-tls-key")),
        ("", _) => return Err(alone("http-client-tls-key", "http-client-tls-cert")),
        _ => Some((Path::new(cert), Path::new(key))),
    };
    let with = |authorities| {
        let tls = ClientTls {
            authorities,
            cert_and_key,
            only_tls13: false,
        };
        client_config(&tls).map_err(|error| {
            let why = error_text(&error);
            format!("failed to LoadX509KeyPair {cert}, {key} - {why}")
        })
    };
    let unverified = with(None)?;
    let roots = match flags.root_ca_file.as_str() {
        // A system without authorities can still ask over plain HTTP.
        "" => system_authorities().unwrap_or_else(|error| {
            log_warn!("HTTPS to nsqd and nsqlookupd fails - {error}");
            RootCertStore::empty()
        }),
        path => authorities(Path::new(path)).map_err(|error| match &error {
            ConfigError::Open(..) => {
                let why = error_text(&error);
                format!("failed to read TLS root CA file {path} - {why}")
            }
            _ => format!("failed to AppendCertsFromPEM {path}"),
        })?,
    };
    let config = if flags.skips_verification {
        unverified
    } else {
        with(Some(roots))?
    };
    Ok((*config).clone())
}

/// Checks that each address has a host and a port, and that one of the hosts resolves. The others may be those of machines that
/// are not ready: their names are resolved again for each request.
fn resolve_any(flag: &str, addresses: &[String]) -> Result<(), String> {
    let failed = |address, why| format!("failed to resolve --{flag} ({address}) - {why}");
    let mut places = Vec::new();
    for address in addresses {
        places.push(parts(address).map_err(|why| failed(address, why))?);
    }
    // All at once: a name server that does not answer takes ten seconds for each name.
    let resolved: Vec<Result<(), String>> = thread::scope(|scope| {
        let ask = |(host, port): &(&str, u16)| resolve(host, *port);
        let asking: Vec<_> = places
            .iter()
            .map(|place| {
                let thread = thread::Builder::new().spawn_scoped(scope, move || ask(place));
                // The system has no thread left.
                thread.map_err(|_| ask(place))
            })
            .collect();
        let answers = asking.into_iter().map(|asked| match asked {
            Ok(thread) => thread.join().expect("resolving does not panic"),
            Err(answer) => answer,
        });
        answers.collect()
    });
    let unresolved: Vec<String> = addresses
        .iter()
        .zip(resolved)
        .filter_map(|(address, answer)| answer.err().map(|why| failed(address, why)))
        .collect();
    if let Some(first) = unresolved
        .first()
        .filter(|_| unresolved.len() == addresses.len())
    {
        return Err(first.clone());
    }
    for why in unresolved {
        log_warn!("{why}; nsqadmin starts with the others, and asks for this name again");
    }
    Ok(())
}

/// Returns the host and the port of an address. The error is Go's text, or says more.
fn parts(address: &str) -> Result<(&str, u16), String> {
    let Some((host, port)) = split_host_port(address) else {
        let why = match fault(address).filter(|_| address.contains([',', '/'])) {
            Some(fault) => fault,
            None if address.contains(':') && !address.ends_with(']') => {
                "too many colons in address"
            }
            None => "missing port in address",
        };
        return Err(format!("address {address}: {why}"));
    };
    match port.parse::<u64>().map(u16::try_from) {
        Ok(Ok(port)) => Ok((host, port)),
        Ok(Err(_)) => Err(format!("address {port}: invalid port")),
        Err(_) => Err(format!("lookup tcp/{port}: unknown port")),
    }
}

/// Resolves a host. The error is Go's text.
fn resolve(host: &str, port: u16) -> Result<(), String> {
    if host.is_empty() || host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    match (host, port).to_socket_addrs() {
        Ok(found) if found.len() > 0 => Ok(()),
        Ok(_) => Err(format!("lookup {host}: no such host")),
        Err(error) => {
            let why = error.to_string();
            let why = why.rsplit(": ").next().unwrap_or_default();
            Err(format!("lookup {host}: {why}"))
        }
    }
}

/// Refuses a text that is no integer, and says more than Go does.
pub(super) fn whole_bytes(text: &str) -> Result<(), String> {
    match parse_int(text) {
        Err(PARSE_ERROR) => Err(format!(
            "{PARSE_ERROR}: this is no whole number of bytes, such as 268435456 for 256 MiB"
        )),
        _ => Ok(()),
    }
}

fn check_graphite_url(text: &str) -> Result<(), String> {
    let why = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Ok(()),
        Ok(_) => "--proxy-graphite needs a URL that begins with http:// or https://".to_owned(),
        Err(url::ParseError::InvalidIpv6Address) => "missing ']' in host".to_owned(),
        Err(error) => error.to_string(),
    };
    let why = format!("parse {text:?}: {why}");
    Err(not_parsed("graphite-url", text, why))
}

/// Checks the endpoint of notifications. An empty text is none.
fn check_notification_endpoint(text: &str) -> Result<(), String> {
    let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let why = match Url::parse(text) {
        _ if text.is_empty() => return Ok(()),
        Ok(url) if is_http(&url) => return Ok(()),
        Ok(_) => "the URL must begin with http:// or https://".to_owned(),
        Err(error) => format!("{error}; the URL must begin with http:// or https://"),
    };
    Err(not_parsed("notification-http-endpoint", text, why))
}

/// Checks the name of an admin. An empty name, as of a variable that is not set, must not decide silently who may act.
fn check_admin(name: &str) -> Result<(), String> {
    let why = match name.trim() {
        "" => {
            "an empty name is no user. Is a variable not set, or is there a comma too many? Without --admin-user, \
             everybody may act"
        }
        trimmed if trimmed != name => {
            "a name with a space before or behind it is no user: HTTP removes such spaces from headers"
        }
        _ => return Ok(()),
    };
    Err(not_parsed("admin-user", name, why))
}

fn check_origin(origin: &str) -> Result<(), String> {
    let parsed = Url::parse(origin).ok().map(|url| url.origin());
    if parsed.is_some_and(|parsed| parsed.ascii_serialization() == origin) {
        return Ok(());
    }
    let why = "an origin is scheme://host or scheme://host:port, in lower case, without a path and without the \
               scheme's own port";
    Err(not_parsed("allowed-origin", origin, why))
}

fn range(flag: &str, text: &str) -> Result<IpNet, String> {
    parse_range(text).map_err(|why| not_parsed(flag, text, why))
}
