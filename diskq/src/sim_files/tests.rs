use super::*;

const PATH: &str = "/data/t.log/file";

fn disk() -> SimFiles {
    let files = SimFiles::new();
    files.create_dir(Path::new("/data/t.log")).unwrap();
    files.write_at(Path::new(PATH), 0, &[1; 4096]).unwrap();
    files
}

fn first_byte(files: &SimFiles) -> io::Result<u8> {
    let mut byte = [0];
    files
        .read_at(Path::new(PATH), 0, &mut byte)
        .map(|()| byte[0])
}

#[test]
fn a_process_crash_keeps_everything() {
    let files = disk();
    files.crash(Crash::Process);
    assert_eq!(first_byte(&files).unwrap(), 1);
}

#[test]
fn a_power_loss_keeps_what_was_synced_and_some_of_the_rest() {
    let (mut kept, mut lost, mut gone) = (0, 0, 0);
    for seed in 0..100 {
        let files = disk();
        files.crash(Crash::Power { seed });
        match first_byte(&files) {
            Ok(1) => kept += 1,
            Ok(_) => lost += 1,
            Err(_) => gone += 1,
        }
        let files = disk();
        files.sync(Path::new(PATH)).unwrap();
        files.sync_dir(Path::new("/data/t.log")).unwrap();
        files.write_at(Path::new(PATH), 1024, &[2; 512]).unwrap();
        files.crash(Crash::Power { seed });
        assert_eq!(first_byte(&files).unwrap(), 1);
    }
    assert!(kept > 0 && lost > 0 && gone > 0, "{kept} {lost} {gone}");
}

#[test]
fn after_a_failed_sync_the_next_one_lies() {
    let files = disk();
    files.sync(Path::new(PATH)).unwrap();
    files.sync_dir(Path::new("/data/t.log")).unwrap();
    files.write_at(Path::new(PATH), 0, &[9]).unwrap();
    files.fail_next(Call::Sync, io::ErrorKind::Other);
    assert!(files.sync(Path::new(PATH)).is_err());
    assert!(files.sync(Path::new(PATH)).is_ok());
    files.crash(Crash::Power { seed: 1 });
    assert_eq!(first_byte(&files).unwrap(), 1);
}

#[test]
fn a_full_disk_says_so_and_leaves_no_new_file() {
    let files = disk();
    files.limit(Some(5000));
    let error = files
        .allocate(Path::new("/data/t.log/other"), 4096)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(files.bytes(), 4096);
    assert_eq!(files.list(Path::new("/data/t.log")).unwrap().len(), 1);
}

#[test]
fn a_renamed_directory_takes_its_files_along() {
    let files = disk();
    files
        .rename(Path::new("/data/t.log"), Path::new("/data/u.log"))
        .unwrap();
    assert!(first_byte(&files).is_err());
    assert_eq!(files.length(Path::new("/data/u.log/file")).unwrap(), 4096);
}
