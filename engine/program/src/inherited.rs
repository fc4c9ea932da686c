//! [`InheritedSockets`]: sockets that a supervisor listens on, as systemd does with socket activation. They outlive the
//! daemon. While the daemon restarts, clients wait in the backlog of the socket, and none is refused.
//!
//! ```text
//!   descriptors 3, 4, ...   LISTEN_FDS=<their number>  LISTEN_PID=<the process that they are for>
//!                           LISTEN_FDNAMES=<name>:<name>...
//! ```

use std::env;
use std::net::SocketAddr;

use listenfd::ListenFd;
use socket2::{SockAddr, Socket};
use wire::go_error::system_text;

use crate::{log_warn, tcp_address};

/// The sockets that the process began with.
pub struct InheritedSockets {
    descriptors: ListenFd,
    /// LISTEN_FDNAMES.
    names: String,
    /// The warning about descriptors that are not used.
    unused: Option<String>,
}

/// A stream socket that listens, and never blocks.
#[derive(Debug)]
pub struct InheritedSocket {
    name: String,
    /// The address that the socket is bound to.
    pub address: SockAddr,
    /// The socket.
    pub socket: Socket,
}

impl InheritedSockets {
    /// Returns no sockets.
    pub fn none() -> InheritedSockets {
        InheritedSockets {
            descriptors: ListenFd::empty(),
            names: String::new(),
            unused: None,
        }
    }

    /// Returns the sockets that the environment tells of, and removes them from the environment. A `main` calls this once,
    /// before it starts threads: a second call would find other files under these descriptors.
    pub fn from_env() -> InheritedSockets {
        let unused = match (env::var("LISTEN_FDS"), env::var("LISTEN_PID")) {
            (Ok(count), Ok(process)) => unused(&count, &process),
            _ => None,
        };
        InheritedSockets {
            names: env::var("LISTEN_FDNAMES").unwrap_or_default(),
            unused,
            descriptors: ListenFd::from_env(),
        }
    }

    /// Returns the socket for each flag, if there is one. The flags are pairs of name and value; an empty value switches a
    /// flag off.
    ///
    /// The name of a socket is that of its flag without `-address` or `-socket`. A socket with such a name takes the place
    /// of the flag's address. A socket with another name belongs to the flag that has the socket's address.
    ///
    /// # Errors
    /// Why a socket cannot be used, and what to do, for the FATAL line. A socket that nobody accepts from would leave its
    /// clients without an answer.
    pub fn assign<const N: usize>(
        mut self,
        flags: [(&str, &str); N],
    ) -> Result<[Option<InheritedSocket>; N], String> {
        if let Some(why) = self.unused {
            log_warn!("the sockets of LISTEN_FDS are not used: {why}");
        }
        let mut names = self.names.split(':');
        let sockets = (0..self.descriptors.len()).map(|index| {
            let name = names.next().unwrap_or_default();
            take(&mut self.descriptors, index, name)
        });
        assign(sockets.collect::<Result<_, _>>()?, flags)
    }
}

impl InheritedSocket {
    /// Refuses a unix socket, for the programs that listen on IP addresses only.
    ///
    /// # Errors
    /// The reason, for the FATAL line.
    pub fn check_tcp(&self, program: &str) -> Result<(), String> {
        if !self.address.is_unix() {
            return Ok(());
        }
        let address = tcp_address::text(&self.address);
        Err(format!(
            "listen ({address}) failed - {program} has no unix sockets - systemd: ListenStream=<host>:<port>"
        ))
    }
}

/// Returns why the sockets of LISTEN_FDS are not used, if they are not. The arguments are LISTEN_FDS and LISTEN_PID.
fn unused(count: &str, process: &str) -> Option<String> {
    match count.parse::<u32>() {
        Ok(0) => None,
        Ok(_) if process == std::process::id().to_string() => None,
        Ok(_) => Some(format!(
            "they are for process {process}, not for this one - start this program without a shell in between, or with exec"
        )),
        Err(_) => Some(format!("{count:?} is no number - remove the variable")),
    }
}

/// Takes a descriptor, which must be a stream socket that listens.
fn take(descriptors: &mut ListenFd, index: usize, name: &str) -> Result<InheritedSocket, String> {
    let tcp = descriptors
        .take_tcp_listener(index)
        .map(|it| it.map(Socket::from));
    let any = tcp.or_else(|_| {
        let unix = descriptors.take_unix_listener(index);
        unix.map(|it| it.map(Socket::from))
    });
    let listening = any
        .ok()
        .flatten()
        .filter(|socket| socket.is_listener().unwrap_or(false));
    let number = index + 3;
    let socket = listening.ok_or_else(|| {
        format!(
            "descriptor {number} of LISTEN_FDS ({name}) is no stream socket that listens - systemd: use ListenStream=, \
             without Accept=yes"
        )
    })?;
    let address = socket
        .set_nonblocking(true)
        .and_then(|()| socket.local_addr());
    let address = address.map_err(|error| {
        let why = system_text(&error);
        format!("descriptor {number} of LISTEN_FDS ({name}) cannot be used - {why}")
    })?;
    Ok(InheritedSocket {
        name: name.to_owned(),
        address,
        socket,
    })
}

fn assign<const N: usize>(
    sockets: Vec<InheritedSocket>,
    flags: [(&str, &str); N],
) -> Result<[Option<InheritedSocket>; N], String> {
    let names = flags.map(|(flag, _)| socket_name(flag));
    let mut assigned = [const { None }; N];
    for inherited in sockets {
        let InheritedSocket { name, address, .. } = &inherited;
        let place = match names.iter().position(|known| known == name) {
            Some(place) => Some(place).filter(|place| !flags[*place].1.is_empty()),
            None => flags.iter().position(|(_, value)| is_at(address, value)),
        };
        match place.filter(|place| assigned[*place].is_none()) {
            Some(place) => {
                let (flag, value) = flags[place];
                if !is_at(address, value) {
                    let at = tcp_address::text(address);
                    log_warn!(
                        "the socket {name} of LISTEN_FDS listens at {at}, and --{flag}={value} has no effect"
                    );
                }
                assigned[place] = Some(inherited);
            }
            None => {
                return Err(format!(
                    "the socket {} of LISTEN_FDS ({name}) belongs to no flag that is set, or its flag has another socket \
                     - set a flag to its address, or name it {} (systemd: FileDescriptorName=)",
                    tcp_address::text(address),
                    names.join(" or ")
                ));
            }
        }
    }
    Ok(assigned)
}

/// Returns the name of the socket that takes the place of a flag's address.
fn socket_name(flag: &str) -> &str {
    let name = flag.strip_suffix("-address");
    name.or_else(|| flag.strip_suffix("-socket"))
        .unwrap_or(flag)
}

/// Returns true if a socket has the address that is the value of a flag.
fn is_at(address: &SockAddr, value: &str) -> bool {
    let Some(ip) = address.as_socket() else {
        return tcp_address::text(address) == value;
    };
    // The wildcards of both families are one address for a flag.
    let is_same = |flag: SocketAddr| {
        let are_wildcards = flag.ip().is_unspecified() && ip.ip().is_unspecified();
        flag == ip || are_wildcards && flag.port() == ip.port()
    };
    tcp_address::resolve(value).is_ok_and(is_same)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn inherited(name: &str, socket: impl Into<Socket>) -> InheritedSocket {
        let socket = socket.into();
        InheritedSocket {
            name: name.to_owned(),
            address: socket.local_addr().expect("the socket is bound"),
            socket,
        }
    }

    fn tcp(address: &str) -> (TcpListener, String) {
        let listener = TcpListener::bind(address).expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        (listener, address)
    }

    #[test]
    fn sockets_belong_to_flags_by_name_and_then_by_address() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("n.sock");
        let path = path.to_str().expect("the path is text");
        let check =
            |tcp_flag: &str, sockets: Vec<InheritedSocket>, expected: &[Option<usize>; 3]| {
                let addresses: Vec<_> = sockets
                    .iter()
                    .map(|it| tcp_address::text(&it.address))
                    .collect();
                let flags = [
                    ("tcp-address", tcp_flag),
                    ("https-address", ""),
                    ("http-unix-socket", path),
                ];
                let assigned = assign(sockets, flags).expect("each has its flag");
                let found = assigned.map(|it| {
                    let address = tcp_address::text(&it?.address);
                    addresses.iter().position(|known| *known == address)
                });
                assert_eq!(found, *expected);
            };
        let (any, at) = tcp("127.0.0.1:0");
        let unix = UnixListener::bind(path).expect("nothing is there");
        let both = vec![inherited("", unix), inherited("nsqd.socket", any)];
        check(&at, both, &[Some(1), None, Some(0)]);
        // A name counts more than an address.
        let (any, at) = tcp("127.0.0.1:0");
        check(
            &at,
            vec![inherited("http-unix", any)],
            &[None, None, Some(0)],
        );
        let (any, _) = tcp("127.0.0.1:0");
        check(
            "127.0.0.1:1",
            vec![inherited("tcp", any)],
            &[Some(0), None, None],
        );
        let (any, at) = tcp("0.0.0.0:0");
        check(&at, vec![inherited("", any)], &[Some(0), None, None]);
        let (any, at) = tcp("127.0.0.1:0");
        let wildcard = at.replace("127.0.0.1", "");
        let sockets = vec![inherited("", any)];
        let error = assign(sockets, [("tcp-address", &wildcard)]).expect_err("another address");
        assert_eq!(
            error,
            format!(
                "the socket {at} of LISTEN_FDS () belongs to no flag that is set, or its flag has another socket - set a \
                 flag to its address, or name it tcp (systemd: FileDescriptorName=)"
            )
        );
    }

    /// The warning about a count that is no number named the process itself.
    #[test]
    fn sockets_that_are_not_used_have_their_reason() {
        let own = std::process::id().to_string();
        assert_eq!(unused("2", &own), None);
        assert_eq!(unused("0", "1"), None);
        let check = |count: &str, process: &str, why: &str| {
            let text = unused(count, process).expect("not used");
            assert!(text.starts_with(why), "{text}");
        };
        check("2", "1", "they are for process 1, not for this one - ");
        check("two", &own, "\"two\" is no number - ");
    }

    #[test]
    fn a_socket_without_a_flag_of_its_own_is_refused() {
        let refuse = |names: [&str; 2], https: &str| {
            let sockets = names.map(|name| inherited(name, tcp("127.0.0.1:0").0));
            let flags = [("tcp-address", "127.0.0.1:1"), ("https-address", https)];
            let error = assign(sockets.into(), flags).expect_err("one is too many");
            assert!(error.contains("belongs to no flag"), "{error}");
        };
        refuse(["tcp", "tcp"], "");
        refuse(["tcp", "https"], "");
        refuse(["tcp", "web"], "127.0.0.1:2");
    }
}
