"""The manifest of a copy: a serving leader's answer to a node without a usable log.

Fields of the JSON document, marks being [index, position, crc, term]:
 format    1
 genesis   the group's first entry, header and body, in hex
 start     the mark before the log's first entry; [0, 0, 0, 0] as long as nothing was dropped
 end       the mark of the last entry that is applied, and so committed, and synced by the leader
 state     null, or [name, size] of the state at the log's start, in bytes, where a replay begins
 keys      [[name, size], ...] of the tables of idempotency keys in that state, if still in use
The log reaches from start's position to end's, in files named by the positions of their begins.
"""

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tern_store.errors import CopyRefused, EntryRefused, StoreError
from tern_store.log.entry import HEADER_SIZE_BYTES, ORIGIN, EntryKind, LogMark, verify
from tern_store.log.genesis import Genesis
from tern_store.state.state_file import Boundary

FORMAT = 1
_STATE_NAME = re.compile(r"segment-([0-9]{20})-([0-9]{1,20})\.bin")
KEYS_NAME = re.compile(r"keys-[0-9]{20}\.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One leader's offer at one moment. Positions and sizes are bytes."""

    genesis: bytes
    start: LogMark
    end: LogMark
    state_name: str
    state_size_bytes: int
    # Name and size.
    key_files: tuple[tuple[str, int], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes to be copied in total."""
        keys_size_bytes = sum(size for _, size in self.key_files)
        return self.state_size_bytes + keys_size_bytes + self.end.position - self.start.position

    def document(self) -> dict[str, Any]:
        """The manifest as a JSON document."""
        return {
            "format": FORMAT,
            "genesis": self.genesis.hex(),
            "start": list(astuple(self.start)),
            "end": list(astuple(self.end)),
            "state": [self.state_name, self.state_size_bytes] if self.state_name else None,
            "keys": [list(key_file) for key_file in self.key_files],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Manifest":
        """Decode a manifest; CopyRefused if *document* is none or contradicts itself."""
        try:
            if document["format"] != FORMAT:
                raise CopyRefused(
                    0, f"the leader's manifest is of format {document['format']}, this release reads {FORMAT}"
                )
            start, end = (LogMark(*map(int, document[name])) for name in ("start", "end"))
            state_name, state_size_bytes = document["state"] or ("", 0)
            key_files = tuple((str(name), int(size)) for name, size in document["keys"])
            genesis = bytes.fromhex(document["genesis"])
            verify(genesis)
        except (KeyError, TypeError, ValueError, EntryRefused) as error:
            raise CopyRefused(0, f"the leader's manifest cannot be read: {error!r}") from error
        found = cls(
            genesis=genesis,
            start=start,
            end=end,
            state_name=str(state_name),
            state_size_bytes=int(state_size_bytes),
            key_files=key_files,
        )
        found.require_sense()
        return found

    def group(self) -> Genesis:
        """The group that owns the log; CopyRefused if the first entry does not name one."""
        try:
            header = verify(self.genesis)
            if header.kind is not EntryKind.GENESIS or header.index != 1:
                raise CopyRefused(0, f"the first entry is {header.kind.name} {header.index}, not the genesis")
            return Genesis.decode(memoryview(self.genesis)[HEADER_SIZE_BYTES:])
        except (EntryRefused, StoreError) as error:
            raise CopyRefused(0, str(error)) from error

    def boundary(self) -> Boundary | None:
        """The place of the state, None if there is none to copy."""
        match = _STATE_NAME.fullmatch(self.state_name)
        return Boundary(int(match[1]), int(match[2])) if match is not None else None

    def require_sense(self) -> None:
        """Raise CopyRefused unless the places fit together."""
        size = self.group().segment_size_bytes
        is_dropped, boundary = self.start.index > 0, self.boundary()
        if (
            (not is_dropped and self.start != ORIGIN)
            or is_dropped != (boundary is not None and boundary.position == self.start.position)
            or self.start.position % size
            or self.start.position < 0
            or self.end.position <= self.start.position
            or self.end.index <= self.start.index
            or self.state_size_bytes < 0
            or (self.key_files and not is_dropped)
            or len({name for name, _ in self.key_files}) < len(self.key_files)
            or not all(KEYS_NAME.fullmatch(name) and size > 0 for name, size in self.key_files)
        ):
            raise CopyRefused(0, f"the leader's manifest contradicts itself: {self.document() | {'genesis': '...'}}")
