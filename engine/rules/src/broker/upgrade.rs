//! The upgrades that an IDENTIFY was granted: one upgrade after the other, and an OK through each.
//!
//! ```text
//!   JSON in the clear ──► Output::Upgrade(TLS) ──► upgraded: OK ──► Output::Upgrade(snappy) ──► ...
//! ```
//!
//! Nothing else is said meanwhile, and no command is read: a client takes the next frame for the OK.

use super::Broker;
use super::output::Output;
use crate::client::Blocked;
use crate::ids::ClientId;
use crate::now::Now;
use crate::tls::TlsSession;
use diskq_log::plant;
use std::time::Duration;
use wire::error::WireError;

/// The longest time that the peer may take for its part of an upgrade.
const UPGRADE_TIME_MAX: Duration = Duration::from_secs(5);

impl Broker {
    /// Begins the granted upgrades as soon as all earlier commands are answered.
    pub(super) fn start_upgrades(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        if client.session.next_upgrade().is_none() {
            return;
        }
        client.block(Blocked::Upgrading);
        plant!(UpgradeBeforeAnswers, return self.next_upgrade(id));
        if client.output.all_answered() {
            self.next_upgrade(id);
        }
    }

    /// Asks for the next upgrade; behind the last one, commands are read again.
    pub(super) fn next_upgrade(&mut self, id: ClientId) {
        let client = &self.clients[id];
        match client.session.next_upgrade() {
            Some(upgrade) => {
                let address = &client.address;
                let line = format!("PROTOCOL(V2): [{address}] upgrading connection to {upgrade}");
                self.out.push(Output::info(line));
                self.out.push(Output::Upgrade(id, upgrade));
            }
            None => self.resume(id, Blocked::Upgrading),
        }
    }

    /// Starts the deadline of the peer's part of the upgrade that was asked for.
    pub fn upgrade_begins(&mut self, now: Now, id: ClientId) {
        self.set_deadline(id, Some(now.mono + UPGRADE_TIME_MAX));
    }

    /// The upgrade that was asked for is there, and everything from now on passes it: first an OK. TLS
    /// comes with what it agreed on.
    ///
    /// # Panics
    /// If none was asked for.
    pub fn upgraded(
        &mut self,
        now: Now,
        id: ClientId,
        session: Option<TlsSession>,
        out: &mut Vec<Output>,
    ) {
        self.call(now, out, |broker| {
            let Some(client) = broker.clients.get_mut(id) else {
                return;
            };
            client.session.upgraded(session);
            client.heard(now.mono);
            client.reply(wire::encode::OK);
            broker.next_upgrade(id);
            broker.arm_deadline(id);
            broker.flush_later(id);
        })
    }

    /// The upgrade that was asked for cannot be had. The peer is told, in the encoding that the shell has
    /// gone back to, and the connection ends.
    pub fn upgrade_failed(&mut self, id: ClientId, cause: &str, out: &mut Vec<Output>) {
        self.collect(out, |broker| {
            if let Some(client) = broker.clients.get_mut(id) {
                client.session.drop_upgrades();
                client.unblock(Blocked::Upgrading);
                broker.fail(id, WireError::identify_failed(cause));
            }
        })
    }
}
