"""Read leases: taken, renewed, ended and listed."""

from typing import Any

import msgspec

from tern_broker.core.feature_level import READ_LEASES_LEVEL
from tern_broker.core.read_leases import ReadLease
from tern_broker.link.requests import Handler, Requests, handler
from tern_remoting import Link
from tern_wire.errors import UpgradeUnfinished
from tern_wire.link.commands import CommandKind
from tern_wire.link.planned_reads.leases import (
    EndReadLease,
    ListedLeasedTopic,
    ListedReadLease,
    ListReadLeases,
    ReadLeaseList,
    ReadLeaseTaken,
    ReadLeaseTimes,
    RenewReadLease,
    TakeReadLease,
)
from tern_wire.link.requests import RequestCode


class ReadLeaseRequests(Requests):
    """TAKE_READ_LEASE, RENEW_READ_LEASE, END_READ_LEASE, LIST_READ_LEASES. Owner: the core loop."""

    reads = frozenset({RequestCode.LIST_READ_LEASES})

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(TakeReadLease, self._take),
            handler(RenewReadLease, self._renew),
            handler(EndReadLease, self._end),
            handler(ListReadLeases, self._list),
        ]

    def _take(self, link: Link, opaque: int, request: TakeReadLease, _raw: memoryview) -> None:
        for asked in request.topics:
            topic = self.topic(asked.topic)
            for each in asked.ranges:
                self.queue(topic, each.queue)
        topics = [[asked.topic, msgspec.to_builtins(asked.ranges)] for asked in request.topics]
        fields = {"op": "take", "lease": request.lease, "owner": request.owner}
        self._lease(link, opaque, {**fields, "for_ms": request.for_ms, "topics": topics}, ReadLeaseTaken)

    def _renew(self, link: Link, opaque: int, request: RenewReadLease, _raw: memoryview) -> None:
        self._lease(link, opaque, {"op": "renew", "lease": request.lease, "for_ms": request.for_ms})

    def _end(self, link: Link, opaque: int, request: EndReadLease, _raw: memoryview) -> None:
        self._lease(link, opaque, {"op": "end", "lease": request.lease})

    def _lease(
        self, link: Link, opaque: int, command: dict[str, Any], reply: type[ReadLeaseTimes] = ReadLeaseTimes
    ) -> None:
        if self._engine.state.feature_level.level < READ_LEASES_LEVEL:
            # A member may run a release that cannot apply the entry.
            raise UpgradeUnfinished(broker_group=self._config.broker_group, what="read leases")
        self.propose(link, opaque, CommandKind.READ_LEASE, command, reply)

    def _list(self, link: Link, opaque: int, request: ListReadLeases, _raw: memoryview) -> None:
        leases = self._engine.state.read_leases.leases
        wanted = [leases[request.lease]] if request.lease in leases else []
        found = wanted if request.lease else sorted(leases.values(), key=lambda lease: (lease.until_ms, lease.lease))
        self.answer(link, opaque, ReadLeaseList(leases=[self._row(lease) for lease in found]))

    def _row(self, lease: ReadLease) -> ListedReadLease:
        topics = []
        for topic in self._engine.state.read_leases.topics_of(lease):
            ranges = lease.ranges[topic.topic_id]
            messages = int((ranges[:, 2] - ranges[:, 1]).clip(min=0).sum())
            topics.append(ListedLeasedTopic(topic.name, len(ranges), messages))
        return ListedReadLease(
            lease=lease.lease,
            owner=lease.owner,
            taken_ms=lease.taken_ms,
            until_ms=lease.until_ms,
            topics=topics,
            broken_by=lease.broken_by,
        )
