//! Our nsqlookupd, which runs inside the test.

#![allow(unreachable_pub)]

use nsqlookupd::config::Config;
use nsqlookupd::server::Server;
use program::inherited::InheritedSockets;
use program::log::{self, Level};
use tokio::runtime::Runtime;

/// A running nsqlookupd.
pub struct Lookupd {
    runtime: Runtime,
    pub server: Server,
}

impl Lookupd {
    /// Starts an nsqlookupd on two addresses.
    pub fn start(tcp: &str, http: &str, further: &[String]) -> Lookupd {
        // Without a log thread, each line would go to the output of the test.
        log::set_level(Level::Fatal);
        let args = [
            format!("--tcp-address={tcp}"),
            format!("--http-address={http}"),
            "--broadcast-address=127.0.0.1".to_owned(),
        ];
        let args = args.iter().chain(further).map(Into::into);
        let config = Config::from_args(args).expect("the flags are good");
        let runtime = Runtime::new().expect("the system has threads");
        let server = runtime.block_on(Server::start(&config, InheritedSockets::none()));
        Lookupd {
            runtime,
            server: server.expect("the addresses are free"),
        }
    }

    /// Starts an nsqlookupd on free ports of this machine.
    pub fn local(further: &[String]) -> Lookupd {
        Lookupd::start("127.0.0.1:0", "127.0.0.1:0", further)
    }

    /// Returns the flag of an nsqd that registers here.
    pub fn flag(&self) -> String {
        format!("--lookupd-tcp-address={}", self.server.tcp_address())
    }

    /// Ends the nsqlookupd as a kill does: all sockets are closed, and nothing else is done.
    pub fn kill(self) {
        drop(self.runtime);
    }

    /// Ends the nsqlookupd and starts another on the same addresses, which knows nothing.
    pub fn restart(self) -> Lookupd {
        let tcp = self.server.tcp_address().to_string();
        let http = self.server.http_address().to_string();
        self.runtime.block_on(self.server.stop());
        drop(self.runtime);
        Lookupd::start(&tcp, &http, &[])
    }
}
