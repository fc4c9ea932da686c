//! [`Connections`]: the connections of a shard.

use crate::shard::connection::Connection;
use engine_rules::ClientId;
use slotmap::SecondaryMap;
use std::cell::RefCell;
use std::rc::Rc;

/// The connections of a shard by their id.
#[derive(Default)]
pub(super) struct Connections(RefCell<SecondaryMap<ClientId, Rc<Connection>>>);

impl Connections {
    pub(super) fn add(&self, connection: Rc<Connection>) {
        self.0.borrow_mut().insert(connection.id, connection);
    }

    pub(super) fn remove(&self, id: ClientId) {
        self.0.borrow_mut().remove(id);
    }

    pub(super) fn get(&self, id: ClientId) -> Option<Rc<Connection>> {
        self.0.borrow().get(id).cloned()
    }
}
