use super::*;
use crate::preflight::is_usable;
use crate::reactor::Engine;
use std::os::unix::net::UnixStream;

/// The kernel did not find the request that was to end, and nobody asked again: the request stayed armed, and a move waited
/// for its end. Here the end reaches the kernel before the request.
#[test]
fn a_request_that_its_end_has_missed_is_ended_again() {
    if !is_usable(Engine::IoUring) {
        return;
    }
    let (ring, _notify) = Ring::new().expect("a ring");
    let Some(receiving) = ring.receiving.as_ref().filter(|_| ring.receives()) else {
        return;
    };
    let (stream, _peer) = UnixStream::pair().expect("descriptors are left");
    let token = Token::new(0, 0, Direction::Read);
    assert!(receiving.borrow_mut().begin(token));
    ring.end_receiving(token);
    ring.enter(Some(Duration::ZERO)).expect("the ring works");
    ring.for_each_ready(|_| {});
    let receive = opcode::RecvMulti::new(Fd(stream.as_raw_fd()), buffers::GROUP);
    ring.push(receive.build().user_data(token.of_receiving().0));
    for _ in 0..100 {
        let wait = Some(Duration::from_millis(1));
        ring.enter(wait).expect("the ring works");
        ring.for_each_ready(|_| {});
        if !ring.is_receiving(token) {
            return;
        }
    }
    panic!("the request does not end");
}
