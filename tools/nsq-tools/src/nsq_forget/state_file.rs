//! [`StateFile`]: the file with the counts. It belongs to one process, and a new state replaces the old one in one step.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use new_file::FileLock;
use serde::{Deserialize, Serialize};

use super::table::State;

/// The version of the format.
const VERSION: u32 = 1;

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    #[serde(flatten)]
    state: State,
}

/// The file with the counts. Until it is dropped, no other process can use the file.
#[derive(Debug)]
pub(super) struct StateFile {
    pub(super) path: PathBuf,
    lock: FileLock,
}

impl StateFile {
    /// Takes the file. The calling thread may wait for a second.
    ///
    /// # Errors
    /// Another process uses the file, or the lock cannot be taken. The error is the reason for the user.
    pub(super) fn take(path: PathBuf) -> Result<StateFile, String> {
        match FileLock::take(&path) {
            Ok(lock) => Ok(StateFile { path, lock }),
            Err(error) => Err(format!("--state-file: {error}")),
        }
    }

    /// Returns the warning for the user if other processes could use the file.
    pub(super) fn warning(&self) -> Option<&str> {
        self.lock.warning()
    }

    /// Reads the state. A file that does not exist is an empty state.
    ///
    /// # Errors
    /// The file cannot be read, or has another format. The error is the reason for the user.
    pub(super) fn load(&self) -> Result<State, String> {
        let path = &self.path;
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(format!("failed to read {} - {error}", path.display())),
        };
        let content: Content = serde_json::from_slice(&text).map_err(|error| {
            format!(
                "{} is not a state of nsq_forget - {error}; move the file away to begin without counts",
                path.display()
            )
        })?;
        match content.version {
            VERSION => Ok(content.state),
            other => Err(format!(
                "{} is a state file of version {other}, and this nsq_forget reads version {VERSION}; start the nsq_forget that wrote it, or move the file away to begin without counts",
                path.display()
            )),
        }
    }

    /// Replaces the file by this state, which then survives a power failure.
    ///
    /// # Errors
    /// The system refuses a step. The error is the reason for the user. The old file stays as it was.
    pub(super) fn save(&self, state: State) -> Result<(), String> {
        let content = Content {
            version: VERSION,
            state,
        };
        new_file::replace(&self.path, |file| write(file, &content))
            .map_err(|error| format!("failed to write {} - {error}", self.path.display()))
    }
}

fn write(file: &File, content: &Content) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    serde_json::to_writer(&mut file, content)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::super::table::{ForgetTable, Limits, Wanted};
    use super::*;

    fn table(state: State) -> ForgetTable {
        let limits = Limits {
            distributions_max: 10,
            bins_max: 10,
        };
        ForgetTable::new(0.01, limits, state, 1)
    }

    #[test]
    fn a_saved_state_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("counts.json");
        // A file of a user, which was overwritten and removed.
        let other = directory.path().join("counts.json.new");
        fs::write(&other, "other").unwrap();
        let file = StateFile::take(path).unwrap();
        let mut counted = table(file.load().unwrap());
        counted.add("d", "v", 7, 1.5);
        file.save(counted.state()).unwrap();
        counted.add("d", "v", 1, 1.5);
        file.save(counted.state()).unwrap();
        let mut restored = table(file.load().unwrap());
        assert_eq!(
            restored.read("d", Wanted::Largest(9), 1.5).bins,
            [("v".into(), 8)]
        );
        assert_eq!(fs::read_to_string(other).unwrap(), "other");
        let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        // The third one is the lock.
        assert_eq!(names.len(), 3, "{names:?}");
    }

    #[test]
    fn a_state_that_cannot_be_read_or_written_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("counts.json");
        let shown = path.display();
        let file = StateFile::take(path.clone()).unwrap();
        fs::write(&path, "odd").unwrap();
        let error = file.load().unwrap_err();
        assert!(
            error.starts_with(&format!("{shown} is not a state of nsq_forget - ")),
            "{error}"
        );
        fs::write(&path, r#"{"version":2,"distributions":{}}"#).unwrap();
        let error = file.load().unwrap_err();
        assert_eq!(
            error,
            format!(
                "{shown} is a state file of version 2, and this nsq_forget reads version 1; start the nsq_forget that wrote it, or move the file away to begin without counts"
            )
        );
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = file.load().unwrap_err();
        assert!(error.starts_with("failed to read "), "{error}");
        let error = file.save(State::default()).unwrap_err();
        assert!(error.starts_with("failed to write "), "{error}");
        let missing = directory.path().join("nope/counts.json");
        let error = StateFile::take(missing).unwrap_err();
        assert!(error.contains("No such file or directory"), "{error}");
    }
}
