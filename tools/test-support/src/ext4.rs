//! [`Ext4`]: a small file system on a loop device.

use std::path::PathBuf;
use std::process::Command;

use crate::skip::{kernel_lacks, not_tested};

/// A small ext4, which only root can mount. It is unmounted at the end of the test.
pub struct Ext4 {
    /// Has the image, and the mount point.
    directory: tempfile::TempDir,
}

impl Ext4 {
    /// Makes a file system of this many bytes with a feature, such as `^has_journal`, and mounts it with these options. Prints a
    /// notice and returns `None` if that is not possible.
    ///
    /// # Panics
    /// There is no `mkfs.ext4`, and `CI` is set.
    pub fn mount(bytes: u64, feature: &str, options: &str) -> Option<Ext4> {
        let directory = tempfile::Builder::new()
            .prefix("nsqd-ext4-")
            .tempdir()
            .expect("a temporary directory can be made");
        let ext4 = Ext4 { directory };
        let image = ext4.directory.path().join("image");
        let file = std::fs::File::create(&image).expect("a file can be made");
        file.set_len(bytes).expect("a file can have a hole");
        std::fs::create_dir(ext4.path()).expect("a directory can be made");
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0", "-O", feature])
            .arg(&image)
            .output();
        if !made.as_ref().is_ok_and(|made| made.status.success()) {
            not_tested(&format!("mkfs.ext4 makes no file system: {made:?}"));
            return None;
        }
        let mounted = Command::new("mount")
            .args(["-o", options])
            .arg(&image)
            .arg(ext4.path())
            .output();
        if !mounted
            .as_ref()
            .is_ok_and(|mounted| mounted.status.success())
        {
            kernel_lacks(&format!(
                "a file cannot be mounted (root and loop devices are needed): {mounted:?}"
            ));
            return None;
        }
        Some(ext4)
    }

    /// Returns the directory at which the file system is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // The lazy form leaves no mount behind. If nothing was mounted, there is nothing to do.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}
