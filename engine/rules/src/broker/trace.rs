//! The log lines of every command, which operators switch on to find a client's mistake.

use super::Broker;
use super::output::{Level, Output};
use super::receive::Next;
use crate::ids::ClientId;

impl Broker {
    /// Switches a log line for every command on or off.
    pub fn set_tracing(&mut self, is_tracing: bool) {
        self.is_tracing = is_tracing;
    }

    /// Logs the command at the start of `input`, and the state of a consumer after the command. The line of the command
    /// goes in front of the outputs from `line_at` on, which the command has caused. A command that is offered again
    /// later is logged then.
    #[cold]
    pub(super) fn trace(&mut self, id: ClientId, input: &[u8], next: Next, line_at: usize) {
        if matches!(next, Next::Later) {
            return;
        }
        let client = &self.clients[id];
        let address = &client.address;
        let mut lines = input.split(|&byte| byte == b'\n');
        let line = lines.next().unwrap_or_default();
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        let line = format!("PROTOCOL(V2): [{address}] [{line}]");
        self.out.insert(line_at, Output::Log(Level::Debug, line));
        if matches!(next, Next::Carried(_)) && client.consumer.subscription.is_some() {
            let (ready, in_flight) = (client.consumer.ready_count, client.consumer.in_flight);
            let line = format!("[{address}] state rdy: {ready:4} inflt: {in_flight:4}");
            self.out.push(Output::Log(Level::Debug, line));
        }
    }
}
