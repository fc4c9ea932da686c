//! Consumers that leave an nsqd with messages in each state.

use std::io::{Read, Write};
use std::net::TcpStream;

use test_support::TIMEOUT;
use test_support::daemon::Daemon;

/// The longest delay that nsqd takes, in milliseconds. The message stays deferred for the whole test.
const HOUR: &str = "3600000";

/// A connection to the channel `work` of the topic `busy`. A drop closes the connection.
pub(crate) struct Consumer(TcpStream);

/// Makes the topic `busy`, of whose five messages the channel `work` has one finished, one deferred, one in flight, and
/// two waiting. The second of its consumers, by time, has the first host name.
pub(crate) fn keep_busy(nsqd: &Daemon) -> [Consumer; 2] {
    nsqd.create_channel("busy", "work");
    nsqd.publish("busy", &["one", "two", "three", "four", "five"]);
    nsqd.wait_for_figure("busy", "work", "depth", 5);
    let mut active = Consumer::connect(nsqd, "b");
    active.ready();
    let first = active.next_id();
    active.send(&format!("FIN {first}\n"), b"");
    let second = active.next_id();
    active.send(&format!("REQ {second} {HOUR}\n"), b"");
    active.next_id();
    let idle = Consumer::connect(nsqd, "a");
    for (figure, value) in [
        ("depth", 2),
        ("in_flight_count", 1),
        ("deferred_count", 1),
        ("requeue_count", 1),
        ("client_count", 2),
    ] {
        nsqd.wait_for_figure("busy", "work", figure, value);
    }
    [active, idle]
}

impl Consumer {
    fn connect(nsqd: &Daemon, name: &str) -> Consumer {
        let stream = TcpStream::connect(nsqd.tcp).expect("nsqd listens");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a socket has a timeout");
        let mut consumer = Consumer(stream);
        consumer.send("  V2", b"");
        let identity = format!(
            r#"{{"client_id":"client-{name}","hostname":"host-{name}","user_agent":"test/1.0","heartbeat_interval":60000,"msg_timeout":600000}}"#
        );
        consumer.send("IDENTIFY\n", &sized(identity.as_bytes()));
        assert_eq!(consumer.frame(), b"OK");
        consumer.send("SUB busy work\n", b"");
        assert_eq!(consumer.frame(), b"OK");
        consumer
    }

    fn ready(&mut self) {
        self.send("RDY 1\n", b"");
    }

    fn send(&mut self, line: &str, body: &[u8]) {
        let bytes = [line.as_bytes(), body].concat();
        self.0.write_all(&bytes).expect("nsqd reads");
    }

    /// Reads a frame of any type, and returns its data.
    fn frame(&mut self) -> Vec<u8> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head).expect("nsqd answers");
        let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let mut data = vec![0; size as usize - 4];
        self.0.read_exact(&mut data).expect("nsqd answers");
        data
    }

    /// Reads a message, and returns its id, which follows the time (8 bytes) and the attempts (2 bytes).
    fn next_id(&mut self) -> String {
        let message = self.frame();
        String::from_utf8(message[10..26].to_vec()).expect("ids are text")
    }
}

/// Returns a body behind its size.
fn sized(body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).expect("the body is small");
    [&size.to_be_bytes(), body].concat()
}
