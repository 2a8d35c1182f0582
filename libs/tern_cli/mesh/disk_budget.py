"""A mesh's share of the disk: its budget, the segment size that fits it, and whether there is room
for the brokers' first files. Pure.

The check runs before anything starts: without it the brokers would fail one after the other. What a
budget then lets retention drop: `tern_store/retention.py`.
"""

from dataclasses import replace

from tern_cli.failures import CommandFailed
from tern_cli.mesh.plan import SEGMENT_MAX_BYTES, MeshShape

# A mesh shares the disk with other programs: at most this, and at most half of the free space.
BUDGET_MAX_BYTES = 20 << 30
_SEGMENT_MIN_BYTES = 16 << 20
# Retention drops whole segments, and a broker holds up to three that are not full: fewer segments
# would make the marks meaningless.
_SEGMENTS_PER_BUDGET = 16
# Each broker allocates the first segment and the next one, and the reserve, which is half a segment
# or this (tern_store.log.segment, which is not imported because it brings numpy). Logs, queues,
# indexes and saved states need some more.
_SEGMENTS_AT_START, _RESERVE_MAX_BYTES, _OTHER_FILES_BYTES = 2, 64 << 20, 8 << 20


def with_budget(shape: MeshShape, *, free_bytes: int, is_new: bool) -> MeshShape:
    """Return *shape* with its budget decided and, for a new mesh, a segment size that fits it.
    *free_bytes*: free space of the disk.
    """
    if shape.disk_budget_bytes < 0:
        shape = replace(shape, disk_budget_bytes=min(BUDGET_MAX_BYTES, free_bytes // 2))
    if is_new and not shape.segment_size_bytes:
        wanted = (shape.disk_budget_bytes or free_bytes) // shape.brokers // _SEGMENTS_PER_BUDGET
        size = 1 << max(wanted, 1).bit_length() - 1
        size = min(max(size, _SEGMENT_MIN_BYTES), SEGMENT_MAX_BYTES)
        # Without a budget, on a large disk, the broker's own default serves as well.
        if shape.disk_budget_bytes or size < SEGMENT_MAX_BYTES:
            shape = replace(shape, segment_size_bytes=size)
    return shape


def room_bytes(shape: MeshShape) -> int:
    """Return the bytes that the brokers of *shape* allocate at their start, and some to grow."""
    segment_bytes = shape.segment_size_bytes or SEGMENT_MAX_BYTES
    reserve_bytes = min(_RESERVE_MAX_BYTES, segment_bytes // 2)
    return shape.brokers * (_SEGMENTS_AT_START * segment_bytes + reserve_bytes + _OTHER_FILES_BYTES)


def check_room(shape: MeshShape, free_bytes: int, *, where: str) -> None:
    """Raise CommandFailed (exit 2) when *shape* needs more than *free_bytes*.
    The error has the size and the options that reduce it. *where*: the mesh's directory.
    """
    needed_bytes = room_bytes(shape)
    if needed_bytes <= free_bytes:
        return
    choices = ["another --data-dir, on a larger disk"]
    if shape.brokers > 1:
        choices.insert(0, f"--brokers 1, which needs {_mib(room_bytes(replace(shape, brokers=1)))}")
    # By default a mesh takes half of the free space; its segment size follows from that.
    less = with_budget(
        replace(shape, disk_budget_bytes=free_bytes // 2, segment_size_bytes=0), free_bytes=free_bytes, is_new=True
    )
    if room_bytes(less) <= free_bytes:
        choices.insert(0, f"--disk-budget {less.disk_budget_bytes}, which needs {_mib(room_bytes(less))}")
    brokers = "1 broker begins" if shape.brokers == 1 else f"{shape.brokers} brokers begin"
    raise CommandFailed(
        "The disk is too small",
        f"{where} has {_mib(free_bytes)} free, and {brokers} with files of {_mib(needed_bytes)}. Choose {', or '.join(choices)}.",
        exit_code=2,
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"
