use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};

use super::*;

fn file_of(bytes: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    // The keeper makes files like this: no page is in the page cache, and a page comes when it is asked for.
    fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    file
}

#[test]
fn what_is_stored_is_in_the_file_whoever_unmaps_it() {
    let file = file_of(8192);
    let mut memory = lend(map(&file, 8192).unwrap());
    memory.as_mut()[5000] = 42;
    // Sent to another thread and unmapped there, after the descriptor it was made from.
    let reader = file.try_clone().unwrap();
    drop(file);
    std::thread::spawn(move || {
        memory.as_mut()[5001] = 43;
        assert!(take_back(memory).is_none());
    })
    .join()
    .unwrap();
    let mut bytes = [0; 2];
    reader.read_exact_at(&mut bytes, 5000).unwrap();
    assert_eq!(bytes, [42, 43]);
    assert_eq!(
        reader.metadata().unwrap().len(),
        8192,
        "mapping changes no length"
    );
}

#[test]
fn all_pages_are_there_from_the_start_however_many() {
    // Also where the last piece is a part of one.
    for bytes in [4096, (3 * AT_ONCE + 4096) as u32] {
        let file = file_of(u64::from(bytes));
        let mapping = map(&file, bytes).unwrap();
        let address = mapping.as_ptr() as usize;
        assert_eq!(resident_kib(address), u64::from(bytes) / 1024);
    }
}

/// Returns the kernel's text behind `name`, for the mapping that starts at `address`.
fn smaps_line(address: usize, name: &str) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{address:x}-");
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    let value = lines.find_map(|line| line.strip_prefix(name)).unwrap();
    value.trim().to_owned()
}

/// Returns how many KiB of the mapping that starts at `address` are in the page tables.
fn resident_kib(address: usize) -> u64 {
    let rss = smaps_line(address, "Rss:");
    rss.trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn pages_that_were_let_go_come_back_as_they_were() {
    const PAGE: u32 = 4096;
    let file = file_of(16 * u64::from(PAGE));
    let mut memory = lend(map(&file, 16 * PAGE).unwrap());
    memory.as_mut().fill(7);
    let address = memory.as_ref().as_ptr() as usize;
    assert_eq!(resident_kib(address), 64);
    // The first 10 pages, the last of them in part, and the last one.
    let written = memory.written([0..9 * PAGE + 1, 16 * PAGE - 8..16 * PAGE]);
    let_go(&written.unwrap());
    assert_eq!(resident_kib(address), 5 * 4);
    assert!(memory.as_ref().iter().all(|&byte| byte == 7));
    let mut bytes = vec![0; 16 * PAGE as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, memory.as_ref());
    take_back(memory);
}

#[test]
fn nothing_stored_is_lost_while_pages_are_let_go() {
    let_go_while_storing(1 << 16);
    let_go_while_storing(4 << 20);
}

fn let_go_while_storing(size: usize) {
    let file = file_of(size as u64);
    let mut memory = lend(map(&file, size as u32).unwrap());
    let written = memory.written([0..size as u32, 0..0]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let_go(&written);
                    file.sync_data().unwrap();
                }
            });
        }
        for round in 1..=50u8 {
            for at in 0..size {
                assert_eq!(memory.as_ref()[at], round - 1);
                memory.as_mut()[at] = round;
            }
        }
    });
    // Nobody has to know that the mapping is gone.
    take_back(memory);
    let_go(&written);
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 50));
}

fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let start = format!("{address:x}-");
    maps.lines().any(|line| line.starts_with(&start))
}

#[test]
fn a_mapping_ends_when_its_whole_slice_comes_back() {
    let file = file_of(8192);
    let memory = lend(map(&file, 8192).unwrap());
    let address = memory.as_ref().as_ptr() as usize;
    let Memory::Lent(bytes) = memory else {
        panic!("a mapping is lent");
    };
    let (first, second) = bytes.split_at_mut(4096);
    assert!(take_back(Memory::Lent(first)).is_none());
    second[0] = 1;
    assert!(is_mapped(address), "somebody still has the second half");
}

#[test]
fn a_buffer_comes_back_for_its_next_use() {
    let buffer = Buffer::zeroed(16_384).unwrap();
    let address = buffer.as_ptr() as usize;
    let mut memory = buffer.lend(4096);
    memory.as_mut().fill(7);
    assert_eq!(memory.as_ref().len(), 4096);
    let buffer = take_back(memory).expect("the buffer");
    assert_eq!((buffer.as_ptr() as usize, buffer.len()), (address, 16_384));
    drop(buffer);
    assert!(!LENT.lock().contains_key(&address));
}

#[test]
fn a_short_file_is_refused_not_stretched() {
    let file = file_of(4096);
    let error = map(&file, 8192).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.metadata().unwrap().len(), 4096);
}

/// Runs in a child of the test below: touches a page behind the end of the file.
#[test]
fn sigbus_child() {
    if std::env::var_os("DISKQ_SIGBUS_CHILD").is_none() {
        return;
    }
    install_sigbus_reporter().unwrap();
    let file = file_of(8192);
    let memory = lend(map(&file, 8192).unwrap());
    // This crate never does this, but no lock stops another program from doing it.
    file.set_len(0).unwrap();
    println!("{}", memory.as_ref()[4096]);
}

#[test]
fn sigbus_says_one_line_and_ends_the_process() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mapping::tests::sigbus_child", "--nocapture"])
        .env("DISKQ_SIGBUS_CHILD", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGBUS));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.matches("SIGBUS: a page").count(), 1, "{errors}");
}
