//! [`Tmpfs`]: a small file system in memory.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::skip::not_tested;

/// A small tmpfs, which only root can mount. It is unmounted at the end of the test.
pub struct Tmpfs {
    mount_point: tempfile::TempDir,
}

impl Tmpfs {
    /// Mounts a tmpfs. Prints a notice and returns None if that is not possible. `size` is as in
    /// `mount -o size=8m`.
    ///
    /// # Panics
    /// The mount is not possible, and `CI` is set.
    pub fn mount(size: &str) -> Option<Tmpfs> {
        let mount_point = tempfile::Builder::new()
            .prefix("nsqd-tmpfs-")
            .tempdir()
            .expect("a temporary directory can be made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size},mode=0700"))
            .arg("nsqd-test")
            .arg(mount_point.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Tmpfs { mount_point }),
            other => {
                not_tested(&format!(
                    "a tmpfs cannot be mounted (root is needed): {other:?}"
                ));
                None
            }
        }
    }

    /// Returns the directory at which the file system is mounted.
    pub fn path(&self) -> PathBuf {
        self.mount_point.path().to_path_buf()
    }

    /// Makes the file system read-only.
    ///
    /// # Panics
    /// The file system cannot be mounted again.
    pub fn make_read_only(&self) {
        let status = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.path())
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "what was mounted can be remounted"
        );
    }

    /// Fills the free space except less than a page. The removal of the file frees it.
    ///
    /// # Panics
    /// No file can be made.
    pub fn fill(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        let mut file = std::fs::File::create(&path).expect("an inode is left");
        for chunk in [vec![1; 64 * 1024], vec![1; 4096]] {
            while file.write_all(&chunk).is_ok() {}
        }
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // The lazy form works while a dying daemon still has open files, and leaves no mount
        // behind.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.mount_point.path())
            .status();
    }
}
