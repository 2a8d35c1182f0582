"""The genesis entry on disk: creation of a log, and the check that a directory is this group's."""

from pathlib import Path

from tern_store.errors import EntryRefused, LogRot
from tern_store.files import Files, unreadable
from tern_store.log.entry import HEADER_SIZE_BYTES, EntryKind, verify
from tern_store.log.genesis import Genesis
from tern_store.log.log_start import START, LogStart
from tern_store.log.segment import create_segment_file


def begin_log(folder: Path, group: Genesis, files: Files) -> None:
    """Durable here: the first segment under its name with the genesis in it, or nothing."""
    files.makedirs(folder)
    create_segment_file(files, folder / "new", group.segment_size_bytes, group.entry().raw)
    files.rename(folder / "new", folder / f"{0:020d}")
    files.fsync_dir(folder)


def read_genesis(folder: Path, start: LogStart | None, files: Files) -> tuple[Genesis, bytes]:
    """The group of the log in *folder* and its entry's bytes; LogRot if they cannot be read."""
    path = folder / (START if start is not None else f"{0:020d}")
    raw = start.genesis if start is not None else _first_entry(path, files)
    try:
        header = verify(raw)
    except EntryRefused as refused:  # the entry was durable before its file had its name, so this is never a tear
        raise LogRot(path, 0, refused.reason) from refused
    if header.kind is not EntryKind.GENESIS or header.index != 1:
        raise LogRot(path, 0, f"the first entry is {header.kind.name} {header.index}, not the genesis")
    return Genesis.decode(memoryview(raw)[HEADER_SIZE_BYTES:]), raw


def _first_entry(path: Path, files: Files) -> bytes:
    try:
        fd = files.open(path)
    except FileNotFoundError as error:
        raise LogRot(path, 0, "the first segment is missing") from error
    try:
        head = files.pread(fd, HEADER_SIZE_BYTES, 0)
        size = min(int.from_bytes(head[4:8], "big"), files.size(fd))
        return files.pread(fd, size, 0)
    except OSError as error:
        raise unreadable(error, path, 0) from error
    finally:
        files.close(fd)
