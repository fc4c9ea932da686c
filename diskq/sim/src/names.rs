//! The names of a simulated disk. A directory's changes become durable with that directory only.
//!
//! Each directory has a journal of its own. A power failure keeps some first entries of each journal.
//! A rename from one directory to another is one entry in both journals, and so one change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};

use crate::contents::write_back_error;
use crate::faults::Random;

/// The node that a name stands for: an index into the directories or into the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Dir(usize),
    File(usize),
}

type Entries = BTreeMap<OsString, Node>;

/// Changes of one directory that stay or go together.
#[derive(Clone, Debug)]
struct Change {
    id: u64,
    /// Each name, and what it stands for from now on.
    names: Vec<(OsString, Option<Node>)>,
    /// The other directory of a rename.
    other: Option<usize>,
}

#[derive(Debug, Default)]
struct Dir {
    /// True for a directory that exists without having been made: the root, and every directory whose path has no log.
    is_given: bool,
    names: Entries,
    durable: Entries,
    /// The changes of `names` that `durable` does not have yet, except those that were lost.
    journal: Vec<Change>,
    /// The names whose changes were lost. They are visible, and no sync makes them durable.
    lost: BTreeSet<OsString>,
    /// True if changes were lost and no sync has reported the loss yet.
    has_error: bool,
    /// Given directories below.
    given: BTreeMap<OsString, usize>,
}

/// All directories of a disk. The first one is the root.
#[derive(Debug)]
pub(crate) struct Names {
    dirs: Vec<Dir>,
    changes: u64,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            dirs: vec![Dir::given()],
            changes: 0,
        }
    }
}

pub(crate) fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "simulated: no such file")
}

impl Dir {
    fn given() -> Dir {
        Dir {
            is_given: true,
            ..Dir::default()
        }
    }
}

impl Change {
    fn apply(&self, entries: &mut Entries) {
        for (name, node) in &self.names {
            match node {
                Some(node) => entries.insert(name.clone(), *node),
                None => entries.remove(name),
            };
        }
    }
}

impl Names {
    /// The directory at `path`.
    fn dir(&mut self, path: &Path) -> Option<usize> {
        let mut at = 0;
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            at = match self.dirs[at].names.get(name) {
                Some(Node::Dir(dir)) => *dir,
                Some(Node::File(_)) => return None,
                None => self.given(at, name)?,
            };
        }
        Some(at)
    }

    fn given(&mut self, parent: usize, name: &OsStr) -> Option<usize> {
        let is_log = Path::new(name).extension() == Some(OsStr::new("log"));
        if !self.dirs[parent].is_given || is_log {
            return None;
        }
        if let Some(dir) = self.dirs[parent].given.get(name) {
            return Some(*dir);
        }
        self.dirs.push(Dir::given());
        let dir = self.dirs.len() - 1;
        self.dirs[parent].given.insert(name.to_owned(), dir);
        Some(dir)
    }

    /// The directory that has the last name of `path`, and that name.
    fn parent(&mut self, path: &Path) -> io::Result<(usize, OsString)> {
        let name = path.file_name().ok_or_else(not_found)?.to_owned();
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.dir(parent).ok_or_else(not_found)?, name))
    }

    pub(crate) fn get(&mut self, path: &Path) -> Option<Node> {
        let (dir, name) = self.parent(path).ok()?;
        self.dirs[dir].names.get(&name).copied()
    }

    pub(crate) fn is_dir(&mut self, path: &Path) -> bool {
        self.dir(path).is_some()
    }

    /// Makes a directory; an existing one is fine.
    pub(crate) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        if self.dirs[parent].names.contains_key(&name) {
            return Ok(());
        }
        let dir = match self.dirs[parent].given.get(&name) {
            Some(dir) => *dir,
            None => {
                self.dirs.push(Dir::default());
                self.dirs.len() - 1
            }
        };
        self.dirs[dir].is_given = false;
        self.change(parent, vec![(name, Some(Node::Dir(dir)))], None);
        Ok(())
    }

    /// Gives a new file its name.
    pub(crate) fn create_file(&mut self, path: &Path, file: usize) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        self.change(parent, vec![(name, Some(Node::File(file)))], None);
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        self.change(parent, vec![(name, None)], None);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.get(from).ok_or_else(not_found)?;
        if let Some(Node::Dir(dir)) = self.get(to)
            && !self.dirs[dir].names.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (from_dir, from) = self.parent(from)?;
        let (to_dir, to) = self.parent(to)?;
        let (unset, set) = ((from, None), (to, Some(node)));
        if from_dir == to_dir {
            self.change(from_dir, vec![unset, set], None);
        } else {
            self.change(from_dir, vec![unset], Some(to_dir));
            self.changes -= 1;
            self.change(to_dir, vec![set], Some(from_dir));
        }
        Ok(())
    }

    fn change(&mut self, dir: usize, names: Vec<(OsString, Option<Node>)>, other: Option<usize>) {
        self.changes += 1;
        let change = Change {
            id: self.changes,
            names,
            other,
        };
        let dir = &mut self.dirs[dir];
        change.apply(&mut dir.names);
        dir.journal.push(change);
    }

    /// The names in a directory.
    pub(crate) fn list(&mut self, path: &Path) -> io::Result<Vec<(OsString, Node)>> {
        let dir = self.dir(path).ok_or_else(not_found)?;
        let names = self.dirs[dir].names.iter();
        Ok(names.map(|(name, node)| (name.clone(), *node)).collect())
    }

    /// The files that have a name.
    pub(crate) fn files(&self) -> Vec<usize> {
        let (mut files, mut dirs) = (Vec::new(), vec![0]);
        while let Some(dir) = dirs.pop() {
            dirs.extend(self.dirs[dir].given.values());
            for node in self.dirs[dir].names.values() {
                match node {
                    Node::Dir(dir) => dirs.push(*dir),
                    Node::File(file) => files.push(*file),
                }
            }
        }
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Makes the names in one directory durable. If changes were lost, the first sync after that reports it.
    pub(crate) fn sync(&mut self, path: &Path) -> io::Result<()> {
        let Some(dir) = self.dir(path) else {
            return Ok(());
        };
        self.commit(dir, usize::MAX);
        self.take_error(path)
    }

    /// Tells of changes of one directory that were lost, once.
    pub(crate) fn take_error(&mut self, path: &Path) -> io::Result<()> {
        let Some(dir) = self.dir(path) else {
            return Ok(());
        };
        if std::mem::take(&mut self.dirs[dir].has_error) {
            Err(write_back_error())
        } else {
            Ok(())
        }
    }

    /// Loses the changes of one directory that are not durable. Returns whether there were any.
    pub(crate) fn fail(&mut self, path: &Path) -> bool {
        let Some(dir) = self.dir(path) else {
            return false;
        };
        let dir = &mut self.dirs[dir];
        let has_failed = !dir.journal.is_empty();
        let changes = dir.journal.drain(..);
        let names = changes.flat_map(|change| change.names);
        dir.lost.extend(names.map(|(name, _)| name));
        dir.has_error |= has_failed;
        has_failed
    }

    /// The names in one directory whose changes were lost, and whether a sync has reported the loss.
    pub(crate) fn lost(&mut self, path: &Path) -> (Vec<OsString>, bool) {
        let Some(dir) = self.dir(path) else {
            return (Vec::new(), false);
        };
        let dir = &self.dirs[dir];
        (dir.lost.iter().cloned().collect(), !dir.has_error)
    }

    /// Makes the names in all directories durable.
    pub(crate) fn sync_all(&mut self) {
        for dir in 0..self.dirs.len() {
            self.commit(dir, usize::MAX);
        }
    }

    /// Makes some first changes of each directory durable.
    pub(crate) fn write_back(&mut self, random: &mut Random) {
        for dir in 0..self.dirs.len() {
            let count = random.below(self.dirs[dir].journal.len() as u64 + 1);
            self.commit(dir, count as usize);
        }
    }

    /// Forgets what is not durable.
    pub(crate) fn revert(&mut self) {
        for dir in &mut self.dirs {
            dir.journal.clear();
            dir.lost.clear();
            dir.has_error = false;
            dir.names.clone_from(&dir.durable);
        }
    }

    /// Makes the first `count` changes of a directory durable. A rename among them is shared with another
    /// directory: that directory's changes up to the rename become durable, too.
    fn commit(&mut self, dir: usize, count: usize) {
        let count = count.min(self.dirs[dir].journal.len());
        let changes: Vec<Change> = self.dirs[dir].journal.drain(..count).collect();
        for change in changes {
            change.apply(&mut self.dirs[dir].durable);
            for (name, _) in &change.names {
                self.dirs[dir].lost.remove(name);
            }
            if let Some(other) = change.other {
                let shared = |journalled: &Change| journalled.id == change.id;
                if let Some(at) = self.dirs[other].journal.iter().position(shared) {
                    self.commit(other, at + 1);
                }
            }
        }
    }
}
