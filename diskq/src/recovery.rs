//! Start-up turns the files of a log into a [`Log`], and finds out what the log still owes.
//!
//! Start-up reads the checkpoints and the heads of all segments. It reads every slot only of the segments that a
//! crash may have torn: those that are not sealed, or not wholly below the synced mark of the checkpoint. The other
//! segments stay cold, and are checked when they are loaded. A message that is not whole is one of two things:
//!
//! - *damaged*, if the checkpoint owes the message and says that it was synced, or if the device cannot read its bytes.
//!   Damage is counted and reported, and its file is set aside when nobody needs the other messages any more.
//! - *torn* otherwise: nobody was ever promised the message, or it was finished long ago. A torn message is dropped
//!   without a word.
//!
//! A log that cannot be read because of this process or its machine (no descriptors, no memory, no permission) is not
//! opened at all. Among the errors of a read, only an error of the device counts as damage.
//!
//! Except for seals, which start-up writes or clears while it judges, nothing is changed before everything is read and
//! judged: only then start-up removes or renames files.

mod checkpoints;
mod segments;
mod state;

use std::io;
use std::path::Path;

use diskq_log::plant;
use diskq_log::range::{within, without};
use diskq_log::{
    Damage, DamageKind, FoundLog, Log, LogOptions, Recovered, Segment, SegmentNumber, SeqRange,
    SlotKind,
};
use wire::id::Seq;

use crate::error::{Attempt, DiskError};
use crate::files::Files;
use crate::keeper::LogDirectory;
use wire::go_error::system_text;

/// Opens the log of `topic`; a topic without one gets an empty log. Blocks.
///
/// Appends go to a new segment. Their first seq lies above every seq that a file names, and is at least the seq of
/// `wall_ns` ([`Seq::from_clock`]). So seqs may have a gap there.
///
/// # Errors
/// The directory or one of its files cannot be read, and the device is not the reason. Nothing was
/// removed then, and a later attempt may work.
pub fn open_log(
    files: &impl Files,
    data_path: &Path,
    topic: &str,
    options: LogOptions,
    wall_ns: u64,
) -> Result<Recovered, DiskError> {
    let wants_origins = options.slots == SlotKind::WithOrigin;
    let opening = Opening::read(files, data_path, topic, true, wants_origins)?;
    Ok(opening.finish(options, wall_ns))
}

/// Does what [`open_log`] does, and changes no file. The log is not for appends.
///
/// # Errors
/// The errors are those of [`open_log`].
pub fn read_log(files: &impl Files, data_path: &Path, topic: &str) -> Result<Recovered, DiskError> {
    let opening = Opening::read(files, data_path, topic, false, false)?;
    Ok(opening.finish(LogOptions::default(), 0))
}

/// The knowledge of a start so far.
struct Opening<'a, F> {
    files: &'a F,
    directory: LogDirectory<'a, F>,
    /// False if no file may be changed.
    may_change: bool,
    /// True if the origins of messages are wanted.
    wants_origins: bool,
    /// The origins of messages below this seq are in the saved state.
    origins_from: Seq,
    /// The `next` of the last checkpoint that is durable.
    durable_next: Seq,
    /// The messages that the checkpoint owes, sorted.
    owed: Vec<SeqRange>,
    any_place_is_bad: bool,
    /// Files that hold nothing anyone needs.
    obsolete: Vec<String>,
    /// Files to be kept under another name, and why.
    aside: Vec<(String, String)>,
    /// The log as it was found. Its `next` is one above every seq any file names.
    log: FoundLog,
    /// The result, still without its log.
    recovered: Recovered,
}

impl<'a, F: Files> Opening<'a, F> {
    fn read(
        files: &'a F,
        data_path: &Path,
        topic: &str,
        may_change: bool,
        wants_origins: bool,
    ) -> Result<Opening<'a, F>, DiskError> {
        let directory = LogDirectory::new(files, data_path, topic);
        let entries = match files.list(directory.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries.in_attempt("list", directory.path())?,
        };
        let mut opening = Opening {
            files,
            directory,
            may_change,
            wants_origins,
            origins_from: Seq(0),
            durable_next: Seq(0),
            owed: Vec::new(),
            any_place_is_bad: false,
            obsolete: Vec::new(),
            aside: Vec::new(),
            log: FoundLog {
                next_number: SegmentNumber(1),
                ..FoundLog::default()
            },
            recovered: Recovered::default(),
        };
        opening.read_checkpoints(&entries)?;
        opening.read_state(&entries)?;
        opening.read_segments(&entries)?;
        opening.read_published()?;
        opening.report_missing();
        opening.tidy();
        Ok(opening)
    }

    /// Everything below is synced.
    fn synced(&self) -> Seq {
        let checkpoint = self.recovered.checkpoint.as_ref();
        checkpoint.map_or(Seq(0), |checkpoint| checkpoint.synced)
    }

    /// The first seq that the checkpoint knows nothing about.
    fn checkpoint_next(&self) -> Seq {
        let checkpoint = self.recovered.checkpoint.as_ref();
        checkpoint.map_or(Seq(0), |checkpoint| checkpoint.next)
    }

    /// The log cannot be opened now: nothing is known of the file.
    fn cannot_read(&self, name: &str, error: io::Error) -> DiskError {
        DiskError::io("read", &self.directory.path().join(name), error)
    }

    fn report(&mut self, kind: DamageKind, file: &str, seqs: SeqRange, detail: String) {
        let file = self.directory.shown(file);
        let damage = Damage::new(kind, file, seqs, detail);
        self.recovered.damage.push(damage);
    }

    /// Reports messages that are owed and were synced, and are in no segment at all.
    fn report_missing(&mut self) {
        // An older checkpoint may name what was finished and recycled since it was written.
        if self.any_place_is_bad {
            return;
        }
        let held: Vec<SeqRange> = self.log.segments.iter().map(Segment::range).collect();
        let synced = within(SeqRange::new(Seq(0), self.synced()), &self.owed);
        for seqs in synced.iter().flat_map(|owed| without(*owed, &held)) {
            let detail = "no segment file holds what the checkpoint names".to_owned();
            self.report(DamageKind::Segment, "", seqs, detail);
        }
    }

    /// Removes what nobody needs, and keeps under another name what nobody can read.
    fn tidy(&mut self) {
        let obsolete = std::mem::take(&mut self.obsolete);
        for name in obsolete.iter().filter(|_| self.may_change) {
            // A file that stays costs room until the next start.
            let _ = self.files.remove(&self.directory.path().join(name));
        }
        for (name, why) in std::mem::take(&mut self.aside) {
            let kept = match self.may_change.then(|| self.directory.rename_aside(&name)) {
                None => "left alone".to_owned(),
                Some((aside, Ok(()))) => format!("kept as {aside}"),
                Some((aside, Err(error))) => {
                    format!("cannot be kept as {aside}: {}", system_text(&error))
                }
            };
            self.report(DamageKind::Header, &name, NO_SEQS, format!("{why}, {kept}"));
        }
    }

    fn finish(self, options: LogOptions, wall_ns: u64) -> Recovered {
        let (from, synced) = (self.origins_from, self.synced());
        let (mut recovered, mut log) = (self.recovered, self.log);
        for segment in &mut log.segments {
            // Nobody has checked the bytes of these times. A message of the future would have no age.
            segment.published.retain(|(_, at)| *at <= wall_ns);
        }
        recovered.deferred.sort_unstable();
        plant!(DeferredForgotten, recovered.deferred.clear());
        // A segment that is left alone has no messages, whatever its slots say.
        let found = &recovered.found;
        let is_found = |seq: Seq| {
            let index = found.partition_point(|range| range.end <= seq);
            found.get(index).is_some_and(|range| range.contains(seq))
        };
        recovered
            .origins
            .retain(|(seq, _)| *seq >= from && is_found(*seq));
        recovered.origins.sort_unstable_by_key(|(seq, _)| *seq);
        plant!(SeqReused, log.next = Seq(0));
        let names_no_seqs = |damage: &Damage| {
            matches!(damage.kind, DamageKind::Header | DamageKind::Foreign)
                && damage.seqs.is_empty()
        };
        if recovered.damage.iter().any(names_no_seqs) {
            recovered.had = vec![SeqRange::new(Seq(0), Seq(u64::MAX))];
        }
        log.next = log.next.max(Seq::from_clock(wall_ns));
        log.synced = synced;
        log.damaged_count = recovered.damage.iter().map(|it| it.seqs.len()).sum();
        recovered.log = Log::from_found(options, log);
        recovered
    }
}

/// No messages are concerned, or it is not known which.
const NO_SEQS: SeqRange = SeqRange {
    start: Seq(0),
    end: Seq(0),
};
