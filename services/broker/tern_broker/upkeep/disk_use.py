"""How full is it: the disk, or the budget of a data directory that shares its disk with other things."""

import os
import shutil
from pathlib import Path

from tern_store.retention import DiskUse

_BLOCK_SIZE_BYTES = 512


def measure_disk(directory: Path, budget_bytes: int) -> tuple[DiskUse, int]:
    """Use against *budget_bytes* (0: of the whole disk), and what is free on the disk. Takes ms a thousand files: on a thread."""
    disk = shutil.disk_usage(directory)
    if not budget_bytes:
        # As `df` counts: what only root may use belongs to nobody.
        return DiskUse(disk.used, disk.used + disk.free), disk.free
    return DiskUse(_allocated(directory), budget_bytes), disk.free


def _allocated(directory: Path) -> int:
    """Bytes that the files below *directory* occupy; one that goes meanwhile counts as gone."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * _BLOCK_SIZE_BYTES
            except FileNotFoundError:
                continue
    return total
