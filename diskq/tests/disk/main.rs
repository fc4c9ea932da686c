//! The log with its keeper, its recovery and its deletion, on the simulated disk.

mod deletion;
mod keeper;
mod log;
mod log_reader;
mod planted;
mod recovery;
mod sim_files;

use std::path::PathBuf;
use std::time::Duration;

use diskq::{Keeper, Log, LogOptions};
use diskq_log::checkpoint::CheckpointDraft;
use diskq_log::{CheckpointJob, CheckpointNumber, Request};
use diskq_sim::SimFiles;

const TOPIC: &str = "orders";
const MONO: Duration = Duration::from_secs(1);
const WALL_NS: u64 = 1_760_000_000_000_000_000;

fn data_path() -> PathBuf {
    PathBuf::from("/data")
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes_min: 8192,
        segment_bytes_steady: 8192,
        ..LogOptions::default()
    }
}

/// Has the keeper do the jobs of a log.
fn serve(log: &mut Log, keeper: &Keeper<SimFiles>) {
    while let Some(request) = log.next_request() {
        keeper.files().observe(&data_path(), TOPIC, log);
        if let Some(reply) = keeper.handle(TOPIC, request) {
            log.handle_reply(MONO, reply, &mut Vec::new());
        }
    }
}

/// The job that writes a checkpoint.
fn write_checkpoint(place: u8, draft: &CheckpointDraft, sync: bool) -> Request {
    Request::WriteCheckpoint(CheckpointJob {
        number: CheckpointNumber(u64::from(place) + 1),
        place,
        draft: draft.clone(),
        sync_first: false,
        sync,
        names: sync,
    })
}
