"""Disk usage: of the disk, or of the budget of a data directory that shares its disk."""

import os
import shutil
from pathlib import Path

from tern_store.retention import DiskUse

_BLOCK_SIZE_BYTES = 512


def measure_disk(directory: Path, budget_bytes: int) -> tuple[DiskUse, int]:
    """Return the use against *budget_bytes* (0: the whole disk), and the free bytes of the disk.

    Takes ms for a thousand files: call it on a thread.
    """
    disk = shutil.disk_usage(directory)
    if not budget_bytes:
        # As `df` counts: space reserved for root is excluded.
        return DiskUse(disk.used, disk.used + disk.free), disk.free
    return DiskUse(_allocated(directory), budget_bytes), disk.free


def _allocated(directory: Path) -> int:
    """Return the bytes that the files below *directory* occupy; a file removed meanwhile counts as
    0.
    """
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * _BLOCK_SIZE_BYTES
            except FileNotFoundError:
                continue
    return total
