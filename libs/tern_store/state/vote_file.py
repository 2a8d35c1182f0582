"""Term and vote of this node, and whether it may vote. File `votes`, two slots, written in turn.

 0        4        6           8          16     24       25      26  32      40         56
 | "TRNV" | format | name size | sequence | term | standing | copy? | 0 | floor | group id | members
 |        | 2      | 2, 65535: | 8        | 8    | 1        | 1     |   | term  | 16       | SHA-256
 |        |        | none      |          |      |          |       |   | 8     |          | 32
 88               104             184                  508     512
 | incarnation 16 | births 5 x 16 | voted for, UTF-8,  | crc 4 |
 |                |               | then zeros         | of all|
Big-endian, 512 bytes: one sector, which a disk writes whole or not at all. Both slots are whole
before the file has its name. A bad slot is therefore rot, never an interrupted write. It may have
held the newer vote, so the node must not vote.

Law: a directory without votes never becomes a member by itself: it may have lost a vote. *standing*
is what the node may do; *incarnation* identifies the directory among those that the node had;
*births* are the incarnations of all members, sorted by name, at the group's founding. A rebuilt
node votes only in terms above *floor term*.
"""

import hashlib
import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from tern_store.checksum import crc32
from tern_store.errors import StoreError, VoteCorrupt, WrongGroup
from tern_store.files import REAL_FILES, Files, read_whole, unless_worn
from tern_store.log.genesis import Genesis
from tern_store.log.segment import segment_bases

FILE_NAME = "votes"
SLOT_SIZE_BYTES = 512
FORMAT = 2
INCARNATION_SIZE_BYTES = 16
MEMBERS_MAX = 5
_SLOT = struct.Struct(f">4sHHQQBB6xQ16s32s16s{MEMBERS_MAX * INCARNATION_SIZE_BYTES}s")
# Format of early releases: no standing (all were members), no floor, no incarnations.
_OLD_FORMAT = 1
_OLD_SLOT = struct.Struct(">4sHHQQ16s32s")
_CRC = struct.Struct(">I")
_MAGIC = b"TRNV"
_NOBODY = 0xFFFF
_NAME_SIZE_MAX_BYTES = SLOT_SIZE_BYTES - _CRC.size - _SLOT.size


class Standing(IntEnum):
    """The part that a node may take in its group."""

    # Waits until all members have met: then the group is founded.
    UNBORN = 0
    MEMBER = 1
    # Has lost its promises: does not vote, stand or count until the group has readmitted it.
    REBUILDING = 2
    # Has cut a torn entry that it may have promised: votes once a leader, or all peers, have
    # settled that entry.
    DOUBTFUL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vote:
    sequence: int
    term: int
    voted_for: str | None
    group_id: bytes
    members: bytes
    standing: Standing
    incarnation: bytes
    needs_copy: bool = False
    floor_term: int = 0
    births: bytes = b""


class VoteFile:
    """The current term and vote. Owner: the node's consensus."""

    def __init__(self, fd: int, vote: _Vote, names: tuple[str, ...], files: Files) -> None:
        """Use `open`."""
        self._fd, self._vote, self._names, self._files = fd, vote, names, files
        # Why the file of an existing node was made anew; empty if it was not.
        self.replaced = ""

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        bootstrap: bool,
        group: Genesis,
        incarnation: bytes = bytes(INCARNATION_SIZE_BYTES),
        files: Files = REAL_FILES,
    ) -> "VoteFile":
        """Read the newest slot, or make the file.
        With *bootstrap* an empty directory becomes an unborn member of *group*. Without it, or if a
        log has no good vote beside it, the node is to be rebuilt under the new *incarnation*. A
        group of one has no peers for a rebuild: WrongGroup (no file) or VoteCorrupt (a bad slot).
        WrongGroup also for another group's file.
        """
        files.makedirs(directory)
        path = directory / FILE_NAME
        names = tuple(sorted(group.members))
        fresh = _Vote(
            sequence=0,
            term=0,
            voted_for=None,
            group_id=group.group_id,
            members=_members_hash(group),
            standing=Standing.REBUILDING,
            incarnation=incarnation,
        )
        reason, is_there = "", FILE_NAME in files.listdir(directory)
        if is_there:
            _require_group(path, group, files)
        if not is_there:
            has_log = bool(segment_bases(directory / "commitlog", files))
            if bootstrap and not has_log:
                standing = Standing.UNBORN if len(names) > 1 else Standing.MEMBER
                fresh = replace(fresh, standing=standing)
            elif len(names) == 1:
                raise WrongGroup(_no_votes(directory, has_log=has_log))
            else:
                reason = "there were no votes here"
            _create(path, fresh, files)
        elif (found := _newest(path, files)) is None:
            if len(names) == 1:
                raise VoteCorrupt(
                    f"{path}: a vote slot is damaged, and may have held this node's newest vote. There is no peer to be rebuilt "
                    "from: restore the directory from a backup."
                )
            reason = "a vote slot is damaged, and may have held this node's newest vote"
            _create(path, fresh, files)
        else:
            fresh = found
        file = cls(files.open(path), fresh, names, files)
        file.replaced = reason
        file._rewrite()
        return file

    @classmethod
    def restore(
        cls, directory: Path, *, group: Genesis, incarnation: bytes, term: int, files: Files = REAL_FILES
    ) -> None:
        """Durable here: *directory* has a backup's log and belongs to a node without promises in
        any term.
        The node is unborn, as at a group's founding. A single restored member beside running ones
        founds nothing: they readmit it as a rebuilt member. *term*, above all terms of the log, is
        where votes begin. WrongGroup if there are votes already.
        """
        if FILE_NAME in files.listdir(directory):
            raise WrongGroup(f"{directory} has votes of a node. Restore into an empty directory.")
        vote = _Vote(
            sequence=0,
            term=term,
            voted_for=None,
            group_id=group.group_id,
            members=_members_hash(group),
            standing=Standing.UNBORN if len(group.members) > 1 else Standing.MEMBER,
            incarnation=incarnation,
            floor_term=term,
        )
        _create(directory / FILE_NAME, vote, files)

    @property
    def term(self) -> int:
        """The latest term this node has seen."""
        return self._vote.term

    @property
    def voted_for(self) -> str | None:
        """The candidate voted for in that term, None if there was none."""
        return self._vote.voted_for

    @property
    def standing(self) -> Standing:
        """The part that this node may take in its group."""
        return self._vote.standing

    @property
    def incarnation(self) -> bytes:
        """This directory's id, 16 bytes; zeros in one of an early release."""
        return self._vote.incarnation

    @property
    def floor_term(self) -> int:
        """Votes are given only in terms above this one."""
        return self._vote.floor_term

    @property
    def births(self) -> dict[str, bytes]:
        """The members' incarnations at the founding; empty if this node was not there."""
        births, size = self._vote.births, INCARNATION_SIZE_BYTES
        return {name: births[at * size : (at + 1) * size] for at, name in enumerate(self._names)} if births else {}

    def save(self, term: int, voted_for: str | None) -> None:
        """Durable here: the vote, before any message that depends on it leaves.
        SyncLost is final.
        """
        self._write(replace(self._vote, term=term, voted_for=voted_for))

    def be_born(self, births: dict[str, bytes]) -> None:
        """Durable here: all members have met with these incarnations, and the group is founded."""
        packed = b"".join(births[name] for name in self._names)
        self._write(replace(self._vote, standing=Standing.MEMBER, births=packed))

    @property
    def needs_copy(self) -> bool:
        """Whether the log must not be opened: even if intact, the next power cut may lose it."""
        return self._vote.needs_copy

    def forget(self, incarnation: bytes, *, needs_copy: bool = False) -> None:
        """Durable here: promises may be lost with the log; the node needs readmission as
        *incarnation*.
        """
        vote = replace(self._vote, standing=Standing.REBUILDING, incarnation=incarnation, needs_copy=needs_copy)
        self._write(vote)

    def be_readmitted(self, floor_term: int) -> None:
        """Durable here: an entry of term *floor_term*, held by a majority, has readmitted this
        node.
        """
        floor_term = max(floor_term, self._vote.floor_term)
        self._write(replace(self._vote, standing=Standing.MEMBER, floor_term=floor_term))

    def doubt(self) -> None:
        """Durable here, before the torn entry is cut: this node may lack a promised entry."""
        if self._vote.standing == Standing.MEMBER:
            self._write(replace(self._vote, standing=Standing.DOUBTFUL))

    def be_settled(self) -> None:
        """Durable here: the torn entry's place is settled."""
        if self._vote.standing == Standing.DOUBTFUL:
            self._write(replace(self._vote, standing=Standing.MEMBER))

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._fd)

    def _rewrite(self) -> None:
        """Write both slots again, unchanged, as `Segments.rewrite` does: a sync may have failed
        unrecorded.
        """
        self._files.pwrite(self._fd, self._files.pread(self._fd, 2 * SLOT_SIZE_BYTES, 0), 0)
        self._files.fdatasync(self._fd)

    def _write(self, vote: _Vote) -> None:
        vote = replace(vote, sequence=self._vote.sequence + 1)
        self._files.pwrite(self._fd, _encode(vote), vote.sequence % 2 * SLOT_SIZE_BYTES)
        self._files.fdatasync(self._fd)
        self._vote = vote


def require_votes(directory: Path, group: Genesis, files: Files) -> None:
    """Check, without a write, that a node of *group* has its votes; WrongGroup or VoteCorrupt."""
    path = directory / FILE_NAME
    _require_group(path, group, files)
    if _newest(path, files) is None:
        raise VoteCorrupt(
            f"{path}: a slot is damaged or went back to an older content: it may have held the newest vote"
        )


def _require_group(path: Path, group: Genesis, files: Files) -> None:
    for slot in _slots(path, files):
        if slot is not None and (slot.group_id, slot.members) != (group.group_id, _members_hash(group)):
            raise WrongGroup(
                f"{path} is of group {slot.group_id.hex()}; this node is configured for group {group.group_id.hex()} of "
                f"{', '.join(sorted(group.members))}. Correct the group id or the members, or use another directory."
            )


def _no_votes(directory: Path, *, has_log: bool) -> str:
    if has_log:
        return (
            f"{directory} has a log, but its vote file is missing: this node may have voted, its vote is lost, and "
            "there is no peer to be rebuilt from. Restore the directory from a backup."
        )
    return (
        f"{directory} is empty, but this group was born already. Restore the directory from a backup. "
        "Only to found a new group, start every member once with --bootstrap."
    )


def _newest(path: Path, files: Files) -> _Vote | None:
    """The newer of two good slots, None if one is bad."""
    first, second = _slots(path, files)
    # The slots are written in turn: a gap in the sequence means that one returned to older
    # contents.
    if first is None or second is None or abs(first.sequence - second.sequence) > 1:
        return None
    return max(first, second, key=lambda slot: slot.sequence)


def _slots(path: Path, files: Files) -> tuple[_Vote | None, _Vote | None]:
    data = unless_worn(lambda: read_whole(path, files)) or b""
    return _decode(data[:SLOT_SIZE_BYTES]), _decode(data[SLOT_SIZE_BYTES : 2 * SLOT_SIZE_BYTES])


def _create(path: Path, vote: _Vote, files: Files) -> None:
    fresh = path.with_name("votes.new")
    fd = files.open(fresh, create=True)
    try:
        files.ftruncate(fd, 0)
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
    head = _SLOT.pack(
        _MAGIC,
        FORMAT,
        _NOBODY if vote.voted_for is None else len(name),
        vote.sequence,
        vote.term,
        vote.standing,
        vote.needs_copy,
        vote.floor_term,
        vote.group_id,
        vote.members,
        vote.incarnation,
        vote.births,
    )
    slot = (head + name).ljust(SLOT_SIZE_BYTES - _CRC.size, b"\0")
    return slot + _CRC.pack(crc32(slot))


def _decode(slot: bytes) -> _Vote | None:
    if len(slot) < SLOT_SIZE_BYTES or _CRC.pack(crc32(slot[: -_CRC.size])) != slot[-_CRC.size :]:
        return None
    magic, form, name_size, sequence, term = _OLD_SLOT.unpack_from(slot)[:5]
    if magic != _MAGIC:
        return None
    if form == _OLD_FORMAT:
        group_id, members = _OLD_SLOT.unpack_from(slot)[5:]
        standing, needs_copy, floor_term = Standing.MEMBER, 0, 0
        incarnation, births = bytes(INCARNATION_SIZE_BYTES), b""
        name_at = _OLD_SLOT.size
    elif form == FORMAT:
        number, needs_copy, floor_term, group_id, members, incarnation, births = _SLOT.unpack_from(slot)[5:]
        standing, name_at = Standing(number), _SLOT.size
    else:
        return None
    return _Vote(
        sequence=sequence,
        term=term,
        voted_for=None if name_size == _NOBODY else slot[name_at : name_at + name_size].decode(),
        group_id=group_id,
        members=members,
        standing=standing,
        incarnation=incarnation,
        needs_copy=bool(needs_copy),
        floor_term=floor_term,
        births=births if any(births) else b"",
    )


def _members_hash(group: Genesis) -> bytes:
    return hashlib.sha256("\n".join(sorted(group.members)).encode()).digest()
