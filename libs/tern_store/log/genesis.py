"""The first entry of every log, which names the group: written once, equal everywhere, never cut.

| format 2 | segment size 8 | group id 16 | member count 2 | per member, sorted: size 2 | UTF-8 |
"""

import struct
from dataclasses import dataclass

from tern_store.errors import StoreError, WrongGroup
from tern_store.log.entry import EntryKind, StoredEntry, encode_entry

FORMAT = 1
_FIXED = struct.Struct(">HQ16sH")
_NAME = struct.Struct(">H")
# Recovery distinguishes torn from rotten by whole sectors, so segments consist of whole sectors. A
# segment must hold its genesis.
SECTOR_SIZE_BYTES = 512
SEGMENT_SIZE_MIN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Genesis:
    """A broker group: 16-byte id, the members' names, and the segment size of all its logs."""

    group_id: bytes
    members: tuple[str, ...]
    segment_size_bytes: int

    def __post_init__(self) -> None:
        if len(self.group_id) != 16:
            raise ValueError(f"a group id has 16 bytes, not {len(self.group_id)}")
        if self.segment_size_bytes < SEGMENT_SIZE_MIN_BYTES or self.segment_size_bytes % SECTOR_SIZE_BYTES:
            raise ValueError(
                f"segment_size_bytes must be a multiple of {SECTOR_SIZE_BYTES} and at least {SEGMENT_SIZE_MIN_BYTES}, "
                f"not {self.segment_size_bytes}"
            )

    def encode(self) -> bytes:
        """The body of the genesis entry."""
        parts = [_FIXED.pack(FORMAT, self.segment_size_bytes, self.group_id, len(self.members))]
        for member in sorted(self.members):
            name = member.encode()
            parts += [_NAME.pack(len(name)), name]
        return b"".join(parts)

    @classmethod
    def decode(cls, body: bytes | memoryview) -> "Genesis":
        """Decode a body; StoreError on a format of a later release."""
        form, segment_size_bytes, group_id, count = _FIXED.unpack_from(body)
        if form != FORMAT:
            raise StoreError(f"the log was begun in format {form}, this release reads {FORMAT}")
        members, at = [], _FIXED.size
        for _ in range(count):
            (size,) = _NAME.unpack_from(body, at)
            members.append(str(body[at + _NAME.size : at + _NAME.size + size], "utf-8"))
            at += _NAME.size + size
        return cls(group_id, tuple(members), segment_size_bytes)

    def entry(self) -> StoredEntry:
        """The log's first entry: index 1, term 0, position 0."""
        return encode_entry(EntryKind.GENESIS, 1, 0, (self.encode(),), 0, position=0, previous_crc=0)

    def require_same_group(self, found: "Genesis", where: object) -> None:
        """Raise WrongGroup unless *found* names the same group; the stored segment size is kept."""
        if (found.group_id, sorted(found.members)) != (self.group_id, sorted(self.members)):
            raise WrongGroup(
                f"{where} belongs to group {found.group_id.hex()} of {', '.join(sorted(found.members))}; this node is "
                f"configured for group {self.group_id.hex()} of {', '.join(sorted(self.members))}. "
                "Correct the group id or the members, or point the node at its own data directory."
            )
