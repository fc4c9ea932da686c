//! [`SimFiles`]: files in memory that lose power, fill up and fail, by a seed.
//!
//! ```text
//!   memories of the log --observe--> cached (page cache) --sync, write-back--> durable (the device)
//!                                    names               --sync_dir, write-back--> durable names
//! ```
//!
//! - A process crash keeps what is cached, and ends the mappings.
//! - A power failure keeps of each unsynced sector the old or the new contents, as the seed says, and of
//!   the changes of names some first ones of each directory. [`SimFiles::write_back`] makes an intermediate
//!   state durable.
//! - Write-back that fails ([`SimFiles::fail_write_back`], a failed sync) leaves pages that count as clean and
//!   are not durable. A failed sync of a directory may lose its changes of names in the same way. The next sync of
//!   that file or directory reports the error, once, and so does each descriptor of the whole file system.
//!   [`SimFiles::reclaim`] drops such pages from the cache.
//! - The error belongs to the file in memory. When the kernel drops a file that nobody has mapped
//!   ([`SimFiles::evict`]), no sync reports the error any more.
//! - A write that fails may have written a part of its bytes.
//! - Another thread may act between two calls ([`SimFiles::interrupt_at`]).
//!
//! A handle can be cloned; all clones are the same disk.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diskq::{Buffer, Entry, Files, SyncError, log_path};
use diskq_log::{Log, Memory, Pages, Request, segment_file};
use parking_lot::{Mutex, MutexGuard};

use crate::contents::{Contents, write_back_error};
use crate::faults::{Call, Effect, Fault, Faults, Hit, Interruptions, Random};
use crate::names::{Names, Node, not_found};

/// The way in which a simulated machine stops.
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

/// A descriptor of the whole file system: the number of write-back errors that it has reported or need not
/// report.
#[derive(Debug)]
pub struct SimFileSystem {
    told: AtomicU64,
}

#[derive(Debug, Default)]
struct Disk {
    names: Names,
    files: Vec<Contents>,
    bytes_max: Option<u64>,
    faults: Faults,
    interruptions: Interruptions,
    /// Chooses what a fault does.
    random: Random,
    /// The number of write-backs that failed.
    errors: u64,
    /// The time that files get when they are written, in Unix nanoseconds.
    wall_ns: u64,
}

impl SimFiles {
    /// An empty disk without limit or fault.
    #[must_use]
    pub fn new() -> SimFiles {
        SimFiles::default()
    }

    /// An empty disk whose faults write and lose what `seed` says.
    #[must_use]
    pub fn seeded(seed: u64) -> SimFiles {
        let files = SimFiles::default();
        files.disk.lock().random = Random(seed);
        files
    }

    /// Copies the memories of a log into the page cache, where a sync and a crash find them. Call
    /// it before each sync of the log and before a crash, and [`SimFiles::observe_request`] for the jobs of
    /// the log that are not done.
    pub fn observe(&self, data_path: &Path, topic: &str, log: &Log) {
        let directory = log_path(data_path, topic);
        let mut disk = self.disk.lock();
        for (number, image) in log.segment_images() {
            disk.observe(&directory.join(segment_file(number)), image);
        }
    }

    /// The same for the memory that a job of a log takes along.
    pub fn observe_request(&self, data_path: &Path, topic: &str, request: &Request) {
        if let Some((number, image)) = request.segment_image() {
            let path = log_path(data_path, topic).join(segment_file(number));
            self.disk.lock().observe(&path, image);
        }
    }

    /// Takes back the faults that are armed and were not hit.
    pub fn disarm(&self) {
        self.disk.lock().faults.disarm();
    }

    /// Stops the machine; what a later start finds is what `crash` leaves. Armed faults go.
    pub fn crash(&self, crash: Crash) {
        let mut disk = self.disk.lock();
        disk.faults.disarm();
        for file in &mut disk.files {
            file.is_mapped = false;
        }
        if let Crash::Power { seed } = crash {
            disk.faults.failed_write_backs = 0;
            disk.lose_power(&mut Random(seed));
        }
    }

    /// Writes back some of the dirty sectors, and a first part of each directory's changes of names, as the
    /// kernel may at any time.
    pub fn write_back(&self, seed: u64) {
        self.disk.lock().write_back(&mut Random(seed));
    }

    /// The kernel writes back dirty pages of some files and fails. The pages count as clean from then on,
    /// and nobody has been told.
    pub fn fail_write_back(&self, seed: u64) {
        let mut random = Random(seed);
        let mut disk = self.disk.lock();
        let mut has_failed = false;
        for file in disk.names.files() {
            has_failed |= random.coin() && disk.files[file].fail_write_back(&mut random);
        }
        disk.errors += u64::from(has_failed);
        disk.faults.failed_write_backs += u64::from(has_failed);
    }

    /// Fails the write-back of one file or directory, as [`SimFiles::fail_write_back`] does for all. A directory loses
    /// its unsynced changes of names: they stay visible, no later sync writes them, and a power failure undoes them.
    ///
    /// # Panics
    /// If there is no such file or directory.
    pub fn fail_write_back_of(&self, path: &Path, seed: u64) {
        let mut disk = self.disk.lock();
        let has_failed = if disk.names.is_dir(path) {
            disk.names.fail(path)
        } else {
            let file = disk.file(path).expect("a file to write back");
            disk.files[file].fail_write_back(&mut Random(seed))
        };
        disk.errors += u64::from(has_failed);
        disk.faults.failed_write_backs += u64::from(has_failed);
    }

    /// The names in a directory whose changes a failed write-back has lost, and whether a sync of the directory has
    /// reported the loss.
    #[must_use]
    pub fn lost_names(&self, directory: &Path) -> (Vec<OsString>, bool) {
        self.disk.lock().names.lost(directory)
    }

    /// The kernel drops clean pages from the cache. Those that a failed write-back has left are read from
    /// the device from then on.
    pub fn reclaim(&self) {
        let mut disk = self.disk.lock();
        disk.files.iter_mut().for_each(Contents::reclaim);
    }

    /// The kernel drops some files from memory that nobody has mapped and that have no dirty pages. Returns whether it
    /// has forgotten a failed write-back that no sync has reported. Directories keep their errors: a file system with a
    /// journal gives up when it cannot write one.
    pub fn evict(&self, seed: u64) -> bool {
        let mut random = Random(seed);
        let mut disk = self.disk.lock();
        let mut is_forgotten = false;
        for file in disk.files.iter_mut().filter(|_| random.coin()) {
            is_forgotten |= file.evict();
        }
        is_forgotten
    }

    /// Does what [`SimFiles::evict`] does, for one file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn evict_one(&self, path: &Path) -> bool {
        self.with_file(path, Contents::evict)
    }

    /// Does what [`SimFiles::reclaim`] does under the live mappings of a log: the mappings read such pages again.
    pub fn reclaim_under(&self, data_path: &Path, topic: &str, log: &mut Log) {
        self.observe(data_path, topic, log);
        self.reclaim();
        let directory = log_path(data_path, topic);
        let mut disk = self.disk.lock();
        for (number, image) in log.segment_images_mut() {
            if let Ok(file) = disk.file(&directory.join(segment_file(number))) {
                disk.files[file].read_again(image);
            }
        }
    }

    /// Sets the time that files get when they are written, in Unix nanoseconds. Until then, their times are not known.
    pub fn set_clock(&self, wall_ns: u64) {
        self.disk.lock().wall_ns = wall_ns;
    }

    /// Lets all files together grow to `bytes_max` bytes and no further.
    pub fn limit(&self, bytes_max: Option<u64>) {
        self.disk.lock().bytes_max = bytes_max;
    }

    /// The bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.disk.lock().bytes()
    }

    /// Makes the `nth` call from now on fail (1: the next one).
    pub fn fail_nth(&self, nth: u64, fault: impl Into<Fault>) {
        self.disk.lock().faults.fail_nth(nth, fault.into());
    }

    /// Makes the next call of one kind fail.
    pub fn fail_next(&self, call: Call, fault: impl Into<Fault>) {
        self.fail_nth_of(call, 1, fault);
    }

    /// Makes the `nth` call of one kind from now on fail (1: the next one). Several such faults may be
    /// armed at the same time.
    pub fn fail_nth_of(&self, call: Call, nth: u64, fault: impl Into<Fault>) {
        let effect = Effect::Fail(fault.into());
        self.disk.lock().faults.arm(call, nth, effect);
    }

    /// Makes the `nth` read of one kind from now on ([`Call::Read`], [`Call::Load`], [`Call::Map`]) return one
    /// wrong bit. What is stored stays as it is.
    pub fn flip_nth_of(&self, call: Call, nth: u64) {
        self.disk.lock().faults.arm(call, nth, Effect::Flip);
    }

    /// Makes the `nth` call from now on (1: the next one) and all that follow do nothing, until the
    /// crash that this is the beginning of. A write that is cut off there may have written a part.
    pub fn die_at(&self, nth: u64) {
        self.disk.lock().faults.die_at(nth);
    }

    /// Runs `act` at the `nth` place between two calls from now on (1: before the next call), as another thread that gets
    /// the processor there. The calls of `act` count, and others may interrupt them.
    pub fn interrupt_at(&self, nth: u64, act: impl FnOnce() + Send + 'static) {
        self.disk.lock().interruptions.add(nth, Box::new(act));
    }

    /// Runs what was to interrupt a call and has not.
    pub fn end_interruptions(&self) {
        loop {
            let Some(act) = self.disk.lock().interruptions.take_first() else {
                return;
            };
            act();
        }
    }

    /// Returns how many calls failed or returned a wrong bit because of a fault. From [`SimFiles::die_at`] on, each
    /// call counts.
    #[must_use]
    pub fn fail_count(&self) -> u64 {
        self.disk.lock().faults.fail_count
    }

    /// The number of failed syncs of files and directories, and of write-backs that failed since the last power failure.
    /// After the first of them, data may be lost in spite of a sync. A power failure ends what a failed write-back has
    /// left in the page cache.
    #[must_use]
    pub fn failed_syncs(&self) -> u64 {
        let disk = self.disk.lock();
        disk.faults.failed_syncs + disk.faults.failed_write_backs
    }

    /// Changes a byte of a file behind everyone's back, in the cache and on the disk.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn damage(&self, path: &Path, offset: usize, xor: u8) {
        self.with_file(path, |file| file.flip(offset, xor));
    }

    /// Makes the sector at `offset` of a file unreadable until it is written, or until [`SimFiles::repair`]:
    /// reads of it fail with the error number `code`.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn spoil(&self, path: &Path, offset: usize, code: i32) {
        self.with_file(path, |file| file.spoil(offset, code));
    }

    fn with_file<R>(&self, path: &Path, act: impl FnOnce(&mut Contents) -> R) -> R {
        let mut disk = self.disk.lock();
        let file = disk.file(path).expect("there is such a file");
        act(&mut disk.files[file])
    }

    /// Makes every sector readable again.
    pub fn repair(&self) {
        self.disk.lock().files.iter_mut().for_each(Contents::repair);
    }

    /// Begins a call: lets others act before it, counts it, and says what happens to it.
    fn begin(&self, call: Call) -> (MutexGuard<'_, Disk>, Option<Hit>) {
        self.let_interrupt();
        let mut disk = self.disk.lock();
        let hit = disk.faults.call(call);
        (disk, hit)
    }

    /// Lets others act at a place between two calls.
    fn let_interrupt(&self) {
        self.disk.lock().interruptions.count();
        loop {
            let Some(act) = self.disk.lock().interruptions.take_due() else {
                return;
            };
            act();
        }
    }

    fn call(&self, call: Call) -> io::Result<MutexGuard<'_, Disk>> {
        self.call_to_read(call).map(|(disk, _)| disk)
    }

    /// Counts a call that reads. Returns whether the call gets a wrong bit.
    fn call_to_read(&self, call: Call) -> io::Result<(MutexGuard<'_, Disk>, bool)> {
        let (disk, hit) = self.begin(call);
        let is_flipped = Hit::result(hit)?;
        Ok((disk, is_flipped))
    }

    /// Counts a call that writes `bytes`. Returns how many bytes are written, and the error if not all are.
    fn call_to_write(
        &self,
        call: Call,
        bytes: usize,
    ) -> io::Result<(MutexGuard<'_, Disk>, usize, io::Result<()>)> {
        let (mut disk, hit) = self.begin(call);
        match hit {
            Some(Hit::Dead(error)) => Err(error),
            Some(Hit::Failed(error) | Hit::CutOff(error)) => {
                let written = disk.random.below(bytes as u64 + 1) as usize;
                Ok((disk, written, Err(error)))
            }
            Some(Hit::Flipped) | None => Ok((disk, bytes, Ok(()))),
        }
    }
}

impl Disk {
    fn file(&mut self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        if self.names.get(path).is_some() {
            return self.file(path);
        }
        self.names.create_file(path, self.files.len())?;
        self.files.push(Contents::default());
        Ok(self.files.len() - 1)
    }

    fn bytes(&self) -> u64 {
        let files = self.names.files().into_iter();
        files.map(|file| self.files[file].cached.len() as u64).sum()
    }

    fn grow(&mut self, file: usize, bytes: u64) -> io::Result<()> {
        let more = bytes.saturating_sub(self.files[file].cached.len() as u64);
        if more > 0 {
            if self.bytes_max.is_some_and(|max| self.bytes() + more > max) {
                return Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    "simulated: disk full",
                ));
            }
            self.files[file].grow(bytes as usize);
        }
        Ok(())
    }

    fn write(&mut self, file: usize, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.grow(file, (offset + bytes.len()) as u64)?;
        self.files[file].write(offset, bytes);
        self.files[file].modified_ns = self.wall_ns;
        Ok(())
    }

    fn observe(&mut self, path: &Path, image: &[u8]) {
        if let Ok(file) = self.file(path) {
            self.files[file].observe(image);
        }
    }

    /// Fails a read from `start` that meets an unreadable sector. Flips one bit of `out` if `is_flipped`.
    fn check_read(
        &mut self,
        file: usize,
        start: usize,
        out: &mut [u8],
        is_flipped: bool,
    ) -> io::Result<()> {
        if let Some(code) = self.files[file].unreadable(start..start + out.len()) {
            return Err(io::Error::from_raw_os_error(code));
        }
        if is_flipped && !out.is_empty() {
            let bit = self.random.below(out.len() as u64 * 8) as usize;
            out[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn sync_dir(&mut self, path: &Path) -> Result<(), SyncError> {
        Hit::result(self.faults.call(Call::Open)).map_err(SyncError::of_open)?;
        if !self.names.is_dir(path) {
            return Err(SyncError::of_open(not_found()));
        }
        let hit = self.faults.call(Call::SyncDir);
        Hit::of_sync(hit, || self.fail_sync_dir(path)).map_err(SyncError::Final)?;
        let told = self.names.sync(path);
        self.faults.failed_syncs += u64::from(told.is_err());
        told.map_err(SyncError::Final)
    }

    /// A sync of one file fails. The whole file system tells of it, too.
    fn fail_sync(&mut self, file: usize) {
        self.files[file].fail(&mut self.random);
        // The caller tells of it.
        let _ = self.files[file].take_error();
        self.errors += 1;
    }

    /// A sync of one directory fails. Half of the time, its changes of names are lost. The whole file system tells of
    /// it, too.
    fn fail_sync_dir(&mut self, path: &Path) {
        if self.random.coin() {
            self.names.fail(path);
            // The caller tells of it.
            let _ = self.names.take_error(path);
        }
        self.errors += 1;
    }

    /// A sync of everything fails: for some of the files that are dirty, but for one at least. The sync of
    /// each of these tells of it, too.
    fn fail_sync_of_all(&mut self) {
        let mut has_failed = false;
        for file in self.files.iter_mut().rev() {
            if !has_failed || self.random.coin() {
                has_failed |= file.fail(&mut self.random);
            } else {
                file.write_all();
            }
        }
        self.errors += 1;
    }

    fn write_back(&mut self, random: &mut Random) {
        self.names.write_back(random);
        for contents in &mut self.files {
            contents.write_back(random);
        }
    }

    fn lose_power(&mut self, random: &mut Random) {
        self.write_back(random);
        self.names.revert();
        self.files.iter_mut().for_each(Contents::revert);
    }
}

impl Files for SimFiles {
    type FileSystem = SimFileSystem;

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Call::CreateDir)?.names.create_dir(path)
    }

    fn allocate(&self, path: &Path, bytes: u64, _pages: Pages) -> io::Result<()> {
        let mut disk = self.call(Call::Allocate)?;
        let is_new = disk.names.get(path).is_none();
        let file = disk.create(path)?;
        let result = disk.grow(file, bytes);
        if result.is_err() && is_new {
            disk.names.remove(path)?;
        }
        result
    }

    fn map(&self, path: &Path, bytes: u32) -> io::Result<Memory> {
        let (mut disk, is_flipped) = self.call_to_read(Call::Map)?;
        let file = disk.file(path)?;
        let image = disk.files[file].map(bytes as usize);
        let mut image = image.ok_or(io::ErrorKind::UnexpectedEof)?;
        disk.check_read(file, 0, &mut image, is_flipped)?;
        Ok(Memory::Heap(image.into()))
    }

    fn unmap(&self, path: &Path, memory: Memory) {
        let mut disk = self.disk.lock();
        disk.observe(path, memory.as_ref());
        if let Ok(file) = disk.file(path) {
            disk.files[file].is_mapped = false;
        }
    }

    /// Gives a copy: a log of a simulated world may be dropped at any time.
    fn lend(&self, buffer: Buffer) -> Memory {
        Memory::Heap((*buffer).into())
    }

    fn copy(&self, from: &Path, memory: &Memory, to: &Path) -> io::Result<()> {
        self.disk.lock().observe(from, memory.as_ref());
        let memory = memory.as_ref();
        let (mut disk, written, result) = self.call_to_write(Call::Copy, memory.len())?;
        if disk.names.get(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = disk.create(to)?;
        disk.write(file, 0, &memory[..written])?;
        disk.files[file].is_direct = true;
        result
    }

    fn load(&self, path: &Path, bytes: u32, reuse: Option<Memory>) -> io::Result<Memory> {
        drop(reuse);
        let (mut disk, is_flipped) = self.call_to_read(Call::Load)?;
        let file = disk.file(path)?;
        let image = disk.files[file].read_direct(bytes as usize);
        let mut image = image.ok_or(io::ErrorKind::UnexpectedEof)?;
        disk.check_read(file, 0, &mut image, is_flipped)?;
        Ok(Memory::Heap(image.into()))
    }

    fn sync(&self, path: &Path) -> Result<(), SyncError> {
        let opened = self.call(Call::Open).and_then(|mut disk| disk.file(path));
        let file = opened.map_err(SyncError::of_open)?;
        let (mut disk, hit) = self.begin(Call::Sync);
        Hit::of_sync(hit, || disk.fail_sync(file)).map_err(SyncError::Final)?;
        disk.files[file].write_all();
        let told = disk.files[file].take_error();
        disk.faults.failed_syncs += u64::from(told.is_err());
        told.map_err(SyncError::Final)
    }

    fn sync_dir(&self, path: &Path) -> Result<(), SyncError> {
        // The directory that has the logs is synced under a lock, which the other threads may want.
        let is_log = path.extension() == Some(OsStr::new("log"));
        if is_log {
            self.let_interrupt();
        }
        let synced = self.disk.lock().sync_dir(path);
        if is_log {
            self.let_interrupt();
        }
        synced
    }

    fn open_file_system(&self, _directory: &Path) -> io::Result<SimFileSystem> {
        let told = AtomicU64::new(self.disk.lock().errors);
        Ok(SimFileSystem { told })
    }

    fn sync_file_system(&self, file_system: &SimFileSystem) -> io::Result<()> {
        let (mut disk, hit) = self.begin(Call::Sync);
        Hit::of_sync(hit, || {
            disk.fail_sync_of_all();
            file_system.told.store(disk.errors, Ordering::Relaxed);
        })?;
        disk.files.iter_mut().for_each(Contents::write_all);
        disk.names.sync_all();
        let told = file_system.told.swap(disk.errors, Ordering::Relaxed);
        if told == disk.errors {
            return Ok(());
        }
        disk.faults.failed_syncs += 1;
        Err(write_back_error())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Rename)?.names.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.call(Call::Remove)?;
        disk.file(path)?;
        disk.names.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.call(Call::Remove)?;
        if !disk.names.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        disk.names.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut disk = self.call(Call::List)?;
        let names = disk.names.list(path)?.into_iter();
        let entries = names.map(|(name, node)| {
            let file = match node {
                Node::Dir(_) => None,
                Node::File(file) => Some(&disk.files[file]),
            };
            Entry {
                name: name.to_string_lossy().into_owned(),
                is_dir: file.is_none(),
                bytes: file.map_or(0, |file| file.cached.len() as u64),
                modified_ns: file.map_or(0, |file| file.modified_ns),
            }
        });
        Ok(entries.collect())
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        let mut disk = self.call(Call::List)?;
        let file = disk.file(path)?;
        Ok(disk.files[file].cached.len() as u64)
    }

    fn read_at(&self, path: &Path, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (mut disk, is_flipped) = self.call_to_read(Call::Read)?;
        let file = disk.file(path)?;
        let start = offset as usize;
        let bytes = disk.files[file].cached.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        disk.check_read(file, start, out, is_flipped)
    }

    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut disk, written, result) = self.call_to_write(Call::Write, bytes.len())?;
        let file = disk.create(path)?;
        disk.write(file, offset as usize, &bytes[..written])?;
        result
    }
}
