//! The file system of the data path: whether it keeps what was reserved and synced.
//!
//! A log reserves the room of a segment and stores into it through a mapping. Where a store may need room that was
//! not reserved, a full disk ends the process (SIGBUS) instead of refusing a publish.

use std::fs;
use std::path::{Path, PathBuf};

use program::check::Finding;

/// A mounted file system, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// The kernel's name for it, for example `ext4`.
    kind: String,
    /// The options of the mount and those of the file system.
    options: String,
}

impl Mount {
    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|given| given == option)
    }
}

/// Judges the file system of a path.
pub fn check(path: &Path) -> Finding {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // A path that cannot be resolved has been reported by another check.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    match mount_of(&table, &path) {
        Some(mount) => judge(&mount, writes_in_place(&path), &path),
        None => Finding::ok("this system does not say of which type it is"),
    }
}

/// The mount that a path is on: the longest mount point that the path begins with; of equal ones the last hides the
/// others.
///
/// ```text
///   36 35 98:0 /root /mount\040point rw,noatime shared:1 - ext3 /dev/sda1 rw,barrier=1
/// ```
fn mount_of(table: &str, path: &Path) -> Option<Mount> {
    let mounts = table.lines().filter_map(parse);
    mounts
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().len())
}

fn parse(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(4);
    let (point, mount_options) = (mount.next()?, mount.next()?);
    let mut file_system = file_system.split(' ');
    let (kind, own_options) = (file_system.next()?, file_system.nth(1).unwrap_or_default());
    Some(Mount {
        point: PathBuf::from(unescape(point)),
        kind: kind.to_owned(),
        options: format!("{mount_options},{own_options}"),
    })
}

/// Spaces, tabs, newlines and backslashes are written as three octal digits.
fn unescape(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    escapes.iter().fold(text.to_owned(), replace)
}

/// Returns whether new files in this directory are written in place (`chattr +C`).
#[cfg(target_os = "linux")]
fn writes_in_place(directory: &Path) -> bool {
    use rustix::fs::{IFlags, ioctl_getflags};
    let flags = fs::File::open(directory).map(ioctl_getflags);
    matches!(flags, Ok(Ok(flags)) if flags.contains(IFlags::NOCOW))
}

#[cfg(not(target_os = "linux"))]
fn writes_in_place(_directory: &Path) -> bool {
    false
}

fn judge(mount: &Mount, writes_in_place: bool, path: &Path) -> Finding {
    let (kind, point, shown) = (&mount.kind, mount.point.display(), path.display());
    let warning = |why: &str, advice: String| {
        Finding::warning(format!("{kind}, mounted at {point}, {why}"), advice)
    };
    match kind.as_str() {
        "btrfs" if writes_in_place || mount.has("nodatacow") => Finding::ok(
            format!("btrfs, mounted at {point}, which writes new files of this directory in place"),
        ),
        "btrfs" => warning(
            "writes each change to a new place: a log that writes into reserved room is slow there, and a disk that \
             gets full can end nsqd instead of refusing publishes",
            format!(
                "switch that off for new files while the directory is empty (chattr +C {shown}), and take no snapshots \
                 of it; or use ext4 or xfs"
            ),
        ),
        "zfs" | "bcachefs" | "nilfs2" => warning(
            "writes each change to a new place: reserved room is no guarantee there, and a disk that gets full can end \
             nsqd instead of refusing publishes",
            "use ext4 or xfs, or watch that a tenth of the file system stays free (zfs: set a refreservation)".to_owned(),
        ),
        "overlay" | "overlayfs" | "aufs" => warning(
            "is the layer of a container: messages go with the container, and each file costs more",
            format!("mount a volume at {shown} (docker: --volume; Kubernetes: a PersistentVolumeClaim)"),
        ),
        "tmpfs" | "ramfs" | "devtmpfs" => warning(
            "is memory: messages survive a crash of nsqd, but no restart of the machine and no power failure",
            "use a directory on a disk, unless that is what you want".to_owned(),
        ),
        "vfat" | "exfat" | "msdos" | "ext2" => warning(
            "has no journal: files that were synced can be lost in a power failure",
            "use ext4 or xfs".to_owned(),
        ),
        _ if is_remote(kind) => warning(
            "is on another machine, or behind another program: syncs are slow, a lock may not keep a second nsqd out, \
             and a file that goes away while it is mapped ends nsqd",
            "use a local disk, or a network disk that is attached as a block device".to_owned(),
        ),
        _ if mount.has("nobarrier") || mount.has("barrier=0") => warning(
            "is mounted without write barriers: what was synced can be lost in a power failure",
            format!(
                "mount it with barriers (mount -o remount,barrier=1 {point}), unless the disk's write cache has a battery"
            ),
        ),
        _ => Finding::ok(format!("{kind}, mounted at {point}")),
    }
}

fn is_remote(kind: &str) -> bool {
    const REMOTE: &[&str] = &[
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "smb3",
        "smbfs",
        "virtiofs",
    ];
    // `fuseblk` is a local disk whose driver is a program, such as ntfs-3g. A crash of the driver takes mapped files
    // away.
    REMOTE.contains(&kind) || kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::check::State;

    const TABLE: &str = "\
        22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
        30 22 8:2 / /var rw - xfs /dev/sdb rw,attr2\n\
        31 30 0:40 /@ /var/lib rw - btrfs /dev/sdc rw,subvol=/@\n\
        32 22 8:3 / /with\\040space ro - ext4 /dev/sdd rw\n\
        33 31 0:41 / /var/lib rw - tmpfs none rw,size=1024k\n\
        34 22 0:5 / /odd\n";

    #[test]
    fn the_mount_of_a_path_is_found() {
        let check = |path: &str, point: &str, kind: &str| {
            let mount = mount_of(TABLE, Path::new(path)).unwrap();
            let found = (mount.point.to_str().unwrap(), mount.kind.as_str());
            assert_eq!(found, (point, kind), "{path}");
        };
        check("/home/x", "/", "ext4");
        check("/variety", "/", "ext4");
        check("/var/x", "/var", "xfs");
        check("/var/lib/nsqd", "/var/lib", "tmpfs");
        check("/with space/x", "/with space", "ext4");
        assert_eq!(mount_of("", Path::new("/")), None);
        let mount = mount_of(TABLE, Path::new("/with space")).unwrap();
        assert!(mount.has("ro") && mount.has("rw") && !mount.has("r"));
    }

    #[test]
    fn each_kind_of_file_system_has_its_judgement() {
        let finding_of = |kind: &str, options: &str, writes_in_place| {
            let mount = Mount {
                point: PathBuf::from("/disk"),
                kind: kind.to_owned(),
                options: options.to_owned(),
            };
            judge(&mount, writes_in_place, Path::new("/disk/data"))
        };
        let check = |kind, options, found: &str, advice: &str| {
            let finding = finding_of(kind, options, false);
            assert_eq!(finding.state, State::Warning, "{finding:?}");
            let begin = format!("{kind}, mounted at /disk, ");
            assert!(finding.found.starts_with(&begin), "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
            assert!(finding.advice.contains(advice), "{finding:?}");
        };
        check("btrfs", "rw", "to a new place", "chattr +C /disk/data");
        check("zfs", "rw", "to a new place", "refreservation");
        check("overlay", "rw", "container", "volume at /disk/data");
        check("tmpfs", "rw", "is memory", "on a disk");
        check("vfat", "rw", "no journal", "ext4 or xfs");
        check("nfs4", "rw", "another machine", "local disk");
        check("fuse.sshfs", "rw", "another machine", "local disk");
        check(
            "ext4",
            "rw,nobarrier",
            "without write barriers",
            "barrier=1 /disk",
        );
        for kind in ["ext4", "xfs", "f2fs"] {
            let expected = format!("{kind}, mounted at /disk");
            let finding = finding_of(kind, "rw,barrier=1", false);
            assert_eq!(finding, Finding::ok(expected));
        }
        assert_eq!(finding_of("btrfs", "rw", true).state, State::Ok);
        assert_eq!(finding_of("btrfs", "rw,nodatacow", false).state, State::Ok);
    }
}
