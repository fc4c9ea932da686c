//! The faults of a simulated disk (which call fails, how, and how many did), and the acts of other threads between two
//! calls.

use std::{fmt, io};

use diskq_log::splitmix64;

/// A generator that repeats its numbers for the same seed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        splitmix64(&mut self.0) % limit
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// A kind of call on [`Files`](diskq::Files).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Files::create_dir`](diskq::Files::create_dir)
    CreateDir,
    /// [`Files::allocate`](diskq::Files::allocate)
    Allocate,
    /// [`Files::map`](diskq::Files::map)
    Map,
    /// [`Files::copy`](diskq::Files::copy)
    Copy,
    /// [`Files::load`](diskq::Files::load)
    Load,
    /// The first half of [`Files::sync`](diskq::Files::sync) and [`Files::sync_dir`](diskq::Files::sync_dir): the open,
    /// which fails for want of descriptors or memory, or for good.
    Open,
    /// The second half of [`Files::sync`](diskq::Files::sync), and all of
    /// [`Files::sync_file_system`](diskq::Files::sync_file_system). If this call fails, dirty pages are lost.
    Sync,
    /// The second half of [`Files::sync_dir`](diskq::Files::sync_dir). If this call fails, changes of names may be lost.
    SyncDir,
    /// [`Files::rename`](diskq::Files::rename)
    Rename,
    /// [`Files::remove`](diskq::Files::remove) and [`Files::remove_dir`](diskq::Files::remove_dir)
    Remove,
    /// [`Files::list`](diskq::Files::list) and [`Files::length`](diskq::Files::length)
    List,
    /// [`Files::read_at`](diskq::Files::read_at)
    Read,
    /// [`Files::write_at`](diskq::Files::write_at)
    Write,
}

/// The reason why a call fails, as the program finds it in the [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error kind without an errno.
    Kind(io::ErrorKind),
    /// An errno: the program takes it for a limit of the process, for a device error, or for neither.
    Code(i32),
}

impl From<io::ErrorKind> for Fault {
    fn from(kind: io::ErrorKind) -> Fault {
        Fault::Kind(kind)
    }
}

impl From<i32> for Fault {
    fn from(code: i32) -> Fault {
        Fault::Code(code)
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Fault::Kind(kind) => io::Error::new(kind, "simulated failure"),
            Fault::Code(code) => io::Error::from_raw_os_error(code),
        }
    }
}

/// The fate of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Fail(Fault),
    /// A read returns one wrong bit.
    Flip,
}

/// A fault that waits for a call of one kind. Each such call lowers `left`, and the call that makes it zero is hit.
#[derive(Debug)]
struct Armed {
    of: Call,
    left: u64,
    effect: Effect,
}

/// A call that is not done, or done wrongly.
pub(crate) enum Hit {
    Failed(io::Error),
    /// The process dies in it.
    CutOff(io::Error),
    /// The process is dead.
    Dead(io::Error),
    Flipped,
}

impl Hit {
    /// The result of the call of a sync. `fail` does what a failed sync does to the disk.
    pub(crate) fn of_sync(hit: Option<Hit>, fail: impl FnOnce()) -> io::Result<()> {
        if matches!(hit, Some(Hit::Failed(_))) {
            fail();
        }
        Hit::result(hit).map(drop)
    }

    /// The result of a call that writes nothing, and whether it gets a wrong bit.
    pub(crate) fn result(hit: Option<Hit>) -> io::Result<bool> {
        match hit {
            Some(Hit::Failed(error) | Hit::CutOff(error) | Hit::Dead(error)) => Err(error),
            Some(Hit::Flipped) => Ok(true),
            None => Ok(false),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    calls: u64,
    fail_at: Option<(u64, Fault)>,
    armed: Vec<Armed>,
    /// From this call on nothing is done any more: the process is dead.
    dead_from: Option<u64>,
    pub(crate) fail_count: u64,
    pub(crate) failed_syncs: u64,
    /// The failed write-backs since the last power failure.
    pub(crate) failed_write_backs: u64,
}

impl Faults {
    pub(crate) fn fail_nth(&mut self, nth: u64, fault: Fault) {
        self.fail_at = Some((self.calls + nth, fault));
    }

    pub(crate) fn arm(&mut self, of: Call, nth: u64, effect: Effect) {
        self.armed.push(Armed {
            of,
            left: nth,
            effect,
        });
    }

    pub(crate) fn die_at(&mut self, nth: u64) {
        self.dead_from = Some(self.calls + nth);
    }

    pub(crate) fn disarm(&mut self) {
        self.fail_at = None;
        self.armed.clear();
        self.dead_from = None;
    }

    /// Counts a call, and says what happens to it.
    pub(crate) fn call(&mut self, call: Call) -> Option<Hit> {
        self.calls += 1;
        if let Some(from) = self.dead_from
            && self.calls >= from
        {
            self.fail_count += 1;
            let error = Fault::Kind(io::ErrorKind::Other).error();
            return Some(if self.calls == from {
                Hit::CutOff(error)
            } else {
                Hit::Dead(error)
            });
        }
        let nth = self.fail_at.take_if(|(at, _)| *at == self.calls);
        let mut effect = nth.map(|(_, fault)| Effect::Fail(fault));
        for armed in self.armed.iter_mut().filter(|armed| armed.of == call) {
            armed.left = armed.left.saturating_sub(1);
        }
        // One fault per call: the next one waits for the next call.
        if effect.is_none() {
            let is_due = |armed: &Armed| armed.of == call && armed.left == 0;
            let due = self.armed.iter().position(is_due);
            effect = due.map(|at| self.armed.remove(at).effect);
        }
        match effect? {
            Effect::Fail(fault) => {
                self.fail_count += 1;
                self.failed_syncs += u64::from(matches!(call, Call::Sync | Call::SyncDir));
                Some(Hit::Failed(fault.error()))
            }
            Effect::Flip => {
                self.fail_count += 1;
                Some(Hit::Flipped)
            }
        }
    }
}

type Act = Box<dyn FnOnce() + Send>;

/// The acts that wait for a place between two calls. Each place lowers the counts of all, and the acts with count zero are
/// due.
#[derive(Default)]
pub(crate) struct Interruptions {
    waiting: Vec<(u64, Act)>,
}

impl Interruptions {
    pub(crate) fn add(&mut self, nth: u64, act: Act) {
        self.waiting.push((nth, act));
    }

    /// Counts a place between two calls.
    pub(crate) fn count(&mut self) {
        for (left, _) in &mut self.waiting {
            *left = left.saturating_sub(1);
        }
    }

    pub(crate) fn take_due(&mut self) -> Option<Act> {
        let at = self.waiting.iter().position(|(left, _)| *left == 0)?;
        Some(self.waiting.remove(at).1)
    }

    /// Takes the one that was added first.
    pub(crate) fn take_first(&mut self) -> Option<Act> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0).1)
    }
}

impl fmt::Debug for Interruptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} interruptions", self.waiting.len())
    }
}
