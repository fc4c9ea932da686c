use std::io;
use std::path::Path;

use diskq::{Files, SyncError};
use diskq_log::{Memory, Pages};
use diskq_sim::{Call, Crash, SimFiles};

const PATH: &str = "/data/t.log/file";

fn disk() -> SimFiles {
    let files = SimFiles::new();
    files.create_dir(Path::new("/data/t.log")).unwrap();
    files.write_at(Path::new(PATH), 0, &[1; 4096]).unwrap();
    files
}

fn first_byte(files: &SimFiles) -> io::Result<u8> {
    let mut byte = [0];
    let read = files.read_at(Path::new(PATH), 0, &mut byte);
    read.map(|()| byte[0])
}

/// Makes the file and its names durable.
fn sync(files: &SimFiles) {
    files.sync(Path::new(PATH)).unwrap();
    files.sync_dir(Path::new("/data/t.log")).unwrap();
    files.sync_dir(Path::new("/data")).unwrap();
}

/// A disk on which everything is durable.
fn synced_disk() -> SimFiles {
    let files = disk();
    sync(&files);
    files
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
        let files = synced_disk();
        files.write_at(Path::new(PATH), 1024, &[2; 512]).unwrap();
        files.crash(Crash::Power { seed });
        assert_eq!(first_byte(&files).unwrap(), 1);
    }
    assert!(kept > 0 && lost > 0 && gone > 0, "{kept} {lost} {gone}");
}

#[test]
fn after_a_failed_sync_the_next_one_lies() {
    let files = synced_disk();
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
    let refused = files.allocate(Path::new("/data/t.log/other"), 4096, Pages::Small);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(files.bytes(), 4096);
    assert_eq!(files.list(Path::new("/data/t.log")).unwrap().len(), 1);
}

#[test]
fn a_renamed_directory_takes_its_files_along() {
    let files = disk();
    let [from, to] = ["/data/t.log", "/data/u.log"].map(Path::new);
    files.rename(from, to).unwrap();
    assert!(first_byte(&files).is_err());
    assert_eq!(files.length(Path::new("/data/u.log/file")).unwrap(), 4096);
}

/// The bytes of a file on the device: what is there after the power was cut and all sectors were lost.
fn after_power(files: &SimFiles, path: &str) -> Option<Vec<u8>> {
    let bytes = files.length(Path::new(path)).ok()?;
    let mut all = vec![0; bytes as usize];
    files.read_at(Path::new(path), 0, &mut all).unwrap();
    Some(all)
}

#[test]
fn a_directory_that_is_synced_commits_its_own_names_only() {
    let mut lost = 0;
    for seed in 0..50 {
        let files = SimFiles::new();
        for topic in ["/data/t.log", "/data/u.log"] {
            files.create_dir(Path::new(topic)).unwrap();
            let path = Path::new(topic).join("file");
            files.write_at(&path, 0, &[1]).unwrap();
            files.sync(&path).unwrap();
        }
        files.sync_dir(Path::new("/data")).unwrap();
        files.sync_dir(Path::new("/data/t.log")).unwrap();
        files.crash(Crash::Power { seed });
        assert_eq!(after_power(&files, "/data/t.log/file"), Some(vec![1]));
        lost += u32::from(after_power(&files, "/data/u.log/file").is_none());
    }
    assert!((1..50).contains(&lost), "{lost}");
}

/// The directory itself is a name in its parent.
#[test]
fn a_directory_whose_parent_is_not_synced_may_be_gone() {
    let mut lost = 0;
    for seed in 0..50 {
        let files = disk();
        files.sync(Path::new(PATH)).unwrap();
        files.sync_dir(Path::new("/data/t.log")).unwrap();
        files.crash(Crash::Power { seed });
        lost += u32::from(first_byte(&files).is_err());
    }
    assert!((1..50).contains(&lost), "{lost}");
}

#[test]
fn a_rename_across_directories_is_one_change() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..50 {
        let files = disk();
        files.create_dir(Path::new("/data/u.log")).unwrap();
        let whole = files.open_file_system(Path::new("/data")).unwrap();
        files.sync_file_system(&whole).unwrap();
        let to = "/data/u.log/file";
        files.rename(Path::new(PATH), Path::new(to)).unwrap();
        files.crash(Crash::Power { seed });
        let there = [PATH, to].map(|path| after_power(&files, path).is_some());
        assert_ne!(there[0], there[1], "it has one name");
        before += u32::from(there[0]);
        after += u32::from(there[1]);
    }
    assert!(before > 0 && after > 0, "{before} {after}");
}

#[test]
fn the_kernel_writes_back_what_it_likes_at_any_time() {
    let mut between = 0;
    for seed in 0..50 {
        let files = synced_disk();
        files.write_at(Path::new(PATH), 0, &[2; 512]).unwrap();
        files.write_back(seed);
        files.write_at(Path::new(PATH), 0, &[3; 512]).unwrap();
        files.crash(Crash::Power { seed: seed + 1 });
        between += u32::from(first_byte(&files).unwrap() == 2);
    }
    assert!(between > 0, "neither what was synced last nor the newest");
}

#[test]
fn a_failed_write_back_is_told_once_by_the_file_and_once_by_each_descriptor() {
    let files = disk();
    let path = Path::new(PATH);
    let wholes = [(); 2].map(|()| files.open_file_system(Path::new("/data")).unwrap());
    files.sync_file_system(&wholes[0]).unwrap();
    files.write_at(path, 0, &[9; 4096]).unwrap();
    let failed = (0..100).find(|seed| {
        files.fail_write_back(*seed);
        files.failed_syncs() > 0
    });
    assert!(failed.is_some());
    for whole in &wholes {
        assert!(files.sync_file_system(whole).is_err());
        assert!(files.sync_file_system(whole).is_ok());
    }
    assert!(matches!(files.sync(path), Err(SyncError::Final(_))));
    assert!(files.sync(path).is_ok());
    let late = files.open_file_system(Path::new("/data")).unwrap();
    let synced = files.sync_file_system(&late);
    assert!(synced.is_ok(), "it was opened afterwards");
    // Cached as it was written; the device has something else.
    assert_eq!(after_power(&files, PATH), Some(vec![9; 4096]));
    let loaded = files.load(path, 4096, None).unwrap();
    assert_ne!(loaded.as_ref(), &[9; 4096], "a direct read");
    files.reclaim();
    let cached = after_power(&files, PATH);
    assert_ne!(cached, Some(vec![9; 4096]));
    files.crash(Crash::Power { seed: 1 });
    assert_eq!(after_power(&files, PATH), cached);
}

#[test]
fn names_are_lost_until_they_change_again_or_the_power_fails() {
    let data = Path::new("/data");
    let [first, second] = ["t.log", "t.log.deleted-0"].map(|name| data.join(name));
    let files = SimFiles::new();
    files.create_dir(&first).unwrap();
    assert_eq!(files.lost_names(data), (vec![], true));
    files.fail_write_back_of(data, 1);
    assert_eq!(files.lost_names(data), (vec!["t.log".into()], false));
    assert!(matches!(files.sync_dir(data), Err(SyncError::Final(_))));
    files.sync_dir(data).unwrap();
    assert_eq!(files.lost_names(data), (vec!["t.log".into()], true));
    files.rename(&first, &second).unwrap();
    files.sync_dir(data).unwrap();
    assert_eq!(files.lost_names(data), (vec![], true));
    files.rename(&second, &first).unwrap();
    files.fail_write_back_of(data, 1);
    assert_eq!(files.lost_names(data).0.len(), 2);
    files.crash(Crash::Power { seed: 1 });
    assert_eq!(files.lost_names(data), (vec![], true));
    let missing = files.length(&first).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_page_that_was_lost_is_dirty_again_when_it_is_written() {
    let files = synced_disk();
    let path = Path::new(PATH);
    files.write_at(path, 0, &[9; 4096]).unwrap();
    files.fail_next(Call::Sync, libc::EIO);
    assert!(files.sync(path).is_err());
    files.write_at(path, 0, &[9]).unwrap();
    files.sync(path).unwrap();
    files.crash(Crash::Power { seed: 1 });
    assert_eq!(after_power(&files, PATH), Some(vec![9; 4096]));
}

#[test]
fn a_write_that_fails_may_have_written_a_part() {
    let mut parts = 0;
    for seed in 0..50 {
        let files = SimFiles::seeded(seed);
        files.create_dir(Path::new("/data/t.log")).unwrap();
        files.write_at(Path::new(PATH), 0, &[1; 4096]).unwrap();
        files.fail_next(Call::Write, libc::ENOSPC);
        let error = files.write_at(Path::new(PATH), 0, &[2; 4096]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        let bytes = after_power(&files, PATH).unwrap();
        let written = bytes.iter().take_while(|byte| **byte == 2).count();
        assert!(bytes[written..].iter().all(|byte| *byte == 1));
        parts += u32::from((1..4096).contains(&written));
    }
    assert!(parts > 0);
}

#[test]
fn a_read_may_find_a_wrong_bit_or_a_sector_that_cannot_be_read() {
    let files = disk();
    let path = Path::new(PATH);
    files.flip_nth_of(Call::Load, 2);
    let load = || files.load(path, 4096, None);
    let wrong = |memory: Memory| memory.as_ref().iter().filter(|byte| **byte != 1).count();
    let wrong_bytes = [load(), load(), load()].map(|read| wrong(read.unwrap()));
    assert_eq!(wrong_bytes, [0, 1, 0]);
    files.spoil(path, 1024, libc::EIO);
    assert_eq!(load().unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(first_byte(&files).unwrap(), 1);
    files.write_at(path, 1024, &[1]).unwrap();
    assert!(load().is_ok());
}

#[test]
fn a_length_that_was_not_synced_may_be_the_one_before() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let files = synced_disk();
        files.allocate(Path::new(PATH), 8192, Pages::Small).unwrap();
        files.crash(Crash::Power { seed });
        lengths.insert(files.length(Path::new(PATH)).unwrap());
    }
    assert_eq!(lengths, [4096, 8192].into());
}
