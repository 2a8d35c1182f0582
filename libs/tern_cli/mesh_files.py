"""The files of one mesh beside its data, and who writes them.

    .tern/cluster.key    32 random bytes, mode 0600; made once by `up`, read by brokers and proxies
    .tern/cluster.json   group id, members, shape, whether the group is born; written by `up`
    .tern/mesh.json      who runs now: pids, ports, states; written by the supervisor, removed when it ends
    .tern/lock           held (flock) by `up` and then by the supervisor for as long as it lives
    .tern/logs/NAME.log  what a process printed; .tern/data/NAME/ what a broker owns

Standard library only: the supervisor reads and writes through here.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

KEY_SIZE_BYTES = 32
GROUP_ID_SIZE_BYTES = 16


class MeshFiles:
    """The paths of one mesh and the small files among them. Holds no state of its own."""

    __slots__ = ("root",)

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    @property
    def key(self) -> Path:
        """The cluster key."""
        return self.root / "cluster.key"

    @property
    def cluster(self) -> Path:
        """What is decided once."""
        return self.root / "cluster.json"

    @property
    def mesh(self) -> Path:
        """What runs now."""
        return self.root / "mesh.json"

    def log(self, name: str) -> Path:
        """What process *name* printed."""
        return self.root / "logs" / f"{name}.log"

    def data(self, name: str) -> Path:
        """What process *name* owns."""
        return self.root / "data" / name

    def make_folders(self) -> None:
        """The folders, for this user only: they hold messages and the key."""
        for folder in (self.root, self.root / "logs", self.root / "data"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make_key(self) -> None:
        """The cluster key, once; an existing one is kept."""
        if self.key.exists():
            return
        draft = self.key.with_suffix(".new")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(KEY_SIZE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.key)

    def read_cluster(self) -> dict[str, Any]:
        """cluster.json; empty when there is none."""
        return _read(self.cluster)

    def write_cluster(self, document: dict[str, Any]) -> None:
        """Replace cluster.json, durably: without the group id the data belongs to nobody."""
        _write(self.cluster, document, durable=True)

    def is_born(self) -> bool:
        """Whether this mesh ever accepted a message: from then on an empty broker directory is a rebuild."""
        return bool(self.read_cluster().get("born"))

    def read_mesh(self) -> dict[str, Any]:
        """mesh.json; empty when there is none."""
        return _read(self.mesh)

    def write_mesh(self, document: dict[str, Any]) -> None:
        """Replace mesh.json at once."""
        _write(self.mesh, document, durable=False)

    def try_lock(self) -> int:
        """Take the lock; its descriptor, or -1 when somebody holds it. The lock ends with the last copy of the descriptor."""
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return -1
        return handle

    def last_lines(self, name: str, count: int) -> list[str]:
        """The last *count* lines that process *name* printed."""
        try:
            with self.log(name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
                return file.read().decode("utf-8", "replace").splitlines()[-count:]
        except FileNotFoundError:
            return []


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a JSON object")
    return document


def _write(path: Path, document: dict[str, Any], *, durable: bool) -> None:
    draft = path.with_suffix(f".{os.getpid()}.new")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    draft.rename(path)
