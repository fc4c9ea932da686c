use super::*;
use crate::preflight::is_usable;
use crate::reactor::Engine;
use crate::reactor::token::Direction;

/// The receiving of a ring, of which the tests are the kernel. `None` where there is no such ring.
fn receiving() -> Option<(IoUring, Receiving)> {
    if !is_usable(Engine::IoUring) {
        return None;
    }
    let ring = IoUring::new(8).expect("a ring");
    let receiving = Receiving::new(&ring).ok()?;
    Some((ring, receiving))
}

fn token(index: usize, serial: u32) -> Token {
    Token::new(index, serial, Direction::Read)
}

fn piece(buffer: u16, bytes: usize) -> Completion {
    Completion {
        result: bytes as i32,
        buffer: Some(buffer),
        has_more: true,
    }
}

fn last(result: i32) -> Completion {
    Completion {
        result,
        buffer: None,
        has_more: false,
    }
}

fn text(received: Received) -> String {
    match received {
        Received::Bytes(bytes) => bytes.to_string(),
        Received::Nothing => "nothing".to_owned(),
        Received::Off => "off".to_owned(),
        Received::Failed(error) => format!("error {}", error.raw_os_error().unwrap_or(0)),
    }
}

/// Gives the completions to a source whose request is armed. Then takes 16,384 bytes at most, three times.
fn check(completions: &[Completion], then: &[Then], taken: [&str; 3]) {
    let Some((ring, mut receiving)) = receiving() else {
        return;
    };
    let token = token(3, 7);
    assert!(receiving.begin(token));
    let got: Vec<_> = completions
        .iter()
        .map(|completion| receiving.complete(token, *completion))
        .collect();
    assert_eq!(got, then);
    let mut room = [0; 16_384];
    let got = [(); 3].map(|()| text(receiving.take(token, &mut room)));
    assert_eq!(got.each_ref().map(String::as_str), taken);
    receiving.unregister(&ring).expect("registered");
}

#[test]
fn pieces_are_taken_in_their_order_and_the_end_comes_last() {
    use Then::{Wake, WakeAndEnd};
    let nothing = "nothing";
    check(&[], &[], [nothing; 3]);
    check(
        &[piece(0, 5), piece(1, 6)],
        &[Wake; 2],
        ["11", nothing, nothing],
    );
    check(&[piece(0, 5), last(0)], &[Wake; 2], ["5", "0", "0"]);
    let reset = last(-libc::ECONNRESET);
    check(
        &[piece(0, 5), reset],
        &[Wake; 2],
        ["5", "error 104", "error 104"],
    );
    // The reader goes on with `recv`.
    for number in ENDINGS {
        check(
            &[piece(0, 5), last(-number)],
            &[Wake; 2],
            ["5", "off", "off"],
        );
    }
    // A kernel that loses bytes must not shift the input.
    let lost = Completion {
        buffer: None,
        ..piece(0, 5)
    };
    check(
        &[piece(0, 5), lost, piece(1, 7), last(-libc::ECANCELED)],
        &[Wake, WakeAndEnd, Wake, Wake],
        ["5", "error 5", "error 5"],
    );
    check(
        &[piece(0, 5), lost, last(0)],
        &[Wake, WakeAndEnd, Wake],
        ["5", "error 5", "error 5"],
    );
    // A large command, and a reader that is late.
    check(
        &[piece(0, BUFFER_BYTES)],
        &[WakeAndEnd],
        ["2048", nothing, nothing],
    );
    let many = [0, 1, 2, 3, 4].map(|buffer| piece(buffer, 100));
    check(
        &many,
        &[Wake, Wake, Wake, WakeAndEnd, Wake],
        ["500", nothing, nothing],
    );
    let ended = [piece(0, BUFFER_BYTES), piece(1, 1), last(-libc::ECANCELED)];
    check(&ended, &[WakeAndEnd, Wake, Wake], ["2049", "off", "off"]);
}

#[test]
fn a_piece_is_taken_in_parts_and_in_the_order_of_its_bytes() {
    let Some((ring, mut receiving)) = receiving() else {
        return;
    };
    let token = token(0, 0);
    receiving.begin(token);
    receiving.complete(token, piece(9, 10));
    let mut room = [0; 4];
    let parts = [(); 4].map(|()| text(receiving.take(token, &mut room)));
    assert_eq!(parts, ["4", "4", "2", "nothing"]);
    receiving.unregister(&ring).expect("registered");
}

/// Late readers kept all buffers from the other connections.
#[test]
fn the_pieces_of_late_readers_give_their_buffers_back() {
    let Some((ring, mut receiving)) = receiving() else {
        return;
    };
    let mut room = [0; 16_384];
    let late = token(0, 0);
    assert!(receiving.begin(late));
    for buffer in 0..3 {
        receiving.complete(late, piece(buffer, 100));
    }
    assert_eq!(receiving.buffers.held(), 3);
    receiving.complete(late, piece(3, 100));
    assert_eq!(receiving.buffers.held(), 0);
    receiving.complete(late, piece(4, BUFFER_BYTES));
    assert_eq!(text(receiving.take(late, &mut room[..250])), "250");
    assert_eq!(text(receiving.take(late, &mut room)), "2198");
    // Many readers with a piece each.
    for index in 1..=COUNT {
        let token = token(index.into(), 0);
        assert!(receiving.begin(token));
        receiving.complete(token, piece(index - 1, 10));
        assert!(receiving.buffers.held() <= HELD_MAX);
    }
    for index in 1..=COUNT {
        let token = token(index.into(), 0);
        assert!(receiving.end(token), "it goes on");
        assert_eq!(text(receiving.take(token, &mut room)), "10");
        assert_eq!(text(receiving.take(token, &mut room)), "nothing");
    }
    assert_eq!(receiving.buffers.held(), 0);
    receiving.unregister(&ring).expect("registered");
}

#[test]
fn a_source_gets_nothing_of_an_earlier_one_with_its_index() {
    let Some((ring, mut receiving)) = receiving() else {
        return;
    };
    let (earlier, later) = (token(0, 1), token(0, 2));
    let mut room = [0; 100];
    receiving.begin(earlier);
    receiving.complete(earlier, piece(0, 10));
    assert!(receiving.is_armed(earlier));
    receiving.forget(earlier);
    assert!(!receiving.is_armed(earlier));
    assert_eq!(receiving.complete(earlier, piece(1, 10)), Then::Nothing);
    receiving.begin(later);
    assert_eq!(receiving.complete(earlier, piece(2, 10)), Then::Nothing);
    assert_eq!(
        receiving.complete(earlier, last(-libc::ECANCELED)),
        Then::Nothing
    );
    assert_eq!(text(receiving.take(earlier, &mut room)), "off");
    assert_eq!(text(receiving.take(later, &mut room)), "nothing");
    assert!(receiving.is_armed(later) && !receiving.is_armed(earlier));
    assert!(receiving.end(later), "the request is armed");
    assert!(!receiving.end(later), "its end was asked for");
    for (result, then) in [
        (0, Then::Nothing),
        (-libc::ENOENT, Then::End),
        (-libc::EALREADY, Then::End),
    ] {
        assert_eq!(receiving.complete_end(later, last(result)), then);
        assert_eq!(receiving.complete_end(earlier, last(result)), Then::Nothing);
    }
    assert!(
        receiving.is_armed(later),
        "more may come until it has ended"
    );
    receiving.complete(later, last(-libc::ECANCELED));
    let missed = receiving.complete_end(later, last(-libc::ENOENT));
    assert_eq!(missed, Then::Nothing, "it has ended by itself");
    receiving.unregister(&ring).expect("registered");
}

#[test]
fn a_kernel_that_refuses_such_requests_gets_one_only() {
    let Some((ring, mut receiving)) = receiving() else {
        return;
    };
    assert!(receiving.begin(token(0, 1)));
    receiving.complete(token(0, 1), last(-libc::EINVAL));
    assert!(!receiving.begin(token(0, 1)));
    assert!(!receiving.begin(token(1, 2)));
    receiving.unregister(&ring).expect("registered");
}
