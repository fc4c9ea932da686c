//! [`DeadPort`]: a port on which nobody listens.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 that refuses connections. Until a drop, the system gives it to nobody who asks for a free port.
/// A program that names the port can listen there.
pub struct DeadPort {
    pub address: SocketAddr,
    /// It is bound, and does not listen.
    _socket: Socket,
}

impl DeadPort {
    pub fn bind() -> DeadPort {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("the system has sockets");
        let shared = socket.set_reuse_address(true);
        shared.expect("a socket can share its address");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = socket.bind(&any.into());
        bound.expect("the system has a free port");
        let address = socket.local_addr().expect("it is bound");
        DeadPort {
            address: address.as_socket().expect("an address of IPv4"),
            _socket: socket,
        }
    }
}
