//! [`Timer`]: the reasons for which a log wants to be woken up.

/// One reason to wake up. `Log::due_at` says when, and `Log::fire` what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Messages have been unsynced for long enough, or the last sync could not open its files and is tried again.
    Sync,
    /// The keeper could not make a segment. The log asks again.
    Room,
    /// A cold segment could not be loaded for a reason that may pass. The log asks again.
    Load,
    /// Nobody has appended for a while. The log gives back the pool, later its tail, and then the spare.
    IdleStock,
    /// Nobody has loaded for a while. The log gives back its buffers.
    IdleBuffers,
    /// A checkpoint is due. The topic begins it: the log itself does nothing.
    Checkpoint,
}

impl Timer {
    /// All of them, in the order in which they fire.
    pub(super) const ALL: [Timer; 6] = [
        Timer::Sync,
        Timer::Room,
        Timer::Load,
        Timer::IdleStock,
        Timer::IdleBuffers,
        Timer::Checkpoint,
    ];
}
