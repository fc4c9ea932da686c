//! [`zeroed`] makes a large table.

use bytemuck::Zeroable;

/// Makes a table of `count` zeros. The system gives the table's pages when they are first written. `None`: the system
/// refuses the addresses of so much memory (`ulimit -v`, or `vm.overcommit_memory` = 2). `vec![0; count]` would end the
/// process then.
pub(crate) fn zeroed<T: Zeroable>(count: usize) -> Option<Vec<T>> {
    let table = bytemuck::allocation::try_zeroed_slice_box(count);
    table.ok().map(<[T]>::into_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_be_had_is_none() {
        assert_eq!(zeroed::<u64>(3), Some(vec![0; 3]));
        assert_eq!(zeroed::<u128>(0), Some(Vec::new()));
        assert_eq!(zeroed::<u128>(1 << 57), None);
        assert_eq!(zeroed::<u128>(usize::MAX), None);
    }
}
