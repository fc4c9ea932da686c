//! [`move_file`]: moves a file, also to another file system.
//!
//! ```text
//!   copy under a temporary name ─► sync ─► rename ─► sync of the directory ─► removal of the old file
//!   └──────── a stop ends this ───────┘    └── the end of the process waits for these ──┘
//! ```
//!
//! A process that is killed between the rename and the removal leaves the file at both places, and the next run archives
//! it again.

use std::fs::{File, remove_file};
use std::io::{self, Read};
use std::path::Path;

use new_file::{parent, rename_new, sync_directory, temporary_file};

use crate::nsq_to_file::stop::Stop;

/// The bytes that are copied and synced at a time. A stop waits for one such piece.
const PIECE_BYTES: u64 = 64 << 20;

/// Moves a file as [`Disk::move_file`](super::Disk::move_file) says.
pub(super) fn move_file(from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
    match rename_new(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => copy(from, to, stop)?,
        renamed => renamed?,
    }
    sync_directory(parent(to))?;
    sync_directory(parent(from))
}

/// Copies a file to another file system, under a temporary name first, and removes it.
fn copy(from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
    let (temporary, target) = temporary_file(to)?;
    let copied = copy_contents(from, target, stop).and_then(|()| rename_new(&temporary, to));
    if let Err(error) = copied {
        // The first error has the reason.
        let _ = remove_file(&temporary);
        return Err(error);
    }
    sync_directory(parent(to))?;
    match remove_file(from) {
        // Somebody has moved the file in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if refuses_removals(&error) => {
            // Each start would leave another copy. The first error has the reason.
            let _ = remove_file(to);
            Err(error)
        }
        removed => removed,
    }
}

fn copy_contents(from: &Path, mut target: File, stop: &Stop) -> io::Result<()> {
    let mut source = File::open(from)?;
    loop {
        stop.check()?;
        let piece = &mut (&mut source).take(PIECE_BYTES);
        if io::copy(piece, &mut target)? == 0 {
            break;
        }
        // The last sync then has little to do, so it does not hold up a stop.
        target.sync_data()?;
    }
    target.sync_all()?;
    stop.check()
}

/// Returns true for an error that proves that the file is still there.
fn refuses_removals(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

#[cfg(test)]
mod tests;
