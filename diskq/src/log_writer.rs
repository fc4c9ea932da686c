//! [`LogWriter`]: the segments and the checkpoint of a log that nobody has open, written from end to
//! end: for the import. A running topic's is [`Log`].

use std::path::Path;

use diskq_log::segment::{
    FRAMES_AT, Head, NewFrame, PAGE_BYTES, SEGMENT_BYTES_LIMIT, Seal, bytes_needed, write_frame,
    write_head, write_seal,
};
use diskq_log::slot::SLOT_BYTES;
use diskq_log::{
    Checkpoint, CheckpointDraft, Log, LogOptions, SegmentNumber, SlotKind, next_generation,
};
use wire::id::{MessageId, Seq};

use crate::error::{Attempt, DiskError};
use crate::files::Files;
use crate::keeper::LogDirectory;

/// Writes the log of one topic below a directory. Nothing is durable until the caller syncs.
pub struct LogWriter<'a, F> {
    files: &'a F,
    log: LogDirectory<'a, F>,
    node: u16,
    generations: u64,
    next: Seq,
    next_number: SegmentNumber,
    checkpoint_number: u64,
    segment_bytes: u32,
    /// The segment being filled; of `segment_bytes`, or more for a larger message.
    image: Vec<u8>,
    head: Head,
    count: u32,
    end: u32,
}

impl<'a, F: Files + Clone> LogWriter<'a, F> {
    /// Goes on where `log` ends, in a directory of its own.
    #[must_use]
    pub fn behind(
        log: &Log,
        files: &'a F,
        directory: &Path,
        topic: &str,
        options: &LogOptions,
    ) -> LogWriter<'a, F> {
        let (next_number, checkpoint_number) = log.next_numbers();
        LogWriter {
            files,
            log: LogDirectory::new(files, directory, topic),
            node: options.node,
            generations: options.process_seed,
            next: log.next_seq(),
            next_number,
            checkpoint_number,
            segment_bytes: (options.segment_bytes_max / PAGE_BYTES).max(1) * PAGE_BYTES,
            image: Vec::new(),
            head: Head {
                generation: 0,
                base: Seq(0),
                bytes: 0,
                node: options.node,
                slots: SlotKind::Plain,
            },
            count: 0,
            end: FRAMES_AT,
        }
    }

    /// Appends a message to the log.
    ///
    /// # Errors
    /// A full segment could not be written, or the message fits no segment.
    pub fn append(&mut self, timestamp_ns: i64, body: &[u8]) -> Result<Seq, DiskError> {
        let used = u64::from(self.end) + u64::from(self.count) * SLOT_BYTES as u64;
        let needed = bytes_needed(SlotKind::Plain, 1, body.len() as u64);
        if self.count == 0 || used + needed > self.image.len() as u64 {
            self.flush()?;
            self.start_segment(needed)?;
        }
        let seq = self.next;
        let new = NewFrame {
            timestamp_ns,
            id: MessageId::new(seq, self.node),
            defer_ms: 0,
            body,
        };
        self.end = write_frame(&mut self.image, &self.head, self.count, self.end, &new);
        self.count += 1;
        self.next = seq.offset(1);
        Ok(seq)
    }

    /// Writes the last segment, and a checkpoint that calls all messages synced. The caller must sync them before
    /// anyone reads the log.
    ///
    /// # Errors
    /// The last segment or the checkpoint could not be written.
    pub fn finish(mut self, checkpoint: &Checkpoint) -> Result<(), DiskError> {
        self.flush()?;
        let draft = CheckpointDraft {
            synced: self.next,
            next: self.next,
            number: self.checkpoint_number,
            ..CheckpointDraft::from(checkpoint)
        };
        let encoded = self.log.complete().and_then(|()| draft.encode(true));
        let written = encoded.and_then(|bytes| self.log.write_place(0, &bytes));
        written.in_attempt("write", &self.log.checkpoint_path())
    }

    fn start_segment(&mut self, needed: u64) -> Result<(), DiskError> {
        let bytes = u64::from(FRAMES_AT) + needed;
        let bytes = bytes.next_multiple_of(u64::from(PAGE_BYTES));
        if bytes > u64::from(SEGMENT_BYTES_LIMIT) {
            return Err(DiskError::Failed(format!(
                "a message of {needed} bytes never fits a segment"
            )));
        }
        let bytes = self.segment_bytes.max(bytes as u32);
        if self.image.len() != bytes as usize {
            self.image = vec![0; bytes as usize];
        }
        self.head = Head {
            generation: next_generation(&mut self.generations),
            base: self.next,
            bytes,
            node: self.node,
            slots: SlotKind::Plain,
        };
        Ok(())
    }

    /// Cuts the segment to the pages it fills, seals it and writes it.
    fn flush(&mut self) -> Result<(), DiskError> {
        if self.count == 0 {
            return Ok(());
        }
        let slots = self.count as usize * SLOT_BYTES;
        let bytes = (self.end as usize + slots).next_multiple_of(PAGE_BYTES as usize);
        let slots_at = self.image.len() - slots;
        self.image.copy_within(slots_at.., bytes - slots);
        self.image[self.end as usize..bytes - slots].fill(0);
        self.head.bytes = bytes as u32;
        let seal = Seal {
            count: self.count,
            end: self.end,
        };
        let image = &mut self.image[..bytes];
        write_head(image, &self.head);
        write_seal(image, &self.head, &seal);
        let (log, path) = (self.log.path(), self.log.segment_path(self.next_number));
        self.files.create_dir(log).in_attempt("make", log)?;
        self.files
            .write_at(&path, 0, image)
            .in_attempt("write", &path)?;
        self.next_number = SegmentNumber(self.next_number.0 + 1);
        self.count = 0;
        self.end = FRAMES_AT;
        Ok(())
    }
}
