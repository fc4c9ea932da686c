//! [`Connections`]: the connections of a shard, and their moves to other shards.

use crate::reactor;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::mail::Mail;
use engine_core::{ClientId, ShardId};
use program::{log_error, log_warn};
use slotmap::SecondaryMap;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire::go_error::system_text;

/// The pause between two tries to move a connection when no descriptor is left. All tries take half a minute.
const MOVE_PAUSE: Duration = Duration::from_millis(100);
const MOVE_TRIES: u32 = 300;

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

    pub(super) fn all(&self) -> Vec<Rc<Connection>> {
        self.0.borrow().values().cloned().collect()
    }
}

impl Shard {
    /// Moves a connection, which takes one more descriptor for a moment. If no descriptor is left, the client waits
    /// until others have left, as newcomers do.
    pub(super) fn move_connection(self: &Rc<Self>, id: ClientId, to: ShardId) {
        if let Err(error) = self.try_move(id, to) {
            let why = system_text(&error);
            log_warn!("a connection waits to move to shard {}: {why}", to.0);
            let shard = self.clone();
            reactor::spawn(async move { shard.move_later(id, to, error).await }).detach();
        }
    }

    async fn move_later(&self, id: ClientId, to: ShardId, mut error: io::Error) {
        for _ in 0..MOVE_TRIES {
            reactor::sleep(MOVE_PAUSE).await;
            match self.try_move(id, to) {
                Ok(()) => return,
                Err(again) => error = again,
            }
        }
        let why = system_text(&error);
        log_error!("cannot move a connection to shard {}: {why}", to.0);
        if let Some(connection) = self.connections.get(id) {
            connection.close();
        }
    }

    /// Moves a connection, unless it has ended meanwhile.
    fn try_move(&self, id: ClientId, to: ShardId) -> io::Result<()> {
        if let Some(connection) = self.connections.get(id)
            && let Some(moving) = connection.pack(self)?
        {
            self.shared
                .post
                .send(to, Mail::Connection(Box::new(moving)));
        }
        Ok(())
    }
}
