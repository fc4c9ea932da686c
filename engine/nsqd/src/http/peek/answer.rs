//! The answer of a peek while it is put together, and its JSON.

use super::question::{Wanted, shown_place};
use super::{FRAME_BYTES_MAX, READ_BYTES_MAX, SCANNED_BYTES_MAX, SCANNED_MAX, SHOWN_BYTES_MAX};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use diskq::{Keeper, OsFiles, Reply as KeeperReply};
use engine_rules::{
    ColdMessage, LogEnd, PeekBudget, PeekFrom, PeekPlace, PeekSlice, PeekState, PeekedFrame,
    PeekedMessage, Seq,
};
use http::StatusCode;
use program::http::Reply;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::cmp::Reverse;
use wire::frame::{DATA_AT, HEADER_BYTES, Message};
use wire::go_json::to_string;
use wire::id::MessageId;
use wire::json_object;

/// The messages that were found so far.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) wanted: Wanted,
    shown: Vec<Shown>,
    /// The place at which the next slice begins. `None`: the list has ended.
    pub(super) next: Option<PeekPlace>,
    /// The end of the topic's log at the first slice.
    log_end: Option<LogEnd>,
    scanned: u64,
    scanned_bytes: u64,
    shown_bytes: usize,
    /// True if the last slice was longer than the limit or the budget.
    is_cut: bool,
    /// The message that could not be read last. It may have moved between the look at the log and the read of the file.
    unread: Option<Seq>,
}

/// The part of a slice that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Everything that fits.
    Whole,
    /// The messages before one that could not be read. The next slice shows where that message is now.
    UpToUnread,
}

/// The beginning of a frame ([`FRAME_BYTES_MAX`]), and the length of the whole frame.
type ColdFrame = (Vec<u8>, usize);

/// A message that is shown.
#[derive(Debug)]
struct Shown {
    message: PeekedMessage,
    /// `None`: the message is damaged.
    frame: Option<ColdFrame>,
}

impl Shown {
    /// The bytes of the body that are shown.
    fn body_bytes(&self) -> usize {
        let frame = self.frame.as_ref();
        frame.map_or(0, |(frame, _)| frame.len().saturating_sub(HEADER_BYTES))
    }
}

impl Answer {
    pub(super) fn new(wanted: Wanted) -> Answer {
        Answer {
            next: wanted.place,
            wanted,
            shown: Vec::new(),
            log_end: None,
            scanned: 0,
            scanned_bytes: 0,
            shown_bytes: 0,
            is_cut: false,
            unread: None,
        }
    }

    /// Returns the list of the next slice. If the answer has as many messages as it may have, another message needs
    /// more attempts than the last of them.
    pub(super) fn from(&self) -> PeekFrom {
        match (self.wanted.from, self.shown.last()) {
            (PeekFrom::Attempts(_), Some(last)) if self.has_enough() => {
                PeekFrom::Attempts(last.message.attempts.saturating_add(1))
            }
            (from, _) => from,
        }
    }

    /// Returns the bounds of the next slice.
    pub(super) fn slice_budget(&self, most: PeekBudget) -> PeekBudget {
        let is_limited = self.wanted.filter.accepts_all() && !self.seeks_best();
        let messages_max = if is_limited {
            most.messages_max.min(self.wanted.limit - self.shown.len())
        } else {
            most.messages_max
        };
        let left = usize::try_from(SCANNED_MAX - self.scanned).unwrap_or(usize::MAX);
        PeekBudget {
            messages_max,
            entries_max: most.entries_max.min(left),
            ..most
        }
    }

    /// True if the search goes on when there are enough messages, because better ones may follow.
    fn seeks_best(&self) -> bool {
        matches!(self.wanted.from, PeekFrom::Attempts(_))
    }

    /// True if the answer has as many messages as it may have.
    fn has_enough(&self) -> bool {
        self.shown.len() >= self.wanted.limit || self.shown_bytes >= SHOWN_BYTES_MAX
    }

    /// True if the limit or the budget is reached.
    pub(super) fn is_full(&self) -> bool {
        self.is_cut
            || !self.seeks_best() && self.has_enough()
            || self.scanned >= SCANNED_MAX
            || self.scanned_bytes >= SCANNED_BYTES_MAX
    }

    /// Takes the messages of a slice that fit. Reads from disk what is not in memory, up to [`READ_BYTES_MAX`]. A message that
    /// is on disk and cannot be read twice is damaged.
    pub(super) fn take_slice(&mut self, slice: PeekSlice, files: &Keeper<OsFiles>) -> Taken {
        let mut read_bytes = 0;
        self.log_end = self.log_end.or(slice.log_end);
        for mut message in slice.messages {
            if self.is_full() {
                self.is_cut = true;
                return Taken::Whole;
            }
            let frame = match std::mem::replace(&mut message.frame, PeekedFrame::Gone) {
                PeekedFrame::Copied(frame, length) => {
                    self.scanned_bytes += frame.len() as u64;
                    Some(Some((frame, length)))
                }
                PeekedFrame::Damaged => Some(None),
                PeekedFrame::Gone => None,
                // The next slice begins with the first message that was not read.
                PeekedFrame::Cold(_) if read_bytes >= READ_BYTES_MAX => return Taken::Whole,
                PeekedFrame::Cold(cold) => match read_cold(files, &self.wanted.topic, &cold) {
                    None if self.unread != Some(message.seq) => {
                        self.unread = Some(message.seq);
                        return Taken::UpToUnread;
                    }
                    frame => {
                        let bytes = frame.as_ref().map_or(0, |(_, bytes)| *bytes as u64);
                        read_bytes += bytes;
                        self.scanned_bytes += bytes;
                        Some(frame)
                    }
                },
            };
            self.scanned += 1;
            self.next = Some(message.next);
            if let Some(frame) = frame {
                self.take(message, frame);
            }
        }
        self.scanned += slice.passed;
        self.next = slice.next;
        Taken::Whole
    }

    /// Takes one of the messages with the most attempts. A message that has gone from list to list during the search
    /// comes twice, and counts once. Removes the messages that are too many.
    fn take_best(&mut self, shown: Shown) {
        let seq = shown.message.seq;
        self.shown.retain(|other| other.message.seq != seq);
        self.shown.push(shown);
        self.shown
            .sort_by_key(|shown| Reverse(shown.message.attempts));
        let (mut count, mut bytes) = (0, 0);
        for shown in self.shown.iter().take(self.wanted.limit) {
            if bytes >= SHOWN_BYTES_MAX {
                break;
            }
            count += 1;
            bytes += shown.body_bytes();
        }
        self.shown.truncate(count);
        self.shown_bytes = bytes;
    }

    fn take(&mut self, message: PeekedMessage, frame: Option<ColdFrame>) {
        let body = frame
            .as_ref()
            .and_then(|(frame, _)| frame.get(HEADER_BYTES..));
        // Nobody knows what is in a damaged body: it is shown where everything is shown.
        let is_wanted = match body {
            Some(body) => self.wanted.filter.accepts(body),
            None => self.wanted.filter.accepts_all(),
        };
        if !is_wanted {
            return;
        }
        // The rest of the body has been searched, and is not shown.
        let frame = frame.map(|(mut frame, length)| {
            frame.truncate(HEADER_BYTES + self.wanted.body_bytes_max);
            frame.shrink_to_fit();
            (frame, length)
        });
        let shown = Shown { message, frame };
        if self.seeks_best() {
            return self.take_best(shown);
        }
        self.shown_bytes += shown.body_bytes();
        self.shown.push(shown);
    }

    pub(super) fn into_reply(self) -> Reply {
        let newest = self.log_end.map(|end| end.newest_id);
        let json = to_string(&json_object! {
            topic: &self.wanted.topic,
            #[serde(flatten)]
            channel: self.wanted.channel.as_ref().map(|it| json_object! { channel: it }),
            messages: &self.shown,
            scanned_messages: self.scanned,
            scanned_bytes: self.scanned_bytes,
            #[serde(flatten)]
            newest: newest.map(|id| json_object! { newest: text_of_id(id) }),
            #[serde(flatten)]
            unscanned: self.unscanned().map(|it| json_object! { unscanned_messages: it }),
            ended_by: self.end(),
            #[serde(flatten)]
            next: self.next.map(|place| json_object! { next: shown_place(place) }),
        });
        Reply::json(StatusCode::OK, json)
    }

    /// Returns how many messages behind `since` were not gone through: the log has them no more in memory, or the answer
    /// ended before. A topic that is made again leaves a gap between seqs, and only its messages are counted. `None`: the
    /// request does not begin at the end of the log, or nobody knows the number. Then nsqd has started since, or the log ends
    /// before `since`, because the topic was made again after the clock had gone back.
    fn unscanned(&self) -> Option<u64> {
        let PeekFrom::Published { since } = self.wanted.from else {
            return None;
        };
        let end = self.log_end?;
        let is_whole = self.wanted.has_since && self.wanted.place.is_none();
        let is_known = end.first.0 <= since.0.saturating_add(1) && since <= end.newest;
        let published = end.newest.0.saturating_sub(since.0).min(end.message_count);
        (is_whole && is_known).then(|| published.saturating_sub(self.scanned))
    }

    fn end(&self) -> &'static str {
        if self.next.is_none() {
            "end"
        } else if !self.seeks_best() && self.shown.len() >= self.wanted.limit {
            "limit"
        } else {
            "budget"
        }
    }
}

/// Reads a message from disk. `None`: the file does not have the message whole. A file that was used again in the meantime
/// has another head, so none of its messages is whole.
fn read_cold(files: &Keeper<OsFiles>, topic: &str, cold: &ColdMessage) -> Option<ColdFrame> {
    let Some(KeeperReply::Peeked {
        piece: Some(piece), ..
    }) = files.handle(topic, cold.read_request())
    else {
        return None;
    };
    let bytes = piece.memory.as_ref();
    let slot = diskq::segment::slot_at(bytes, cold.head.slots, cold.index);
    let frame = slot.and_then(|slot| bytes.get(slot.start as usize..slot.end as usize));
    let frame = frame.map(|frame| {
        let shown = &frame[..frame.len().min(FRAME_BYTES_MAX)];
        (shown.to_vec(), frame.len())
    });
    files.free(piece.memory);
    frame
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let message = &self.message;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", &text_of_id(message.id))?;
        if !matches!(message.state, PeekState::Published { .. }) {
            map.serialize_entry("attempts", &message.attempts)?;
        }
        add_state(&mut map, &message.state)?;
        let parsed = self.frame.as_ref().and_then(|(frame, length)| {
            let message = Message::parse(frame.get(DATA_AT..)?)?;
            Some((message, length - HEADER_BYTES))
        });
        let Some((parsed, body_bytes)) = parsed else {
            map.serialize_entry("damaged", &true)?;
            return map.end();
        };
        map.serialize_entry("timestamp", &parsed.timestamp_ns)?;
        map.serialize_entry("body_bytes", &body_bytes)?;
        let is_cut = parsed.body.len() < body_bytes;
        map.serialize_entry("is_cut", &is_cut)?;
        match text_of(parsed.body, is_cut) {
            Some(text) => {
                map.serialize_entry("encoding", "text")?;
                map.serialize_entry("body", text)?;
            }
            None => {
                map.serialize_entry("encoding", "base64")?;
                map.serialize_entry("body", &STANDARD.encode(parsed.body))?;
            }
        }
        map.end()
    }
}

fn text_of_id(id: MessageId) -> String {
    String::from_utf8_lossy(id.as_bytes()).into_owned()
}

/// Returns a body as text. The end of a body that is cut may be in the middle of a character.
fn text_of(body: &[u8], is_cut: bool) -> Option<&str> {
    match std::str::from_utf8(body) {
        Ok(text) => Some(text),
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&body[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn add_state<M: SerializeMap>(map: &mut M, state: &PeekState) -> Result<(), M::Error> {
    match state {
        PeekState::Waiting => map.serialize_entry("state", "waiting"),
        PeekState::Requeued => map.serialize_entry("state", "requeued"),
        PeekState::InFlight {
            client,
            since_ns,
            until_ns,
        } => {
            map.serialize_entry("state", "in_flight")?;
            if let Some((address, id)) = client {
                map.serialize_entry("client", address)?;
                map.serialize_entry("client_id", id)?;
            }
            map.serialize_entry("delivered_at", since_ns)?;
            map.serialize_entry("times_out_at", until_ns)
        }
        PeekState::DeferredUntil(at) => {
            map.serialize_entry("state", "deferred")?;
            map.serialize_entry("deferred_until", at)
        }
        PeekState::Published { is_finished } => {
            map.serialize_entry("state", "published")?;
            match is_finished {
                Some(is_finished) => map.serialize_entry("finished", is_finished),
                None => Ok(()),
            }
        }
        PeekState::DeferredFor(ms) => {
            map.serialize_entry("state", "deferred")?;
            map.serialize_entry("defer_ms", ms)
        }
    }
}
