use super::*;

/// Byte `at` of the stream of connection `connection`.
fn byte(connection: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 11) ^ connection) as u8
}

/// A peer that sends commands of known lengths, and the reader on our side.
struct Peer {
    number: usize,
    input: Input,
    /// Lengths of commands to come; the first is what `input` begins with.
    commands: Vec<usize>,
    /// Bytes carried out, and received.
    consumed: usize,
    received: usize,
}

impl Peer {
    fn new(number: usize, commands: Vec<usize>) -> Peer {
        Peer {
            number,
            input: Input::default(),
            commands,
            consumed: 0,
            received: 0,
        }
    }

    /// Receives `bytes` bytes at most and carries out what is complete, as a connection does.
    fn step(&mut self, buffers: &mut Buffers, bytes: usize) {
        let left = self.consumed + self.commands.iter().sum::<usize>() - self.received;
        let needs = self.commands.first().copied().unwrap_or(0);
        let (number, at) = (self.number, self.received);
        let most = READ_BYTES_MAX.max(needs - self.input.bytes().len());
        let mut sent = 0;
        let filled = self.input.poll_fill(buffers, needs, |room| {
            assert!(!room.is_empty(), "a read into nothing looks like the end");
            assert!(room.len() <= most, "the others wait for {}", room.len());
            sent = bytes.min(left).min(room.len());
            for (offset, place) in room[..sent].iter_mut().enumerate() {
                *place = byte(number, at + offset);
            }
            Poll::Ready(Ok(sent))
        });
        self.received += sent;
        assert_eq!(
            matches!(filled, Poll::Ready(Ok(Filled::End))),
            left == 0,
            "{filled:?}"
        );
        let mut complete = 0;
        while let Some(&length) = self.commands.first()
            && complete + length <= self.input.bytes().len()
        {
            complete += length;
            self.commands.remove(0);
        }
        let bytes = self.input.bytes();
        assert_eq!(bytes.len(), self.received - self.consumed);
        let behind = complete..bytes.len().min(complete + 10);
        for offset in (0..complete).chain(behind) {
            assert_eq!(bytes[offset], byte(number, self.consumed + offset));
        }
        if left > 0 {
            self.input.consumed(buffers, complete);
            self.consumed += complete;
        }
    }
}

#[test]
fn what_is_received_arrives_whole_and_in_order() {
    let commands = [
        5, 70_000, 3, 262_200, 262_200, 17_000, 1_500_000, 9, 524_288, 524_287, 1,
    ];
    for read in [1_000, 4_096, 65_536, 300_000, 524_288, 2_000_000] {
        let mut buffers = Buffers::default();
        let mut peers: Vec<Peer> = (0..3)
            .map(|number| {
                let mut commands = commands.to_vec();
                commands.rotate_left(number * 4);
                Peer::new(number, commands)
            })
            .collect();
        while peers.iter().any(|peer| !peer.commands.is_empty()) {
            for peer in &mut peers {
                peer.step(&mut buffers, read);
            }
        }
        for peer in &mut peers {
            assert_eq!(peer.consumed, commands.iter().sum::<usize>());
            // The end of the stream, and again.
            peer.step(&mut buffers, read);
            assert!(peer.input.bytes().is_empty() && peer.input.held.is_none());
        }
        assert_eq!(buffers.kept, 0);
        assert!((1..=SPARES_MAX).contains(&buffers.spares.len()));
    }
}

#[test]
fn nothing_received_changes_nothing() {
    let mut buffers = Buffers::default();
    let mut input = Input::new(b"PUB t".to_vec());
    for answer in [
        Poll::Pending,
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
    ] {
        let is_pending = answer.is_pending();
        let filled = input.poll_fill(&mut buffers, 0, |_| answer);
        assert_eq!(filled.is_pending(), is_pending);
        assert!(!matches!(filled, Poll::Ready(Ok(_))));
        assert_eq!(input.bytes(), b"PUB t");
    }
    assert_eq!((buffers.kept, buffers.spares.len()), (0, 1));
}

#[test]
fn many_slow_peers_take_what_they_need_and_give_it_back() {
    let mut buffers = Buffers::default();
    let mut peers: Vec<Peer> = (0..KEPT_MAX + 50)
        .map(|number| Peer::new(number, vec![100_000, 10]))
        .collect();
    for peer in &mut peers {
        peer.step(&mut buffers, 20_000);
    }
    assert_eq!(buffers.kept, KEPT_MAX);
    let of_others: usize = peers[KEPT_MAX..]
        .iter()
        .map(|peer| peer.input.held.as_ref().unwrap().buffer.len())
        .sum();
    assert_eq!(of_others, 50 * 20_000);
    // Some end in the middle, some move to another shard with what they have.
    for peer in &mut peers[..10] {
        assert_eq!(peer.input.take(&mut buffers).len(), 20_000);
    }
    assert_eq!(buffers.kept, KEPT_MAX - 10);
    let moved = peers[20].input.take(&mut buffers);
    peers[20].input = Input::new(moved);
    for peer in &mut peers[10..] {
        while !peer.commands.is_empty() {
            peer.step(&mut buffers, 30_000);
        }
        assert!(peer.input.held.is_none() && peer.input.bytes().is_empty());
        assert!(peer.input.little.capacity() <= IDLE_BYTES_MAX);
    }
    assert_eq!((buffers.kept, buffers.spares.len()), (0, SPARES_MAX));
}
