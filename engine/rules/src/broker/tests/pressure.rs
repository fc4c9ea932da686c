//! Clients that ask for more than they take: what the broker keeps for them, and for how long.

use super::script::{self, Session, check, check_with};
use crate::BrokerOptions;
use crate::client::ANSWER_BYTES_MAX;

/// A read of the shell's, and what it may find unfinished before it.
const READ_BYTES: usize = (128 + 16) * 1024;

/// A line of a script with these commands.
fn line(commands: impl Iterator<Item = String>) -> String {
    format!("a: {}", commands.collect::<Vec<_>>().join("; "))
}

/// Sends commands in three pieces on behalf of a client that takes nothing, then lets it read. What
/// the broker keeps meanwhile is bounded, and all answers come, in order.
#[track_caller]
fn check_bounded(
    options: BrokerOptions,
    before: &str,
    command: impl Fn(usize) -> String,
    answer: impl Fn(usize) -> String,
) {
    const COUNT: usize = 9000;
    let mut session = Session::new(options);
    session.play(before);
    session.act("a stuck");
    for piece in 0..3 {
        let range = COUNT / 3 * piece..COUNT / 3 * (piece + 1);
        session.act(&line(range.map(&command)));
        let (_, answers) = session.backlog("a");
        assert!(answers < ANSWER_BYTES_MAX + READ_BYTES, "{answers} bytes");
    }
    let (unread, _) = session.backlog("a");
    assert!(unread > 0, "everything was carried out");
    session.act("a reads");
    assert_eq!(session.backlog("a"), (0, 0));
    let transcript = session.transcript();
    let got = transcript.rsplit_once("a reads\n").expect("it reads").1;
    let expected = (0..COUNT).map(|at| format!("a< {}\n", answer(at)));
    assert!(got == expected.collect::<String>(), "got {got}");
}

/// A client that sent FINs of unknown messages and read nothing made the broker keep all answers.
#[test]
fn a_client_that_takes_no_answers_is_not_read_on() {
    check_bounded(
        script::options(),
        "a: SUB t ch",
        |at| format!("FIN {at:016x}"),
        |at| format!("E_FIN_FAILED FIN {at:016x} failed ID not in flight"),
    );
}

/// The bound is there without any deadline, too.
#[test]
fn a_client_without_heartbeats_is_bounded_as_well() {
    check_bounded(
        script::options(),
        "a: IDENTIFY | {\"heartbeat_interval\":-1}",
        |_| "PUB t | x".to_owned(),
        |_| "OK".to_owned(),
    );
}

/// Answers that wait for a sync count, too: of a disk that takes long, there could be any number.
#[test]
fn publishes_that_wait_for_a_sync_are_bounded() {
    let mut options = script::options();
    options.topic.group_commit = true;
    let mut session = Session::new(options);
    session.act("a: PUB t | x");
    session.act("open fails");
    for _ in 0..3 {
        session.act(&line((0..3000).map(|_| "PUB t | x".to_owned())));
    }
    let (unread, answers) = session.backlog("a");
    assert!(unread > 0, "everything was carried out");
    assert!(answers < ANSWER_BYTES_MAX + READ_BYTES, "{answers} bytes");
    session.act("+5s");
    assert_eq!(session.backlog("a"), (0, 0));
    assert_eq!(session.transcript().matches("a< OK\n").count(), 9001);
}

/// Messages that have not left are no answers: FINs of a consumer that is slow to take them count.
#[test]
fn a_consumer_that_is_slow_to_take_messages_may_finish_those_it_has() {
    let large = "y".repeat(400_000);
    check(&format!(
        "
a consumes t ch 2
p: PUB t | x => OK
a< x (1)
a stuck
p: PUB t | {large} => OK
a: FIN #x
stats t/ch => depth 0, in flight 1, messages 2, clients 1
a reads => a< {large} (1)
"
    ));
}

/// Headers of redelivered messages are no answers either: a consumer with thousands of redeliveries ahead of it was
/// not read, and the messages it finished timed out.
#[test]
fn a_consumer_that_is_slow_to_take_redeliveries_may_finish_those_it_has() {
    const COUNT: usize = 2400;
    let (all, batch) = (COUNT + 1, vec!["y"; COUNT].join(","));
    let mut session = Session::new(script::options());
    session.play(&format!(
        "b consumes t ch {all}\np: PUB t | x\np: MPUB t | {batch}\nb gone"
    ));
    // The messages of the consumer that is gone time out, and are queued again.
    session.play(&format!(
        "+61s\na: SUB t ch\na stuck\na: RDY {all}\na: FIN #x"
    ));
    assert_eq!(session.backlog("a").0, 0, "the FIN is read");
    session.act("stats t/ch");
    let (transcript, expected) = (
        session.transcript(),
        format!("= depth 0, in flight {COUNT}, "),
    );
    assert!(transcript.contains(&expected), "{transcript}");
}

/// One byte was enough to keep a client that reads next to nothing for ever.
#[test]
fn a_byte_now_and_then_does_not_extend_the_deadline_of_a_write() {
    let large = "y".repeat(100_000);
    let head = format!(
        "
a: IDENTIFY | {{\"heartbeat_interval\":1000}} => OK
a consumes t ch 1
a stuck
p: PUB t | {large} => OK
"
    );
    let steps =
        |bytes: usize, count: usize| format!("+900ms\na takes {bytes}\na: NOP\n").repeat(count);
    let trickle = steps(1, 1) + "+900ms\na closed\n";
    check(&(head.clone() + &trickle));
    // nsqd writes this under one deadline: 16 KiB in each interval, or the rest.
    let modem = steps(16 * 1024, 6);
    check(&(head + &modem));
}

/// An upgrade kept a part of the output. This part left after the channel was deleted, and the broker
/// took it for more than it had queued.
#[test]
fn output_that_leaves_behind_the_end_of_a_channel_is_nobodys() {
    let large = "y".repeat(100_000);
    for what in ["t", "t/ch"] {
        check(&format!(
            "
a consumes t ch 1
a stuck
p: PUB t | {large} => OK
a takes 10 at close
delete {what} => a closed
"
        ));
    }
}

/// Returns how many commands of 128 KiB of `command`, behind `before`, are carried out in one piece. In pieces, all of
/// them are.
fn commands_at_once(before: &[u8], command: &[u8]) -> usize {
    let mut session = Session::new(script::options());
    let (broker, now) = session.broker();
    let id = broker.connect(now, "10.0.0.1:5".to_owned(), "10.0.0.1".to_owned());
    let mut out = Vec::new();
    assert_eq!(broker.receive(now, id, before, &mut out), before.len());
    let input = command.repeat(128 * 1024 / command.len());
    let first = broker.receive(now, id, &input, &mut out);
    let mut rest = &input[first..];
    while !rest.is_empty() {
        assert!(
            broker.has_more(id, rest.len()),
            "nothing was left for others"
        );
        let consumed = broker.receive(now, id, rest, &mut out);
        assert!(consumed <= first, "{consumed} bytes");
        rest = &rest[consumed..];
        // All answers leave.
        while broker.output(id, &mut [std::io::IoSlice::new(&[])]) > 0 {
            let bytes = broker.clients[id].output.queue.bytes();
            broker.sent(now, id, bytes as usize, &mut out);
        }
    }
    assert!(!broker.has_more(id, 0));
    first / command.len()
}

/// 128 KiB of IDENTIFYs took the shard as long as a hundred reads of anything else.
#[test]
fn a_turn_is_bounded_by_work() {
    let identify = b"IDENTIFY\n\0\0\0\x1c{\"feature_negotiation\":true}";
    let identify = [
        &identify[..9],
        &(identify.len() as u32 - 13).to_be_bytes(),
        &identify[13..],
    ]
    .concat();
    let at_once = commands_at_once(b"  V2", &identify);
    assert!((1..=8).contains(&at_once), "{at_once} IDENTIFYs");
    let fin = b"FIN 0123456789abcdef\n";
    let consumer = b"  V2SUB t#ephemeral ch\n";
    let at_once = commands_at_once(consumer, fin);
    assert!((1..=32).contains(&at_once), "{at_once} FINs that fail");
    assert_eq!(commands_at_once(b"  V2", b"NOP\n"), 2048);
}

/// A read of usual commands is one piece: what bounds the work of others costs them no turn.
#[test]
fn a_read_of_usual_commands_is_one_piece() {
    let mut session = Session::new(script::options());
    let (broker, now) = session.broker();
    let id = broker.connect(now, "10.0.0.1:5".to_owned(), "10.0.0.1".to_owned());
    let mut out = Vec::new();
    let nop = format!("NOP {}\n", "x".repeat(70));
    let input = ["  V2".to_owned(), nop.repeat(READ_BYTES / nop.len())].concat();
    assert_eq!(
        broker.receive(now, id, input.as_bytes(), &mut out),
        input.len()
    );
}

/// The messages of a new subscription overtook the OK of its SUB, where a publish before it was answered late.
#[test]
fn no_message_comes_before_the_answer_to_its_sub() {
    for (channel, message) in [("ch", "m"), ("new", "n")] {
        let mut options = script::options();
        options.topic.group_commit = true;
        check_with(
            options,
            &format!(
                "
a: PUB t | x => OK
c: SUB u ch => OK
a: PUB u | m => OK
open fails
a: PUB t | x
a: SUB u {channel}; RDY 1
p: PUB u | n => OK
+5s => a< OK
a< OK
a< {message} (1)
"
            ),
        );
    }
}

scripts! {
the_first_deadline_of_a_write_begins_when_the_socket_is_full: script::options(), "
a: PUB t | x => OK
+20s
a stuck
a: PUB t | x
+29s
a reads => a< OK
a< _heartbeat_
";
}
