//! A blocking client that shows every frame. The client knows only a small part of the protocol: it
//! never reconnects, never buffers output, and answers heartbeats only while it waits for a message
//! or a response.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::TIMEOUT;
use super::transport::{Transport, Upgrade};

/// The sixteen hexadecimal digits of a message id.
pub type MessageId = [u8; 16];

/// The bytes of timestamp, attempts and id in front of a body.
const MESSAGE_HEADER_BYTES: usize = 8 + 2 + 16;
/// The largest frame in bytes. A larger one means that the client has lost its place in the stream.
const FRAME_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    Response,
    Error,
    Message,
}

/// One frame as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameType,
    pub data: Vec<u8>,
}

impl Frame {
    /// Returns the data as text, for responses and errors.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }

    pub fn is_heartbeat(&self) -> bool {
        self.kind == FrameType::Response && self.data == b"_heartbeat_"
    }
}

/// A parsed message frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The broker's timestamp, in nanoseconds since 1970.
    pub timestamp: i64,
    pub attempts: u16,
    pub id: MessageId,
    pub body: Vec<u8>,
}

impl Message {
    /// Parses the data of a message frame. Returns None if they are too short.
    pub fn parse(data: &[u8]) -> Option<Message> {
        let body = data.get(MESSAGE_HEADER_BYTES..)?.to_vec();
        Some(Message {
            timestamp: i64::from_be_bytes(data.get(0..8)?.try_into().ok()?),
            attempts: u16::from_be_bytes(data.get(8..10)?.try_into().ok()?),
            id: data.get(10..26)?.try_into().ok()?,
            body,
        })
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One connection.
pub struct Client {
    reader: BufReader<Transport>,
    /// The number of answered heartbeats, for tests about heartbeats.
    pub heartbeats: usize,
}

impl Client {
    /// Connects and sends the magic.
    pub fn connect(address: SocketAddr) -> Client {
        let mut client = Client::connect_without_magic(address);
        client.send(b"  V2");
        client
    }

    /// Connects and sends nothing.
    pub fn connect_without_magic(address: SocketAddr) -> Client {
        match Client::try_connect_without_magic(address) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to {address}: {error}"),
        }
    }

    /// Connects and sends the magic. The timeout is that of the connection, and of each read and write.
    pub fn try_connect_within(address: SocketAddr, timeout: Duration) -> io::Result<Client> {
        let mut client = Client::try_connect_with(address, timeout)?;
        client.try_send(b"  V2")?;
        Ok(client)
    }

    fn try_connect_without_magic(address: SocketAddr) -> io::Result<Client> {
        Client::try_connect_with(address, TIMEOUT)
    }

    fn try_connect_with(address: SocketAddr, timeout: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Client {
            reader: BufReader::with_capacity(256 * 1024, Transport::new(stream)),
            heartbeats: 0,
        })
    }

    // Bytes.

    /// Sends the unchanged bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.try_send(bytes) {
            panic!("cannot send {} bytes: {error}", bytes.len());
        }
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Sets the longest wait of a read. The default is `TIMEOUT`.
    pub fn set_read_timeout(&mut self, timeout: Duration) {
        self.reader
            .get_ref()
            .stream()
            .set_read_timeout(Some(timeout))
            .expect("a timeout above zero is accepted");
    }

    /// Reads the next bytes, whatever they are.
    pub fn read_raw(&mut self, bytes: &mut [u8]) {
        if let Err(error) = self.reader.read_exact(bytes) {
            panic!("{} bytes were expected: {error}", bytes.len());
        }
    }

    /// Ends the client's side of the stream. Reading is still possible.
    pub fn close_write(&mut self) {
        let stream = self.reader.get_ref().stream();
        let _ = stream.shutdown(Shutdown::Write); // It may be closed already.
    }

    /// Returns a second handle on the same socket, for a thread that sends while this one reads.
    pub fn writer(&self) -> TcpStream {
        self.reader
            .get_ref()
            .stream()
            .try_clone()
            .expect("a descriptor can be duplicated")
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.reader
            .get_ref()
            .stream()
            .local_addr()
            .expect("a connected socket has an address")
    }

    /// Returns true when a part of the next frame has been received already.
    pub fn has_buffered(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    // Upgrades.

    /// Asks for `upgrades` in an IDENTIFY and carries them out as a client library does: the broker
    /// confirms each by an OK in its own encoding. Returns the answer to IDENTIFY.
    pub fn upgrade(&mut self, upgrades: &[Upgrade]) -> String {
        match self.try_upgrade(upgrades) {
            Ok(answer) => answer,
            Err(error) => panic!("no upgrade to {upgrades:?}: {error}"),
        }
    }

    pub fn try_upgrade(&mut self, upgrades: &[Upgrade]) -> io::Result<String> {
        let answer = self.ask(upgrades);
        for upgrade in upgrades {
            // The OK may have arrived together with the answer.
            let behind = self.reader.buffer().to_vec();
            self.reader.consume(behind.len());
            self.reader.get_mut().push(upgrade, &behind)?;
            match self.try_frame()? {
                Some(frame) if frame.data == b"OK" => {}
                other => return Err(invalid(format!("{other:?} instead of an OK"))),
            }
        }
        Ok(answer)
    }

    /// Asks for `upgrades` in an IDENTIFY and carries none out. Returns the answer.
    pub fn ask(&mut self, upgrades: &[Upgrade]) -> String {
        let asked: String = upgrades.iter().map(Upgrade::json).collect();
        self.identify(&format!("{{\"feature_negotiation\":true{asked}}}"))
    }

    /// Sends everything from now on in pieces of one byte.
    pub fn trickle(&mut self) {
        self.reader.get_mut().trickle();
    }

    // Frames.

    /// Returns the next frame of any kind, heartbeats included, or None at the orderly end of the
    /// stream.
    pub fn try_frame(&mut self) -> io::Result<Option<Frame>> {
        let mut head = [0; 8];
        if self.read_first(&mut head[..1])? == 0 {
            return Ok(None);
        }
        self.reader.read_exact(&mut head[1..])?;
        let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = match u32::from_be_bytes([head[4], head[5], head[6], head[7]]) {
            0 => FrameType::Response,
            1 => FrameType::Error,
            2 => FrameType::Message,
            other => return Err(invalid(format!("frame type {other}"))),
        };
        if !(4..=FRAME_BYTES_MAX).contains(&size) {
            return Err(invalid(format!("frame size {size}")));
        }
        let mut data = vec![0; size - 4];
        self.reader.read_exact(&mut data)?;
        Ok(Some(Frame { kind, data }))
    }

    /// Reads the first byte of a frame. Repeats an interrupted read, because a read with a timeout
    /// is interrupted when the machine is suspended for a moment.
    fn read_first(&mut self, byte: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(byte) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Returns the next frame of any kind, heartbeats included.
    pub fn frame(&mut self) -> Frame {
        match self.try_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => panic!("the broker closed the connection; a frame was expected"),
            Err(error) => panic!("no frame: {error}"),
        }
    }

    /// Answers heartbeats and returns the next other frame.
    pub fn frame_after_heartbeats(&mut self) -> Frame {
        loop {
            let frame = self.frame();
            if !frame.is_heartbeat() {
                return frame;
            }
            self.heartbeats += 1;
            self.send(b"NOP\n");
        }
    }

    /// Expects a response with this text.
    pub fn expect_response(&mut self, text: &str) {
        let frame = self.frame_after_heartbeats();
        assert_eq!(
            (frame.kind, frame.text().as_str()),
            (FrameType::Response, text)
        );
    }

    pub fn expect_ok(&mut self) {
        self.expect_response("OK");
    }

    /// Expects an error frame with exactly this text.
    pub fn expect_error(&mut self, text: &str) {
        let frame = self.frame_after_heartbeats();
        assert_eq!(
            (frame.kind, frame.text().as_str()),
            (FrameType::Error, text)
        );
    }

    /// Expects the end of the stream. A reset counts as an end, because the kernel resets a
    /// connection with unread bytes.
    pub fn expect_close(&mut self) {
        match self.try_frame() {
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Ok(Some(frame)) => panic!("a closed connection was expected, not {frame:?}"),
            Err(error) => panic!("a closed connection was expected: {error}"),
        }
    }

    /// Expects no frame for this long, except heartbeats, which are answered.
    pub fn expect_silence(&mut self, duration: Duration) {
        if let Some(frame) = self.frame_within(duration) {
            panic!("nothing was expected for {duration:?}, not {frame:?}");
        }
    }

    /// Returns the next frame that is not a heartbeat, if it arrives in time.
    pub fn frame_within(&mut self, duration: Duration) -> Option<Frame> {
        let deadline = std::time::Instant::now() + duration;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return None;
            }
            if !self.has_buffered() {
                self.set_read_timeout(left);
                let waited = self.reader.get_ref().stream().peek(&mut [0]);
                self.set_read_timeout(TIMEOUT);
                match waited {
                    Ok(_) => {}
                    Err(error) if is_timeout(&error) => return None,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => panic!("no frame: {error}"),
                }
            }
            let frame = self.frame();
            if !frame.is_heartbeat() {
                return Some(frame);
            }
            self.heartbeats += 1;
            self.send(b"NOP\n");
        }
    }

    /// Returns the next message. Any other frame except a heartbeat is a failure.
    pub fn message(&mut self) -> Message {
        let frame = self.frame_after_heartbeats();
        assert_eq!(frame.kind, FrameType::Message, "{}", frame.text());
        Message::parse(&frame.data).expect("a message frame has a whole header")
    }

    /// Takes the next message and finishes it.
    pub fn take(&mut self) -> Message {
        let message = self.message();
        self.finish(&message.id);
        message
    }

    /// Returns the next message, if it arrives in time.
    pub fn message_within(&mut self, duration: Duration) -> Option<Message> {
        let frame = self.frame_within(duration)?;
        assert_eq!(frame.kind, FrameType::Message, "{}", frame.text());
        Some(Message::parse(&frame.data).expect("a message frame has a whole header"))
    }

    // Commands.

    /// Sends IDENTIFY with this JSON. Returns the response as text (`OK` or JSON).
    pub fn identify(&mut self, json: &str) -> String {
        self.send(&with_body("IDENTIFY", json.as_bytes()));
        let frame = self.frame_after_heartbeats();
        assert_eq!(frame.kind, FrameType::Response, "{}", frame.text());
        frame.text()
    }

    /// Sends a command line with a body.
    pub fn command(&mut self, line: &str, body: &[u8]) {
        self.send(&with_body(line, body));
    }

    /// Sends SUB and expects OK.
    pub fn subscribe(&mut self, topic: &str, channel: &str) {
        self.send(format!("SUB {topic} {channel}\n").as_bytes());
        self.expect_ok();
    }

    pub fn ready(&mut self, count: u32) {
        self.send(format!("RDY {count}\n").as_bytes());
    }

    /// Sends PUB and expects OK.
    pub fn publish(&mut self, topic: &str, body: &[u8]) {
        self.send(&with_body(&format!("PUB {topic}"), body));
        self.expect_ok();
    }

    /// Sends DPUB and expects OK.
    pub fn publish_deferred(&mut self, topic: &str, defer_ms: u64, body: &[u8]) {
        self.send(&with_body(&format!("DPUB {topic} {defer_ms}"), body));
        self.expect_ok();
    }

    /// Sends MPUB and expects OK.
    pub fn publish_many<B: AsRef<[u8]>>(&mut self, topic: &str, bodies: &[B]) {
        self.send(&Client::mpub(topic, bodies));
        self.expect_ok();
    }

    pub fn finish(&mut self, id: &MessageId) {
        self.send(&command_with_id(b"FIN ", id, b"\n"));
    }

    pub fn requeue(&mut self, id: &MessageId, timeout_ms: u64) {
        self.send(&command_with_id(
            b"REQ ",
            id,
            format!(" {timeout_ms}\n").as_bytes(),
        ));
    }

    /// Sends CLS without waiting for the answer. Messages may still come before it.
    pub fn close_wait(&mut self) {
        self.send(b"CLS\n");
    }

    /// Returns the bytes of an MPUB.
    pub fn mpub<B: AsRef<[u8]>>(topic: &str, bodies: &[B]) -> Vec<u8> {
        let mut inner = size(bodies.len()).to_vec();
        for body in bodies {
            inner.extend_from_slice(&size(body.as_ref().len()));
            inner.extend_from_slice(body.as_ref());
        }
        with_body(&format!("MPUB {topic}"), &inner)
    }

    /// Returns the bytes of a command line with a body.
    pub fn command_with_body(line: &str, body: &[u8]) -> Vec<u8> {
        with_body(line, body)
    }
}

fn with_body(line: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(line.len() + 5 + body.len());
    bytes.extend_from_slice(line.as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(&size(body.len()));
    bytes.extend_from_slice(body);
    bytes
}

fn command_with_id(verb: &[u8], id: &MessageId, rest: &[u8]) -> Vec<u8> {
    [verb, id.as_slice(), rest].concat()
}

fn size(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes)
        .expect("test bodies are small")
        .to_be_bytes()
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Returns true if the read timed out.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
