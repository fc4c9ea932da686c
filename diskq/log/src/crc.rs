//! The CRC-32C of everything on disk. The CRC of the frame takes the largest part of the time of an append, so there is
//! a loop of our own for short inputs.
//!
//! The polynomial is Castagnoli's (RFC 3720, appendix B.4), which x86-64 processors compute by an
//! instruction of eight bytes at three cycles. For a message of 200 bytes that is 21 ns; folding with
//! carry-less multiplications, what libraries do for either polynomial, has its fixed cost and pays
//! from some 300 bytes on (37 ns with crc32fast, 33 with crc32c; `cargo bench -p diskq`).

/// The CRC-32C of `bytes`, continued from `start`: the CRC of what came before, or 0.
#[inline]
#[must_use]
pub fn crc32c(start: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES_MAX && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions; nothing else is asked of the caller.
        #[allow(unsafe_code)]
        return unsafe { short(start, bytes) };
    }
    crc32c::crc32c_append(start, bytes)
}

/// Longer input goes to the library, which folds with carry-less multiplications. Just above 300 bytes, the two ways
/// cost about the same.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES_MAX: usize = 512;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(start: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks();
    let crc = words.iter().fold(u64::from(!start), |crc, word| {
        _mm_crc32_u64(crc, u64::from_le_bytes(*word))
    });
    let mut crc = crc as u32;
    let (half, rest) = rest.as_chunks();
    if let [half] = half {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*half));
    }
    let (quarter, rest) = rest.as_chunks();
    if let [quarter] = quarter {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*quarter));
    }
    if let [byte] = rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit, from the definition.
    fn plain(start: u32, bytes: &[u8]) -> u32 {
        const POLYNOMIAL: u32 = 0x82F6_3B78;
        let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
        let crc = bytes.iter().fold(!start, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
        });
        !crc
    }

    #[test]
    fn the_vectors_of_rfc_3720() {
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(0, &[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(0, &rising), 0x46DD_794E);
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
    }

    proptest! {
        #[test]
        fn every_length_and_start_agrees_with_the_definition(
            bytes in prop::collection::vec(any::<u8>(), 0..1100),
            start: u32,
        ) {
            prop_assert_eq!(crc32c(start, &bytes), plain(start, &bytes));
            prop_assert_eq!(crc32c::crc32c_append(start, &bytes), plain(start, &bytes));
        }
    }
}
