//! TLS as the operator chose it: from flags to a configuration, and from what a session agreed on to
//! nsqd's words.

use crate::config::{Config, Rules, TlsRequired, TlsVersion};
use engine_rules::TlsSession;
use parking_lot::Mutex;
use program::http_client::{HttpSettings, HttpTls};
use program::tls::{TlsFlags, error_text};
use std::path::Path;
use std::sync::Arc;
use upgrade::{
    ClientConfig, ClientTls, ConfigError, ServerConfig, Session, authorities, client_config,
};

/// The TLS of the broker's listeners. New connections use the configuration that was set last.
#[derive(Clone)]
pub(crate) struct ListenerTls(Arc<Mutex<Arc<ServerConfig>>>);

impl ListenerTls {
    pub(crate) fn new(config: Arc<ServerConfig>) -> ListenerTls {
        ListenerTls(Arc::new(Mutex::new(config)))
    }

    /// Returns the configuration for a new connection.
    pub(crate) fn get(&self) -> Arc<ServerConfig> {
        self.0.lock().clone()
    }

    /// Replaces the configuration. Connections that exist keep theirs.
    pub(crate) fn set(&self, config: Arc<ServerConfig>) {
        *self.0.lock() = config;
    }
}

/// Checks the flags about TLS, in nsqd's order, and reads the files they name. `None`: there is no
/// certificate, and so no TLS.
///
/// # Errors
/// Why the broker cannot start with these flags.
pub(crate) fn configure(config: &mut Config) -> Result<Option<Arc<ServerConfig>>, String> {
    if !config.tls_client_auth_policy.is_empty() && config.tls_required == TlsRequired::No {
        config.tls_required = TlsRequired::Yes;
    }
    let failed =
        |error: ConfigError| format!("failed to build TLS config - {}", error_text(&error));
    let tls = if config.has_certificate() {
        Some(server(config).map_err(failed)?)
    } else {
        None
    };
    if tls.is_none() && config.tls_required != TlsRequired::No {
        return Err("cannot require TLS client connections without TLS key and cert".to_owned());
    }
    if tls.is_none() && !config.tls_root_ca_file.is_empty() {
        authorities(Path::new(&config.tls_root_ca_file)).map_err(|error| {
            format!("failed to build client TLS config - {}", error_text(&error))
        })?;
    }
    Ok(tls)
}

fn server(config: &Config) -> Result<Arc<ServerConfig>, ConfigError> {
    let flags = TlsFlags {
        cert: &config.tls_cert,
        key: &config.tls_key,
        client_auth_policy: &config.tls_client_auth_policy,
        root_ca_file: &config.tls_root_ca_file,
        only_tls13: config.tls_min_version == TlsVersion::V13,
    };
    flags.server_config()
}

/// Returns what the flags say about requests to nsqlookupd and to auth servers. No connection is kept.
///
/// # Errors
/// The file of certificate authorities cannot be used.
pub(crate) fn http_settings(config: &Config) -> Result<HttpSettings, String> {
    let only_tls13 = config.tls_min_version == TlsVersion::V13;
    let tls = match config.tls_root_ca_file.as_str() {
        "" => HttpTls::System { only_tls13 },
        path => {
            let client = client(config, path, false);
            let failed =
                |error: ConfigError| format!("--tls-root-ca-file {path} - {}", error_text(&error));
            HttpTls::Config(client.map_err(failed)?)
        }
    };
    Ok(HttpSettings {
        connect_timeout: config.http_connect_timeout,
        request_timeout: config.http_request_timeout,
        idle_connections_max: 0,
        tls,
    })
}

/// Returns the settings of questions to the nsqd that this one replaces, whose certificates it has. Its answer may be slow.
///
/// # Errors
/// The files cannot be used.
pub(crate) fn http_settings_of_check(config: &Config) -> Result<HttpSettings, String> {
    let mut settings = http_settings(config)?;
    if let (path, true) = (&config.tls_root_ca_file, config.has_certificate())
        && !path.is_empty()
    {
        let tls = client(config, path, true).map_err(|error| error_text(&error))?;
        settings.tls = HttpTls::Config(tls);
    }
    Ok(settings)
}

/// Returns the TLS towards servers that the authorities of a file have signed. `shows_certificate`: the node shows its own.
fn client(
    config: &Config,
    authorities_file: &str,
    shows_certificate: bool,
) -> Result<Arc<ClientConfig>, ConfigError> {
    let own = (Path::new(&config.tls_cert), Path::new(&config.tls_key));
    client_config(&ClientTls {
        authorities: Some(authorities(Path::new(authorities_file))?),
        cert_and_key: shows_certificate.then_some(own),
        only_tls13: config.tls_min_version == TlsVersion::V13,
    })
}

/// The settings of connections to nsqlookupds.
pub(crate) struct LookupSettings {
    /// The questions over HTTP.
    pub(crate) http: HttpSettings,
    /// The TLS of the connections that register; `None` stands for none.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// Returns the TLS of connections to nsqlookupds and the settings of questions to them. Without a file of authorities
/// for nsqlookupds, there is no TLS, and the settings are `http`. With it, the node trusts these authorities only, and
/// shows its own certificate, if it has one.
///
/// # Errors
/// A file cannot be used.
pub(crate) fn lookup_settings(
    config: &Config,
    http: HttpSettings,
) -> Result<LookupSettings, String> {
    let path = &config.lookupd_tls_root_ca_file;
    if path.is_empty() {
        return Ok(LookupSettings { http, tls: None });
    }
    let client = client(config, path, config.has_certificate());
    let tls = client.map_err(|error| {
        let why = error_text(&error);
        format!("failed to build TLS config for nsqlookupd - {why}")
    })?;
    Ok(LookupSettings {
        http: HttpSettings {
            tls: HttpTls::Config(tls.clone()),
            ..http
        },
        tls: Some(tls),
    })
}

/// The settings that follow from the flags and from the files that they name.
pub(crate) struct Checked {
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) rules: Rules,
    pub(crate) http: HttpSettings,
    pub(crate) lookup: LookupSettings,
}

/// Checks the values of all flags and the files that they name, in nsqd's order.
///
/// # Errors
/// Why a start fails.
pub(crate) fn check(config: &mut Config) -> Result<Checked, String> {
    config.check_before_tls()?;
    let tls = configure(config)?;
    let rules = config.check_after_tls()?;
    let http = http_settings(config)?;
    let lookup = lookup_settings(config, http.clone())?;
    Ok(Checked {
        tls,
        rules,
        http,
        lookup,
    })
}

/// Describes a session as /stats shows it. nsqd has names for old cipher suites only.
pub(crate) fn describe(session: Session) -> TlsSession {
    let version = match session.version {
        0x0303 => "TLS1.2".to_owned(),
        0x0304 => "TLS1.3".to_owned(),
        other => format!("Unknown {other}"),
    };
    let cipher_suite = match session.cipher_suite {
        0xc02b => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned(),
        0xc02f => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(),
        other => format!("Unknown {other}"),
    };
    TlsSession {
        version,
        cipher_suite,
        common_name: session.common_name,
    }
}
