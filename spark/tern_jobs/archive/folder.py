"""The place of an archive: a folder, or whatever pyarrow.fs opens by its URI, such as `s3://`.

Law: a file appears under its name whole or not at all. It is written beside it, synced where the
file system is local, and moved there; two writers of one name leave the file of one of them.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from tern_jobs.frame.outcome import JobFailed

_PART = ".part-"


class Sink:
    """A file being written: counts and hashes what passes. pyarrow writes into it.

    *path* is where it will appear. It may be set until the end, to another name in the folder.
    """

    def __init__(self, path: str, stream: Any) -> None:
        self.path = path
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append *data*."""
        view = memoryview(data)
        self._hash.update(view)
        self._stream.write(view)
        self.size_bytes += view.nbytes
        return view.nbytes

    def writable(self) -> bool:
        """Return True, as pyarrow asks."""
        return True

    def flush(self) -> None:
        """Do nothing: the file is synced at its end."""

    def sha256(self) -> str:
        """Return the hash of what was written."""
        return self._hash.hexdigest()


class ArchiveFolder:
    """The files of an archive by their paths below *uri*."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._files, self._root = _open(uri)

    @property
    def root(self) -> str:
        """The path of the archive in its file system."""
        return self._root

    @property
    def is_local(self) -> bool:
        """Whether the file system is the machine's own."""
        return isinstance(self._files, fs.LocalFileSystem)

    @property
    def region(self) -> str:
        """The region of an object store; empty where there is none."""
        return str(getattr(self._files, "region", ""))

    def read(self, path: str) -> bytes:
        """Return a file's content. FileNotFoundError if it is absent."""
        with self._files.open_input_stream(self._at(path)) as stream:
            content: bytes = stream.read()
        return content

    def open(self, path: str) -> Any:
        """Return a file for random access, to be closed by the caller."""
        return self._files.open_input_file(self._at(path))

    def write(self, path: str, content: bytes, attempt: str) -> None:
        """Put *content* under *path* at once; *attempt* is an id of this writer."""
        with self.sink(path, attempt) as sink:
            sink.write(content)

    @contextmanager
    def sink(self, path: str, attempt: str) -> Iterator[Sink]:
        """Open *path* for writing; it appears when the block ends without an exception."""
        part = f"{self._at(path)}{_PART}{attempt}"
        self._files.create_dir(part.rpartition("/")[0], recursive=True)
        stream = self._files.open_output_stream(part)
        try:
            sink = Sink(path, stream)
            yield sink
            stream.close()
            if self.is_local:
                _sync(Path(part))
            self._files.move(part, self._at(sink.path))
        except BaseException:
            stream.close()
            self._files.delete_file(part)
            raise
        if self.is_local:
            _sync(Path(part).parent)

    def names(self, folder: str) -> list[str]:
        """Return the names of the finished files in *folder*, in order."""
        selector = fs.FileSelector(self._at(folder), allow_not_found=True)
        found = [info.base_name for info in self._files.get_file_info(selector) if info.is_file]
        return sorted(name for name in found if _PART not in name)

    def drop_parts(self, folder: str) -> int:
        """Remove the unfinished files of killed writers below *folder*; return how many there
        were.
        """
        selector = fs.FileSelector(self._at(folder), recursive=True, allow_not_found=True)
        found = [info.path for info in self._files.get_file_info(selector) if info.is_file and _PART in info.base_name]
        for path in found:
            self._files.delete_file(path)
        return len(found)

    def sync(self, path: str) -> None:
        """Sync a file or folder that a library has written, and its name; an object store has done
        so.
        """
        if self.is_local:
            _sync(Path(self._at(path)))
            _sync(Path(self._at(path)).parent)

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._files.delete_file(self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


def _open(uri: str) -> tuple[Any, str]:
    if "://" not in uri:
        return fs.LocalFileSystem(), str(Path(uri).absolute())
    if "@" in urlsplit(uri).netloc:
        # URIs show up in plans and process lists.
        raise JobFailed(
            "A secret in an address",
            "Give the keys of the store by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            exit_code=2,
        )
    try:
        files, root = fs.FileSystem.from_uri(uri)
    except (ValueError, NotImplementedError) as error:
        raise JobFailed("Not a place for an archive", f"{uri}: {error}", exit_code=2) from error
    return files, root.rstrip("/")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
