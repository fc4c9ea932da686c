//! [`SegmentNumber`]: the number of a segment's file, and the names that files have by it.

const SEGMENT_SUFFIX: &str = ".segment";
const PARTIAL_SUFFIX: &str = ".partial";

/// Names a segment's file within its log; never reused while the log lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentNumber(pub u64);

/// The name of a segment's file.
#[must_use]
pub fn segment_file(segment: SegmentNumber) -> String {
    format!("{:012}{SEGMENT_SUFFIX}", segment.0)
}

/// The number in the name of a segment's file.
#[must_use]
pub fn segment_number(name: &str) -> Option<SegmentNumber> {
    let digits = name.strip_suffix(SEGMENT_SUFFIX)?;
    parse_number(digits).map(SegmentNumber)
}

/// The number at the front of a file's name, whatever kind of file of a segment it is.
#[must_use]
pub fn file_number(name: &str) -> Option<u64> {
    parse_number(name.split('.').next()?)
}

/// Eighteen digits at most: the numbers after the highest one still fit 64 bits.
fn parse_number(digits: &str) -> Option<u64> {
    let is_number = (12..=18).contains(&digits.len());
    let is_number = is_number && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// The name of a segment's file while it is written. No segment is called like that.
#[must_use]
pub fn partial_file(segment: SegmentNumber) -> String {
    format!("{}{PARTIAL_SUFFIX}", segment_file(segment))
}

/// Returns whether this is a file that was being written when the process ended.
#[must_use]
pub fn is_partial_file(name: &str) -> bool {
    name.strip_suffix(PARTIAL_SUFFIX)
        .is_some_and(|name| segment_number(name).is_some())
}
