//! [`SimFiles`]: files in memory that lose power, fill up and fail, by a seed.
//!
//! ```text
//!   memories of the log --observe--> cached (page cache) --sync--> durable (the disk)
//!                                    names               --sync_dir--> durable names
//! ```
//!
//! A process crash keeps what is cached. A power loss keeps of each unsynced sector the old or the
//! new contents, as the seed says, and of the changes of names some first ones, in order (as a
//! journal does). A handle can be cloned; all clones are the same disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{Entry, Files, Memory, Pages, SyncError};
use crate::keeper::{Request, log_path, segment_file};
use crate::log::Log;

/// What a device writes in one piece.
const SECTOR_BYTES: usize = 512;

/// A kind of call on [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Files::create_dir`]
    CreateDir,
    /// [`Files::allocate`]
    Allocate,
    /// [`Files::map`]
    Map,
    /// [`Files::copy`]
    Copy,
    /// [`Files::load`]
    Load,
    /// The first half of [`Files::sync`] and [`Files::sync_dir`]: nothing is lost if it fails.
    Open,
    /// The second half of [`Files::sync`]: the file lies afterwards if it fails.
    Sync,
    /// The second half of [`Files::sync_dir`]
    SyncDir,
    /// [`Files::rename`]
    Rename,
    /// [`Files::remove`] and [`Files::remove_dir`]
    Remove,
    /// [`Files::list`] and [`Files::length`]
    List,
    /// [`Files::read_at`]
    Read,
    /// [`Files::write_at`]
    Write,
}

/// How a simulated machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: everything cached stays.
    Process,
    /// Power is lost: of what is not synced, what the seed says stays.
    Power {
        /// Chooses the sectors and names that stay.
        seed: u64,
    },
}

/// A disk in memory.
#[derive(Clone, Debug, Default)]
pub struct SimFiles {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

#[derive(Clone, Debug)]
enum Rename {
    Set(PathBuf, Node),
    Unset(PathBuf),
    Move(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct Contents {
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// A sync failed: as on Linux the pages count as clean, and later syncs "succeed".
    lies: bool,
}

#[derive(Debug, Default)]
struct Disk {
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    /// What turns the one into the other.
    journal: Vec<Rename>,
    contents: Vec<Contents>,
    bytes_max: Option<u64>,
    calls: u64,
    fail_at: Option<(u64, io::ErrorKind)>,
    /// The kind of call, how many of them until it fails, and how.
    fail_next: Option<(Call, u64, io::ErrorKind)>,
    /// From this call on nothing is done any more: the process is dead.
    dead_from: Option<u64>,
    fail_count: u64,
    failed_syncs: u64,
}

impl SimFiles {
    /// An empty disk without limit or fault.
    #[must_use]
    pub fn new() -> SimFiles {
        SimFiles::default()
    }

    /// Copies the memories of a log into the page cache, where a sync and a crash find them. Call
    /// it before each sync of the log and before a crash, and [`SimFiles::observe_request`] for the jobs of
    /// the log that are not done.
    pub fn observe(&self, data_path: &Path, topic: &str, log: &Log) {
        let directory = log_path(data_path, topic);
        let mut disk = self.disk();
        for (number, image) in log.segment_images() {
            disk.store(&directory.join(segment_file(number)), image);
        }
    }

    /// The same for the memory that a job of a log takes along.
    pub fn observe_request(&self, data_path: &Path, topic: &str, request: &Request) {
        if let Some((number, image)) = request.segment_image() {
            let path = log_path(data_path, topic).join(segment_file(number));
            self.disk().store(&path, image);
        }
    }

    /// Takes back the faults that are armed and were not hit.
    pub fn disarm(&self) {
        let mut disk = self.disk();
        disk.fail_at = None;
        disk.fail_next = None;
        disk.dead_from = None;
    }

    /// Stops the machine; what a later start finds is what `crash` leaves. Armed faults go.
    pub fn crash(&self, crash: Crash) {
        self.disarm();
        let mut disk = self.disk();
        if let Crash::Power { seed } = crash {
            disk.lose_power(seed);
        }
    }

    /// Lets all files together grow to `bytes_max` bytes and no further.
    pub fn limit(&self, bytes_max: Option<u64>) {
        self.disk().bytes_max = bytes_max;
    }

    /// The bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.disk().bytes()
    }

    /// Makes the `nth` call from now on fail (1: the next one).
    pub fn fail_nth(&self, nth: u64, kind: io::ErrorKind) {
        let mut disk = self.disk();
        disk.fail_at = Some((disk.calls + nth, kind));
    }

    /// Makes the next call of one kind fail.
    pub fn fail_next(&self, call: Call, kind: io::ErrorKind) {
        self.fail_nth_of(call, 1, kind);
    }

    /// Makes the `nth` call of one kind from now on fail (1: the next one).
    pub fn fail_nth_of(&self, call: Call, nth: u64, kind: io::ErrorKind) {
        self.disk().fail_next = Some((call, nth, kind));
    }

    /// Makes the `nth` call from now on (1: the next one) and all that follow do nothing, until the
    /// crash that this is the beginning of.
    pub fn die_at(&self, nth: u64) {
        let mut disk = self.disk();
        disk.dead_from = Some(disk.calls + nth);
    }

    /// How many armed faults were hit.
    #[must_use]
    pub fn fail_count(&self) -> u64 {
        self.disk().fail_count
    }

    /// How many syncs failed, of files and directories: the disk may lie from the first on.
    #[must_use]
    pub fn failed_syncs(&self) -> u64 {
        self.disk().failed_syncs
    }

    /// Changes a byte of a file behind everyone's back, in the cache and on the disk.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn damage(&self, path: &Path, offset: usize, xor: u8) {
        let mut disk = self.disk();
        let file = disk.file(path).expect("a file to damage");
        let contents = &mut disk.contents[file];
        contents.cached[offset] ^= xor;
        if let Some(byte) = contents.durable.get_mut(offset) {
            *byte ^= xor;
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // A panicking test leaves plain data behind.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, call: Call) -> io::Result<MutexGuard<'_, Disk>> {
        let mut disk = self.disk();
        disk.calls += 1;
        let calls = disk.calls;
        let nth = disk
            .fail_at
            .take_if(|(at, _)| *at == calls)
            .map(|(_, kind)| kind);
        if let Some((of, left, _)) = &mut disk.fail_next
            && *of == call
        {
            *left -= 1;
        }
        let next = disk
            .fail_next
            .take_if(|(_, left, _)| *left == 0)
            .map(|(_, _, kind)| kind);
        let is_dead = disk.dead_from.is_some_and(|from| calls >= from);
        match nth.or(next).or(is_dead.then_some(io::ErrorKind::Other)) {
            Some(kind) => {
                disk.fail_count += 1;
                disk.failed_syncs += u64::from(matches!(call, Call::Sync | Call::SyncDir));
                Err(io::Error::new(kind, "simulated failure"))
            }
            None => Ok(disk),
        }
    }
}

fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "simulated: no such file")
}

impl Disk {
    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(file)) => Ok(*file),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        if let Some(parent) = path.parent()
            && !self.is_dir(parent)
        {
            return Err(not_found());
        }
        if self.names.contains_key(path) {
            return self.file(path);
        }
        self.contents.push(Contents::default());
        let file = self.contents.len() - 1;
        self.apply(Rename::Set(path.to_path_buf(), Node::File(file)));
        Ok(file)
    }

    /// The top of the tree is there from the start.
    fn is_dir(&self, path: &Path) -> bool {
        let is_top = !self.names.keys().any(|name| path.starts_with(name));
        self.names.get(path) == Some(&Node::Dir)
            || is_top && path.extension().is_none_or(|extension| extension != "log")
    }

    fn bytes(&self) -> u64 {
        let files = self.names.values().filter_map(|node| match node {
            Node::File(file) => Some(self.contents[*file].cached.len() as u64),
            Node::Dir => None,
        });
        files.sum()
    }

    fn grow(&mut self, file: usize, bytes: u64) -> io::Result<()> {
        let more = bytes.saturating_sub(self.contents[file].cached.len() as u64);
        if more > 0 {
            if self.bytes_max.is_some_and(|max| self.bytes() + more > max) {
                return Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    "simulated: disk full",
                ));
            }
            self.contents[file].cached.resize(bytes as usize, 0);
        }
        Ok(())
    }

    fn image(&self, path: &Path, bytes: u32) -> io::Result<Memory> {
        let cached = &self.contents[self.file(path)?].cached;
        let image = cached.get(..bytes as usize);
        let image = image.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Memory::Heap(image.into()))
    }

    fn store(&mut self, path: &Path, image: &[u8]) {
        if let Ok(file) = self.file(path) {
            self.contents[file].cached[..image.len()].copy_from_slice(image);
        }
    }

    fn apply(&mut self, change: Rename) {
        change.apply(&mut self.names);
        self.journal.push(change);
    }

    fn commit_names(&mut self) {
        self.durable_names = self.names.clone();
        self.journal.clear();
    }

    fn lose_power(&mut self, seed: u64) {
        let mut random = Random(seed);
        let kept = random.below(self.journal.len() as u64 + 1) as usize;
        for change in self.journal.drain(..).take(kept) {
            change.apply(&mut self.durable_names);
        }
        self.names = self.durable_names.clone();
        // Once in a while all is lost, or nothing.
        let style = random.below(8);
        for contents in &mut self.contents {
            let Contents {
                cached,
                durable,
                lies,
            } = contents;
            durable.resize(cached.len(), 0);
            for (old, new) in durable
                .chunks_mut(SECTOR_BYTES)
                .zip(cached.chunks(SECTOR_BYTES))
            {
                if old == new {
                    continue;
                }
                let is_kept = match style {
                    0 => false,
                    1 => true,
                    _ => random.below(2) == 0,
                };
                if is_kept && !*lies {
                    old.copy_from_slice(new);
                }
            }
            cached.clone_from(durable);
            *lies = false;
        }
    }
}

impl Rename {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Rename::Set(path, node) => {
                names.insert(path.clone(), *node);
            }
            Rename::Unset(path) => {
                names.remove(path);
            }
            Rename::Move(from, to) => {
                let moved: Vec<_> = names
                    .extract_if(.., |name, _| name.starts_with(from))
                    .collect();
                for (name, node) in moved {
                    let below = name.strip_prefix(from).expect("just looked at");
                    // Joining an empty path would add a slash.
                    let name = if below == Path::new("") {
                        to.clone()
                    } else {
                        to.join(below)
                    };
                    names.insert(name, node);
                }
            }
        }
    }
}

impl Files for SimFiles {
    type Whole = ();

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.call(Call::CreateDir)?;
        if !disk.names.contains_key(path) {
            disk.apply(Rename::Set(path.to_path_buf(), Node::Dir));
        }
        Ok(())
    }

    fn allocate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let mut disk = self.call(Call::Allocate)?;
        let is_new = !disk.names.contains_key(path);
        let file = disk.create(path)?;
        let result = disk.grow(file, bytes);
        if result.is_err() && is_new {
            disk.apply(Rename::Unset(path.to_path_buf()));
        }
        result
    }

    fn map(&self, path: &Path, bytes: u32, _pages: Pages) -> io::Result<Memory> {
        self.call(Call::Map)?.image(path, bytes)
    }

    fn unmap(&self, path: &Path, memory: Memory) {
        self.disk().store(path, memory.as_ref());
    }

    fn copy(&self, from: &Path, memory: &Memory, to: &Path) -> io::Result<()> {
        self.disk().store(from, memory.as_ref());
        let mut disk = self.call(Call::Copy)?;
        if disk.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = disk.create(to)?;
        disk.grow(file, memory.as_ref().len() as u64)?;
        disk.store(to, memory.as_ref());
        Ok(())
    }

    fn load(&self, path: &Path, bytes: u32, reuse: Option<Memory>) -> io::Result<Memory> {
        drop(reuse);
        self.call(Call::Load)?.image(path, bytes)
    }

    fn sync(&self, path: &Path) -> Result<(), SyncError> {
        let opened = self.call(Call::Open).and_then(|disk| disk.file(path));
        let file = opened.map_err(SyncError::Open)?;
        match self.call(Call::Sync) {
            Ok(mut disk) => {
                let contents = &mut disk.contents[file];
                if !contents.lies {
                    contents.durable.clone_from(&contents.cached);
                }
                Ok(())
            }
            Err(error) => {
                self.disk().contents[file].lies = true;
                Err(SyncError::Sync(error))
            }
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<(), SyncError> {
        let opened = self.call(Call::Open).and_then(|disk| {
            if disk.is_dir(path) {
                Ok(())
            } else {
                Err(not_found())
            }
        });
        opened.map_err(SyncError::Open)?;
        self.call(Call::SyncDir)
            .map_err(SyncError::Sync)?
            .commit_names();
        Ok(())
    }

    fn whole(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_whole(&self, _whole: &()) -> io::Result<()> {
        match self.call(Call::Sync) {
            Ok(mut disk) => {
                for contents in disk.contents.iter_mut().filter(|contents| !contents.lies) {
                    contents.durable.clone_from(&contents.cached);
                }
                disk.commit_names();
                Ok(())
            }
            Err(error) => {
                for contents in &mut self.disk().contents {
                    contents.lies = true;
                }
                Err(error)
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.call(Call::Rename)?;
        if !disk.names.contains_key(from) {
            return Err(not_found());
        }
        disk.apply(Rename::Move(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.call(Call::Remove)?;
        disk.file(path)?;
        disk.apply(Rename::Unset(path.to_path_buf()));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.call(Call::Remove)?;
        if disk.names.keys().any(|name| name.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        disk.apply(Rename::Unset(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let disk = self.call(Call::List)?;
        if !disk.is_dir(path) {
            return Err(not_found());
        }
        let children = disk
            .names
            .iter()
            .filter(|(name, _)| name.parent() == Some(path));
        let entries = children.map(|(name, node)| {
            let name = name
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            match node {
                Node::Dir => Entry {
                    name,
                    is_dir: true,
                    bytes: 0,
                },
                Node::File(file) => {
                    let bytes = disk.contents[*file].cached.len() as u64;
                    Entry {
                        name,
                        is_dir: false,
                        bytes,
                    }
                }
            }
        });
        Ok(entries.collect())
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        let disk = self.call(Call::List)?;
        let file = disk.file(path)?;
        Ok(disk.contents[file].cached.len() as u64)
    }

    fn read_at(&self, path: &Path, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.call(Call::Read)?;
        let file = disk.file(path)?;
        let start = offset as usize;
        let bytes = disk.contents[file].cached.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.call(Call::Write)?;
        let file = disk.create(path)?;
        let start = offset as usize;
        disk.grow(file, (start + bytes.len()) as u64)?;
        disk.contents[file].cached[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// splitmix64: small, and the same everywhere.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[cfg(test)]
mod tests;
