"""The read lease of a plan: its ranges stay while tasks read them, although retention would drop
them.

    driver: plan -> take (for `lease`) -> tasks, each with the lease's name and end
    task:   half of its time is over -> renew

PySpark ends the planning process before the first task and calls nobody at the end of a job. So the
tasks renew, and a lease ends at its time. It is a help and no condition: a read goes on without,
says so once, and fails by itself should it miss a message.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any, Protocol

from tern_spark.ranges import QueueRange
from tern_wire.errors import OffsetExpired, TernError
from tern_wire.limits_reads import READ_PLAN_TOPICS_MAX

_log = logging.getLogger("tern_spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLease:
    """A lease as the driver took it, until *until_ms* (ms since 1970). *for_ms*: of a renewal."""

    lease: str
    until_ms: int
    for_ms: int


class LeaseCalls(Protocol):
    """The calls of an Admin that are used here."""

    def take_read_lease(self, topics: Sequence[dict[str, Any]], duration: int) -> dict[str, Any]:
        """Take a lease."""
        ...

    def renew_read_lease(self, lease: str, duration: int) -> dict[str, Any]:
        """Renew it."""
        ...

    def end_read_lease(self, lease: str) -> None:
        """End it."""
        ...


def take(ranges: Sequence[QueueRange], for_ms: int, admin: LeaseCalls) -> ReadLease | None:
    """Return a lease of *ranges*; None if there is none, which one warning says.

    OffsetExpired when retention was faster: plan again.
    """
    topics: dict[str, dict[str, Any]] = {}
    for each in (found for found in ranges if found.rows):
        asked = topics.setdefault(each.topic, {"topic": each.topic, "begin": {}, "end": {}})
        asked["begin"][each.queue] = each.start
        asked["end"][each.queue] = each.end
    if not for_ms or not topics:
        return None
    if len(topics) > READ_PLAN_TOPICS_MAX:
        _warn(f"a lease has at most {READ_PLAN_TOPICS_MAX} topics, and {len(topics)} are read")
        return None
    try:
        taken = admin.take_read_lease(list(topics.values()), for_ms)
    except OffsetExpired:
        raise
    except TernError as error:
        _warn(str(error))
        return None
    return ReadLease(lease=taken["lease"], until_ms=taken["leased_until"], for_ms=for_ms)


class Renewal:
    """Renews the lease of a task's ranges while the task reads. Owner: one task."""

    def __init__(
        self,
        lease: ReadLease | None,
        connect: Callable[[], AbstractContextManager[LeaseCalls]],
        now_ms: Callable[[], int],
    ) -> None:
        """*connect* is called for each renewal, which most tasks never need."""
        self._lease, self._connect, self._now_ms = lease, connect, now_ms
        self._due_ms = lease.until_ms - lease.for_ms // 2 if lease else 0

    def keep(self) -> None:
        """Renew if half of the time is over; after a failure that may pass, again a bit later. A
        refusal is a warning, and the last attempt.
        """
        lease = self._lease
        if lease is None or self._now_ms() < self._due_ms:
            return
        try:
            with self._connect() as admin:
                told = admin.renew_read_lease(lease.lease, lease.for_ms)
        except TernError as error:
            if error.retryable:
                self._due_ms = self._now_ms() + lease.for_ms // 10
                return
            _warn(str(error))
            self._lease = None
            return
        self._lease = replace(lease, until_ms=told["leased_until"])
        self._due_ms = told["leased_until"] - lease.for_ms // 2


@contextmanager
def kept(
    ranges: Sequence[QueueRange], for_ms: int, connect: Callable[[], AbstractContextManager[LeaseCalls]]
) -> Iterator[ReadLease | None]:
    """Lease *ranges* for the time of the block: renewed by a thread, and ended behind it. For jobs
    whose driver lives as long as their tasks.

    None, with one warning, if there is no lease.
    """
    with connect() as admin:
        try:
            lease = take(ranges, for_ms, admin)
        except OffsetExpired as error:
            _warn(str(error))
            lease = None
        if lease is None:
            yield None
            return
        is_over = Event()
        renewing = Thread(target=_renew_until, args=(is_over, lease, admin), name="read lease", daemon=True)
        renewing.start()
        try:
            yield lease
        finally:
            is_over.set()
            renewing.join()
            with suppress(TernError):  # it ends at its time as well
                admin.end_read_lease(lease.lease)


def _renew_until(is_over: Event, lease: ReadLease, admin: LeaseCalls) -> None:
    """Renew *lease* at each third of its time."""
    while not is_over.wait(lease.for_ms / 3_000):
        try:
            admin.renew_read_lease(lease.lease, lease.for_ms)
        except TernError as error:
            if not error.retryable:
                _warn(str(error))
                return


def _warn(reason: str) -> None:
    _log.warning("The read goes on without a lease, so retention may overtake it: %s", reason)
