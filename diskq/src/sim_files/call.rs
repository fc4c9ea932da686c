//! [`Call`]: what a test can make fail.

/// A kind of call on [`Files`](crate::Files).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Files::create_dir`](crate::Files::create_dir)
    CreateDir,
    /// [`Files::allocate`](crate::Files::allocate)
    Allocate,
    /// [`Files::map`](crate::Files::map)
    Map,
    /// [`Files::copy`](crate::Files::copy)
    Copy,
    /// [`Files::load`](crate::Files::load)
    Load,
    /// The first half of [`Files::sync`](crate::Files::sync) and [`Files::sync_dir`](crate::Files::sync_dir): the open,
    /// which fails for want of descriptors or memory, or for good.
    Open,
    /// The second half of [`Files::sync`](crate::Files::sync), and all of
    /// [`Files::sync_file_system`](crate::Files::sync_file_system). If this call fails, dirty pages are lost.
    Sync,
    /// The second half of [`Files::sync_dir`](crate::Files::sync_dir). If this call fails, changes of names may be lost.
    SyncDir,
    /// [`Files::rename`](crate::Files::rename)
    Rename,
    /// [`Files::remove`](crate::Files::remove) and [`Files::remove_dir`](crate::Files::remove_dir)
    Remove,
    /// [`Files::list`](crate::Files::list) and [`Files::length`](crate::Files::length)
    List,
    /// [`Files::read_at`](crate::Files::read_at)
    Read,
    /// [`Files::write_at`](crate::Files::write_at)
    Write,
}
