//! The sockets of the peers. A socket may fail in the middle of the output, and may have an upgrade: a layer between socket
//! and broker that holds sealed bytes in both directions and moves with its client (engine/nsqd/src/net/upgraded.rs).

use super::World;
use super::model::Action;
use super::peer::{Awaited, TestClient};
use engine_rules::{ClientId, Output, Random};
use std::io::IoSlice;
use wire::encode;

/// The most bytes of a sealed record.
const RECORD_BYTES_MAX: usize = 1000;
/// The size of the length in front of a record.
const LENGTH_BYTES: usize = 2;

/// The broker's side of a peer's socket.
#[derive(Debug, Default)]
pub(crate) struct Socket {
    /// The bytes that the socket takes before it fails. `None`: it does not fail.
    room: Option<usize>,
    layer: Option<Layer>,
}

/// The output side of an upgrade.
#[derive(Debug, Default)]
struct Layer {
    /// The output that is sealed and has not left. The broker must offer the same bytes again.
    held: Vec<u8>,
    /// The sealed bytes, which the socket has to take before any other bytes.
    sealed: Vec<u8>,
}

impl Socket {
    /// Writes a part of the output, like `Transport::send`. Returns the number of bytes of the output that have left, and
    /// the bytes for the peer. `None`: the socket has failed.
    pub(crate) fn write(
        &mut self,
        output: &[IoSlice<'_>],
        random: &mut Random,
    ) -> Option<(usize, Vec<u8>)> {
        let total = output.iter().map(|slice| slice.len()).sum();
        let Some(layer) = &mut self.layer else {
            let count = part_of(total, &mut self.room, random)?;
            return Some((count, copy(output, count)));
        };
        if layer.sealed.is_empty() {
            layer.held = copy(output, part_of(total, &mut None, random)?);
            seal(&layer.held, &mut layer.sealed);
        } else if total > 0 {
            let again = copy(output, layer.held.len());
            assert_eq!(again, layer.held, "output that is sealed stays as it is");
        }
        let sealed = layer.sealed.len();
        let count = part_of(sealed, &mut self.room, random)?;
        let left = layer.held.len() * count / sealed.max(1);
        layer.held.drain(..left);
        Some((left, layer.sealed.drain(..count).collect()))
    }

    fn holds_sealed(&self) -> bool {
        let layer = self.layer.as_ref();
        layer.is_some_and(|layer| !layer.sealed.is_empty())
    }
}

/// Returns how many of `total` bytes a socket takes. `None`: it has failed.
fn part_of(total: usize, room: &mut Option<usize>, random: &mut Random) -> Option<usize> {
    if total == 0 {
        return Some(0);
    }
    let mut count = 1 + random.below(total as u64) as usize;
    if let Some(room) = room {
        count = count.min(*room);
        *room -= count;
    }
    (count > 0).then_some(count)
}

/// Copies the first `count` bytes.
fn copy(output: &[IoSlice<'_>], count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count);
    for slice in output {
        let part = &slice[..slice.len().min(count - bytes.len())];
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Seals bytes: a record has its length in front, and is of no use before it is whole.
fn seal(plain: &[u8], into: &mut Vec<u8>) {
    for piece in plain.chunks(RECORD_BYTES_MAX) {
        into.extend_from_slice(&(piece.len() as u16).to_be_bytes());
        into.extend(piece.iter().map(|byte| !byte));
    }
}

/// Opens the whole records at the start of `sealed`. Returns their number of sealed bytes.
fn open(sealed: &[u8], into: &mut Vec<u8>) -> usize {
    let mut rest = sealed;
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>()
        && let Some((piece, behind)) =
            behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))
    {
        into.extend(piece.iter().map(|byte| !byte));
        rest = behind;
    }
    sealed.len() - rest.len()
}

impl TestClient {
    /// Takes bytes from the socket.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if !self.is_sealed {
            return self.received.extend_from_slice(bytes);
        }
        self.unopened_output.extend_from_slice(bytes);
        let opened = open(&self.unopened_output, &mut self.received);
        self.unopened_output.drain(..opened);
    }

    /// Gives bytes to the socket.
    pub(crate) fn transmit(&mut self, bytes: &[u8]) {
        if self.is_sealed {
            seal(bytes, &mut self.unopened_input)
        } else {
            self.input.extend_from_slice(bytes)
        }
    }

    /// Opens the first `count` bytes that wait on the broker's side, as far as their records are whole.
    pub(crate) fn open_input(&mut self, count: usize) {
        let opened = open(&self.unopened_input[..count], &mut self.input);
        self.unopened_input.drain(..opened);
    }
}

impl World {
    /// Makes a peer's socket fail, at once or after some more bytes of output.
    pub(super) fn reset(&mut self) {
        let Some(index) = self.pick_peer(|peer| peer.socket.room.is_none()) else {
            return;
        };
        let room = [0, 1, 30, 3000][self.random.below(4) as usize];
        let peer = &mut self.peers[index];
        peer.socket.room = Some(self.random.below(room + 1) as usize);
        peer.is_reset = true;
        if let Some(place) = peer.subscription {
            self.model.allow_late(place);
        }
        let awaits_sub = peer.awaiting.iter().any(|it| matches!(it, Awaited::Sub));
        let is_moving = peer.at.is_none();
        if awaits_sub {
            self.reached.note("reset with a SUB under way");
        }
        if is_moving {
            self.reached.note("reset in a move");
        }
    }

    /// Lets the broker learn that sockets have failed, by a read.
    pub(super) fn read_failures(&mut self) {
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if peer.is_reset && !peer.closed && peer.at.is_some() && self.random.below(8) == 0 {
                self.close_peer(index);
            }
        }
    }

    /// Ends a connection whose socket has failed in a write, like the shell.
    pub(super) fn abandon(&mut self, index: usize) {
        self.reached.note("reset in the output");
        if let Some((shard, id)) = self.peers[index].at {
            self.shards[shard].broker.abandon(id);
        }
        self.end_later(index);
    }

    /// Ends a connection. The broker has it for a moment longer, because the shell's task has to end first.
    pub(super) fn end_later(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if let Some(place) = peer.subscription.filter(|_| peer.is_slow) {
            self.model.allow_late(place);
        }
        peer.closed = true;
        self.leaving.extend(peer.at.take());
    }

    /// Takes connections that end from the broker: some of them, or all.
    pub(super) fn end_leaving(&mut self, are_all: bool) {
        for (shard, id) in std::mem::take(&mut self.leaving) {
            let is_awake = self.shards[shard].is_awake;
            if !is_awake || !are_all && self.random.below(2) == 0 {
                self.leaving.push((shard, id));
                continue;
            }
            let mut out = Vec::new();
            self.shards[shard].broker.disconnect(id, &mut out);
            self.perform(shard, out);
        }
    }

    /// Makes a peer ask for an upgrade. Until the answer it sends nothing.
    pub(super) fn ask_for_upgrade(&mut self, index: usize) {
        let peer = &self.peers[index];
        if !peer.may_send()
            || peer.is_sealed
            || peer.subscription.is_some()
            || peer.publisher.is_some()
        {
            return;
        }
        if !peer.awaiting.is_empty() {
            self.reached.note("upgrade behind other answers");
        }
        let is_slow = self.random.below(2) == 0;
        let json = br#"{"feature_negotiation":true,"snappy":true}"#;
        self.send(index, Action::Other, |out| encode::identify(out, json));
        let peer = &mut self.peers[index];
        peer.is_upgrading = true;
        // Only a peer that reads late leaves sealed bytes behind.
        peer.is_slow |= is_slow;
        peer.awaiting.extend([Awaited::Upgrade, Awaited::Upgraded]);
        self.offer(index);
    }

    /// Puts the layer of an upgrade behind the output that is there.
    pub(super) fn add_layer(&mut self, shard: usize, id: ClientId, out: &mut Vec<Output>) {
        let Some(index) = self.peer_of(shard, id) else {
            return;
        };
        let now = self.now();
        let broker = &mut self.shards[shard].broker;
        let mut slices = [IoSlice::new(&[]); 64];
        let count = broker.output(id, &mut slices);
        let total = slices[..count].iter().map(|slice| slice.len()).sum();
        let held = copy(&slices[..count], total);
        let sealed = held.clone();
        let peer = &mut self.peers[index];
        assert!(peer.input.is_empty(), "the peer waits for the upgrade");
        peer.socket.layer = Some(Layer { held, sealed });
        broker.upgraded(now, id, None, out);
    }

    /// Notes what moves along with a connection.
    pub(super) fn record_move(&mut self, index: usize) {
        let peer = &self.peers[index];
        self.reached.note("moved");
        if peer.socket.holds_sealed() || !peer.unopened_input.is_empty() {
            self.reached.note("moved with sealed bytes");
        }
        if peer.input_ended {
            self.reached.note("half-closed in a move");
        }
    }
}
