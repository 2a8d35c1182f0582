"""The receiving side of a rebuild: copies a manifest's files in order into the node's directory.

Files grow beside those that they will replace, under names that no store opens: `commitlog/{20
digits}.incoming`, allocated and zeroed like every segment, `state/segment-....bin.incoming`, and
`sentkeys/keys-....bin.incoming` (`copies/keys.py`). No note records the progress: after a crash the
chain of entries is read again, and bytes that do not continue it are zeroed and copied again. Law:
every kept byte continues the chain from the manifest's start. The node's old files go only behind a
complete and synced copy (`copies/swap.py`) or, if the disk has no room for both, behind a note that
forbids opening them.
"""

import contextlib
import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tern_store.checks.chain_check import ChainCheck
from tern_store.copies.keys import IncomingKeys
from tern_store.copies.manifest import Manifest
from tern_store.copies.swap import INCOMING, SWAP, clear_log, forbid_opening, swap
from tern_store.errors import CopyRefused
from tern_store.files import NO_ROOM, REAL_FILES, Buffer, Files
from tern_store.log.commit_log import LOG_FOLDER
from tern_store.log.genesis import Genesis
from tern_store.log.log_start import LogStart
from tern_store.log.segment import create_segment_file, segment_bases
from tern_store.small_files import remove_mark
from tern_store.state.state_file import STATE_FOLDER, Boundary, load_boundary
from tern_wire.limits import ENTRY_SIZE_MAX_BYTES, REBUILD_CHUNK_SIZE_MAX_BYTES

# Synced in steps: writing back a gibibyte at once would make other nodes on this disk wait.
SYNC_AFTER_BYTES = 32 << 20
_ZEROS = bytes(1 << 16)


class Wanted(NamedTuple):
    """A piece to be read from the leader: *size* bytes of the file *name* from *position* on."""

    name: str
    position: int
    size: int


@dataclass(frozen=True)
class _IncomingState(Boundary):
    """The state at the log's start while it is being copied."""

    @property
    def name(self) -> str:
        return super().name + INCOMING


class RebuildSink:
    """One copy. Owner: one caller with the directory's lock: begin, wanted and write, finish.
    `begin` may be called again at any time with a newer manifest: copied data stays.
    """

    def __init__(
        self,
        directory: Path,
        group: Genesis,
        files: Files = REAL_FILES,
        *,
        chunk_size_bytes: int = REBUILD_CHUNK_SIZE_MAX_BYTES,
        entry_size_max_bytes: int = ENTRY_SIZE_MAX_BYTES,
        keeps_old: bool = False,
    ) -> None:
        """*group*: the only group whose log is accepted. *entry_size_max_bytes*: as in its logs.
        *keeps_old*: refuse a copy (OSError, ENOSPC) that would need the space of the old files.
        """
        self._directory, self._group, self._files = directory, group, files
        self._log_folder, self._state_folder = directory / LOG_FOLDER, directory / STATE_FOLDER
        self._chunk_size_bytes, self._entry_size_max_bytes = chunk_size_bytes, entry_size_max_bytes
        self._manifest: Manifest | None = None
        self._check: ChainCheck | None = None
        self._segment_size_bytes = 0
        self._state_position = 0
        self._keys = IncomingKeys(directory, files)
        # The file being written, and its unsynced bytes.
        self._open: tuple[Path, int] | None = None
        self._unsynced_bytes = 0
        # Whether the old log was removed early, since the disk has no room for both.
        self.cleared_early, self._keeps_old = False, keeps_old

    @property
    def total_bytes(self) -> int:
        """Bytes in the manifest."""
        return 0 if self._manifest is None else self._manifest.size_bytes

    @property
    def copied_bytes(self) -> int:
        """Bytes of the manifest that are copied."""
        if self._manifest is None or self._check is None:
            return 0
        return self._state_position + self._keys.copied_bytes + self._check.received - self._manifest.start.position

    # Copy -----------------------------------------------------------------------------------------
    def begin(self, document: Mapping[str, Any]) -> None:
        """Copy the files of a manifest, keeping copied data. CopyRefused, WrongGroup: unusable."""
        manifest = Manifest.of(document)
        found = manifest.group()
        self._group.require_same_group(found, "the leader's log")
        if self._goes_on(manifest):
            self._manifest = manifest
            return
        self.close()
        self._manifest, self._segment_size_bytes = manifest, found.segment_size_bytes
        # An interrupted swap was not finished, whatever its note: check the copy from its begin.
        remove_mark(self._directory, SWAP, self._files)
        for folder in (self._directory, self._log_folder, self._state_folder):
            self._files.makedirs(folder)
        for folder in (self._directory.parent, self._directory):
            # A killed process may have made their contents without making them durable.
            self._files.fsync_dir(folder)
        self._state_position = self._find_state()
        self._keys.begin(manifest.key_files)
        self._check = self._find_log()
        self._make_room_for_all()

    def _goes_on(self, manifest: Manifest) -> bool:
        """Whether the copied data is the beginning of *manifest*'s."""
        known, check = self._manifest, self._check
        if known is None or check is None:
            return False
        is_same = (known.start, known.state_name, known.state_size_bytes, known.key_files) == (
            manifest.start,
            manifest.state_name,
            manifest.state_size_bytes,
            manifest.key_files,
        )
        return is_same and manifest.end.position >= check.received

    def wanted(self, ahead: int = 0) -> Wanted | None:
        """The piece to be written next, or the piece *ahead* of it; None behind the last."""
        return next(islice(self._pieces(), ahead, None), None)

    def write(self, name: str, position: int, data: Buffer) -> None:
        """Write the first piece of `wanted`.
        CopyRefused: it does not continue the copy; call `wanted` again. OSError: `begin` again.
        SyncLost: end the process; the unsynced data is removed from the copy.
        """
        wanted, manifest, check = self.wanted(), self._manifest, self._check
        if wanted is None or manifest is None or check is None or (name, position) != wanted[:2]:
            raise ValueError(f"'{name}' at {position} was written, {wanted} is wanted")
        if len(data) != wanted.size:
            raise CopyRefused(
                check.received, f"{len(data)} bytes of '{name}' at {position} came, {wanted.size} were wanted"
            )
        if name == manifest.state_name:
            self._write_state(data)
            return
        if name in dict(manifest.key_files):
            self._keys.write(name, position, data)
            return
        base = int(name)
        fd, refused = self._segment(base), None
        try:
            try:
                check.feed(data)
            except CopyRefused as error:
                # Entries before the bad one count as received; the file may have the bad one's
                # begin.
                refused, data = error, memoryview(data)[: max(0, check.received - base - position)]
                self._zero_behind(fd, min(check.received - base, position))
            self._files.pwrite(fd, data, position)
        except OSError:
            self._forget()
            raise
        if refused is not None:
            raise refused
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= SYNC_AFTER_BYTES or position + len(data) == self._segment_size_bytes:
            self._sync()

    def require_complete(self) -> LogStart | None:
        """The copied log's begin, None if its genesis. CopyRefused: incomplete, or another end."""
        manifest, check = self._manifest, self._check
        if manifest is None or check is None or (wanted := self.wanted()) is not None:
            raise CopyRefused(
                0, f"the copy is not complete, {wanted} is wanted" if manifest is not None else "none was begun"
            )
        if check.end != manifest.end:
            end = check.end
            self._forget()
            raise CopyRefused(end.position, f"the copy ends with {end}, the leader said {manifest.end}")
        return LogStart(manifest.start, manifest.genesis) if manifest.start.index else None

    def finish(self) -> None:
        """Durable here: the complete copy is the node's log, and the old files are gone.
        CopyRefused as in `require_complete`. OSError as in `write`, or `finish_swap` continues.
        """
        start = self.require_complete()
        self._sync()
        self.close()
        for folder in (self._log_folder, self._state_folder, self._keys.folder):
            self._files.fsync_dir(folder)
        self._manifest, self._check = None, None
        swap(self._directory, start, self._files)

    def close(self) -> None:
        """Close open files; another sink continues from the copied data."""
        if self._open is not None:
            self._files.close(self._open[1])
            self._open = None
            self._unsynced_bytes = 0

    # Pieces ---------------------------------------------------------------------------------------
    def _pieces(self) -> Iterator[Wanted]:
        manifest, check = self._manifest, self._check
        if manifest is None or check is None:
            return
        for position in range(self._state_position, manifest.state_size_bytes, self._chunk_size_bytes):
            size = min(self._chunk_size_bytes, manifest.state_size_bytes - position)
            yield Wanted(manifest.state_name, position, size)
        for piece in self._keys.pieces(self._chunk_size_bytes):
            yield Wanted(*piece)
        at = check.received
        while at < manifest.end.position:
            base = at // self._segment_size_bytes * self._segment_size_bytes
            size = min(self._chunk_size_bytes, base + self._segment_size_bytes - at, manifest.end.position - at)
            yield Wanted(f"{base:020d}", at - base, size)
            at += size

    # The state ------------------------------------------------------------------------------------
    def _write_state(self, data: Buffer) -> None:
        manifest = self._manifest
        assert manifest is not None, "asked by write"
        path = self._state_folder / f"{manifest.state_name}{INCOMING}"
        fd = self._opened(path, create=True)
        if not self._state_position:
            self._files.ftruncate(fd, 0)
        self._files.pwrite(fd, data, self._state_position)
        self._state_position += len(data)
        if self._state_position == manifest.state_size_bytes:
            self._sync()
            self.close()
            if not self._is_state_good(manifest):
                self._state_position = 0
                raise CopyRefused(
                    manifest.start.position, "the state at the log's start is damaged, or of another place"
                )

    def _find_state(self) -> int:
        """Copied bytes of the state: all or none, since other nodes' layouts may differ."""
        manifest = self._manifest
        assert manifest is not None, "asked by begin"
        wanted = f"{manifest.state_name}{INCOMING}"
        is_good = bool(manifest.state_name) and self._is_state_good(manifest)
        for name in self._files.listdir(self._state_folder):
            if name.endswith(INCOMING) and not (is_good and name == wanted):
                self._files.unlink(self._state_folder / name)
        if not is_good:
            return 0
        self._opened(self._state_folder / wanted)
        self._sync()  # it was read, which does not prove that it is on the disk
        return manifest.state_size_bytes

    def _is_state_good(self, manifest: Manifest) -> bool:
        boundary, start = manifest.boundary(), manifest.start
        assert boundary is not None, "it has a name"
        found = load_boundary(self._directory, _IncomingState(boundary.position, boundary.newest_ms), self._files)
        return found is not None and (found.mark.index, found.mark.crc, found.mark.term) == (
            start.index,
            start.crc,
            start.term,
        )

    # The log --------------------------------------------------------------------------------------
    def _find_log(self) -> ChainCheck:
        """Read the copied log as far as it continues the chain; zero the rest, durably."""
        manifest = self._manifest
        assert manifest is not None, "asked by begin"
        check = ChainCheck(manifest.start, self._segment_size_bytes, self._entry_size_max_bytes)
        kept = manifest.start.position
        while (
            check.received == kept
            and kept < manifest.end.position
            and self._feed_segment(check, kept, manifest.end.position)
        ):
            kept += self._segment_size_bytes
        self.close()
        for base in self._incoming_bases():
            if not manifest.start.position <= base < check.received:
                self._files.unlink(self._path(base))
        return check

    def _feed_segment(self, check: ChainCheck, base: int, end: int) -> bool:
        """Feed *check* with the segment at *base* and zero its rest, durably; False if absent."""
        try:
            fd = self._opened(self._path(base))
        except FileNotFoundError:
            return False
        if self._files.size(fd) == self._segment_size_bytes:
            self._files.fallocate(fd, self._segment_size_bytes)
            stop = min(end, base + self._segment_size_bytes)
            with contextlib.suppress(CopyRefused):
                while check.received < stop:
                    check.feed(
                        self._files.pread(fd, min(self._chunk_size_bytes, stop - check.received), check.received - base)
                    )
            check.forget_rest()
            self._zero_behind(fd, check.received - base)
        self._sync()
        return True

    def _zero_behind(self, fd: int, start: int) -> None:
        for begin, end in self._files.data_extents(fd, start):
            for at in range(max(begin, start), end, len(_ZEROS)):
                kept = len(self._files.pread(fd, min(len(_ZEROS), end - at), at).rstrip(b"\0"))
                if kept:
                    self._files.pwrite(fd, _ZEROS[:kept], at)

    def _segment(self, base: int) -> int:
        path = self._path(base)
        if self._open is None or self._open[0] != path:
            if path.name not in self._files.listdir(self._log_folder):
                self._allocate(path)
            self._opened(path)
        assert self._open is not None, "it was opened"
        return self._open[1]

    def _allocate(self, path: Path) -> None:
        try:
            create_segment_file(self._files, path, self._segment_size_bytes)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._clear_early():
                raise
            create_segment_file(self._files, path, self._segment_size_bytes)

    # Space ----------------------------------------------------------------------------------------
    def _make_room_for_all(self) -> None:
        manifest, here = self._manifest, set(self._incoming_bases())
        assert manifest is not None, "asked by begin"
        bases = range(manifest.start.position, manifest.end.position, self._segment_size_bytes)
        needed = sum(self._segment_size_bytes for base in bases if base not in here)
        needed += manifest.state_size_bytes - self._state_position + self._keys.lacking_bytes
        free = self._files.free_bytes(self._directory)
        if free < needed and self._keeps_old:
            raise OSError(errno.ENOSPC, f"the copy needs {needed} bytes more, {free} are free", str(self._directory))
        if free < needed:
            self._clear_early()

    def _clear_early(self) -> bool:
        """Remove the old log for room; no start opens the directory until the copy is complete."""
        if self._keeps_old or self.cleared_early or not segment_bases(self._log_folder, self._files):
            return False
        forbid_opening(
            self._directory,
            "the disk had no room for the log and a copy of the leader's; the log was given up",
            self._files,
        )
        clear_log(self._directory, self._files)
        self.cleared_early = True
        return True

    # Files ----------------------------------------------------------------------------------------
    def _path(self, base: int) -> Path:
        return self._log_folder / f"{base:020d}{INCOMING}"

    def _incoming_bases(self) -> list[int]:
        names = [
            name.removesuffix(INCOMING) for name in self._files.listdir(self._log_folder) if name.endswith(INCOMING)
        ]
        return [int(name) for name in names if len(name) == 20 and name.isdecimal()]

    def _opened(self, path: Path, *, create: bool = False) -> int:
        if self._open is None or self._open[0] != path:
            if self._open is not None:
                self._sync()
            self.close()
            self._open = (path, self._files.open(path, create=create))
        return self._open[1]

    def _sync(self) -> None:
        """Durable here: everything written to the open file."""
        if self._open is None:
            return
        path, fd = self._open
        try:
            self._files.fdatasync(fd)
        except OSError:
            # The kernel marks lost pages clean: a later read would take them for intact.
            self._forget()
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise
        self._unsynced_bytes = 0

    def _forget(self) -> None:
        """Make the next `begin` read everything again."""
        self.close()
        self._manifest, self._check = None, None
