//! `nsqadmin --check`: what a start needs, and whether the nsqds and nsqlookupds answer.

use std::sync::Arc;
use std::time::Duration;

use program::check::{self, Finding, Report};
use program::http_client::{HttpClient, HttpSettings, HttpTls};
use program::inherited::InheritedSockets;
use serde_json::json;
use tokio_daemon::addresses;
use upgrade::ClientConfig;

use crate::audit::check_audit_file;
use crate::collector::check_history_file;
use crate::config::{Config, NSQADMIN};

impl Config {
    /// Checks the values of the flags, the addresses, and the servers that nsqadmin asks.
    pub fn examine(&self, inherited: InheritedSockets) -> Report {
        let checked = self.check();
        let tls = [("--https-address", self.tls.https_address.as_str())];
        let tls = self.tls.configure(&tls);
        let refused = checked.as_ref().err().or(tls.as_ref().err());
        let mut report = Report::new(NSQADMIN.name);
        let flags = check::flags(&self.options, refused.cloned(), &self.options.ignored());
        report.add("flags", flags);
        let flags = self.addresses();
        report.extend(addresses::check(NSQADMIN.name, flags, 1, inherited));
        let file = &self.audit_log_file;
        report.add("audit-log-file", writable(file, check_audit_file(file)));
        if self.collection().is_some() {
            let file = &self.live.file;
            report.add("history-file", writable(file, check_history_file(file)));
        }
        if let Ok(checked) = checked {
            let client = self.client(checked.client_tls);
            let (lookupds, nsqds) = (&self.lookupd_http_addresses, &self.nsqd_http_addresses);
            report.add(
                "nsqlookupds",
                judge(&client, "nsqlookupd", "lookupd-http-address", lookupds),
            );
            report.add("nsqds", judge(&client, "nsqd", "nsqd-http-address", nsqds));
        }
        report
    }

    fn client(&self, tls: ClientConfig) -> HttpClient {
        HttpClient::new(HttpSettings {
            connect_timeout: self.client.connect_timeout.unwrap_or(Duration::ZERO),
            request_timeout: self.client.request_timeout.unwrap_or(Duration::ZERO),
            idle_connections_max: 0,
            tls: HttpTls::Config(Arc::new(tls)),
        })
    }
}

/// Returns the finding about a file that a start opens. `None`: there is none.
fn writable(path: &str, checked: Result<(), String>) -> Option<Finding> {
    let finding = match checked {
        Ok(()) => Finding::ok(format!("{path} can be written")),
        Err(why) => Finding::failure(
            why,
            "give the directory to the user of nsqadmin, or choose another path",
        ),
    };
    (!path.is_empty()).then_some(finding)
}

/// Asks each server of `addresses` whether it is this program. `None`: there is none.
fn judge(client: &HttpClient, program: &str, flag: &str, addresses: &[String]) -> Option<Finding> {
    let mut answering = Vec::new();
    let mut faults = Vec::new();
    for address in addresses {
        let scheme = if address.contains("://") {
            ""
        } else {
            "http://"
        };
        match client.get(&format!("{scheme}{address}/info")) {
            Ok(info) if check::program_of(&info) == Some(program) => answering.push(address),
            Ok(_) => faults.push(format!("{address} answers, but is no {program}")),
            Err(why) => faults.push(why),
        }
    }
    let data = json!({ "answering": answering, "faults": faults });
    let found = format!("{} of {} answer", answering.len(), addresses.len());
    let finding = if faults.is_empty() {
        Finding::ok(found)
    } else {
        Finding::warning(found, format!("start them, or correct --{flag}"))
    };
    (!addresses.is_empty()).then(|| finding.with(faults, data))
}
