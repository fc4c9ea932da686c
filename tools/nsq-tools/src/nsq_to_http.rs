//! `nsq_to_http`: makes an HTTP request for each message.

pub mod get_template;
