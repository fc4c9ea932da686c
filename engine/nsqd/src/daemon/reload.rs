//! SIGHUP: the configuration file and the certificates are read again. The values that can change while nsqd runs take
//! effect. For all others, the log says that they need a restart.

use super::Daemon;
use crate::config::Config;
use crate::http::{LOG_LEVEL, LOOKUPD_ADDRESSES};
use crate::tls;
use program::{Value, log, log_error, log_info, log_warn};

impl Daemon {
    /// Reads the configuration file and the certificates again. A file that cannot be used changes nothing.
    pub fn reload(&self) {
        log_info!("SIGHUP: reading the configuration file and the certificates again");
        self.reload_certificates();
        let Some(path) = self.config().options.config_path() else {
            return;
        };
        let read = self.config().reread().and_then(|mut config| {
            tls::check(&mut config)?;
            Ok(config)
        });
        match read {
            Ok(config) => self.apply(&config),
            Err(why) => log_error!("SIGHUP: {path} changes nothing - {why}"),
        }
    }

    /// Makes new connections use the files as they are now, at the paths with which nsqd has started.
    fn reload_certificates(&self) {
        let Some(tls) = &self.shared.tls else {
            return;
        };
        let path = &self.config().tls_cert;
        match tls::configure(&mut self.config().clone()) {
            Ok(Some(read)) => {
                tls.set(read);
                log_info!("SIGHUP: new connections get the certificate that is in {path} now");
            }
            Ok(None) => unreachable!("the flags name a certificate"),
            Err(why) => log_error!("SIGHUP: the certificates stay as they were - {why}"),
        }
    }

    fn apply(&self, config: &Config) {
        for ignored in config.options.ignored() {
            log_warn!("SIGHUP: {ignored}");
        }
        for key in config.options.overruled_keys() {
            log_warn!(
                "SIGHUP: {key} in the config file has no effect, because the command line has another value"
            );
        }
        // With the lower of the two levels, the line about the change is written in both directions.
        let level = config.log_level;
        let level_before = log::level();
        log::set_level(level.min(level_before));
        for (flag, key, new) in config.options.keys() {
            let now = match key.as_str() {
                LOG_LEVEL => Value::Level(level_before),
                LOOKUPD_ADDRESSES => self
                    .shared
                    .lookup
                    .addresses()
                    .map_or(Value::NoList, Value::List),
                _ => self.config().options.value(flag.name).clone(),
            };
            if new.means(&now) {
                continue;
            }
            let (now, new) = (now.json(), new.json());
            match key.as_str() {
                LOG_LEVEL => {
                    let (now, new) = (level_before.name(), level.name());
                    log_info!("SIGHUP: {key} took effect: {new}, before {now}");
                }
                LOOKUPD_ADDRESSES => {
                    let addresses = config.lookupd_tcp_addresses.clone();
                    self.shared.lookup.set_addresses(addresses);
                    log_info!("SIGHUP: {key} took effect: {new}, before {now}");
                }
                _ => log_warn!("SIGHUP: {key} needs a restart: {new}, until then {now}"),
            }
        }
        log::set_level(level);
    }
}
