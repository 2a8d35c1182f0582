"""Files of one mesh beside its data, and the process that writes each.

  .tern/cluster.key    32 random bytes, mode 0600; made once by `up`, read by brokers and proxies
  .tern/cluster.json   group id, members, shape, whether the group is born; written by `up`
  .tern/mesh.json      running processes: pids, ports, states; written by the supervisor and
                       removed when it ends
  .tern/lock           held (flock) by `up`, then by the supervisor for as long as it lives
  .tern/logs/NAME.log  output of a process; .tern/data/NAME/ data of a broker

Law: every document that is read here has been checked (mesh/documents.py). An unusable file is
refused with its name and the remedy. Standard library only: the supervisor reads and writes through
this module.
"""

import errno
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tern_cli.failures import CommandFailed
from tern_cli.mesh.documents import cluster_problem, mesh_problem

KEY_SIZE_BYTES = 32
GROUP_ID_SIZE_BYTES = 16
# Inode, size and time of the last change in ns.
FileIdentity = tuple[int, int, int]
_RESTORE = (
    "It names the group that owns the data beside it. Restore it from a copy, or choose another --data-dir; "
    "if this directory holds nothing that you need, remove all of it."
)
_RESTORE_KEY = "Restore it from a copy. Without a copy, remove it: a new key is made, older receipt handles are refused, and their messages are delivered again."
_REMOVE = (
    "It only says who runs now. A running mesh writes it again within seconds, so try again; "
    "if no mesh runs in this directory, remove it."
)


class MeshFiles:
    """Paths of one mesh and the small files among them. Holds no state of its own."""

    __slots__ = ("root",)

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    @property
    def key(self) -> Path:
        """Return the path of the cluster key."""
        return self.root / "cluster.key"

    @property
    def cluster(self) -> Path:
        """Return the path of cluster.json, which records the decisions made once."""
        return self.root / "cluster.json"

    @property
    def mesh(self) -> Path:
        """Return the path of mesh.json, which lists the running processes."""
        return self.root / "mesh.json"

    def log(self, name: str) -> Path:
        """Return the path of the output of process *name*."""
        return self.root / "logs" / f"{name}.log"

    def data(self, name: str) -> Path:
        """Return the data directory of process *name*."""
        return self.root / "data" / name

    def make_folders(self) -> None:
        """Make the folders, for this user only: they hold messages and the key."""
        for folder in (self.root, self.root / "logs", self.root / "data"):
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make_key(self) -> bool:
        """Make the cluster key unless there is one, and return whether it was made now.
        CommandFailed when the existing file cannot be a key.
        """
        if self.key.exists():
            size_bytes = len(self.key.read_bytes())
            if size_bytes != KEY_SIZE_BYTES:
                raise _damaged(self.key, f"it has {size_bytes} bytes, not {KEY_SIZE_BYTES}", _RESTORE_KEY)
            return False
        draft = self.key.with_suffix(".new")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(KEY_SIZE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.key)
        return True

    def read_cluster(self) -> dict[str, Any]:
        """Return cluster.json, checked; empty when there is none.
        CommandFailed when it is unusable.
        """
        return _read(self.cluster, cluster_problem, _RESTORE)

    def write_cluster(self, document: dict[str, Any]) -> None:
        """Replace cluster.json durably: without the group id, no group can use the data."""
        _write(self.cluster, document, durable=True)

    def is_born(self) -> bool:
        """Return whether this mesh has ever accepted a message; True when in doubt.
        Once it has, an empty broker directory means a rebuild.
        """
        try:
            return bool(self.read_cluster().get("born"))
        except (CommandFailed, OSError):
            return True

    def read_mesh(self) -> dict[str, Any]:
        """Return mesh.json, checked; empty when there is none.
        CommandFailed when it is unusable.
        """
        return _read(self.mesh, mesh_problem, _REMOVE)

    def write_mesh(self, document: dict[str, Any]) -> FileIdentity:
        """Replace mesh.json atomically and return its new identity."""
        return _write(self.mesh, document, durable=False)

    def mesh_identity(self) -> FileIdentity | None:
        """Return the identity of mesh.json, None when it is missing.
        An identity other than the written one means that another program has replaced the file.
        """
        try:
            return _identity(self.mesh.stat())
        except OSError:
            return None

    def try_lock(self) -> int:
        """Take the lock and return its descriptor, -1 when it is held already.
        The lock ends with the last copy of the descriptor.
        """
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return -1
        return handle

    def last_lines(self, name: str, count: int) -> list[str]:
        """Return the last *count* lines that process *name* printed."""
        try:
            with self.log(name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
                return file.read().decode("utf-8", "replace").splitlines()[-count:]
        except FileNotFoundError:
            return []


def _read(path: Path, problem: Callable[[dict[str, Any]], str], remedy: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})", remedy) from error
    found = problem(document) if isinstance(document, dict) else "it is not an object"
    if found:
        raise _damaged(path, found, remedy)
    return document


def _damaged(path: Path, why: str, remedy: str) -> CommandFailed:
    return CommandFailed(f"{path.name} is damaged", f"{path}: {why}. {remedy}")


def _write(path: Path, document: dict[str, Any], *, durable: bool) -> FileIdentity:
    draft = path.with_suffix(f".{os.getpid()}.new")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    # Taken before the rename: after it, another program may already have removed the file.
    identity = _identity(draft.stat())
    draft.rename(path)
    return identity


def _identity(found: os.stat_result) -> FileIdentity:
    return found.st_ino, found.st_size, found.st_mtime_ns
