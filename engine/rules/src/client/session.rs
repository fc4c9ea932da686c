//! [`Session`]: what a connection has said of itself, and what was agreed on.

use crate::auth::Auth;
use crate::auth::TlsSession;
use std::collections::VecDeque;
use wire::decode::{ClientState, Decoder, MAGIC_V2};
use wire::identify::{ClientSettings, GrantedUpgrade, IdentifyRequest};

/// The state of a connection's protocol: magic, IDENTIFY, upgrades, AUTH, and the unfinished command.
#[derive(Debug)]
pub(crate) struct Session {
    /// False until the magic was read.
    pub(crate) magic_seen: bool,
    pub(crate) decoder: Decoder,
    pub(crate) state: ClientState,
    /// The settings of the latest IDENTIFY. The settings of the first IDENTIFY are in
    /// [`Consumer::settings`](super::consumer::Consumer::settings).
    pub(crate) settings: ClientSettings,
    is_identified: bool,
    pub(crate) client_id: String,
    pub(crate) hostname: String,
    pub(crate) user_agent: String,
    pub(crate) topology_region: String,
    pub(crate) topology_zone: String,
    upgrades_left: VecDeque<GrantedUpgrade>,
    /// The TLS session. `None` without TLS.
    pub(crate) tls: Option<Box<TlsSession>>,
    pub(crate) compression: Option<GrantedUpgrade>,
    /// The client's grants. `None` before AUTH.
    pub(crate) auth: Option<Box<Auth>>,
}

impl Session {
    /// A session in which nothing was said. Until IDENTIFY, stats show the ip as id and host name.
    pub(super) fn new(ip: String, settings: ClientSettings) -> Session {
        Session {
            magic_seen: false,
            decoder: Decoder::default(),
            state: ClientState::Init,
            settings,
            is_identified: false,
            client_id: ip.clone(),
            hostname: ip,
            user_agent: String::new(),
            topology_region: String::new(),
            topology_zone: String::new(),
            upgrades_left: VecDeque::new(),
            tls: None,
            compression: None,
            auth: None,
        }
    }

    /// Returns the number of input bytes that must be there before the decoder can go on: the length of the magic, then
    /// the known length of the unfinished command. 0 if the length is not known.
    #[inline]
    pub(crate) fn needs(&self) -> usize {
        if self.magic_seen {
            self.decoder.needs()
        } else {
            MAGIC_V2.len()
        }
    }

    /// Takes over what an IDENTIFY says. Returns true if it is the first one.
    pub(crate) fn identify(
        &mut self,
        request: IdentifyRequest,
        upgrades: Vec<GrantedUpgrade>,
    ) -> bool {
        self.client_id = request.client_id;
        self.hostname = request.hostname;
        self.user_agent = request.user_agent;
        self.topology_region = request.topology_region;
        self.topology_zone = request.topology_zone;
        self.upgrades_left = upgrades.into();
        !std::mem::replace(&mut self.is_identified, true)
    }

    /// Returns true if the connection has TLS or compression.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.tls.is_some() || self.compression.is_some()
    }

    /// Returns true if the auth server has granted something.
    pub(crate) fn has_grants(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| auth.has_grants())
    }

    /// Returns the first of the granted upgrades that are not in place yet.
    pub(crate) fn next_upgrade(&self) -> Option<GrantedUpgrade> {
        self.upgrades_left.front().copied()
    }

    /// Takes over the upgrade that was asked for. TLS comes with what it agreed on.
    ///
    /// # Panics
    /// If none was asked for.
    pub(crate) fn upgraded(&mut self, session: Option<TlsSession>) {
        match self.upgrades_left.pop_front() {
            Some(GrantedUpgrade::Tls) => self.tls = Some(Box::new(session.unwrap_or_default())),
            Some(compression) => self.compression = Some(compression),
            None => panic!("an upgrade is asked for before it is there"),
        }
    }

    /// Drops the upgrades that are not there yet.
    pub(crate) fn drop_upgrades(&mut self) {
        self.upgrades_left.clear();
    }
}
