//! Hosts on one machine: network namespaces that are joined by a bridge. They belong to the test's own namespaces (see
//! [`with_own_network`](crate::support::with_own_network)), so they end with it, whatever happens.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The bridge, with an address for the test's own clients and servers.
pub(crate) struct Network;

/// A host with one network interface.
pub(crate) struct Host {
    name: String,
    pub(crate) ip: Ipv4Addr,
}

impl Network {
    /// The address of the thread that makes the network.
    pub(crate) const OWN_IP: Ipv4Addr = Network::ip(1);

    /// Makes the bridge in the calling thread's namespace.
    pub(crate) fn new() -> Network {
        // The directory of the namespaces' names.
        run("mount -t tmpfs nsqd-test /run");
        run("ip link add name hosts type bridge");
        run(&format!("ip addr add {}/24 dev hosts", Network::OWN_IP));
        run("ip link set hosts up");
        Network
    }

    /// Adds a host. `number` is the last part of its address.
    pub(crate) fn host(&self, number: u8) -> Host {
        let name = format!("host{number}");
        let ip = Network::ip(number);
        run(&format!("ip netns add {name}"));
        run(&format!(
            "ip link add to-{name} type veth peer name eth0 netns {name}"
        ));
        run(&format!("ip link set to-{name} master hosts up"));
        run(&format!("ip -n {name} addr add {ip}/24 dev eth0"));
        run(&format!("ip -n {name} link set eth0 up"));
        run(&format!("ip -n {name} link set lo up"));
        Host { name, ip }
    }

    const fn ip(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, number)
    }
}

impl Host {
    /// Runs `work` on this host, on a thread of its own. Threads and processes that `work` starts are on this host, too.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        let on_host = || {
            let file = File::open(path).expect("the host was made");
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).expect("the test made the network");
            work()
        };
        let ended = thread::scope(|scope| scope.spawn(on_host).join());
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Pulls the plug: packets to and from the host are lost.
    pub(crate) fn cut(&self) {
        run(&format!("ip link set to-{} down", self.name));
    }

    /// Puts the plug back in.
    pub(crate) fn heal(&self) {
        run(&format!("ip link set to-{} up", self.name));
    }
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().expect("split gives one word at least");
    let output = Command::new(program).args(words).output();
    assert!(
        output.as_ref().is_ok_and(|output| output.status.success()),
        "{command}: {output:?}"
    );
}
