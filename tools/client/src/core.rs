//! One connection as a state machine: bytes in, events and bytes out, and the time as an argument. No socket, no task,
//! no clock.
//!
//! ```text
//!   magic, IDENTIFY ─► answer ─► [TLS ─► OK] ─► [deflate | snappy ─► OK] ─► [AUTH ─► answer] ─► [SUB ─► OK] ─► open
//!
//!   read ─► receive_space ─► received ─► next_event: Opened | Response | Error | Messages      heartbeat ─► NOP
//!   send ─► unsent ─► sent                                                                     deadline, handle_timeout
//! ```
//!
//! [`Link`](crate::link::Link) drives a [`Connection`] over a stream.

mod connection;
mod frames;
mod negotiated;
mod settings;

pub(crate) use connection::{Connection, Event};
pub(crate) use frames::{Batch, RawMessage};
pub use negotiated::{Authorization, Negotiated};
pub(crate) use settings::{Settings, Subscription};
