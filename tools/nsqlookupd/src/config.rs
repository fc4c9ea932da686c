//! The declaration of nsqlookupd's flags.

use std::ffi::OsString;
use std::sync::Arc;

use program::check::{self, Check, Report};
use program::flag;
use program::http::{HostNames, HttpTimeouts};
use program::inherited::InheritedSockets;
use program::log::Level;
use program::tcp_address::has_variable;
use program::{Exit, Options, Program, version};
use tokio_daemon::addresses;
use tokio_daemon::tls::ListenerTls;
use tokio_rustls::rustls::ServerConfig;

use crate::database::Lifetimes;

program::flags! {
    /// The values of nsqlookupd's flags.
    #[derive(Clone, Debug)]
    pub struct Config {
        options: Options;
        = flag::VERSION;
        = flag::CONFIG;
        log_level: Level = flag::LOG_LEVEL;
        = flag::log_prefix("[nsqlookupd] ");
        = flag::VERBOSE;
        tcp_address: String = flag::new("tcp-address", "0.0.0.0:4160", "<addr>:<port> to listen on for TCP clients, which are nsqds");
        http_address: String = flag::new("http-address", "0.0.0.0:4161", "<addr>:<port> to listen on for HTTP clients");
        broadcast_address: String = flag::new("broadcast-address", "", "address of this nsqlookupd that is told to nsqds; by default the host name")
            .of_host(flag::hostname_itself);
        lifetimes: Lifetimes;
    }
    own {
        = flag::LOG_FORMAT;
        check: Check = check::FLAG;
        tls_tcp_address: String = flag::new("tls-tcp-address", "", "<addr>:<port> to listen on for TCP clients with TLS; empty for none");
        tls: ListenerTls;
        http_timeouts: HttpTimeouts;
        allowed_hosts: Vec<String> = flag::ALLOWED_HOST;
    }
}

/// nsqlookupd, as its command line shows it.
pub static NSQLOOKUPD: Program = Program::of::<Config>("nsqlookupd", version::of_daemon);

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQLOOKUPD.options(args, &program::hostname())?;
        options.read().map_err(|why| NSQLOOKUPD.fatal(&why))
    }

    /// Checks what a start needs: the values of the flags, and the addresses.
    pub fn examine(&self, inherited: InheritedSockets) -> Report {
        let refused = HostNames::check_flag(&self.allowed_hosts);
        let refused = refused.and_then(|()| self.listener_tls().map(drop)).err();
        let mut report = Report::new(NSQLOOKUPD.name);
        let flags = check::flags(&self.options, refused, &self.ignored());
        report.add("flags", flags);
        let flags = self.addresses();
        report.extend(addresses::check(NSQLOOKUPD.name, flags, 2, inherited));
        report
    }

    /// Returns the flags of the addresses to listen on, and their values. An empty text switches off the last two.
    pub(crate) fn addresses(&self) -> [(&'static str, &str); 4] {
        [
            ("tcp-address", &self.tcp_address),
            ("http-address", &self.http_address),
            ("tls-tcp-address", &self.tls_tcp_address),
            ("https-address", &self.tls.https_address),
        ]
    }

    /// Returns the TLS of the listeners that have TLS.
    ///
    /// # Errors
    /// The reason for the FATAL line.
    pub(crate) fn listener_tls(&self) -> Result<Option<Arc<ServerConfig>>, String> {
        self.tls.configure(&[
            ("--tls-tcp-address", &self.tls_tcp_address),
            ("--https-address", &self.tls.https_address),
        ])
    }

    /// Returns sentences about the parts of the command line and the configuration file that count for nothing.
    pub fn ignored(&self) -> Vec<String> {
        let mut ignored = self.options.ignored();
        let broadcast_address = &self.broadcast_address;
        if has_variable(broadcast_address) {
            ignored.push(format!(
                "--broadcast-address={broadcast_address}: a variable was not replaced, so no nsqd finds this nsqlookupd for \
                 questions"
            ));
        }
        ignored
    }
}

#[cfg(test)]
mod tests;
