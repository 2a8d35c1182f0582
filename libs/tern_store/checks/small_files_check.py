"""Offline check of a directory's small files: votes, config, checkpoint, and the node's notes."""

import json
from collections.abc import Callable
from pathlib import Path

from tern_store import small_files
from tern_store.backup_note import BACKUP, UNDER_WAY, read_backup
from tern_store.checks.finding import FindingKind, Findings
from tern_store.checksum import crc32
from tern_store.errors import BackupRefused, Quarantined, StoreError
from tern_store.files import Files, read_whole
from tern_store.log.entry import LogMark
from tern_store.log.genesis import Genesis
from tern_store.state.vote_file import FILE_NAME as VOTES
from tern_store.state.vote_file import SLOT_SIZE_BYTES, require_votes

TOPICS = "topics.json"
_CHECKPOINT_NUMBER_BYTES = 8


class SmallFilesCheck:
    """Reads the small files one by one. Owner: the check of a directory."""

    def __init__(self, directory: Path, files: Files, findings: Findings, on_read: Callable[[int], None]) -> None:
        self._directory, self._files, self._findings, self._on_read = directory, files, findings, on_read
        self._names = set(files.listdir(directory))

    def check_notes(self) -> None:
        """Report damage that the node itself has noted."""
        try:
            small_files.refuse_quarantined(self._directory, self._files)
        except Quarantined as found:
            reason = f"the node is quarantined: it found {found.file.name} damaged at {found.position} ({found.reason})"
            self._add(FindingKind.LOG, small_files.QUARANTINE, 0, reason)
        if small_files.REBUILD in self._names:
            reason = "the node is making its derived files again; what they lack now is not listed"
            self._add(FindingKind.DERIVED, small_files.REBUILD, 0, reason, is_damage=False)

    def check_votes(self, genesis: Genesis | None) -> None:
        """Check both slots, and that they belong to the log's group."""
        if VOTES not in self._names and self._names & {BACKUP, UNDER_WAY}:
            return  # a backup is no node and has no votes
        if VOTES not in self._names:
            reason = "it is missing: this node may have voted, and its vote is lost"
            self._add(FindingKind.VOTE, VOTES, 0, reason)
            return
        data = self._content(self._directory / VOTES)
        slots = [data[at : at + SLOT_SIZE_BYTES] for at in (0, SLOT_SIZE_BYTES)]
        good = [len(slot) == SLOT_SIZE_BYTES and crc32(slot[:-4]) == int.from_bytes(slot[-4:], "big") for slot in slots]
        for number, is_good in enumerate(good):
            if not is_good:
                reason = "a slot is damaged: it may have held the newest vote, so the node does not vote"
                self._add(FindingKind.VOTE, VOTES, number * SLOT_SIZE_BYTES, reason)
        if genesis is not None and all(good):
            try:
                require_votes(self._directory, genesis, self._files)
            except StoreError as error:
                self._add(FindingKind.VOTE, VOTES, 0, str(error))

    def check_backup(self, end: LogMark) -> None:
        """Check that a backup's log, which ends with *end*, is that of `backup.json`."""
        if BACKUP not in self._names:
            return
        try:
            cut = read_backup(self._directory, self._files).cut
        except BackupRefused as error:
            self._add(FindingKind.LOG, BACKUP, 0, str(error))
            return
        if cut != end:
            self._add(FindingKind.LOG, BACKUP, 0, f"the backup was made of the log up to {cut}, and it ends with {end}")

    def check_config(self) -> dict[int, bytes]:
        """The topics' names by id; a file that is no JSON object is a finding."""
        topics = dict[int, bytes]()
        for name in self._files.listdir(self._directory / small_files.CONFIG_FOLDER):
            if not name.endswith(".json"):
                continue
            path = f"{small_files.CONFIG_FOLDER}/{name}"
            try:
                json.loads(self._content(self._directory / path))
                if name == TOPICS:
                    topics = topic_names(self._directory, self._files)
            except (ValueError, AttributeError) as error:
                self._add(
                    FindingKind.DERIVED, path, getattr(error, "pos", 0), f"it is not JSON as we write it: {error}"
                )
        return topics

    def check_checkpoint(self) -> None:
        """Check that the three copies of the numbers agree and that zeros follow."""
        if small_files.CHECKPOINT not in self._names:
            return
        data = self._content(self._directory / small_files.CHECKPOINT)
        newest_ms, position = (
            int.from_bytes(data[at : at + _CHECKPOINT_NUMBER_BYTES], "big", signed=True)
            for at in (0, 3 * _CHECKPOINT_NUMBER_BYTES)
        )
        expected = small_files.Checkpoint(newest_ms=newest_ms, position=position).encode()
        if data != expected:
            same = next(
                (at for at, (one, other) in enumerate(zip(data, expected, strict=False)) if one != other), len(data)
            )
            self._add(FindingKind.DERIVED, small_files.CHECKPOINT, same, "its numbers do not agree with one another")

    def _content(self, path: Path) -> bytes:
        data = read_whole(path, self._files)
        self._on_read(len(data))
        return data

    def _add(self, kind: FindingKind, name: str, position: int, reason: str, *, is_damage: bool = True) -> None:
        self._findings.add(kind, self._directory / name, position, reason, is_damage=is_damage)


def topic_names(directory: Path, files: Files) -> dict[int, bytes]:
    """The topics' names by id from `config/topics.json`.
    ValueError or AttributeError if malformed.
    """
    path, topics = directory / small_files.CONFIG_FOLDER / TOPICS, dict[int, bytes]()
    if TOPICS not in files.listdir(path.parent):
        return topics
    for name, facts in json.loads(read_whole(path, files)).get("topicConfigTable", {}).items():
        if (topic_id := small_files.topic_id_of(facts)) is not None:
            topics[topic_id] = name.encode()
    return topics
