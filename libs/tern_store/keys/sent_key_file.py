"""A sealed table of idempotency keys: a file `sentkeys/keys-{20-digit number}.bin` that never
changes.

 0        4          6        8          16        24         32      40      44       48
 | "TRNK" | format 2 | rsvd 2 | number 8 | count 8 | newest 8 | pages | words | crc 4  | rsvd 4 |
 |        |          |        |          |         |   ms     | 4     | 4     |       |        |
48 bytes of header are followed by
 | first half of page 0: 8 | of page 1 | ... | crc of page 0: 4 | of page 1 | ...
 | filter A | filter B | page 0 | page 1 | ...
Little-endian. A page is 4,096 bytes, 128 rows (`tern_wire.link.key_rows`), the last possibly fewer;
rows ascend by first half. `key_filter.py` has the filters, *words* of 8 bytes each. *crc* covers
the header (with 0 in its place) and everything up to the pages.

Law: only bytes under a checksum are used: the head is checked when the file is opened, a page at
every read. Both halves of a key are compared in full, so a row answers only for its own key.
"""

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.checking import Checked
from tern_store.checksum import crc32
from tern_store.errors import DerivedDamage
from tern_store.files import Files
from tern_store.keys.key_filter import Words, make_filter
from tern_wire.link.key_rows import KEY_ROW_SIZE_BYTES, KEY_ROWS, OFFSET_MASK, QUEUE_SHIFT, Receipt

FORMAT = 1
_MAGIC = b"TRNK"
_HEAD = struct.Struct("<4sHHQQqIIII")
_CRC_AT = 40
PAGE_SIZE_BYTES = 4096
_PAGE_ROWS = PAGE_SIZE_BYTES // KEY_ROW_SIZE_BYTES
# Pages read by one step of a verification, 1 MiB.
_STEP_PAGES = 256
_NEEDLE = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFileHead:
    """The part of a file in memory, about 9 bytes per hundred keys; the owner keeps the filters."""

    number: int
    count: int
    newest_ms: int
    firsts: npt.NDArray[np.uint64]
    crcs: npt.NDArray[np.uint32]
    filters: tuple[Words, Words]

    @property
    def pages_at(self) -> int:
        """Position of page 0."""
        return _HEAD.size + 12 * len(self.firsts) + 16 * len(self.filters[0])


def write_key_file(
    path: Path, rows: npt.NDArray[Any], *, number: int, newest_ms: int, words: int, files: Files
) -> KeyFileHead:
    """Durable here: the file at *path* holds *rows* (KEY_ROWS, in any order).
    Its directory must exist. OSError: the file is unchanged.
    """
    # NumPy sorts a contiguous copy with vector instructions, and `take` copies whole rows, where an
    # index copies field by field: a full table takes 20 ms, and took 67.
    rows = rows.take(np.argsort(rows["first"].copy()))
    pages = memoryview(rows.tobytes())
    crcs = [crc32(pages[at : at + PAGE_SIZE_BYTES]) for at in range(0, len(pages), PAGE_SIZE_BYTES)]
    head = KeyFileHead(
        number=number,
        count=len(rows),
        newest_ms=newest_ms,
        firsts=rows["first"][::_PAGE_ROWS].copy(),
        crcs=np.array(crcs, np.uint32),
        filters=make_filter(rows["first"], rows["second"], words),
    )
    body = [head.firsts.tobytes(), head.crcs.tobytes(), *(words.tobytes() for words in head.filters)]
    fixed = (_MAGIC, FORMAT, 0, number, len(rows), newest_ms, len(crcs), words)
    crc = crc32(_HEAD.pack(*fixed, 0, 0))
    for part in body:
        crc = crc32(part, crc)
    fresh = path.with_name(f"{path.name}.new")
    fd = files.open(fresh, create=True)
    try:
        files.ftruncate(fd, 0)
        files.pwritev(fd, [_HEAD.pack(*fixed, crc, 0), *body, pages], 0)
        files.fdatasync(fd)
    finally:
        files.close(fd)
    files.rename(fresh, path)
    files.fsync_dir(path.parent)
    return head


class KeyFile:
    """An open file. Owner: the set of them."""

    def __init__(self, path: Path, fd: int, head: KeyFileHead, files: Files) -> None:
        """Use `open`."""
        self.path, self.number, self.count, self.newest_ms = path, head.number, head.count, head.newest_ms
        self._fd, self._files = fd, files
        # Not the head: the owner copies its filters, which are then freed with it.
        self._firsts, self._crcs, self._pages_at = head.firsts, head.crcs, head.pages_at

    @classmethod
    def open(cls, path: Path, files: Files) -> "tuple[KeyFile, tuple[Words, Words]]":
        """Open a file; return it with its filters.
        DerivedDamage if missing or its head is damaged.
        """
        try:
            fd = files.open(path)
        except FileNotFoundError as error:
            raise DerivedDamage(path, 0, "the file is missing") from error
        try:
            head = _read_head(path, fd, files)
        except BaseException:
            files.close(fd)
            raise
        return cls(path, fd, head, files), head.filters

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._pages_at + self.count * KEY_ROW_SIZE_BYTES

    def find(self, first: int, second: int) -> Receipt | None:
        """The receipt of one key. DerivedDamage if its page is damaged."""
        wanted = np.uint64(first)
        # Keys with the same first half may lie on several pages.
        begin = max(0, int(np.searchsorted(self._firsts, wanted, "left")) - 1)
        end = int(np.searchsorted(self._firsts, wanted, "right"))
        needle = _NEEDLE.pack(first, second)
        for page in range(begin, end):
            data = self._read(page, 1)
            at = data.find(needle)
            while at >= 0 and at % KEY_ROW_SIZE_BYTES:
                at = data.find(needle, at + 1)
            if at >= 0:
                row = np.frombuffer(data, KEY_ROWS, 1, at)[0]
                packed = int(row["receipt"])
                return packed >> QUEUE_SHIFT, packed & OFFSET_MASK, int(row["crc"])
        return None

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Read everything once, in steps of about 1 MiB; damage is yielded."""
        try:
            yield Checked(_read_head(self.path, self._fd, self._files).pages_at)
        except DerivedDamage as damage:
            yield damage
        for page in range(0, len(self._crcs), _STEP_PAGES):
            try:
                yield Checked(len(self._read(page, min(_STEP_PAGES, len(self._crcs) - page))))
            except DerivedDamage as damage:
                yield damage

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._fd)

    def _read(self, page: int, count: int) -> bytes:
        position = self._pages_at + page * PAGE_SIZE_BYTES
        size = min(count * PAGE_SIZE_BYTES, self.count * KEY_ROW_SIZE_BYTES - page * PAGE_SIZE_BYTES)
        data = _pread(self.path, self._fd, size, position, self._files)
        view = memoryview(data)
        for number in range(count):
            at = number * PAGE_SIZE_BYTES
            if crc32(view[at : at + PAGE_SIZE_BYTES]) != self._crcs[page + number]:
                raise DerivedDamage(self.path, position + at, "the checksum does not match")
        return data


def _read_head(path: Path, fd: int, files: Files) -> KeyFileHead:
    fixed = _pread(path, fd, _HEAD.size, 0, files)
    magic, form, _, number, count, newest_ms, pages, words, crc, _ = _HEAD.unpack(fixed)
    if (magic, form, pages) != (_MAGIC, FORMAT, -(-count // _PAGE_ROWS)) or words > files.size(fd):
        raise DerivedDamage(path, 0, "the head is not what was written")
    body = _pread(path, fd, 12 * pages + 16 * words, _HEAD.size, files)
    if crc32(body, crc32(fixed[:_CRC_AT] + bytes(_HEAD.size - _CRC_AT))) != crc:
        raise DerivedDamage(path, 0, "the head's checksum does not match")
    filters = np.frombuffer(body, "<u8", 2 * words, 12 * pages)
    head = KeyFileHead(
        number=number,
        count=count,
        newest_ms=newest_ms,
        firsts=np.frombuffer(body, "<u8", pages).copy(),
        crcs=np.frombuffer(body, "<u4", pages, 8 * pages).copy(),
        filters=(filters[:words], filters[words:]),
    )
    if files.size(fd) != head.pages_at + count * KEY_ROW_SIZE_BYTES:
        raise DerivedDamage(path, files.size(fd), "the file has another size than its head says")
    return head


def _pread(path: Path, fd: int, size: int, position: int, files: Files) -> bytes:
    try:
        data = files.pread(fd, size, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DerivedDamage(path, position, "the disk cannot read it") from error
    if len(data) < size:
        raise DerivedDamage(path, position + len(data), "the file ends here")
    return data
