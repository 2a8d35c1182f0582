"""The directory of a backup under way: a copy of a group's log up to one cut.

The copy comes from a leader's manifest, as in a rebuild (`copies/sink.py`). Added are the cut,
which is fixed at the backup's begin and kept over interruptions, trims and changes of leader; the
update of an older backup; the verification; the notes (`backup_note.py`).

Law: the cut never moves backward, and forward only when retention has dropped it. An older backup
stays one until a newer copy is complete. `backup.json` appears after a verification without damage.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tern_store.backup_note import (
    BACKUP,
    UNDER_WAY,
    BackupNote,
    UnderWay,
    read_backup,
    read_under_way,
    write_backup,
    write_under_way,
)
from tern_store.checks.finding import Finding, FindingKind
from tern_store.checks.verification import Progress, verify_directory
from tern_store.copies.manifest import Manifest
from tern_store.copies.sink import RebuildSink, Wanted
from tern_store.copies.swap import INCOMING, finish_swap
from tern_store.directory_lock import DirectoryLock
from tern_store.errors import BackupDamaged, BackupRefused, CopyRefused
from tern_store.files import REAL_FILES, Buffer, Files
from tern_store.keys.sent_keys import FOLDER as KEYS_FOLDER
from tern_store.log.commit_log import LOG_FOLDER
from tern_store.log.entry import LogMark
from tern_store.log.genesis import Genesis
from tern_store.log.segment import create_segment_file, segment_bases
from tern_store.small_files import remove_mark
from tern_store.state.state_file import STATE_FOLDER
from tern_wire.limits import ENTRY_SIZE_MAX_BYTES, REBUILD_CHUNK_SIZE_MAX_BYTES

# Files allowed in a directory without a backup: the lock, and a note that is not renamed yet.
_NOTHING = {"lock", f"{UNDER_WAY}.new"}


class BackupDirectory:
    """One backup. Owner: one caller at a time.
    Call `begin`, then `wanted` and `write`, then `finish`; `close` in any case. `begin` may be
    called again at any time with a newer manifest, of this leader or another: copied data stays.
    """

    def __init__(self, directory: Path, lock: DirectoryLock, files: Files, limits: tuple[int, int]) -> None:
        """Use `open`."""
        self.directory, self._lock, self._files, self._limits = directory, lock, files, limits
        # An interrupted swap of an update ends before anything is read.
        finish_swap(directory, files)
        self._begun = read_under_way(directory, files)
        self._older = read_backup(directory, files) if BACKUP in files.listdir(directory) else None
        if self._begun is not None and self._older is not None and self._begun.cut == self._older.cut:
            # Complete: only the note of the incomplete backup was left.
            remove_mark(directory, UNDER_WAY, files)
            self._begun = None
        self._manifest: Manifest | None = None
        self._sink: RebuildSink | None = None

    @classmethod
    def open(
        cls,
        directory: Path,
        files: Files = REAL_FILES,
        *,
        chunk_size_bytes: int = REBUILD_CHUNK_SIZE_MAX_BYTES,
        entry_size_max_bytes: int = ENTRY_SIZE_MAX_BYTES,
    ) -> "BackupDirectory":
        """Lock *directory*, made if it is missing.
        BackupRefused: it holds something else; DirectoryInUse: another backup runs.
        """
        names = set(files.listdir(directory)) - _NOTHING
        if names and not names & {BACKUP, UNDER_WAY}:
            # Before the lock: nothing is written into a foreign directory.
            raise BackupRefused(
                f"{directory} is not empty and holds no backup ({', '.join(sorted(names)[:3])}). Name a new or empty directory."
            )
        lock = DirectoryLock.acquire(directory, files=files)
        try:
            return cls(directory, lock, files, (chunk_size_bytes, entry_size_max_bytes))
        except BaseException:
            lock.release()
            raise

    @property
    def group(self) -> Genesis | None:
        """The group whose log is in here, None if there is none."""
        if self._begun is not None:
            return self._begun.group
        return self._older.group if self._older is not None else None

    @property
    def cut(self) -> LogMark | None:
        """The end of this backup's log, None before it has begun."""
        return self._begun.cut if self._begun is not None else None

    @property
    def is_update(self) -> bool:
        """Whether this updates a complete older backup."""
        return self._older is not None

    @property
    def total_bytes(self) -> int:
        """Bytes of everything up to the cut."""
        return 0 if self._sink is None else self._sink.total_bytes

    @property
    def copied_bytes(self) -> int:
        """Bytes up to the cut that are copied."""
        return 0 if self._sink is None else self._sink.copied_bytes

    # Copy -----------------------------------------------------------------------------------------
    def begin(self, document: Mapping[str, Any], *, least_index: int = 0) -> None:
        """Copy the files of a leader's manifest, up to the cut.
        CopyRefused: fetch another manifest. BackupRefused, WrongGroup: not into this directory.
        *least_index*: the entry applied when the backup was requested. A majority may have
        acknowledged it without the leader's disk; a new cut waits for that disk.
        """
        offered = Manifest.of(document)
        if self.group is not None:
            self.group.require_same_group(offered.group(), "the leader's log")
        cut = self._settle_cut(offered, least_index)
        if self._begun is None or self._begun.cut != cut:
            self._begun = UnderWay(genesis=offered.genesis, cut=cut)
            write_under_way(self.directory, self._begun, self._files)
        manifest = replace(offered, end=cut)
        if self._sink is None:
            self._adopt(manifest)
            chunk_size_bytes, entry_size_max_bytes = self._limits
            self._sink = RebuildSink(
                self.directory,
                offered.group(),
                self._files,
                chunk_size_bytes=chunk_size_bytes,
                entry_size_max_bytes=entry_size_max_bytes,
                keeps_old=True,
            )
        self._sink.begin(manifest.document())
        self._manifest = manifest

    def wanted(self, ahead: int = 0) -> Wanted | None:
        """Forward to RebuildSink.wanted."""
        return self._copying().wanted(ahead)

    def write(self, name: str, position: int, data: Buffer) -> None:
        """Forward to RebuildSink.write."""
        self._copying().write(name, position, data)

    def finish(
        self,
        *,
        cluster: str,
        broker_group: str,
        release: str,
        made_at: Callable[[], str],
        progress: Progress = lambda done, total: None,
    ) -> tuple[BackupNote, list[Finding]]:
        """Durable here: the copy is a verified backup.
        Returns its note, and findings that are not damage of the copy: records that arrived that
        way. CopyRefused: it is incomplete, or does not end with the cut. BackupRefused: it is
        damaged.
        """
        sink, manifest = self._copying(), self._manifest
        assert manifest is not None, "it has begun"
        sink.require_complete()
        remove_mark(self.directory, BACKUP, self._files)
        sink.finish()
        self._older = None
        found = verify_directory(self.directory, self._files, progress)
        require_sound(self.directory, found)
        note = BackupNote(
            cluster=cluster, broker_group=broker_group, manifest=manifest, made_at=made_at(), release=release
        )
        write_backup(self.directory, note, self._files)
        remove_mark(self.directory, UNDER_WAY, self._files)
        self._begun = None
        return note, found

    def close(self) -> None:
        """Unlock the directory; another process can continue from the copied data."""
        if self._sink is not None:
            self._sink.close()
        self._lock.release()

    # Below ----------------------------------------------------------------------------------------
    def _copying(self) -> RebuildSink:
        if self._sink is None:
            raise CopyRefused(0, "no copy was begun")
        return self._sink

    def _settle_cut(self, offered: Manifest, least_index: int) -> LogMark:
        known = self._begun.cut if self._begun is not None else None
        least = known if known is not None else self._older.cut if self._older is not None else None
        if least is not None and offered.end.index < least.index:
            # A leader elected a moment ago, or one deposed without having noticed.
            raise CopyRefused(
                least.position, f"the leader offers entry {offered.end.index}, the backup goes to {least.index}"
            )
        if known is None and offered.end.index < least_index:
            raise CopyRefused(
                offered.end.position,
                f"the leader has synced entry {offered.end.index}, {least_index} was applied before",
            )
        return known if known is not None and known.index > offered.start.index else offered.end

    def _adopt(self, manifest: Manifest) -> None:
        """Begin with the files of a complete older copy: closed files by a second name, as they
        never change.
        """
        log = self.directory / LOG_FOLDER
        bases = [base for base in segment_bases(log, self._files) if base >= manifest.start.position]
        if not bases:
            return
        for folder in (log, self.directory / STATE_FOLDER, self.directory / KEYS_FOLDER):
            names = self._files.listdir(folder)
            last = f"{bases[-1]:020d}" if folder == log else ""
            for name in names:
                is_ours = name.endswith(".bin") or (name.isdecimal() and int(name) in bases)
                if not is_ours or f"{name}{INCOMING}" in names:
                    continue
                if name == last:
                    # The older backup ends in it, and later writes must not reach that backup.
                    self._copy(folder / name, manifest.group().segment_size_bytes)
                else:
                    self._files.link(folder / name, folder / f"{name}{INCOMING}")

    def _copy(self, path: Path, size_bytes: int) -> None:
        target = path.with_name(f"{path.name}{INCOMING}")
        create_segment_file(self._files, target, size_bytes)
        source, copy = self._files.open(path), self._files.open(target)
        try:
            for begin, end in self._files.data_extents(source, 0):
                for at in range(begin, end, REBUILD_CHUNK_SIZE_MAX_BYTES):
                    size = min(REBUILD_CHUNK_SIZE_MAX_BYTES, end - at)
                    self._files.pwrite(copy, self._files.pread(source, size, at), at)
        finally:
            self._files.close(source)
            self._files.close(copy)


def require_sound(directory: Path, found: list[Finding]) -> None:
    """Raise BackupDamaged if the backup in *directory* is damaged.
    A record that was sent with a wrong checksum is not: the group's own logs have the same bytes.
    """
    damages = [finding for finding in found if finding.is_damage and finding.kind is not FindingKind.RECORD]
    if damages:
        first = damages[0]
        raise BackupDamaged(
            f"{directory} is damaged in {len(damages)} places; the first: {first.file.relative_to(directory)} at {first.position}: "
            f"{first.reason}. Make a backup in another directory; `ternmq store verify` checks the brokers' own directories."
        )
