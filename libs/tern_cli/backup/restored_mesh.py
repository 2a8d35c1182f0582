"""A backup as the data of a mesh of `ternmq up`: its members' directories and its cluster.json.

Law: cluster.json is written last. Without it `ternmq up` refuses the data as unknown, so an
interrupted restore starts nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.plan import BROKER_GROUP, MeshShape, member_names
from tern_store.backup_note import BackupNote


class RestoredMesh:
    """One mesh that is restored. Owner: the command."""

    def __init__(self, files: MeshFiles, note: BackupNote) -> None:
        """CommandFailed (exit 2): `ternmq up` cannot run the group, or *files* have another one."""
        self.files, self._note = files, note
        members = sorted(note.group.members)
        if members != member_names(len(members)):
            raise CommandFailed(
                "Not a group of `ternmq up`",
                f"It runs {BROKER_GROUP}-0, {BROKER_GROUP}-1 and so on; this is {', '.join(members)}. Use --data-dir with a --node for each.",
                exit_code=2,
            )
        self._known = files.read_cluster()
        if self._known and self._known["group_id"] != note.group.group_id.hex():
            raise CommandFailed(
                "The directory belongs to another mesh",
                f"{files.cluster} is of group {self._known['group_id']}, the backup of {note.group.group_id.hex()}. Name a new directory.",
                exit_code=2,
            )

    def targets(self) -> list[tuple[str, Path]]:
        """Return every member with its directory."""
        return [(name, self.files.data(name)) for name in sorted(self._note.group.members)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folders and hold their lock, so that no mesh starts.
        CommandFailed if one runs.
        """
        self.files.make_folders()
        lock = self.files.try_lock()
        if lock < 0:
            raise CommandFailed(
                "A mesh runs in that directory",
                f"Stop it first: ternmq down --data-dir {self.files.root}.",
                exit_code=2,
            )
        try:
            yield
        finally:
            os.close(lock)

    def write_cluster(self) -> None:
        """Durable here: `ternmq up` starts this group. An existing cluster.json is kept."""
        if self._known:
            return
        group = self._note.group
        shape = MeshShape(
            cluster=self._note.cluster, brokers=len(group.members), segment_size_bytes=group.segment_size_bytes
        )
        # The group is born again at its first start, when all members have met.
        self.files.write_cluster(
            {
                "version": 1,
                "group_id": group.group_id.hex(),
                "members": sorted(group.members),
                "shape": asdict(shape),
                "born": False,
            }
        )
