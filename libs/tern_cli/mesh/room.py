"""Check that a disk has room for the brokers of a new mesh. Pure.

The check runs before anything starts: without it the brokers would fail one after the other.
"""

from dataclasses import replace

from tern_cli.failures import CommandFailed
from tern_cli.mesh.plan import SEGMENT_MAX_BYTES, MeshShape, with_budget

# Each broker allocates the first segment and the next one, and the reserve, which is half a segment
# or this (tern_store.log.segment, which is not imported because it brings numpy). Logs, queues,
# indexes and saved states need some more.
_SEGMENTS_AT_START, _RESERVE_MAX_BYTES, _OTHER_FILES_BYTES = 2, 64 << 20, 8 << 20


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
