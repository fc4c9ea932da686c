use super::*;

#[test]
fn one_process_per_data_path() {
    let directory = tempfile::tempdir().unwrap();
    let lock = DataPathLock::acquire(directory.path()).unwrap();
    assert!(matches!(
        DataPathLock::acquire(directory.path()),
        Err(DiskError::Locked(_))
    ));
    drop(lock);
    DataPathLock::acquire(directory.path()).unwrap();
    check_writable(directory.path()).unwrap();
}

#[test]
fn what_cannot_be_locked_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(matches!(
        DataPathLock::acquire(&missing),
        Err(DiskError::Missing(_))
    ));
    assert!(matches!(
        check_writable(&missing),
        Err(DiskError::Missing(_))
    ));
    assert!(!missing.exists());
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(
        DataPathLock::acquire(&file),
        Err(DiskError::NotADirectory(_))
    ));
    let below_file = file.join("below");
    assert!(matches!(
        DataPathLock::acquire(&below_file),
        Err(DiskError::NotADirectory(_))
    ));
    // No file system takes new files in /proc, not even from root.
    assert!(matches!(
        check_writable(Path::new("/proc/self")),
        Err(DiskError::NotPermitted(..))
    ));
}
