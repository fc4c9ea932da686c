use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::*;

fn file_of(bytes: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![0; bytes as usize], 0).unwrap();
    file
}

#[test]
fn what_is_stored_is_in_the_file_whoever_drops_it() {
    let file = file_of(8192);
    let mut mapping = map(&file, 8192).unwrap();
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
fn a_short_file_is_refused_not_stretched() {
    let file = file_of(4096);
    let error = map(&file, 8192).unwrap_err();
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
    let mapping = map(&file, 8192).unwrap();
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
