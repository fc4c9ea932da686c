//! The V2 wire protocol: bytes on one side, protocol values on the other.
//!
//! ```text
//!   client to broker      line LF                        NOP, CLS, RDY, FIN, REQ, TOUCH, SUB
//!                         line LF [size i32][body]       IDENTIFY, AUTH, PUB, DPUB
//!                         line LF [size i32][count i32]([size i32][body])*          MPUB
//!
//!   broker to client      [size i32][type i32][data]     size = data + 4, all big endian
//!                          type 0 response   OK, CLOSE_WAIT, _heartbeat_, JSON
//!                          type 1 error      E_CODE SP description
//!                          type 2 message    [timestamp i64][attempts u16][id 16][body]
//! ```
//!
//! ```text
//!   input buffer -> decode -> NeedMore(n) | Command<'a> | Reject(WireError) | Close
//!   values       -> encode -> output buffer
//! ```
//!
//! This crate owns the syntax, every limit of the protocol itself, and the exact text of every
//! error. It has no sockets, clocks or threads, and does not know what a command does. A decoded
//! [`command::Command`] borrows from the input. Decoding allocates memory only for the text of an
//! error and the strings of an IDENTIFY.
//!
//! Start with `command.rs` and `decode.rs`. A new command touches these two, and `encode.rs` for clients.
//!
//! The contract is nsqd 1.3.0, byte for byte. Code that looks odd imitates a quirk of nsqd and says
//! so.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
pub mod command;
pub mod decode;
pub mod encode;
pub mod error;
pub mod frame;
pub mod go_error;
pub mod go_json;
pub mod go_value;
pub mod id;
pub mod identify;
pub mod limits;
pub mod name;
pub mod origin;
pub mod topic_rules;

/// The version of NSQ that ringq's programs replace. Clients and tools derive the features of a daemon from it. It is
/// not the version of ringq.
pub const NSQ_VERSION: &str = "1.3.0";
