"""Term and vote: whom this node promised its vote, which it must never forget. File `votes`, two slots, written in turn.

     0        4          6             8            16       24            40              72              504     508
     | "TRNV" | format 2 | name size 2 | sequence 8 | term 8 | group id 16 | members       | voted for,    | 0     | crc 4 |
     |        |          | 65535: none |            |        |             | SHA-256 32    | UTF-8         |       | of all|

Big-endian, 512 bytes: one sector, which a disk writes whole or not at all, and both are whole before the file has its name. So a bad
slot is never a write that a crash interrupted but rot, and it may have held the newer vote: the node must not vote. A directory
without the file never becomes a member by itself: it may have voted and forgotten it.
"""

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from tern_store.checksum import crc32
from tern_store.errors import StoreError, VoteCorrupt, WrongGroup
from tern_store.files import REAL_FILES, Files
from tern_store.genesis import Genesis
from tern_store.segment import segment_bases

FILE_NAME = "votes"
SLOT_SIZE_BYTES = 512
FORMAT = 1
_SLOT = struct.Struct(">4sHHQQ16s32s")
_CRC = struct.Struct(">I")
_MAGIC = b"TRNV"
_NOBODY = 0xFFFF
_NAME_SIZE_MAX_BYTES = SLOT_SIZE_BYTES - _CRC.size - 4 - _SLOT.size


@dataclass(frozen=True, slots=True)
class _Vote:
    sequence: int
    term: int
    voted_for: str | None
    group_id: bytes
    members: bytes


class VoteFile:
    """The current term and vote. Owner: the node's consensus."""

    def __init__(self, fd: int, vote: _Vote, files: Files) -> None:
        """Use `open`."""
        self._fd, self._vote, self._files = fd, vote, files

    @classmethod
    def open(cls, directory: Path, *, bootstrap: bool, group: Genesis, files: Files = REAL_FILES) -> "VoteFile":
        """Read the newest slot; with *bootstrap* an empty directory becomes a member of *group* that has never voted.

        Raises WrongGroup (no file without *bootstrap*, or another group's), VoteCorrupt (a bad slot).
        """
        files.makedirs(directory)
        path = directory / FILE_NAME
        identity = (group.group_id, _members_hash(group))
        if FILE_NAME not in files.listdir(directory):
            _require_birth(directory, bootstrap, files)
            _create(path, _Vote(0, 0, None, *identity), files)
        fd = files.open(path)
        data = files.pread(fd, 2 * SLOT_SIZE_BYTES, 0)
        first, second = (_decode(data[at : at + SLOT_SIZE_BYTES]) for at in (0, SLOT_SIZE_BYTES))
        # Written in turn: a gap between the sequences is a slot that went back to an older content.
        if first is None or second is None or abs(first.sequence - second.sequence) > 1:
            files.close(fd)
            raise VoteCorrupt(
                f"{path}: a vote slot is damaged, and may have held this node's newest vote. Rebuild it from a peer; it must "
                "not vote."
            )
        vote = max(first, second, key=lambda slot: slot.sequence)
        if (vote.group_id, vote.members) != identity:
            files.close(fd)
            raise WrongGroup(
                f"{path} is of group {vote.group_id.hex()}; this node is configured for group {group.group_id.hex()} of "
                f"{', '.join(sorted(group.members))}. Correct the group id or the members, or use another directory."
            )
        return cls(fd, vote, files)

    @property
    def term(self) -> int:
        """The latest term this node has seen."""
        return self._vote.term

    @property
    def voted_for(self) -> str | None:
        """Whom it voted for in that term, if anybody."""
        return self._vote.voted_for

    def save(self, term: int, voted_for: str | None) -> None:
        """Durable here: the vote is on disk before any message that depends on it can leave. OSError is final."""
        vote = _Vote(self._vote.sequence + 1, term, voted_for, self._vote.group_id, self._vote.members)
        self._files.pwrite(self._fd, _encode(vote), vote.sequence % 2 * SLOT_SIZE_BYTES)
        self._files.fdatasync(self._fd)
        self._vote = vote

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._fd)


def _require_birth(directory: Path, bootstrap: bool, files: Files) -> None:
    if segment_bases(directory / "commitlog", files):
        raise WrongGroup(
            f"{directory} has a log, but its vote file is missing: this node may have voted and cannot know for whom. "
            "Rebuild it from a peer."
        )
    if not bootstrap:
        raise WrongGroup(
            f"{directory} is empty, but this group was born already. Restore the directory from a backup: a member that "
            "lost it cannot be rebuilt from its peers yet. "
            "Only to found a new group, start every member once with --bootstrap."
        )


def _create(path: Path, vote: _Vote, files: Files) -> None:
    fresh = path.with_name("votes.new")
    fd = files.open(fresh, create=True)
    try:
        files.pwrite(fd, _encode(vote) * 2, 0)
        files.fdatasync(fd)
    finally:
        files.close(fd)
    files.rename(fresh, path)
    files.fsync_dir(path.parent)


def _encode(vote: _Vote) -> bytes:
    name = (vote.voted_for or "").encode()
    if len(name) > _NAME_SIZE_MAX_BYTES:
        raise StoreError(f"a node name has at most {_NAME_SIZE_MAX_BYTES} bytes, not {len(name)}")
    name_size = _NOBODY if vote.voted_for is None else len(name)
    head = _SLOT.pack(_MAGIC, FORMAT, name_size, vote.sequence, vote.term, vote.group_id, vote.members)
    slot = (head + name).ljust(SLOT_SIZE_BYTES - _CRC.size, b"\0")
    return slot + _CRC.pack(crc32(slot))


def _decode(slot: bytes) -> _Vote | None:
    if len(slot) < SLOT_SIZE_BYTES or _CRC.pack(crc32(slot[: -_CRC.size])) != slot[-_CRC.size :]:
        return None
    magic, form, name_size, sequence, term, group_id, members = _SLOT.unpack_from(slot)
    if magic != _MAGIC or form != FORMAT:
        return None
    name = None if name_size == _NOBODY else slot[_SLOT.size : _SLOT.size + name_size].decode()
    return _Vote(sequence, term, name, group_id, members)


def _members_hash(group: Genesis) -> bytes:
    return hashlib.sha256("\n".join(sorted(group.members)).encode()).digest()
