"""Restore of a backup into a node's data directory: the log at the cut, and votes without promises.

The copy is that of a rebuild with the backup as the leader, so every entry is checked in its chain
again, and the log ends at the cut.

Law: votes are written last. A partly restored directory has none, and no node of several takes it
for a member's. The node derives the other files at its first start. All members come from one
backup: they found the group again once all have met, with logs that end alike
(`tern_raft/membership.py`), in terms above the cut's.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from tern_store.backup.backup_directory import require_sound
from tern_store.backup_note import BackupNote, read_backup
from tern_store.checks.verification import Progress, verify_directory
from tern_store.copies.sink import RebuildSink
from tern_store.copies.source import RebuildReader
from tern_store.directory_lock import DirectoryLock
from tern_store.errors import BackupRefused
from tern_store.files import REAL_FILES, Files
from tern_store.state.vote_file import VoteFile
from tern_wire.limits import ENTRY_SIZE_MAX_BYTES, REBUILD_CHUNK_SIZE_MAX_BYTES


def verified_backup(
    directory: Path, files: Files = REAL_FILES, progress: Progress = lambda done, total: None
) -> BackupNote:
    """Read and verify the backup in *directory* and return its note; BackupRefused if damaged."""
    note = read_backup(directory, files)
    require_sound(directory, verify_directory(directory, files, progress))
    return note


def require_targets(note: BackupNote, targets: Iterable[tuple[str, Path]], files: Files = REAL_FILES) -> None:
    """Raise BackupRefused unless each node (name, directory) is a member with an empty directory.
    The directory may be missing. Nothing is written.
    """
    members = sorted(note.group.members)
    for name, directory in targets:
        if name not in members:
            raise BackupRefused(
                f"'{name}' is no member of {note.broker_group}: {', '.join(members)}. Name members only."
            )
        try:
            names = files.listdir(directory)
        except NotADirectoryError as error:
            raise BackupRefused(f"{directory} is no directory. Name one that is new or empty.") from error
        if names:
            raise BackupRefused(
                f"{directory} is not empty ({', '.join(names[:3])}). Restore into a new or empty directory; nothing is overwritten."
            )


def restore_node(
    note: BackupNote,
    source: Path,
    target: Path,
    *,
    incarnation: bytes,
    files: Files = REAL_FILES,
    source_files: Files = REAL_FILES,
    on_copied: Callable[[int], None] = lambda size_bytes: None,
    chunk_size_bytes: int = REBUILD_CHUNK_SIZE_MAX_BYTES,
    entry_size_max_bytes: int = ENTRY_SIZE_MAX_BYTES,
) -> None:
    """Durable here: *target*, which was empty, is a node's directory with the log of *source*.
    *incarnation*: 16 random bytes, the new directory's own. CopyRefused: the backup is damaged
    after all; *target* has no votes then.
    """
    reader, group = RebuildReader(source, source_files), note.group
    lock = DirectoryLock.acquire(target, files=files)
    sink = RebuildSink(
        target,
        group,
        files,
        chunk_size_bytes=chunk_size_bytes,
        entry_size_max_bytes=entry_size_max_bytes,
        keeps_old=True,
    )
    try:
        sink.begin(note.manifest.document())
        while (piece := sink.wanted()) is not None:
            sink.write(piece.name, piece.position, reader.read(*piece))
            on_copied(piece.size)
        sink.finish()
        VoteFile.restore(target, group=group, incarnation=incarnation, term=note.cut.term + 1, files=files)
    finally:
        sink.close()
        lock.release()
