//! The addresses of a daemon, as `--check` finds them.

use std::cell::LazyCell;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use program::check::{Finding, State, in_use, local_address, program_of};
use program::http_client::{HttpClient, HttpSettings, HttpTls};
use program::inherited::InheritedSockets;
use program::{tcp_address, tcp_socket};
use socket2::Socket;
use wire::go_error::system_text;

/// The time for an answer of a daemon that runs on this machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Tries to listen at each address, and gives all back. `flags` are names and values, as [`InheritedSockets::assign`] takes
/// them. The first `needed_count` must have an address, and the others are switched off by an empty one. An address in use
/// waits for a daemon to be replaced if this `program` answers there.
pub fn check<const N: usize>(
    program: &str,
    flags: [(&'static str, &str); N],
    needed_count: usize,
    inherited: InheritedSockets,
) -> Vec<(&'static str, Finding)> {
    let sockets = match inherited.assign(flags) {
        Ok(sockets) => sockets,
        Err(why) => return vec![("sockets", Finding::failure(why, ""))],
    };
    // Two flags with one address find each other.
    let mut taken = Vec::new();
    let mut findings = Vec::new();
    for (index, ((name, address), socket)) in flags.into_iter().zip(sockets).enumerate() {
        let is_off = address.is_empty() && index >= needed_count;
        let finding = match socket {
            Some(socket) => match socket.check_tcp(program) {
                Ok(()) => Finding::ok(format!(
                    "{} is inherited",
                    tcp_address::text(&socket.address)
                )),
                Err(why) => Finding::failure(why, ""),
            },
            None if is_off => continue,
            None => try_address(program, address, &mut taken),
        };
        findings.push((name, address, finding));
    }
    // An answer may take its time, and a start may want the addresses meanwhile.
    drop(taken);
    let http = flags.iter().find(|(name, _)| *name == "http-address");
    let http = http.map_or("", |(_, address)| address);
    // Several addresses may be in use, and the daemon is asked once.
    let runs = LazyCell::new(|| runs_at(program, http));
    let judge = |(name, address, mut finding): (&'static str, &str, Finding)| {
        if finding.state == State::Waiting {
            // nsqlookupd alone has a TCP address here. The answer over HTTP also counts for an address with TLS.
            let is_own = match name {
                "tcp-address" => is_nsqlookupd_at(address),
                _ => *runs,
            };
            if is_own {
                finding = in_use(address, program);
            } else {
                finding.state = State::Failure;
            }
        }
        (name, finding)
    };
    findings.into_iter().map(judge).collect()
}

/// Tries to listen at an address. The finding about an address in use is waiting.
fn try_address(program: &str, address: &str, taken: &mut Vec<Socket>) -> Finding {
    let resolved = match tcp_address::resolve(address) {
        Ok(resolved) => resolved,
        Err(why) => return Finding::failure(why, ""),
    };
    match tcp_socket::listen(resolved, false) {
        Ok(socket) => {
            taken.push(socket);
            Finding::ok(format!("{address} is free"))
        }
        Err(error) => {
            let found = format!("{address} cannot be listened on: {}", system_text(&error));
            let advice = tcp_address::bind_hint(&error, program);
            if error.kind() == io::ErrorKind::AddrInUse {
                Finding::waiting(found, advice)
            } else {
                Finding::failure(found, advice)
            }
        }
    }
}

/// Returns whether this program of NSQ or ringq serves HTTP at an address to listen on.
fn runs_at(program: &str, address: &str) -> bool {
    let Some(address) = local_address(address) else {
        return false;
    };
    let client = HttpClient::new(HttpSettings {
        connect_timeout: ANSWER_TIMEOUT,
        request_timeout: ANSWER_TIMEOUT,
        idle_connections_max: 0,
        tls: HttpTls::System { only_tls13: false },
    });
    let ping = client.get(&format!("http://{address}/ping"));
    if !ping.is_ok_and(|answer| answer == b"OK") {
        return false;
    }
    match client.get(&format!("http://{address}/info")) {
        Err(_) => program == "nsqadmin",
        Ok(body) => program_of(&body) == Some(program),
    }
}

/// Returns whether an nsqlookupd serves nsqds at an address to listen on.
fn is_nsqlookupd_at(address: &str) -> bool {
    let ask = |address| -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(b"  V1PING\n")?;
        let mut answer = [0; 6];
        stream.read_exact(&mut answer)?;
        Ok(answer == *b"\0\0\0\x02OK")
    };
    local_address(address).is_some_and(|address| ask(address).unwrap_or(false))
}

#[cfg(test)]
mod tests;
