use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};

use super::*;

fn file_of(bytes: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    // As the keeper makes it: none of its pages is in the page cache, and they come as they are asked for.
    fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    file
}

#[test]
fn what_is_stored_is_in_the_file_whoever_drops_it() {
    let file = file_of(8192);
    let mut mapping = map(&file, 8192, Pages::Small).unwrap();
    mapping[5000] = 42;
    // Sent to another thread and dropped there, after the descriptor it was made from.
    let reader = file.try_clone().unwrap();
    drop(file);
    std::thread::spawn(move || {
        mapping[5001] = 43;
        drop(mapping);
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
    for (bytes, pages) in [
        (4096, Pages::Small),
        ((3 * SMALL_AT_ONCE + 4096) as u32, Pages::Small),
        ((HUGE_PAGE_BYTES * 5 / 2) as u32, Pages::Huge),
    ] {
        let file = file_of(u64::from(bytes));
        let mapping = map(&file, bytes, pages).unwrap();
        let address = mapping.as_ptr() as usize;
        assert_eq!(resident_kib(address), u64::from(bytes) / 1024, "{pages:?}");
    }
}

/// What the kernel says behind `name` of the mapping that starts at `address`.
fn smaps_line(address: usize, name: &str) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{address:x}-");
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    let value = lines.find_map(|line| line.strip_prefix(name)).unwrap();
    value.trim().to_owned()
}

/// Of the mapping that starts at `address`: how many KiB are in the page tables.
fn resident_kib(address: usize) -> u64 {
    let rss = smaps_line(address, "Rss:");
    rss.trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn pages_that_were_let_go_come_back_as_they_were() {
    const PAGE: u32 = 4096;
    let file = file_of(16 * u64::from(PAGE));
    let mut mapping = map(&file, 16 * PAGE, Pages::Small).unwrap();
    mapping.fill(7);
    let address = mapping.as_ptr() as usize;
    assert_eq!(resident_kib(address), 64);
    // The first 10 pages, the last of them in part, and the last one.
    let written = mapping.written([0..9 * PAGE + 1, 16 * PAGE - 8..16 * PAGE]);
    written.let_go();
    assert_eq!(resident_kib(address), 5 * 4);
    assert!(mapping.iter().all(|&byte| byte == 7));
    let mut bytes = vec![0; 16 * PAGE as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, &mapping[..]);
}

#[test]
fn nothing_stored_is_lost_while_pages_are_let_go() {
    let_go_while_storing(1 << 16, Pages::Small);
    let_go_while_storing(4 << 20, Pages::Huge);
}

fn let_go_while_storing(size: usize, pages: Pages) {
    let file = file_of(size as u64);
    let mut mapping = map(&file, size as u32, pages).unwrap();
    let written: Vec<_> = (0..2)
        .map(|_| mapping.written([0..size as u32, 0..0]))
        .collect();
    std::thread::scope(|scope| {
        for written in &written {
            scope.spawn(|| {
                for _ in 0..200 {
                    written.let_go();
                    file.sync_data().unwrap();
                }
            });
        }
        for round in 1..=50u8 {
            for at in 0..size {
                assert_eq!(mapping[at], round - 1);
                mapping[at] = round;
            }
        }
    });
    // The pages stay mapped for those that hold them, also when their owner is gone.
    drop(mapping);
    written.iter().for_each(Written::let_go);
    drop(written);
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 50));
}

/// The kernel's flags of the mapping that starts at `address`: `hg` is the advice to use huge pages.
fn kernel_flags(address: usize) -> Vec<String> {
    let flags = smaps_line(address, "VmFlags:");
    flags.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn huge_pages_are_asked_for_where_the_kernel_has_them() {
    let has_them = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let file = file_of(4 << 20);
    for (pages, expected) in [(Pages::Small, false), (Pages::Huge, has_them)] {
        let mut mapping = map(&file, 4 << 20, pages).unwrap();
        let flags = kernel_flags(mapping.as_ptr() as usize);
        assert_eq!(
            flags.iter().any(|flag| flag == "hg"),
            expected,
            "{pages:?}: {flags:?}"
        );
        mapping[(4 << 20) - 1] = 1;
    }
}

#[test]
fn a_short_file_is_refused_not_stretched() {
    let file = file_of(4096);
    let error = map(&file, 8192, Pages::Small).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.metadata().unwrap().len(), 4096);
}

#[test]
fn the_line_is_readable() {
    let line = sigbus_line(0x7f00_dead_b000);
    let text = std::str::from_utf8(&line).unwrap();
    assert!(
        text.starts_with("SIGBUS at address 0x00007f00deadb000: "),
        "{text}"
    );
    assert!(text.ends_with(".\n"));
}

/// Runs in a child of the test below: touches a page behind the end of the file.
#[test]
fn sigbus_child() {
    if std::env::var_os("DISKQ_SIGBUS_CHILD").is_none() {
        return;
    }
    install_sigbus_reporter().unwrap();
    let file = file_of(8192);
    let mapping = map(&file, 8192, Pages::Small).unwrap();
    // What this crate never does, and what no lock stops another program from doing.
    file.set_len(0).unwrap();
    println!("{}", mapping[4096]);
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
    assert_eq!(
        errors.matches("SIGBUS at address 0x").count(),
        1,
        "{errors}"
    );
}
