//! [`Info`]: the facts about this process that other programs see: flags, ports, and values that follow from them. They
//! do not change while the process runs.

use crate::config::Config;
use program::http::HostNames;
use std::sync::Arc;
use std::time::SystemTime;

/// The values that do not change while the process runs.
#[derive(Clone, Debug)]
pub struct Info {
    /// The configuration.
    pub config: Arc<Config>,
    /// The ports that are listened on.
    pub ports: Ports,
    /// The ports announced to nsqlookupd: those asked for, or those listened on; 0 for a unix
    /// socket, which has none.
    pub announced: Ports,
    /// `--statsd-prefix` with this node's name in it: `nsq.vm_4151.`
    pub statsd_prefix: String,
    /// The names under which HTTP clients reach this node. `None`: any name.
    pub host_names: Option<Arc<HostNames>>,
    /// The time at which the process started.
    pub start_time: SystemTime,
}

/// The ports of a broker: those that are listened on, or, in [`Info::announced`], those that nsqlookupd is told.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// The port of the client protocol; -1: a unix socket.
    pub tcp: i32,
    /// The port of HTTP; 0: none, -1: a unix socket.
    pub http: i32,
    /// The port of HTTPS; 0: none, -1: a unix socket.
    pub https: i32,
}

impl Info {
    /// Puts together the configuration and what the start has found out.
    pub fn new(config: Arc<Config>, ports: Ports, start_time: SystemTime) -> Info {
        let announced = |asked: u16, listened: i32| match asked {
            0 => listened.max(0),
            asked => i32::from(asked),
        };
        let announced = Ports {
            tcp: announced(config.broadcast_tcp_port, ports.tcp),
            http: announced(config.broadcast_http_port, ports.http),
            https: ports.https,
        };
        let host_names = (!config.allowed_hosts.is_empty()).then(|| {
            let mut others = config.allowed_hosts.clone();
            others.push(config.broadcast_address.clone());
            Arc::new(HostNames::new(config.options.hostname(), others))
        });
        Info {
            host_names,
            statsd_prefix: statsd_prefix(
                &config.statsd_prefix,
                &config.broadcast_address,
                announced.http,
            ),
            config,
            ports,
            announced,
            start_time,
        }
    }
}

/// Returns the prefix of statsd's keys: `%s` becomes the host's key, and a dot ends the prefix. `http_port` is the
/// announced one.
fn statsd_prefix(option: &str, broadcast_address: &str, http_port: i32) -> String {
    let host = if broadcast_address.contains(':') {
        format!("[{broadcast_address}]:{http_port}")
    } else {
        format!("{broadcast_address}:{http_port}")
    };
    let mut prefix = option.replace("%s", &host.replace(['.', ':'], "_"));
    if !prefix.is_empty() && !prefix.ends_with('.') {
        prefix.push('.');
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_nsqds() {
        assert_eq!(statsd_prefix("nsq.%s", "vm", 24151), "nsq.vm_24151.");
        assert_eq!(
            statsd_prefix("%s.%s.", "node.example.com", 1),
            "node_example_com_1.node_example_com_1."
        );
        assert_eq!(statsd_prefix("nsq.%s", "::1", 4151), "nsq.[__1]_4151.");
        assert_eq!(statsd_prefix("foo", "vm", 1), "foo.");
        assert_eq!(statsd_prefix("", "vm", 1), "");
        assert_eq!(statsd_prefix("50%.%d", "vm", 1), "50%.%d.");
    }
}
