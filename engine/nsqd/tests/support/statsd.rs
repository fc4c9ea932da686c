//! A listener in the place of statsd.

use std::net::UdpSocket;

use super::TIMEOUT;

pub struct Statsd {
    socket: UdpSocket,
}

impl Statsd {
    pub fn listen() -> Statsd {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket
            .set_read_timeout(Some(TIMEOUT))
            .expect("longer than nothing");
        Statsd { socket }
    }

    /// Returns the flag that makes a broker push to this listener.
    pub fn flag(&self) -> String {
        let address = self.socket.local_addr().expect("bound");
        format!("--statsd-address={address}")
    }

    pub fn datagram(&self) -> String {
        let mut buffer = [0; 65_536];
        let bytes = self.socket.recv(&mut buffer).expect("a push");
        String::from_utf8(buffer[..bytes].to_vec()).expect("text")
    }

    /// Returns the datagrams of one push, up to its last line.
    pub fn push(&self) -> Vec<String> {
        let mut datagrams = Vec::new();
        loop {
            datagrams.push(self.datagram());
            if datagrams
                .last()
                .is_some_and(|last| last.contains("mem.gc_runs"))
            {
                return datagrams;
            }
        }
    }
}
