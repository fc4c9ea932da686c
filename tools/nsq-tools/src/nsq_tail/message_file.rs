//! [`MessageFile`]: one message that becomes a file. [`check`] and [`save`]: the directory of these files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use ringq_client::MessageId;

use new_file::{Directory, FILE_MODE};

use crate::advice::advice;

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
    let mark = if topic.starts_with(['.', '-']) {
        "_"
    } else {
        ""
    };
    let time = published.duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = percent_encode(id.as_bytes(), NON_ALPHANUMERIC);
    format!("{mark}{topic}-{:019}-{id}", time.as_nanos())
}

/// Makes a file in the directory, removes the file, and syncs the directory.
///
/// # Errors
/// The directory is missing, takes no files, or cannot be read and so cannot be synced.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let checked = Directory::open(path).and_then(|directory| {
        let (temporary, _) = directory.temporary_file(OsStr::new("nsq_tail"), FILE_MODE)?;
        directory.remove_file(&temporary)?;
        directory.sync()
    });
    checked.map_err(|source| failure("make a file in", path, &source))
}

/// Makes the files, in order. Returns how many survive a power failure now, under their names, and why there are no more.
///
/// The directory is opened once. So a directory that gets the path meanwhile is not synced in the place of the one that has
/// the files.
pub(super) fn save(path: &Path, files: &[MessageFile]) -> (usize, Result<(), String>) {
    let directory = match Directory::open(path) {
        Ok(directory) => directory,
        Err(source) => return (0, Err(failure("open", path, &source))),
    };
    let mut count = 0;
    let mut result = Ok(());
    for file in files {
        if let Err(source) = save_one(&directory, OsStr::new(&file.name), &file.body) {
            result = Err(failure("write", &path.join(&file.name), &source));
            break;
        }
        count += 1;
    }
    match directory.sync() {
        Ok(()) => (count, result),
        Err(source) => (0, Err(failure("sync", path, &source))),
    }
}

/// Writes and syncs a file under a temporary name, and renames the file. A message that has its file already needs no room.
fn save_one(directory: &Directory, name: &OsStr, body: &[u8]) -> io::Result<()> {
    if has_content(directory, name, body) {
        return Ok(());
    }
    let (temporary, file) = directory.temporary_file(name, FILE_MODE)?;
    let done = write(file, body).and_then(|()| rename(directory, &temporary, name, body));
    if done.is_err() {
        // A full disk gets its space back. The error of the write is the reason that counts.
        let _ = directory.remove_file(&temporary);
    }
    done
}

fn write(mut file: File, body: &[u8]) -> io::Result<()> {
    file.write_all(body)?;
    file.sync_all()
}

/// Gives a file its name. If there is a file of this name with the same content, then the message came before, and its FIN
/// was lost: the old file stays alone. A file with other content is that of another nsqd, and the new one gets a number.
fn rename(directory: &Directory, temporary: &OsStr, name: &OsStr, body: &[u8]) -> io::Result<()> {
    let mut target = name.to_owned();
    for number in 1_u32.. {
        match directory.rename_new(temporary, &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            renamed => return renamed,
        }
        if has_content(directory, &target, body) {
            return directory.remove_file(temporary);
        }
        target = name.to_owned();
        target.push(format!("-{number}"));
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns true if there is a file with this content. What cannot be read, or is no file, has another content.
fn has_content(directory: &Directory, name: &OsStr, body: &[u8]) -> bool {
    let Ok(Some(mut file)) = directory.open_regular_file(name) else {
        return false;
    };
    let is_as_long = file
        .metadata()
        .is_ok_and(|found| found.len() == body.len() as u64);
    let mut content = Vec::with_capacity(body.len());
    is_as_long && file.read_to_end(&mut content).is_ok() && content == body
}

/// Returns the failure of a file or of its directory. The text says what to do.
fn failure(verb: &str, path: &Path, source: &io::Error) -> String {
    let why = wire::go_error::system_text(source);
    let advice = match source.kind() {
        io::ErrorKind::NotFound => "make the directory",
        _ => advice(source).unwrap_or("look at the disk"),
    };
    format!(
        "ERROR: cannot {verb} {}: {why}; {advice}, or choose another directory (--output-dir). Messages without a file are \
         not finished, and come again",
        path.display()
    )
}

#[cfg(test)]
mod tests;
