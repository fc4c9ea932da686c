//! What nsqd and nsqlookupd answer over HTTP, for the programs that ask them: nsqadmin, the tools, the client library and
//! nsqd itself.
//!
//! The crate owns the types of the answers ([`Stats`], [`Lookup`], [`NodeInfo`]), the forms in which answers and refusals
//! come ([`read`], [`Refusal`]), and the rules for URLs ([`query`], [`host_port`], [`https_url`]). It makes no request.
//!
//! Old versions leave out fields, and Go programs write `null` for an empty list. Both mean the default. Unknown fields are
//! ignored. A field of a wrong type is an error of that one answer.

#![forbid(unsafe_code)]

mod form;
mod lenient;
mod lookup;
mod stats;
mod url;

pub use form::{ACCEPT, Refusal, read};
pub use lookup::{Lookup, NodeInfo};
pub use stats::{ChannelStats, ClientStats, LatencyStats, Percentile, PubCount, Stats, TopicStats};
pub use url::{host_port, https_url, push_query_value, query};
