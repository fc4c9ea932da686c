"""Settings of Linux for measurements: a disk with a limited rate, and a process that runs as soon as it wakes up."""

import ctypes
import os
import platform
import struct
import sys
import tempfile
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
SLICE_NS = 100_000
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


class SlowDisk:
    """A control group whose processes write at most `bytes_per_s` to the disk under `folder`. Both versions of control
    groups limit direct writes. Only the second limits writes through the page cache. Raises OSError if the group cannot
    be made, for instance without root."""

    def __init__(self, folder, bytes_per_s):
        device = disk_under(folder)
        in_v1 = CGROUPS / "blkio"
        is_v1 = in_v1.is_dir()
        if not is_v1:
            (CGROUPS / "cgroup.subtree_control").write_text("+io")
        self.group = Path(tempfile.mkdtemp(prefix="ringq-", dir=in_v1 if is_v1 else CGROUPS))
        try:
            if is_v1:
                (self.group / "blkio.throttle.write_bps_device").write_text(f"{device} {bytes_per_s}")
            else:
                (self.group / "io.max").write_text(f"{device} wbps={bytes_per_s}")
        except OSError:
            self.group.rmdir()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.group.rmdir()

    def take(self, pid):
        """Puts the process into the group, with all its threads. The process must end before the group does."""
        (self.group / "cgroup.procs").write_text(str(pid))


def disk_under(folder):
    """Returns MAJOR:MINOR of the whole disk, because a partition cannot have a limit."""
    number = os.stat(folder).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    device = (Path("/sys/dev/block") / name).resolve()
    if (device / "partition").exists():
        return (device.parent / "dev").read_text().strip()
    return name


def run_at_once():
    """Asks for short scheduler slices, for this process and the processes that it starts. Then a busy process makes way
    when one of these wakes up. So a measurement does not contain the generator's own waiting. Needs Linux 6.12
    (sched_setattr(2)), and no privileges."""
    # The fields: size, policy (SCHED_OTHER), flags, nice, priority, runtime, deadline, period.
    attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, 0, 0, SLICE_NS, 0, 0)
    number = SCHED_SETATTR.get(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None or libc.syscall(number, 0, ctypes.c_char_p(attributes), 0) != 0:
        print("note: no shorter slices here, latencies contain the generator's own waiting", file=sys.stderr)
