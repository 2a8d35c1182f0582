"""Items read ahead by a thread, while the caller works on earlier ones: pages, while Arrow decodes.

    thread: read -> read -> (no room: waits) -> read -> end or error
    caller:         work -> work ----------------------> end or error

Memory is bounded: at most *depth* items are read or being read and not yet taken. The caller gets
every item in order, and then the end, or the error that ended the source.
"""

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition, Thread
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """The items of *source*, an iterator that only the thread uses from then on.

    A context manager. Its end calls *abort*, which makes a read under way fail soon, and waits for
    the thread.
    """

    def __init__(self, source: Iterator[T], depth: int, abort: Callable[[], None]) -> None:
        self._source, self._depth, self._abort = source, depth, abort
        self._changed = Condition()
        # Under the condition: items to take; whether the source has ended, and its error; whether
        # the caller takes no more.
        self._items: deque[T] = deque()
        self._is_ended = False
        self._error: Exception | None = None
        self._is_left = False
        self._thread = Thread(target=self._run, name="ternmq-read-ahead", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._changed:
            self._is_left = True
            is_reading = not self._is_ended
            self._changed.notify_all()
        if is_reading:
            self._abort()
        self._thread.join()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_ended)
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item

    def _run(self) -> None:
        try:
            while self._has_room():
                item = next(self._source, None)
                if item is None:
                    break
                with self._changed:
                    self._items.append(item)
                    self._changed.notify_all()
        except Exception as error:
            self._error = error
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        """Wait for room; return False if the caller has left."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_left or len(self._items) < self._depth)
            return not self._is_left
