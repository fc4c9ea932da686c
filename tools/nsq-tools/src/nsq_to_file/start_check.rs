//! [`check`]: whether the first files can be made, before a message comes.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Zoned;

use super::config::{Config, Topics};
use super::disk::DiskError;
use super::file_name::with_revision;
use new_file::temporary_file;

/// Makes a file in each directory where the first files of the fixed topics belong, and removes it. A directory that is
/// not there yet is not made: the nearest directory above is tried. Topics that nsqlookupds name later are checked if
/// their files have no directories of their own.
///
/// # Errors
/// A directory takes no files.
pub(super) fn check(config: &Config, now: &Zoned) -> Result<(), DiskError> {
    for directory in directories(config, now) {
        let (directory, probed) = probe(&directory);
        probed.map_err(|source| DiskError::new("make a file in", &directory, source))?;
    }
    Ok(())
}

/// Returns the directories of the first files.
fn directories(config: &Config, now: &Zoned) -> Vec<PathBuf> {
    let settings = &config.archive;
    let mut relative: Vec<PathBuf> = match &config.topics {
        Topics::Fixed(topics) => topics
            .iter()
            .map(|topic| first_file(config, topic, now))
            .collect(),
        Topics::Discovered { .. } => vec![first_file(config, "<TOPIC>", now)],
    };
    if let Topics::Discovered { .. } = &config.topics {
        relative.retain(|path| path.components().count() == 1);
    }
    let mut directories = Vec::new();
    for base in [&settings.work_dir, &settings.output_dir] {
        for path in &relative {
            // A join with an empty path would add a slash, which errors would show.
            let directory = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => base.join(parent),
                _ => base.clone(),
            };
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
    }
    directories
}

fn first_file(config: &Config, topic: &str, now: &Zoned) -> PathBuf {
    with_revision(config.archive.names.of_topic(topic).at(now), 0)
}

/// Tries to make a file in a directory, or in the nearest one above that is there. Returns the directory that was
/// tried.
fn probe(directory: &Path) -> (PathBuf, io::Result<()>) {
    let mut tried = directory;
    loop {
        let shown = if tried.as_os_str().is_empty() {
            Path::new(".")
        } else {
            tried
        };
        let made = temporary_file(&shown.join("nsq_to_file"));
        match made {
            Ok((path, _)) => return (shown.to_path_buf(), std::fs::remove_file(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match tried.parent() {
                // A directory that is there and cannot have this file will not get it later either.
                Some(parent) if !shown.exists() => tried = parent,
                _ => return (shown.to_path_buf(), Err(error)),
            },
            Err(error) => return (shown.to_path_buf(), Err(error)),
        }
    }
}
