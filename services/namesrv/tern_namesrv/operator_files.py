"""The files of a name server with --data-dir: operators' settings, which brokers do not send again.

    lock                    held (flock) by the one process that writes here
    kvConfig.json           {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:8"}},
                             "crc32":"1c291ca3"}
    writePermission.json    {"wiped":["broker-a"],"crc32":"5d0f3c9e"}
    *.tmp                   a file that is being written; unused after a crash

`crc32`, eight hex digits, is the checksum of the same object without `crc32`, compact and with
sorted names. A file without it is accepted unchecked: RocketMQ's own kvConfig.json, or a file
edited by hand.

Law: a file appears whole. It is written aside and synced, then renamed, and its directory is
synced. A file that is unreadable or damaged ends the start with an error; it never counts as empty.
"""

import fcntl
import os
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson

from tern_namesrv.core import OperatorState, configuration_of
from tern_wire.errors import TernError

CONFIGURATION, PERMISSIONS, LOCK = "kvConfig.json", "writePermission.json", "lock"
_CRC = "crc32"
_REMEDY = (
    "Copy the file from another name server, which holds the same, or restore it from a backup; without one, remove it, start, "
    "and repeat the settings (`ternmq namesrv kv put`, `ternmq namesrv wipe-write`)."
)


class FilesUnusable(ValueError):
    """The directory is unusable; the text gives the reason and the remedy."""


class OperatorFiles:
    """The files of one directory.

    Owner: the OperatorStore, which calls `write` from one thread at a time.
    """

    def __init__(self, directory: Path) -> None:
        """Make and lock *directory*. FilesUnusable if that fails or another process holds it."""
        self._directory = directory
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_directory(directory.parent)
            self._lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise FilesUnusable(
                f"{directory} belongs to another name server that runs; choose another --data-dir."
            ) from error
        except OSError as error:
            raise FilesUnusable(f"{directory} (--data-dir) cannot be used: {error.strerror}.") from error

    def close(self) -> None:
        """Release the directory for other processes."""
        os.close(self._lock)

    def read(self) -> OperatorState:
        """Return the state that was written last, empty at first.

        FilesUnusable names a damaged file.
        """
        table = self._read(CONFIGURATION, "configTable", {})
        wiped = self._read(PERMISSIONS, "wiped", [])
        try:
            if not isinstance(table, dict) or not all(_is_namespace(held) for held in table.values()):
                raise FilesUnusable("configTable is no table of texts by namespace and key")
            configuration = configuration_of(table)
        except (FilesUnusable, TernError) as error:
            raise self._damaged(CONFIGURATION, str(error).rstrip(".")) from error
        if not isinstance(wiped, list) or not all(isinstance(name, str) for name in wiped):
            raise self._damaged(PERMISSIONS, "wiped is no list of broker groups")
        return OperatorState(configuration, frozenset(wiped))

    def write(self, before: OperatorState | None, after: OperatorState) -> None:
        """Durable here: operators' settings.

        *before*: the content of the files, None if unknown. Raises OSError.
        """
        if before is None or before.configuration != after.configuration:
            self._replace(CONFIGURATION, {"configTable": dict(after.configuration.namespaces)})
        if before is None or before.wiped != after.wiped:
            self._replace(PERMISSIONS, {"wiped": sorted(after.wiped)})

    def _read(self, name: str, member: str, default: Any) -> Any:
        try:
            document = orjson.loads((self._directory / name).read_bytes())
        except FileNotFoundError:
            return default
        except OSError as error:
            raise FilesUnusable(f"{self._directory / name} cannot be read: {error.strerror}.") from error
        except orjson.JSONDecodeError as error:
            raise self._damaged(name, f"it is not JSON ({error})") from error
        if not isinstance(document, dict):
            raise self._damaged(name, "it is no object")
        told = document.pop(_CRC, None)
        if told is not None and told != _checksum(document):
            raise self._damaged(name, f"its checksum is {_checksum(document)}, and it says {told}")
        if document.keys() != {member}:
            raise self._damaged(name, f"its members are {sorted(document)}, not '{member}' and '{_CRC}'")
        return document[member]

    def _damaged(self, name: str, why: str) -> FilesUnusable:
        return FilesUnusable(f"{self._directory / name} is damaged: {why}. {_REMEDY}")

    def _replace(self, name: str, document: dict[str, Any]) -> None:
        draft = self._directory / f"{name}.tmp"
        data = orjson.dumps({**document, _CRC: _checksum(document)}) + b"\n"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._directory / name)
        _sync_directory(self._directory)


def _checksum(document: dict[str, Any]) -> str:
    return f"{crc32(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)):08x}"


def _is_namespace(held: object) -> bool:
    return isinstance(held, dict) and all(isinstance(value, str) for value in held.values())


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
