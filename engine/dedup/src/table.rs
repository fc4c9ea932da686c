//! Large tables: [`zeroed`] makes one, and a [`FreedTable`] is freed piece by piece.

use bytemuck::Zeroable;
use std::fmt::Debug;

/// The most bytes that are freed at a time. The system takes some 0.2 ms for the pages.
const PIECE_BYTES: usize = 2 << 20;

/// Makes a table of `count` zeros. The system gives the table's pages when they are first written. `None`: the system
/// refuses the addresses of so much memory (`ulimit -v`, or `vm.overcommit_memory` = 2). `vec![0; count]` would end the
/// process then.
pub(crate) fn zeroed<T: Zeroable>(count: usize) -> Option<Vec<T>> {
    let table = bytemuck::allocation::try_zeroed_slice_box(count);
    table.ok().map(<[T]>::into_vec)
}

/// A table of up to gigabytes. To free its memory at once would hold up the shard for a tenth of a second per gigabyte.
pub trait FreedTable: Debug + Send {
    /// Frees a piece of bounded size. Returns false when nothing is left.
    fn free_piece(&mut self) -> bool;
}

impl<T: Copy + Debug + Send> FreedTable for Vec<T> {
    fn free_piece(&mut self) -> bool {
        let piece = (PIECE_BYTES / size_of::<T>()).max(1);
        self.truncate(self.len().saturating_sub(piece));
        // The allocator gives the pages behind the end back to the system, and moves nothing.
        self.shrink_to_fit();
        !self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_freed_piece_by_piece() {
        let mut table = vec![1_u128; 5 * PIECE_BYTES / 2 / size_of::<u128>()];
        table.reserve_exact(1000);
        for bytes in [3 * PIECE_BYTES / 2, PIECE_BYTES / 2] {
            assert!(table.free_piece());
            assert_eq!(table.capacity() * size_of::<u128>(), bytes);
        }
        assert!(!table.free_piece());
        assert_eq!(table.capacity(), 0);
        assert!(!table.free_piece());
    }

    #[test]
    fn a_table_that_cannot_be_had_is_none() {
        assert_eq!(zeroed::<u64>(3), Some(vec![0; 3]));
        assert_eq!(zeroed::<u128>(0), Some(Vec::new()));
        assert_eq!(zeroed::<u128>(1 << 57), None);
        assert_eq!(zeroed::<u128>(usize::MAX), None);
    }
}
