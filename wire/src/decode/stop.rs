//! [`Stop`]: the reason why there is no command, and the text of the error.

use std::fmt::Display;

use crate::error::{ErrorCode, WireError, quote};
use crate::name::TopicName;

/// The reason why there is no command.
pub(super) enum Stop<'a> {
    /// The input must hold `needs` bytes. If it never does, `missing` names the part that could not
    /// be read.
    Short {
        needs: usize,
        missing: Missing,
        creates_topic: Option<TopicName<'a>>,
    },
    /// Boxed, because every command moves a `Stop`, whereas an error ends its connection.
    Reject {
        error: Box<WireError>,
        creates_topic: Option<TopicName<'a>>,
    },
    TooLong,
}

impl<'a> Stop<'a> {
    /// Returns the same stop with a topic that nsqd has created by now.
    #[cold]
    pub(super) fn creating(mut self, topic: TopicName<'a>) -> Stop<'a> {
        match &mut self {
            Stop::Short { creates_topic, .. } | Stop::Reject { creates_topic, .. } => {
                *creates_topic = Some(topic);
            }
            Stop::TooLong => {}
        }
        self
    }
}

#[inline]
pub(super) fn short<'a>(needs: usize, missing: Missing) -> Stop<'a> {
    Stop::Short {
        needs,
        missing,
        creates_topic: None,
    }
}

#[cold]
pub(super) fn reject<'a>(error: WireError) -> Stop<'a> {
    Stop::Reject {
        error: Box::new(error),
        creates_topic: None,
    }
}

#[cold]
pub(super) fn invalid<'a>(description: impl Display) -> Stop<'a> {
    reject(WireError::invalid(description))
}

/// The part of a command at which the input ended.
pub(super) enum Missing {
    /// The rest of the line. nsqd sends no error for it.
    Line,
    /// A size, a count or a body.
    Part {
        code: ErrorCode,
        verb: &'static str,
        what: &'static str,
    },
    /// The size of a message in an MPUB. Only this error names the index of the message.
    MessageSize { index: u32 },
}

impl Missing {
    pub(super) fn error(self) -> Option<WireError> {
        match self {
            Missing::Line => None,
            Missing::Part { code, verb, what } => {
                let description = format_args!("{verb} failed to read {what}");
                Some(WireError::new(code, description))
            }
            Missing::MessageSize { index } => {
                let description = format_args!("MPUB failed to read message({index}) body size");
                Some(WireError::new(ErrorCode::BadMessage, description))
            }
        }
    }
}

#[cold]
pub(super) fn wrong_state<'a>(verb: &'static str) -> Stop<'a> {
    invalid(format_args!("cannot {verb} in current state"))
}

/// Returns the error for missing parameters. PUB, MPUB, DPUB and SUB say "parameters"; FIN, REQ and
/// TOUCH say "params".
#[cold]
pub(super) fn too_few_parameters<'a>(verb: &'static str) -> Stop<'a> {
    invalid(format_args!("{verb} insufficient number of parameters"))
}

#[cold]
pub(super) fn too_few_params<'a>(verb: &'static str) -> Stop<'a> {
    invalid(format_args!("{verb} insufficient number of params"))
}

#[cold]
pub(super) fn bad_name<'a>(code: ErrorCode, what: &str, name: &[u8]) -> Stop<'a> {
    let description = format_args!("{what} name {} is not valid", quote(name));
    reject(WireError::new(code, description))
}

#[cold]
pub(super) fn not_a_number<'a>(what: &str, word: &[u8]) -> Stop<'a> {
    reject(WireError::with_raw(ErrorCode::Invalid, what, word, ""))
}

#[cold]
pub(super) fn unknown_option<'a>(verb: &str, option: &[u8]) -> Stop<'a> {
    let before = format!("{verb} unknown option ");
    reject(WireError::with_raw(ErrorCode::Invalid, &before, option, ""))
}
