use super::table::{ForgetTable, Limits, Wanted};
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
    test_support::assert_like(&error, &format!("{shown} is not a state of nsq_forget - …"));
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
