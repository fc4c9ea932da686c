//! [`MessageFile`]: one message that becomes a file. [`check`] and [`save`]: the directory of these files.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use ringq_client::MessageId;

use new_file::{rename_new, sync_directory, temporary_file};

/// A message, as nsqd sent it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) topic: &'a str,
    pub(super) body: &'a Bytes,
    pub(super) published: SystemTime,
    pub(super) id: MessageId,
}

/// A message that becomes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageFile {
    /// The name of the file: topic, time and id.
    name: String,
    body: Bytes,
}

impl MessageFile {
    /// Returns the file of a message.
    pub(super) fn new(message: &Received<'_>) -> MessageFile {
        MessageFile {
            name: name(message.topic, message.published, message.id),
            body: message.body.clone(),
        }
    }

    /// Returns the number of bytes of the body.
    pub(super) fn size(&self) -> usize {
        self.body.len()
    }
}

/// Returns the name of a message's file: `clicks-1795253285000000000-0d1c2b3a49586776`. The names of a topic sort by the time
/// of the publish, in nanoseconds since 1970 with 19 digits, which are enough until 2286.
///
/// A topic that begins with a dot or a hyphen follows an underscore, because shells hide such names, and programs read them
/// as flags. nsqd's ids are hexadecimal; other bytes are escaped as in a URL, so no id leads to another directory.
fn name(topic: &str, published: SystemTime, id: MessageId) -> String {
    let mark = match topic.starts_with(['.', '-']) {
        true => "_",
        false => "",
    };
    let time = published.duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = percent_encode(id.as_bytes(), NON_ALPHANUMERIC);
    format!("{mark}{topic}-{:019}-{id}", time.as_nanos())
}

/// Makes a file in the directory, removes the file, and syncs the directory.
///
/// # Errors
/// The directory is missing, takes no files, or cannot be read and so cannot be synced.
pub(super) fn check(directory: &Path) -> Result<(), SaveError> {
    let made = temporary_file(&directory.join("nsq_tail"));
    let removed = made.and_then(|(path, _)| fs::remove_file(path));
    let synced = removed.and_then(|()| sync_directory(directory));
    synced.map_err(|source| SaveError {
        verb: "make a file in",
        path: directory.to_path_buf(),
        source,
    })
}

/// Makes the files, in order. Returns how many survive a power failure now, under their names, and why there are no more.
pub(super) fn save(directory: &Path, files: &[MessageFile]) -> (usize, Result<(), SaveError>) {
    let mut count = 0;
    let mut result = Ok(());
    for file in files {
        let path = directory.join(&file.name);
        if let Err(source) = save_one(&path, &file.body) {
            result = Err(SaveError {
                verb: "write",
                path,
                source,
            });
            break;
        }
        count += 1;
    }
    match sync_directory(directory) {
        Ok(()) => (count, result),
        Err(source) => {
            let path = directory.to_path_buf();
            let verb = "sync";
            (0, Err(SaveError { verb, path, source }))
        }
    }
}

/// Writes and syncs a file under a temporary name, and renames the file. A message that has its file already needs no room.
fn save_one(path: &Path, body: &[u8]) -> io::Result<()> {
    if has_content(path, body) {
        return Ok(());
    }
    let (temporary, file) = temporary_file(path)?;
    let done = write(file, body).and_then(|()| rename(&temporary, path, body));
    if done.is_err() {
        // A full disk gets its space back. The error of the write is the reason that counts.
        let _ = fs::remove_file(&temporary);
    }
    done
}

fn write(mut file: File, body: &[u8]) -> io::Result<()> {
    file.write_all(body)?;
    file.sync_all()
}

/// Gives a file its name. If there is a file of this name with the same content, then the message came before, and its FIN
/// was lost: the old file stays alone. A file with other content is that of another nsqd, and the new one gets a number.
fn rename(temporary: &Path, path: &Path, body: &[u8]) -> io::Result<()> {
    let mut target = path.to_path_buf();
    for number in 1_u32.. {
        match rename_new(temporary, &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            renamed => return renamed,
        }
        if has_content(&target, body) {
            return fs::remove_file(temporary);
        }
        let mut numbered = path.as_os_str().to_owned();
        numbered.push(format!("-{number}"));
        target = PathBuf::from(numbered);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns true if there is a file with this content. What cannot be read, or is no file, has another content.
fn has_content(path: &Path, body: &[u8]) -> bool {
    let found = fs::symlink_metadata(path);
    let is_as_long = found.is_ok_and(|found| found.is_file() && found.len() == body.len() as u64);
    is_as_long && fs::read(path).is_ok_and(|content| content == body)
}

/// The failure of a file or of its directory. The text says what to do.
#[derive(Debug)]
pub(super) struct SaveError {
    verb: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use io::ErrorKind::{
            NotADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
            StorageFull,
        };
        let SaveError { verb, path, source } = self;
        let why = wire::go_error::system_text(source);
        write!(f, "ERROR: cannot {verb} {}: {why}", path.display())?;
        let advice = match source.kind() {
            NotFound => "make the directory",
            NotADirectory => "move the file that is in the way",
            StorageFull | QuotaExceeded => "free some space",
            PermissionDenied => "let this user write there",
            ReadOnlyFilesystem => "mount the file system for writing",
            _ => "look at the disk",
        };
        write!(
            f,
            "; {advice}, or choose another directory (--output-dir). Messages without a file are not finished, and come again"
        )
    }
}

impl std::error::Error for SaveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests;
