//! Results into files: JSON, and beside it one HDR interval log per kind of latency.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use crate::machine::fingerprint;
use crate::result::tally::Latencies;
use crate::result::{Outcome, SCHEMA, SavedResult};
use crate::run::Finished;
use crate::run::series::LoggedHistogram;

/// The files of one measurement: `NAME.json`, `NAME.publish.hlog` and so on. Known by the path of the first.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

impl Files {
    /// Chooses the files: `path` itself if it ends in `.json`, else files called `name` in the directory `path`.
    /// Fails when the directory cannot be made, in words for the user.
    pub fn at(path: &Path, name: &str) -> Result<Files, String> {
        let is_file = path
            .extension()
            .is_some_and(|extension| extension == "json");
        let mut json = path.to_owned();
        if !is_file {
            json.push(format!("{name}.json"));
        }
        let directory = json.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(Files(json))
    }

    /// Writes the interval logs of a run and names them in its result. `part` tells several runs of
    /// one measurement apart.
    /// Fails when a file cannot be written, in words for the user.
    pub fn logs(&self, finished: &mut Finished, part: &str) -> Result<(), String> {
        for record in &mut finished.result.histograms {
            let kind = record.kind.name();
            let stem = self.0.file_stem().unwrap_or_default();
            let name = format!("{}{part}.{kind}.hlog", stem.to_string_lossy());
            let is_of_kind = |logged: &&LoggedHistogram| logged.kind == record.kind;
            let intervals = finished.log.iter().filter(is_of_kind);
            let text = interval_log(kind, finished.started_unix_ms, intervals)
                .map_err(|error| format!("cannot make {name}: {error}"))?;
            write(&self.0.with_file_name(&name), &text)?;
            record.hdr_log = Some(name);
        }
        Ok(())
    }

    /// Writes the JSON file.
    /// Fails when it cannot be written, in words for the user.
    pub fn result(&self, started_unix_ms: u64, outcome: Outcome) -> Result<&Path, String> {
        let saved = SavedResult {
            schema: SCHEMA,
            tool: format!("nsq-bench {}", env!("CARGO_PKG_VERSION")),
            command: std::env::args().collect(),
            started_unix_ms,
            machine: fingerprint(),
            outcome,
        };
        write(&self.0, saved.to_json().as_bytes())?;
        Ok(&self.0)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The text of an interval log. Values are nanoseconds, the column of maxima is in milliseconds.
fn interval_log<'a>(
    tag: &str,
    started_unix_ms: u64,
    intervals: impl Iterator<Item = &'a LoggedHistogram>,
) -> io::Result<Vec<u8>> {
    let start = UNIX_EPOCH + Duration::from_millis(started_unix_ms);
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("nsq-bench, values in nanoseconds")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6);
    let mut log = builder.begin_log_with(&mut text, &mut serializer)?;
    for interval in intervals {
        let histogram: Latencies = Deserializer::new()
            .deserialize(&mut &interval.bytes[..])
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        let from = Duration::from_secs_f64(interval.start_s);
        let length = Duration::from_secs_f64(interval.length_s);
        log.write_histogram(&histogram, from, length, Tag::new(tag))
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
