#!/usr/bin/env python3
"""Says how many bytes reach the disk for each byte of a message, with consumers that keep up and without consumers.

    docs/measure/disk.py --data DIR [--ours target/dist] [--rate 20k] [--seconds 30]

DIR is on a block device of its own, such as a loop device with a fresh ext4: the bytes are those of the device, and so
include the file system's own. They are counted until 5 s after the last publish.
"""

import argparse
import os
import time
from pathlib import Path

from measuring import Broker, Runner

SECTOR_BYTES, SIZE_BYTES = 512, 1000
LOADS = {"with consumers": "--consumers 2", "without consumers": "--consumers 0 --channels 1"}


def written_bytes(folder):
    """Returns the bytes that were written to the device of the folder: the seventh number of its `stat`."""
    device = os.stat(folder).st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text()
    return int(stat.split()[6]) * SECTOR_BYTES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="where data paths are made")
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of our programs")
    parser.add_argument("--rate", default="20k")
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    runner = Runner(options)
    for name, flags in LOADS.items():
        # The data path is removed at the end. Only the log of nsqd is outside of the device.
        with Broker(runner) as broker:
            os.sync()
            before = written_bytes(options.data)
            load = f"{flags} --producers 2 --size {SIZE_BYTES} --rate {options.rate} --duration {options.seconds}s --warm-up 0s"
            result = runner.run(broker, load, leaves_some=True)
            time.sleep(5)
            published = result["ledger"]["acknowledged"] * SIZE_BYTES
            written = written_bytes(options.data) - before
            print(f"{name}: {published / 1e6:,.0f} MB of messages, {written / 1e6:,.1f} MB written", flush=True)


if __name__ == "__main__":
    main()
