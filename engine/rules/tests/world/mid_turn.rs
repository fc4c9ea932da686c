//! Events in the middle of a turn: between two inputs, or before the outputs of the broker are taken.
//!
//! ```text
//!   inputs ──► end_turn ──► outputs ──► flush ──► batches to the other shards
//!         │            │       │            │
//!         └────────────┴───────┴────────────┴── the kernel writes memory back, or the process is killed
//! ```
//!
//! A killed process does nothing any more. The step goes on with a broker whose outputs nobody takes, and ends with the
//! start of the program.

use super::World;

/// The number of places before an event, at most.
const PLACES: u64 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    WriteBack,
    Kill,
}

/// The event that waits for its place in a turn.
#[derive(Debug, Default)]
pub(super) struct MidTurn {
    /// The event, and the number of places before it.
    next: Option<(Event, u64)>,
    /// True if the only place is behind the next publish, whose answer may leave before the turn ends.
    is_behind_publish: bool,
    /// True while sockets take the last answers of a process that is killed. The broker may have ended a connection, and nobody
    /// has taken the output that says so.
    pub(super) is_dying: bool,
    /// True from the kill in a turn to the end of the step.
    pub(super) is_killed: bool,
}

impl World {
    /// Makes an event happen in the middle of a turn soon.
    pub(super) fn in_a_turn(&mut self, event: Event) {
        let is_behind_publish = self.random.below(2) == 0;
        let places = if is_behind_publish { 1 } else { PLACES };
        self.mid_turn.is_behind_publish = is_behind_publish;
        self.mid_turn.next = Some((event, self.random.below(places)));
    }

    /// A place in a turn. Returns true if the process is dead, and does nothing any more.
    pub(super) fn is_killed_here(&mut self) -> bool {
        if !self.mid_turn.is_behind_publish {
            self.pass_place();
        }
        self.mid_turn.is_killed
    }

    /// The place behind an input of a connection: the broker has the input, and nobody has its outputs.
    pub(super) fn is_killed_behind_input(&mut self, is_publish: bool) -> bool {
        if is_publish || !self.mid_turn.is_behind_publish {
            self.pass_place();
        }
        self.mid_turn.is_killed
    }

    /// Lets the event happen if this is its place.
    fn pass_place(&mut self) {
        match self.mid_turn.next.take() {
            Some((event, left)) if left > 0 => self.mid_turn.next = Some((event, left - 1)),
            Some((Event::WriteBack, _)) => {
                self.reached.note("written back in a turn");
                self.observe_all();
                self.files.write_back(self.random.draw());
            }
            Some((Event::Kill, _)) => {
                self.reached.note("killed in a turn");
                self.say("killed in a turn");
                self.mid_turn.is_dying = true;
                self.let_answers_out();
                self.mid_turn.is_dying = false;
                self.mid_turn.is_killed = true;
            }
            None => {}
        }
    }

    /// Lets some sockets take the answers that the broker has for them. A socket that was full does so at any time.
    fn let_answers_out(&mut self) {
        for index in 0..self.peers.len() {
            if let Some((shard, id)) = self.peers[index].at
                && self.random.below(2) == 0
            {
                // The broker does not get any more what it wants after these writes.
                self.flush_into(shard, id, &mut Vec::new());
            }
        }
    }

    /// Ends a step: starts the program again if it was killed.
    pub(super) fn end_kill(&mut self) {
        if std::mem::take(&mut self.mid_turn.is_killed) {
            let is_power_lost = self.random.below(2) == 0;
            self.restart(is_power_lost);
        }
    }
}
