use super::*;

#[test]
fn our_own_process_is_found_by_its_listener_and_uses_something() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let process = Process::listening_at(address).unwrap();
    assert_eq!(process.pid, std::process::id());
    let usage = process.usage().unwrap();
    assert!(usage.cpu_ns > 0 && usage.rss_bytes > 0);
    drop(listener);
    assert!(Process::listening_at(address).is_none());
    assert!(Process::listening_at("192.0.2.1:4150".parse().unwrap()).is_none());
    assert!(Process { pid: u32::MAX }.usage().is_none());
}
