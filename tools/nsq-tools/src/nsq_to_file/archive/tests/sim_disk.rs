//! [`SimDisk`]: a disk in memory that can fail and lose power.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::nsq_to_file::disk::{Disk, Opened, Stop};

/// A disk in memory. Its clones are the same disk.
#[derive(Clone, Default)]
pub(super) struct SimDisk {
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<PathBuf, Content>,
    directories: BTreeSet<PathBuf>,
    /// The names of removed files that are still open.
    removed: BTreeSet<PathBuf>,
    /// The present names of files that were renamed, by the names under which they were opened.
    moved: BTreeMap<PathBuf, PathBuf>,
    /// A file that is renamed just before the next move, and its new name.
    renamed_before_move: Option<(String, String)>,
    /// The number of writes and syncs.
    writes: usize,
    syncs: usize,
    /// The number of operations that still succeed. `None` means all.
    operations_left: Option<usize>,
}

/// The content of a file. A power failure takes the bytes that are not synced, or a part of them.
#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: usize,
}

/// The names of a file while it is open: it may be moved, but not replaced.
pub(super) struct SimFile(PathBuf);

/// A sync that has begun: the names of its file, and the bytes that the file had then.
pub(super) struct SimSync {
    file: SimFile,
    length: usize,
}

impl SimDisk {
    /// Makes the disk full after this many more operations.
    pub(super) fn fail_after(&self, operations: usize) {
        self.state.borrow_mut().operations_left = Some(operations);
    }

    /// Cuts the power: takes a part of what is not synced. The disk then works again.
    pub(super) fn lose_power(&self, rng: &mut fastrand::Rng) {
        let mut state = self.state.borrow_mut();
        state.operations_left = None;
        for content in state.files.values_mut() {
            let kept = rng.usize(content.synced..=content.bytes.len());
            content.bytes.truncate(kept);
        }
    }

    /// Puts a file there, with everything synced.
    pub(super) fn put(&self, path: &str, bytes: &[u8]) {
        let content = Content {
            bytes: bytes.to_vec(),
            synced: bytes.len(),
        };
        let mut state = self.state.borrow_mut();
        state.files.insert(PathBuf::from(path), content);
    }

    pub(super) fn rename(&self, from: &str, to: &str) {
        let mut state = self.state.borrow_mut();
        let content = state.files.remove(Path::new(from)).expect("it is there");
        state.files.insert(PathBuf::from(to), content);
        state.moved.insert(PathBuf::from(from), PathBuf::from(to));
    }

    /// Lets another program rename a file after the archive has looked for it, and before the archive moves it.
    pub(super) fn rename_before_move(&self, from: &str, to: &str) {
        let renamed = (from.to_owned(), to.to_owned());
        self.state.borrow_mut().renamed_before_move = Some(renamed);
    }

    /// Removes a file that the archive writes.
    pub(super) fn remove(&self, path: &str) {
        let mut state = self.state.borrow_mut();
        state.files.remove(Path::new(path)).expect("it is there");
        state.removed.insert(PathBuf::from(path));
    }

    /// Removes an empty directory.
    pub(super) fn remove_directory(&self, path: &str) {
        let mut state = self.state.borrow_mut();
        assert!(state.directories.remove(Path::new(path)), "{path} is there");
    }

    /// Returns the files by their paths.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.borrow();
        let files = state.files.iter();
        let text = |path: &Path| path.display().to_string();
        files
            .map(|(path, content)| (text(path), content.bytes.clone()))
            .collect()
    }

    pub(super) fn sync_count(&self) -> usize {
        self.state.borrow().syncs
    }

    pub(super) fn write_count(&self) -> usize {
        self.state.borrow().writes
    }
}

impl State {
    /// Returns the content of a file that is open and not removed.
    fn content_mut(&mut self, file: &SimFile) -> &mut Content {
        let path = self.moved.get(&file.0).unwrap_or(&file.0);
        self.files.get_mut(path).expect("the file is there")
    }

    fn operate(&mut self) -> io::Result<()> {
        match &mut self.operations_left {
            None => Ok(()),
            Some(0) => Err(io::ErrorKind::StorageFull.into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn expect_parent(&self, path: &Path) {
        let parent = path.parent().expect("a file has a directory");
        assert!(
            self.directories.contains(parent),
            "{} is missing",
            parent.display()
        );
    }
}

impl Disk for SimDisk {
    type File = SimFile;
    type Sync = SimSync;

    fn make_directories(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.operate()?;
        state.directories.insert(path.to_path_buf());
        Ok(())
    }

    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        let mut state = self.state.borrow_mut();
        state.operate()?;
        Ok(state.files.contains_key(path))
    }

    fn open(&mut self, path: &Path, must_be_new: bool) -> io::Result<Opened<SimFile>> {
        let mut state = self.state.borrow_mut();
        state.operate()?;
        state.expect_parent(path);
        if must_be_new && state.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.removed.remove(path);
        state.moved.remove(path);
        let content = state.files.entry(path.to_path_buf()).or_default();
        Ok(Opened {
            file: SimFile(path.to_path_buf()),
            size: content.bytes.len() as u64,
            has_torn_line: content.bytes.last().is_some_and(|byte| *byte != b'\n'),
            is_shared: false,
        })
    }

    fn write(&mut self, file: &mut SimFile, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.writes += 1;
        let done = state.operate();
        if state.removed.contains(&file.0) {
            return done;
        }
        let content = state.content_mut(file);
        // A disk that becomes full takes a part of the bytes.
        let taken = if done.is_ok() {
            bytes.len()
        } else {
            bytes.len() / 2
        };
        content.bytes.extend_from_slice(&bytes[..taken]);
        done
    }

    fn sync(&mut self, file: &mut SimFile) -> io::Result<()> {
        let sync = self.begin_sync(file)?;
        self.end_sync(file, sync)
    }

    fn syncs_max(&self, _file: &SimFile) -> usize {
        2
    }

    fn begin_sync(&mut self, file: &mut SimFile) -> io::Result<SimSync> {
        let mut state = self.state.borrow_mut();
        state.syncs += 1;
        let length = if state.removed.contains(&file.0) {
            0
        } else {
            state.content_mut(file).bytes.len()
        };
        let file = SimFile(file.0.clone());
        Ok(SimSync { file, length })
    }

    fn end_sync(&mut self, _file: &mut SimFile, sync: SimSync) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.operate()?;
        if !state.removed.contains(&sync.file.0) {
            let content = state.content_mut(&sync.file);
            content.synced = content.synced.max(sync.length);
        }
        Ok(())
    }

    fn is_removed(&mut self, file: &SimFile, _path: &Path) -> io::Result<bool> {
        Ok(self.state.borrow().removed.contains(&file.0))
    }

    fn has_name(&mut self, file: &SimFile, path: &Path) -> io::Result<bool> {
        let state = self.state.borrow();
        Ok(file.0 == path && state.files.contains_key(path) && !state.moved.contains_key(path))
    }

    fn move_file(&mut self, from: &Path, to: &Path, _stop: &Stop) -> io::Result<()> {
        let renamed = self.state.borrow_mut().renamed_before_move.take();
        if let Some((from, to)) = renamed {
            self.rename(&from, &to);
        }
        let mut state = self.state.borrow_mut();
        state.operate()?;
        state.expect_parent(to);
        if state.files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_path_buf(), content);
        Ok(())
    }

    fn cut(&mut self, file: &mut SimFile, length: u64) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.operate()?;
        if !state.removed.contains(&file.0) {
            let content = state.content_mut(file);
            assert!(content.synced as u64 <= length, "synced bytes stay");
            content.bytes.truncate(length as usize);
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.operate()?;
        let removed = state.files.remove(path);
        removed.map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
}
