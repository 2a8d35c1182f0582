"""Requests that change or describe producer groups."""

import msgspec

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_remoting import Link
from tern_wire.link.commands import CommandKind
from tern_wire.link.producer_groups import (
    ChangeProducerGroup,
    DeleteProducerGroup,
    DescribeProducerGroups,
    ProducerGroupChanged,
    ProducerGroupDeleted,
    ProducerGroups,
)
from tern_wire.link.requests import RequestCode
from tern_wire.names import check_group
from tern_wire.settings.producer_settings import read_producer_change


class ProducerRequests(Requests):
    """ALTER_, DELETE_ and DESCRIBE_PRODUCER_GROUP. Owner: the core loop."""

    reads = frozenset({RequestCode.DESCRIBE_PRODUCER_GROUP})

    def __init__(self, config: BrokerConfig, engine: Engine, shares: NamespaceShares) -> None:
        super().__init__(config, engine)
        self._shares = shares

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(ChangeProducerGroup, self._change),
            handler(DeleteProducerGroup, self._delete),
            handler(DescribeProducerGroups, self._describe),
        ]

    # Invalid values are refused here as well: a refusal by apply would cost an entry.
    def _change(self, link: Link, opaque: int, request: ChangeProducerGroup, _raw: memoryview) -> None:
        # The map of the named fields, in the log's form.
        change = read_producer_change(msgspec.to_builtins(request))
        release = self._shares.take_producer_group(change)
        kind = CommandKind.ALTER_PRODUCER_GROUP
        self.propose(link, opaque, kind, change.packed(), ProducerGroupChanged, release=release)

    def _delete(self, link: Link, opaque: int, request: DeleteProducerGroup, _raw: memoryview) -> None:
        command = {"producer_group": check_group(request.producer_group)}
        self.propose(link, opaque, CommandKind.DELETE_PRODUCER_GROUP, command, ProducerGroupDeleted)

    def _describe(self, link: Link, opaque: int, request: DescribeProducerGroups, _raw: memoryview) -> None:
        producers = self._engine.state.producers
        if request.producer_group:
            found = {"groups": [producers.require(request.producer_group).describe()], "more": False}
        else:
            namespace = None if request.everywhere else request.namespace
            found = producers.describe(namespace, request.after, request.limit)
        self.answer(link, opaque, msgspec.convert(found, ProducerGroups))
