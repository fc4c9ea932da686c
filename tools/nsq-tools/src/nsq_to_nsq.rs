//! `nsq_to_nsq`: publishes messages of topics to other nsqds.

pub mod filter;
pub mod key;
