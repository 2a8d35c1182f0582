"""Tables of idempotency keys in a copy that the log's replay does not make again.

Files `sentkeys/keys-....bin.incoming`. Law: a file is whole, synced and verified, or it is copied
again from its begin.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tern_store.copies.swap import INCOMING
from tern_store.errors import CopyRefused, DerivedDamage
from tern_store.files import Buffer, Files
from tern_store.keys.sent_key_file import KeyFile
from tern_store.keys.sent_keys import FOLDER


class IncomingKeys:
    """The tables of one copy. Owner: the sink of the copy."""

    def __init__(self, directory: Path, files: Files) -> None:
        """*directory* is the node's."""
        self.folder, self._files = directory / FOLDER, files
        self._wanted: dict[str, int] = {}
        self._positions: dict[str, int] = {}

    @property
    def copied_bytes(self) -> int:
        """Bytes that are copied."""
        return sum(self._positions.values())

    @property
    def lacking_bytes(self) -> int:
        """Bytes that are not copied yet."""
        return sum(self._wanted.values()) - self.copied_bytes

    def begin(self, key_files: Sequence[tuple[str, int]]) -> None:
        """Request *key_files* (names and sizes); keep those already here and remove all other
        copies.
        """
        self._files.makedirs(self.folder)
        self._wanted = dict(key_files)
        self._positions = dict.fromkeys(self._wanted, 0)
        for name in self._files.listdir(self.folder):
            if not name.endswith(INCOMING):
                continue
            wanted = name.removesuffix(INCOMING)
            if wanted in self._wanted and self._is_good(wanted):
                self._sync(wanted)  # it was read, which does not prove that it is on the disk
                self._positions[wanted] = self._wanted[wanted]
            else:
                self._files.unlink(self.folder / name)

    def pieces(self, chunk_size_bytes: int) -> Iterator[tuple[str, int, int]]:
        """Name, position and size of the pieces to be copied, in order."""
        for name, size in self._wanted.items():
            for position in range(self._positions[name], size, chunk_size_bytes):
                yield name, position, min(chunk_size_bytes, size - position)

    def write(self, name: str, position: int, data: Buffer) -> None:
        """Write the next piece.
        CopyRefused: the complete file is damaged and is requested again.
        """
        fd = self._files.open(self._path(name), create=True)
        try:
            if not position:
                self._files.ftruncate(fd, 0)
            self._files.pwrite(fd, data, position)
        finally:
            self._files.close(fd)
        self._positions[name] = position + len(data)
        if self._positions[name] == self._wanted[name]:
            self._sync(name)
            if not self._is_good(name):
                self._positions[name] = 0
                raise CopyRefused(0, f"the table of keys '{name}' is damaged")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{INCOMING}"

    def _is_good(self, name: str) -> bool:
        try:
            file, _ = KeyFile.open(self._path(name), self._files)
        except DerivedDamage:
            return False
        is_good = file.size_bytes == self._wanted[name] and not any(
            isinstance(found, DerivedDamage) for found in file.verify()
        )
        file.close()
        return is_good

    def _sync(self, name: str) -> None:
        fd = self._files.open(self._path(name))
        try:
            self._files.fdatasync(fd)
        except OSError:
            # The kernel marks lost pages clean, so the file is copied again.
            self._positions[name] = 0
            self._files.unlink(self._path(name))
            raise
        finally:
            self._files.close(fd)
