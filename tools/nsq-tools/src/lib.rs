//! NSQ's command-line tools: `nsq_to_file`, `nsq_to_http`, `nsq_to_nsq`, `nsq_tail`, `nsq_stat`, `to_nsq`, and ours.
#![forbid(unsafe_code)]
