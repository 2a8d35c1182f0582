"""The notes of a backup: `backup.json`, and `backup-under-way.json` while it is incomplete.

Fields of the JSON documents; a mark is [index, position, crc, term] of the last entry:
 format              1, in both
 cut                 the end of the backup's log: committed, applied and synced when it began
 cluster             the name of the cluster, and broker_group that of the group
 group_id, members   of the group that owns the log; segment_size_bytes: of that log
 size_bytes          of log, state and tables of keys
 made_at, ternmq     the time of completion (ISO 8601), and the release
 manifest            the contents, in the form of `copies/manifest.py`
`backup-under-way.json` has format, cut, and the group's first entry in hex (genesis).

Law: `backup.json` is written, whole and synced, once every file that it describes is in place and
verified; it is removed before any of them changes. A directory without it is not a backup.
"""

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from tern_store.copies.manifest import Manifest
from tern_store.errors import BackupDamaged, BackupRefused, StoreError
from tern_store.files import Files, read_whole, replace_whole
from tern_store.log.entry import HEADER_SIZE_BYTES, LogMark, verify
from tern_store.log.genesis import Genesis

BACKUP = "backup.json"
UNDER_WAY = "backup-under-way.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupNote:
    """A complete backup.
    *made_at* is a time in ISO 8601, *release* the TernMQ release that made it.
    """

    cluster: str
    broker_group: str
    manifest: Manifest
    made_at: str
    release: str

    @property
    def cut(self) -> LogMark:
        """The end of the backup's log."""
        return self.manifest.end

    @property
    def group(self) -> Genesis:
        """The group that owns the log."""
        return self.manifest.group()

    def document(self) -> dict[str, Any]:
        """The note as a JSON document."""
        return {
            "format": FORMAT,
            "cluster": self.cluster,
            "broker_group": self.broker_group,
            "group_id": self.group.group_id.hex(),
            "members": sorted(self.group.members),
            "segment_size_bytes": self.group.segment_size_bytes,
            "cut": list(astuple(self.cut)),
            "size_bytes": self.manifest.size_bytes,
            "made_at": self.made_at,
            "ternmq": self.release,
            "manifest": self.manifest.document(),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], where: Path) -> "BackupNote":
        """Decode a note. BackupRefused if the document is not a note or contradicts itself."""
        try:
            _require_format(document, where)
            note = cls(
                cluster=str(document["cluster"]),
                broker_group=str(document["broker_group"]),
                manifest=Manifest.of(document["manifest"]),
                made_at=str(document["made_at"]),
                release=str(document["ternmq"]),
            )
            is_whole = note.document() == document
        except BackupRefused:
            raise
        except (KeyError, TypeError, ValueError, StoreError) as error:
            raise _damaged(where, repr(error)) from error
        if not is_whole:
            raise _damaged(where, "it contradicts itself")
        return note


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An incomplete backup: the first entry of its group, and the cut chosen at its begin."""

    genesis: bytes
    cut: LogMark

    @property
    def group(self) -> Genesis:
        """The group that owns the log."""
        return Genesis.decode(memoryview(self.genesis)[HEADER_SIZE_BYTES:])


def read_backup(directory: Path, files: Files) -> BackupNote:
    """Read the note of a complete backup. BackupRefused if it is missing or unusable."""
    document = _read(directory / BACKUP, files)
    if document is None:
        raise BackupRefused(
            f"{directory} is no backup: it has no {BACKUP}, which is written when everything is copied and verified. "
            "Complete it by repeating its `ternmq backup`, or name another directory."
        )
    return BackupNote.of(document, directory / BACKUP)


def write_backup(directory: Path, note: BackupNote, files: Files) -> None:
    """Durable here: *directory* is a backup."""
    replace_whole(directory / BACKUP, json.dumps(note.document(), indent=1).encode() + b"\n", files)


def read_under_way(directory: Path, files: Files) -> UnderWay | None:
    """Read the note of an incomplete backup, None if there is none; BackupRefused if it is
    unusable.
    """
    path = directory / UNDER_WAY
    document = _read(path, files)
    if document is None:
        return None
    try:
        _require_format(document, path)
        genesis = bytes.fromhex(document["genesis"])
        verify(genesis)
        found = UnderWay(genesis=genesis, cut=LogMark(*map(int, document["cut"])))
        found.group  # noqa: B018 - raises if the genesis is unreadable
    except BackupRefused:
        raise
    except (KeyError, TypeError, ValueError, StoreError) as error:
        raise _damaged(path, repr(error)) from error
    return found


def write_under_way(directory: Path, begun: UnderWay, files: Files) -> None:
    """Durable here: the group and the cut, from which an interrupted backup continues."""
    document = {"format": FORMAT, "cut": list(astuple(begun.cut)), "genesis": begun.genesis.hex()}
    replace_whole(directory / UNDER_WAY, json.dumps(document).encode() + b"\n", files)


def _read(path: Path, files: Files) -> dict[str, Any] | None:
    try:
        document = json.loads(read_whole(path, files))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(path, "it is not an object")
    return document


def _require_format(document: Mapping[str, Any], where: Path) -> None:
    if document["format"] != FORMAT:
        raise BackupRefused(f"{where} is of format {document['format']}, this release reads {FORMAT}")


def _damaged(path: Path, why: str) -> BackupDamaged:
    return BackupDamaged(f"{path} is damaged: {why}. Use another backup, or make one anew in another directory.")
