"""A leader's side of a rebuild: the manifest of the copy, and reads of its pieces.

Law: files in a manifest are committed and synced, so they never change; a trim may remove them.
Reads use descriptors of their own. A valid name is that of a segment, of the state at one, or of a
table of keys.
"""

import re
from pathlib import Path
from typing import Any

from tern_store.copies.manifest import KEYS_NAME, Manifest
from tern_store.errors import StoreError
from tern_store.files import Files
from tern_store.keys.sent_keys import FOLDER as KEYS_FOLDER
from tern_store.keys.sent_keys import file_name
from tern_store.log.commit_log import LOG_FOLDER
from tern_store.log.log_start import read_start
from tern_store.state.state_file import STATE_FOLDER, Boundary, boundaries
from tern_store.store import Store
from tern_wire.limits import REBUILD_CHUNK_SIZE_MAX_BYTES

_SEGMENT_NAME = re.compile(r"[0-9]{20}")
_STATE_NAME = re.compile(r"segment-[0-9]{20}-[0-9]{1,20}\.bin")


class RebuildReader:
    """Pieces of the files of a node's or a backup's directory.
    `read` may be called on any thread.
    """

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory, self._files = directory, files

    def read(self, name: str, position: int, size: int) -> bytes:
        """Read up to *size* bytes (at most 4 MiB) from *position* of the file *name*.
        Fewer at its end. ValueError: invalid name, place or size. FileNotFoundError: the file was
        dropped; fetch a new manifest.
        """
        path = self._path(name)
        if position < 0 or not 0 < size <= REBUILD_CHUNK_SIZE_MAX_BYTES:
            raise ValueError(f"cannot read {size} bytes at {position}; at most {REBUILD_CHUNK_SIZE_MAX_BYTES} at once")
        fd = self._files.open(path)
        try:
            return self._files.pread(fd, size, position)
        finally:
            self._files.close(fd)

    def _path(self, name: str) -> Path:
        if _SEGMENT_NAME.fullmatch(name):
            return self._directory / LOG_FOLDER / name
        if _STATE_NAME.fullmatch(name):
            return self._directory / STATE_FOLDER / name
        if KEYS_NAME.fullmatch(name):
            return self._directory / KEYS_FOLDER / name
        raise ValueError(f"'{name}' is not the name of a segment, of the state at one or of a table of keys")


class RebuildSource(RebuildReader):
    """The files that a node offers.
    `manifest` belongs to the store's owner, `read` to any thread.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store.directory, store.files)
        self._store = store

    def manifest(self, applied_index: int) -> dict[str, Any]:
        """The manifest of the copy (`copies/manifest.py`), up to *applied_index* as far as it is
        synced.
        Only valid on a serving leader. StoreError: not now (a trim is under way), or never (no
        state).
        """
        log = self._store.log
        state_name, state_size_bytes, names = "", 0, list[str]()
        if log.start.index:
            found = [item for item in boundaries(self._directory, self._files) if item.position == log.start.position]
            if not found:
                raise StoreError(
                    f"{self._directory}: the state at the log's start is missing; no node can be rebuilt from here"
                )
            state_name = found[0].name
            state_size_bytes = _size(self._directory / STATE_FOLDER / state_name, self._files)
            names = self._key_files(found[0])
        manifest = Manifest(
            genesis=self._genesis(),
            start=log.start,
            end=log.mark(min(applied_index, log.synced_index)),
            state_name=state_name,
            state_size_bytes=state_size_bytes,
            key_files=tuple((name, _size(self._directory / KEYS_FOLDER / name, self._files)) for name in names),
        )
        return manifest.document()

    def _key_files(self, boundary: Boundary) -> list[str]:
        """Existing tables in the state at the log's start; all others follow from the log."""
        found, sent_keys = self._store.load_boundary(boundary), self._store.sent_keys
        if found is None:
            raise StoreError(f"{self._directory}: the state at the log's start cannot be read")
        sent_keys.require_all()
        return [file_name(number) for number in found[1]["sent_keys"] if number in sent_keys.numbers()]

    def _genesis(self) -> bytes:
        if not self._store.log.start.index:
            return self._store.log.entry(1).raw
        start = read_start(self._directory / LOG_FOLDER, self._files)
        if start is None:
            raise StoreError("the first trim of this log is not durable yet; ask again")
        return start.genesis


def _size(path: Path, files: Files) -> int:
    fd = files.open(path)
    try:
        return files.size(fd)
    finally:
        files.close(fd)
