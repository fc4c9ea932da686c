//! Commits a takeover and completes it. The completion may run several times.

use std::path::Path;

use diskq::{Attempt, DiskError, Entry, Files, LOG_SUFFIX};

use crate::metadata::FILE_NAME;

/// The directory in which logs are built.
pub(crate) const NEW: &str = "import.new";
/// The name of that directory after the commit, until the takeover is completed.
pub const DONE: &str = "import.done";
/// The beginning of the name of a directory that keeps nsqd's files.
pub(crate) const ORIGINAL_PREFIX: &str = "nsqd-original-";
const MANIFEST: &str = "manifest";
const FIRST_LINE: &str = "nsqd's files taken over, version 1";
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// The list of nsqd's files in the new logs, and the directory that will keep them.
///
/// ```text
///   nsqd's files taken over, version 1
///   nsqd-original-2026-01-31-115959
///   126 orders.diskqueue.000000.dat        length and name of each
///   ...
/// ```
pub(super) struct Manifest {
    /// The name of the directory that will keep nsqd's files.
    pub(super) original: String,
    /// The names and lengths of nsqd's files.
    pub(super) files: Vec<(String, u64)>,
}

/// Returns a name for the directory of nsqd's files that does not exist yet.
pub(super) fn original_name(label: &str, exists: impl Fn(&str) -> bool) -> String {
    let mut name = format!("{ORIGINAL_PREFIX}{label}");
    while exists(&name) {
        name.push('+');
    }
    name
}

impl Manifest {
    /// Commits the logs below [`NEW`]. `file_system` was opened before any of them was written.
    pub(super) fn commit<F: Files>(
        &self,
        files: &F,
        data_path: &Path,
        file_system: &F::FileSystem,
    ) -> Result<(), DiskError> {
        let new = data_path.join(NEW);
        let manifest = new.join(MANIFEST);
        files
            .write_at(&manifest, 0, self.encode().as_bytes())
            .in_attempt("write", &manifest)?;
        files
            .sync_file_system(file_system)
            .in_attempt("sync", data_path)?;
        files
            .rename(&new, &data_path.join(DONE))
            .in_attempt("rename", &new)?;
        files.sync_dir(data_path).in_attempt("sync", data_path)
    }

    fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n{}\n", self.original);
        for (name, bytes) in &self.files {
            text.push_str(&format!("{bytes} {name}\n"));
        }
        text
    }

    fn decode(text: &str) -> Option<Manifest> {
        let mut lines = text.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let original = lines.next()?.to_owned();
        let mut files = Vec::new();
        for line in lines {
            let (bytes, name) = line.split_once(' ')?;
            files.push((name.to_owned(), bytes.parse().ok()?));
        }
        Some(Manifest { original, files })
    }

    /// Reads the manifest of a committed takeover. `None` means that the manifest is gone and every
    /// file is in its place.
    fn read(
        files: &impl Files,
        path: &Path,
        entries: &[Entry],
    ) -> Result<Option<Manifest>, DiskError> {
        let Some(entry) = entries.iter().find(|entry| entry.name == MANIFEST) else {
            return Ok(None);
        };
        let path = path.join(MANIFEST);
        let mut text = vec![0; entry.bytes.min(MANIFEST_BYTES_MAX) as usize];
        files
            .read_at(&path, 0, &mut text)
            .in_attempt("read", &path)?;
        match Manifest::decode(&String::from_utf8_lossy(&text)) {
            Some(manifest) => Ok(Some(manifest)),
            None => Err(DiskError::Failed(format!(
                "{} is damaged: it lists the files of nsqd in the logs beside it. To take these files \
                 over again, move the directory {DONE} away. To do without them, move the files away",
                path.display()
            ))),
        }
    }

    /// Fails if nsqd's files have changed since the takeover. Another program may have written
    /// messages to them, which would be lost.
    fn check_unchanged(&self, present: &[Entry]) -> Result<(), DiskError> {
        for (name, bytes) in &self.files {
            let changed = present.iter().find(|entry| entry.name == *name);
            if let Some(changed) = changed.filter(|entry| entry.bytes != *bytes) {
                return Err(DiskError::Failed(format!(
                    "an unfinished takeover ({DONE}) has {bytes} bytes of {name}, but the file has {} now: \
                     another nsqd ran here meanwhile. Move the directory {DONE} away: the next start \
                     then takes over the files as they are now, and some messages may come twice",
                    changed.bytes
                )));
            }
        }
        Ok(())
    }
}

/// A committed takeover that is not completed.
pub(super) struct Committed {
    /// The content of [`DONE`].
    built: Vec<Entry>,
    /// `None`: every file is in its place, and only leftovers are to be removed.
    manifest: Option<Manifest>,
}

impl Committed {
    /// Looks for a committed takeover among the files that are `present` in the data path. Changes nothing.
    ///
    /// # Errors
    /// The takeover cannot be completed.
    pub(super) fn find(
        files: &impl Files,
        data_path: &Path,
        present: &[Entry],
    ) -> Result<Option<Committed>, DiskError> {
        if !present.iter().any(|entry| entry.name == DONE) {
            return Ok(None);
        }
        let done = data_path.join(DONE);
        let built = files.list(&done).in_attempt("list", &done)?;
        let manifest = Manifest::read(files, &done, &built)?;
        if let Some(manifest) = &manifest {
            manifest.check_unchanged(present)?;
        }
        Ok(Some(Committed { built, manifest }))
    }

    /// The names of nsqd's files that are in the new logs.
    pub(super) fn taken(&self) -> impl Iterator<Item = &str> {
        let manifest = self.manifest.iter();
        manifest.flat_map(|it| it.files.iter().map(|(name, _)| name.as_str()))
    }
}

/// Moves every file of a committed takeover to its place. Returns true if there was one. The call
/// has no effect without one, may be interrupted at any point, and may be repeated.
pub(super) fn roll_forward(files: &impl Files, data_path: &Path) -> Result<bool, DiskError> {
    let done = data_path.join(DONE);
    let present = files.list(data_path).in_attempt("list", data_path)?;
    let is_there = |name: &str| present.iter().any(|entry| entry.name == name);
    let Some(Committed { built, manifest }) = Committed::find(files, data_path, &present)? else {
        return Ok(false);
    };
    if let Some(manifest) = manifest {
        // Reports every failure from now on.
        let file_system = files
            .open_file_system(data_path)
            .in_attempt("open", data_path)?;
        let sync = || {
            files
                .sync_file_system(&file_system)
                .in_attempt("sync", data_path)
        };
        let logs = built.iter().filter(|entry| entry.is_dir);
        for Entry { name, .. } in logs.filter(|entry| entry.name.ends_with(LOG_SUFFIX)) {
            let (from, to) = (done.join(name), data_path.join(name));
            if is_there(name) {
                append_log(files, &from, &to)?;
            } else {
                files.rename(&from, &to).in_attempt("rename", &from)?;
            }
        }
        sync()?;
        set_aside(files, data_path, &manifest, &present)?;
        sync()?;
        let manifest = done.join(MANIFEST);
        files.remove(&manifest).in_attempt("remove", &manifest)?;
    }
    remove_tree(files, &done)?;
    files.sync_dir(data_path).in_attempt("sync", data_path)?;
    Ok(true)
}

/// Moves segments behind those of a log, then replaces the log's checkpoint. The segments have new
/// names, and the checkpoint is renamed after them.
fn append_log(files: &impl Files, from: &Path, to: &Path) -> Result<(), DiskError> {
    for entry in files.list(from).in_attempt("list", from)? {
        let (from, to) = (from.join(&entry.name), to.join(&entry.name));
        files.rename(&from, &to).in_attempt("rename", &from)?;
    }
    files.remove_dir(from).in_attempt("remove", from)
}

/// Moves nsqd's files aside together with a copy of nsqd.dat: the result is a data directory of
/// nsqd.
fn set_aside(
    files: &impl Files,
    data_path: &Path,
    manifest: &Manifest,
    present: &[Entry],
) -> Result<(), DiskError> {
    let original = data_path.join(&manifest.original);
    files.create_dir(&original).in_attempt("make", &original)?;
    if let Some(metadata) = present.iter().find(|entry| entry.name == FILE_NAME) {
        let path = data_path.join(FILE_NAME);
        let mut bytes = vec![0; metadata.bytes as usize];
        files
            .read_at(&path, 0, &mut bytes)
            .in_attempt("read", &path)?;
        let copy = original.join(FILE_NAME);
        files
            .write_at(&copy, 0, &bytes)
            .in_attempt("write", &copy)?;
    }
    for (name, _) in &manifest.files {
        if present.iter().any(|entry| entry.name == *name) {
            let from = data_path.join(name);
            files
                .rename(&from, &original.join(name))
                .in_attempt("rename", &from)?;
        }
    }
    Ok(())
}

/// Removes a directory with its content. A missing directory is no error.
pub(super) fn remove_tree(files: &impl Files, path: &Path) -> Result<(), DiskError> {
    let entries = match files.list(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.in_attempt("list", path)?,
    };
    for entry in entries {
        let child = path.join(&entry.name);
        if entry.is_dir {
            remove_tree(files, &child)?;
        } else {
            files.remove(&child).in_attempt("remove", &child)?;
        }
    }
    files.remove_dir(path).in_attempt("remove", path)
}
