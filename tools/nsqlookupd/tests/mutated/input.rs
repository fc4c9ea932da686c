//! Random input: sequences of what clients send, with mistakes in them.

use fastrand::Rng;

/// Returns a few of `parts` in a row, with up to four mistakes.
pub(crate) fn mutated(random: &mut Rng, parts: &[fn(&mut Rng) -> Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.usize(1..12) {
        bytes.extend(random.choice(parts).expect("there are parts")(random));
    }
    // Half of the inputs are as a good client sends them.
    let mistakes = random.usize(0..8).saturating_sub(3);
    for _ in 0..mistakes {
        spoil(random, &mut bytes);
    }
    bytes
}

fn spoil(random: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = random.usize(0..bytes.len());
    let end = (at + random.usize(1..20)).min(bytes.len());
    match random.u8(0..6) {
        0 => bytes[at] = random.u8(..),
        1 => bytes[at] ^= 1 << random.u8(0..8),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {
            let noise: Vec<u8> = (0..random.usize(1..9)).map(|_| random.u8(..)).collect();
            bytes.splice(at..at, noise);
        }
    }
}
