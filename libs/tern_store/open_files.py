"""Descriptors of files that can be opened again at any time: a bounded cache.

Law: it never keeps a descriptor that an open needs. If the process has none left, half of the cache
is closed, the longest unused first, and the open is tried again. Half, since what comes next (a
saved state, a segment, a connection) needs descriptors too.
"""

import errno
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tern_store.files import Files

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
K = TypeVar("K", bound=Hashable)


class OpenFiles(Generic[K]):
    """At most *most* open files by key. Owner: one folder's class."""

    def __init__(self, files: Files, most: int) -> None:
        self._files, self._most = files, max(1, most)
        self._fds: OrderedDict[K, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._fds)

    def get(self, key: K) -> int | None:
        """The descriptor of *key*, now the last used; None if the file is not open."""
        fd = self._fds.get(key)
        if fd is not None:
            self._fds.move_to_end(key)
        return fd

    def open(self, key: K, opening: Callable[[], int]) -> int:
        """Keep the result of *opening*, which is called again after a lack of descriptors.
        Raises its OSError if there is nothing left to close.
        """
        self._shrink(self._most - 1)
        while True:
            try:
                fd = opening()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._fds:
                    raise
                self._shrink(len(self._fds) // 2)
            else:
                self._fds[key] = fd
                return fd

    def close(self, key: K) -> None:
        """Close the file of *key* if it is open."""
        fd = self._fds.pop(key, None)
        if fd is not None:
            self._files.close(fd)

    def close_all(self) -> None:
        """Close every file."""
        self._shrink(0)

    def _shrink(self, most: int) -> None:
        while len(self._fds) > most:
            self._files.close(self._fds.popitem(last=False)[1])
