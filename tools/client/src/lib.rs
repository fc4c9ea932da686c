//! A client of NSQ's daemons: producers and consumers for nsqd, with discovery through nsqlookupd.
#![forbid(unsafe_code)]
