//! [`DeadPort`]: a port on which nobody listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port that refuses connections. Until a drop, the system gives it to nobody who asks for a free port. A program that
/// names the port can listen there.
#[derive(Debug)]
pub struct DeadPort {
    /// The address of the port.
    pub address: SocketAddr,
    /// It is bound, and does not listen.
    _socket: Socket,
}

impl DeadPort {
    /// Takes a free port of 127.0.0.1.
    pub fn bind() -> DeadPort {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        DeadPort::bind_to(any).expect("the system has a free port")
    }

    /// Takes the port of this address.
    ///
    /// # Errors
    /// Another socket has the port.
    pub fn bind_to(address: SocketAddr) -> io::Result<DeadPort> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?.as_socket();
        Ok(DeadPort {
            address: bound.expect("an address of IP"),
            _socket: socket,
        })
    }
}
