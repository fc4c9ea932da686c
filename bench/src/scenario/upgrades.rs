//! [`Upgrades`]: TLS and compression of a run's connections. It knows what IDENTIFY asks for, checks that
//! the answer grants it, and makes the upgrades that follow.
//!
//! IDENTIFY asks for upgrades and its answer, still in the old encoding, grants them. Then comes TLS,
//! then compression, and the daemon says OK in the new encoding after each of them. A run ends if the
//! daemon grants something else than was asked for: [`Upgrades::check_granted`].

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use upgrade::pki_types::ServerName;
use upgrade::{
    ClientConfig, ClientTls, ClientTrust, ConfigError, ServerConfig, ServerTls, Upgrade,
    UpgradeError, authorities, client_config,
};

use crate::scenario::Scenario;

/// The upgrades of a run's connections.
#[derive(Clone, Debug, Default)]
pub struct Upgrades {
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    snappy: bool,
    /// The level of deflate, 1 to 9; zero is no deflate.
    deflate: u32,
}

/// The part of an IDENTIFY answer that grants upgrades.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Granted {
    tls_v1: bool,
    snappy: bool,
    deflate: bool,
    deflate_level: u32,
}

impl Upgrades {
    /// Makes the upgrades of a scenario. The daemon's certificate must be for the scenario's `tls_name`, or for
    /// `address` where there is no such name.
    /// Fails when a file cannot be used; in words for the user.
    pub fn new(scenario: &Scenario, address: SocketAddr) -> Result<Upgrades, String> {
        let tls = scenario.tls.then(|| tls(scenario, address));
        Ok(Upgrades {
            tls: tls.transpose()?,
            snappy: scenario.snappy,
            deflate: scenario.deflate,
        })
    }

    /// Tells whether connections stay plain: neither TLS nor compression.
    pub fn is_empty(&self) -> bool {
        self.tls.is_none() && !self.snappy && self.deflate == 0
    }

    /// Returns the JSON of an IDENTIFY, with the upgrades added that the run asks for.
    pub fn ask(&self, mut identify: serde_json::Value) -> Vec<u8> {
        if self.tls.is_some() {
            identify["tls_v1"] = true.into();
        }
        if self.snappy {
            identify["snappy"] = true.into();
        }
        if self.deflate > 0 {
            identify["deflate"] = true.into();
            identify["deflate_level"] = self.deflate.into();
        }
        identify.to_string().into_bytes()
    }

    /// Checks that the answer to an IDENTIFY grants what was asked for, and nothing else.
    /// Fails when it does not; in words for the user.
    pub fn check_granted(&self, answer: &[u8]) -> Result<(), String> {
        let granted: Granted = if answer == b"OK" {
            // The answer of a daemon that knows no feature negotiation.
            Granted::default()
        } else {
            serde_json::from_slice(answer)
                .map_err(|error| format!("its answer to IDENTIFY is not understood: {error}"))?
        };
        let tls = self.tls.is_some();
        let features = [
            ("TLS", tls, granted.tls_v1, "--tls-cert and --tls-key"),
            ("snappy", self.snappy, granted.snappy, "--snappy"),
            ("deflate", self.deflate > 0, granted.deflate, "--deflate"),
        ];
        for (name, asked, granted, flags) in features {
            if asked && !granted {
                return Err(format!(
                    "the daemon does not grant {name} (nsqd needs {flags}); nothing is measured \
                     without it"
                ));
            }
            if granted && !asked {
                return Err(format!("the daemon grants {name}, which was not asked for"));
            }
        }
        if self.deflate > 0 && granted.deflate_level != self.deflate {
            return Err(format!(
                "the daemon grants deflate level {}, not {}: give --deflate {0}, or the daemon \
                 --max-deflate-level",
                granted.deflate_level, self.deflate
            ));
        }
        Ok(())
    }

    /// Returns the upgrade to add when `done` upgrades are there; `None` when none is missing.
    /// Fails when the library refuses the configuration.
    pub fn upgrade(&self, done: usize) -> Result<Option<Upgrade>, UpgradeError> {
        if let (Some((config, name)), 0) = (&self.tls, done) {
            return Upgrade::tls_client(config, name.clone()).map(Some);
        }
        let is_missing = done == usize::from(self.tls.is_some());
        let deflate = (self.deflate > 0).then(|| Upgrade::deflate(self.deflate));
        let compression = self.snappy.then(Upgrade::snappy).or(deflate);
        Ok(compression.filter(|_| is_missing))
    }
}

/// The TLS configuration of the generator's connections, and the name the daemon must show.
fn tls(
    scenario: &Scenario,
    address: SocketAddr,
) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
    let roots = (!scenario.tls_insecure).then(|| authorities(&scenario.tls_ca));
    let roots = roots
        .transpose()
        .map_err(|error| format!("--tls-ca: {error}"))?;
    let cert_and_key = Some((&*scenario.tls_cert, &*scenario.tls_key));
    let cert_and_key = cert_and_key.filter(|(cert, _)| !cert.as_os_str().is_empty());
    let config = client_config(&ClientTls {
        authorities: roots,
        cert_and_key,
        only_tls13: false,
    })
    .map_err(|error| format!("--tls-cert: {error}"))?;
    let name = if scenario.tls_name.is_empty() {
        ServerName::IpAddress(address.ip().into())
    } else {
        ServerName::try_from(scenario.tls_name.clone())
            .map_err(|error| format!("--tls-name {}: {error}", scenario.tls_name))?
    };
    Ok((config, name))
}

/// The TLS configuration of the sink: its certificate, its key, and the authority of the certificates
/// that clients must show, if they must show any.
/// Fails when a file cannot be used.
pub fn server_config(
    cert: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, ConfigError> {
    let clients = match client_ca {
        None => ClientTrust::Everybody,
        Some(path) => ClientTrust::SignedBy(authorities(path)?),
    };
    upgrade::server_config(&ServerTls {
        cert,
        key,
        clients,
        only_tls13: false,
    })
}

#[cfg(test)]
mod tests;
