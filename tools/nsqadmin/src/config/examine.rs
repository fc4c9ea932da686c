//! `nsqadmin --check`: what a start needs, and whether the nsqds and nsqlookupds answer.

use std::sync::Arc;
use std::time::Duration;

use program::check::{self, Finding, Report};
use program::http_client::{HttpClient, HttpSettings, HttpTls};
use serde_json::json;
use upgrade::ClientConfig;

use super::{Config, NSQADMIN};

impl Config {
    /// Checks the values of the flags, the addresses, and the servers that nsqadmin asks.
    pub fn examine(&self) -> Report {
        let checked = self.check();
        let tls = [("--https-address", self.tls.https_address.as_str())];
        let tls = self.tls.configure(&tls);
        let refused = checked.as_ref().err().or(tls.as_ref().err());
        let mut report = Report::new(NSQADMIN.name);
        let flags = check::flags(&self.options, refused.cloned(), &self.options.ignored());
        report.add("flags", flags);
        report.extend(check::addresses(
            NSQADMIN.name,
            &self.http_address,
            &[
                ("http-address", &self.http_address),
                ("https-address", &self.tls.https_address),
            ],
        ));
        if let Ok(checked) = checked {
            let client = self.client(checked.client_tls);
            let lookupds = judge(
                &client,
                "lookupd-http-address",
                &self.lookupd_http_addresses,
            );
            report.add("nsqlookupds", lookupds);
            report.add(
                "nsqds",
                judge(&client, "nsqd-http-address", &self.nsqd_http_addresses),
            );
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

/// Asks each server of `addresses` for a sign of life. `None`: there is none.
fn judge(client: &HttpClient, flag: &str, addresses: &[String]) -> Option<Finding> {
    let mut answering = Vec::new();
    let mut faults = Vec::new();
    for address in addresses {
        let scheme = if address.contains("://") {
            ""
        } else {
            "http://"
        };
        match client.get(&format!("{scheme}{address}/info")) {
            Ok(_) => answering.push(address),
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
