//! nsqadmin: the console of a cluster. It asks nsqlookupds and nsqds at each request, and shows sums with their parts.
//!
//! ```text
//!   browser ──► http ──► Cluster ──HTTP──► nsqlookupd: which nsqds are there?
//!                 │         └──────HTTP──► each nsqd: /stats
//!                 │         answers ──► figures ──► JSON
//!                 ├─► live, history: the present figures and their past ◄─┐
//!                 ├─► checkup: what needs attention                    ◄─┴─ collector, a task that asks every second
//!                 └─► audit log, notifications
//! ```
//!
//! The order to read: `config`, `server`, `http` (what is answered), `cluster` with `upstream` (what is asked),
//! `nsq_http` and `figures` (what comes back), then `collector`, `live` and `checkup`. A new figure touches `nsq_http`,
//! `figures` and the page.
//!
//! The figures, the list of nodes, the rules about users and pages, and the texts for graphite are
//! functions without sockets and clocks. The contract is nsqadmin 1.3.0, except for the defects that
//! docs/reference/differences-nsqadmin.md lists.

#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod checkup;
pub mod cluster;
pub mod collector;
pub mod config;
pub mod figures;
pub mod history;
pub mod http;
pub mod live;
mod preflight;
pub mod server;
pub mod tally;
pub mod upstream;
