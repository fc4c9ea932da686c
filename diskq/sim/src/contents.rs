//! The contents of a simulated file in the page cache and on the device.
//!
//! ```text
//!   memory of the log --observe--> cached --write-back, sync--> durable
//!                                   clean | dirty | lost
//! ```
//!
//! A page is dirty while its cached bytes are not durable. Write-back that fails leaves it *lost*: it counts
//! as clean, no later sync writes it, and reclaim brings its durable bytes back. A write to it makes it dirty
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use crate::faults::Random;

/// The size of a page: the unit that the kernel marks as clean or dirty.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The size of a sector: the unit that a device writes in one piece.
const SECTOR_BYTES: usize = 512;

/// The share of the dirty bytes that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Nothing,
    Everything,
    Part,
}

impl Style {
    /// Once in a while all is written, or nothing.
    fn of(random: &mut Random) -> Style {
        match random.below(8) {
            0 => Style::Nothing,
            1 => Style::Everything,
            _ => Style::Part,
        }
    }

    fn takes(self, random: &mut Random) -> bool {
        match self {
            Style::Nothing => false,
            Style::Everything => true,
            Style::Part => random.coin(),
        }
    }
}

/// The error of a sync after a write-back that failed.
pub(crate) fn write_back_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) cached: Vec<u8>,
    /// The time of the last write, in Unix nanoseconds.
    pub(crate) modified_ns: u64,
    /// The bytes on the device. Shorter than `cached` while a new length is not durable.
    durable: Vec<u8>,
    /// The bytes of the memories that map the file, as of the last look at them.
    mapped: Vec<u8>,
    /// Pages that count as clean and are not durable.
    lost: BTreeSet<usize>,
    /// Sectors that the device cannot read, until they are written, and the error number of a read.
    unreadable: BTreeMap<usize, i32>,
    /// Write-back failed, and no sync of this file has told of it.
    has_error: bool,
    /// A process has the file mapped, so the kernel keeps it in memory, with its error.
    pub(crate) is_mapped: bool,
    /// The bytes went around the page cache. So there is nothing that write-back could lose, but the device may have
    /// them in its own cache until a sync.
    pub(crate) is_direct: bool,
    /// Cached bytes may not be durable. Saves the comparison.
    is_dirty: bool,
}

fn pages(bytes: Range<usize>) -> Range<usize> {
    bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES)
}

fn sectors(bytes: Range<usize>) -> Range<usize> {
    bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES)
}

impl Contents {
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.cached.resize(bytes.max(self.cached.len()), 0);
        self.is_dirty = true;
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.is_direct = false;
        let range = offset..offset + bytes.len();
        self.cached[range.clone()].copy_from_slice(bytes);
        self.mark_written(range);
    }

    fn mark_written(&mut self, range: Range<usize>) {
        self.is_dirty = true;
        for page in pages(range.clone()) {
            self.lost.remove(&page);
        }
        for sector in sectors(range) {
            self.unreadable.remove(&sector);
        }
    }

    /// The bytes of a memory that maps the file.
    pub(crate) fn map(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.mapped = self.cached.get(..bytes)?.to_vec();
        self.is_mapped = true;
        Some(self.mapped.clone())
    }

    /// Brings a memory that maps the file up to date.
    pub(crate) fn read_again(&mut self, image: &mut [u8]) {
        image.copy_from_slice(&self.cached[..image.len()]);
        self.mapped[..image.len()].copy_from_slice(image);
    }

    /// Takes over what was written to the memory that maps the file.
    pub(crate) fn observe(&mut self, image: &[u8]) {
        if self.mapped.len() < image.len() {
            self.mapped.resize(image.len(), 0);
        }
        for start in (0..image.len()).step_by(PAGE_BYTES) {
            let range = start..image.len().min(start + PAGE_BYTES);
            if self.mapped[range.clone()] != image[range.clone()] {
                self.cached[range.clone()].copy_from_slice(&image[range.clone()]);
                self.mapped[range.clone()].copy_from_slice(&image[range.clone()]);
                self.mark_written(range);
            }
        }
    }

    /// The bytes that a direct read returns: those of the device where pages count as clean.
    pub(crate) fn read_direct(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut image = self.cached.get(..bytes)?.to_vec();
        for page in &self.lost {
            let range = self.page(*page, bytes);
            self.copy_durable(range.clone(), &mut image[range]);
        }
        Some(image)
    }

    /// The error number of a read of these bytes, if the device cannot read all of them.
    pub(crate) fn unreadable(&self, range: Range<usize>) -> Option<i32> {
        let mut codes = self.unreadable.range(sectors(range)).map(|(_, code)| *code);
        codes.next()
    }

    pub(crate) fn spoil(&mut self, offset: usize, code: i32) {
        self.unreadable.insert(offset / SECTOR_BYTES, code);
    }

    pub(crate) fn repair(&mut self) {
        self.unreadable.clear();
    }

    fn page(&self, page: usize, bytes: usize) -> Range<usize> {
        (page * PAGE_BYTES).min(bytes)..((page + 1) * PAGE_BYTES).min(bytes)
    }

    /// Copies durable bytes; zeros where there are none.
    fn copy_durable(&self, range: Range<usize>, out: &mut [u8]) {
        for (at, byte) in range.zip(out) {
            *byte = self.durable.get(at).copied().unwrap_or(0);
        }
    }

    /// Makes everything dirty durable.
    pub(crate) fn write_all(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        self.durable.resize(self.cached.len(), 0);
        for page in pages(0..self.cached.len()) {
            if !self.lost.contains(&page) {
                let range = self.page(page, self.cached.len());
                self.durable[range.clone()].copy_from_slice(&self.cached[range]);
            }
        }
    }

    /// Tells of write-back that failed, once.
    pub(crate) fn take_error(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_error) {
            Err(write_back_error())
        } else {
            Ok(())
        }
    }

    /// The kernel writes back what is in the page cache, and fails. False: there is nothing.
    pub(crate) fn fail_write_back(&mut self, random: &mut Random) -> bool {
        !self.is_direct && self.fail(random)
    }

    /// The kernel drops the file from memory, if nobody has it mapped and nothing is dirty. What it knows of failed
    /// write-backs goes, too: the next sync succeeds. Returns whether there was such an error.
    pub(crate) fn evict(&mut self) -> bool {
        if self.is_mapped || !self.dirty_pages().is_empty() {
            return false;
        }
        self.reclaim();
        std::mem::take(&mut self.has_error)
    }

    /// Dirty pages are written, and that fails: they count as clean from now on. A later sync tells of it, once. False:
    /// nothing was dirty.
    pub(crate) fn fail(&mut self, random: &mut Random) -> bool {
        let dirty = self.dirty_pages();
        let Some(last) = dirty.last().copied() else {
            return false;
        };
        let style = Style::of(random);
        for page in dirty {
            if page != last && style.takes(random) {
                self.write_page(page, Style::Everything, random);
            } else {
                self.lose_page(page, random);
            }
        }
        self.has_error = true;
        true
    }

    /// Writes back some of the dirty pages, chosen at random as by the kernel.
    pub(crate) fn write_back(&mut self, random: &mut Random) {
        if !self.is_dirty {
            return;
        }
        let style = Style::of(random);
        if style.takes(random) {
            self.durable.resize(self.cached.len(), 0);
        }
        for page in self.dirty_pages() {
            self.write_page(page, style, random);
        }
    }

    /// Reclaim drops clean pages: what is read next is what the device has.
    pub(crate) fn reclaim(&mut self) {
        for page in std::mem::take(&mut self.lost) {
            let range = self.page(page, self.cached.len());
            let mut bytes = vec![0; range.len()];
            self.copy_durable(range.clone(), &mut bytes);
            self.cached[range].copy_from_slice(&bytes);
        }
    }

    /// Cuts the power: bytes that are not durable are lost.
    pub(crate) fn revert(&mut self) {
        self.cached.clone_from(&self.durable);
        self.mapped.clear();
        self.is_mapped = false;
        self.lost.clear();
        self.has_error = false;
        self.is_dirty = false;
    }

    fn dirty_pages(&self) -> Vec<usize> {
        if !self.is_dirty {
            return Vec::new();
        }
        let is_dirty = |page: &usize| {
            let mut durable = [0; PAGE_BYTES];
            let range = self.page(*page, self.cached.len());
            self.copy_durable(range.clone(), &mut durable[..range.len()]);
            !self.lost.contains(page) && self.cached[range.clone()] != durable[..range.len()]
        };
        pages(0..self.cached.len()).filter(is_dirty).collect()
    }

    /// Writes sectors of a page, as far as the file is known to be long.
    fn write_page(&mut self, page: usize, style: Style, random: &mut Random) {
        let page = self.page(page, self.durable.len().min(self.cached.len()));
        for start in page.clone().step_by(SECTOR_BYTES) {
            let sector = start..page.end.min(start + SECTOR_BYTES);
            if style.takes(random) {
                self.durable[sector.clone()].copy_from_slice(&self.cached[sector]);
            }
        }
    }

    /// Writes some sectors of a dirty page, but never all, and counts it as clean.
    fn lose_page(&mut self, page: usize, random: &mut Random) {
        let range = self.page(page, self.durable.len().min(self.cached.len()));
        let starts = range.clone().step_by(SECTOR_BYTES);
        let sector = |start: usize| start..range.end.min(start + SECTOR_BYTES);
        let is_dirty = |start: &usize| self.durable[sector(*start)] != self.cached[sector(*start)];
        let mut dirty: Vec<usize> = starts.filter(is_dirty).collect();
        dirty.pop();
        for start in dirty {
            if random.coin() {
                self.durable[sector(start)].copy_from_slice(&self.cached[sector(start)]);
            }
        }
        self.lost.insert(page);
    }

    /// Changes a byte in the cache and on the device.
    pub(crate) fn flip(&mut self, offset: usize, xor: u8) {
        self.cached[offset] ^= xor;
        if let Some(byte) = self.durable.get_mut(offset) {
            *byte ^= xor;
        }
    }
}
