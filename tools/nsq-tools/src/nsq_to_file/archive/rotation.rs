//! The reasons for which a file is rotated.

use std::time::Instant;

use wire::go_value::duration_text;

use super::open_file::OpenFile;
use crate::nsq_to_file::disk::Disk;
use crate::nsq_to_file::settings::Settings;

/// Returns the reason why the next message belongs to another file, if there is one. `name` is the
/// name of a file that is opened now.
pub(super) fn reason<D: Disk>(
    file: &OpenFile<D>,
    name: &str,
    now: Instant,
    settings: &Settings,
) -> Option<String> {
    if file.name != name {
        return Some(format!("new filename {name}"));
    }
    let age = now.saturating_duration_since(file.opened);
    if settings.rotate_interval.is_some_and(|max| age > max) {
        return Some(format!("{} since last open", duration_text(age)));
    }
    full(file, settings)
}

/// Returns the reason why a file is too large, if it is.
pub(super) fn full<D: Disk>(file: &OpenFile<D>, settings: &Settings) -> Option<String> {
    let max = settings.rotate_size.filter(|max| file.size > *max)?;
    let (path, size) = (file.path.display(), file.size);
    Some(format!("{path} currently {size} bytes (> {max})"))
}
