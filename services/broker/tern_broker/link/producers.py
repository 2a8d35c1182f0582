"""What people say of producer groups, and what they ask about them."""

from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_remoting import Link
from tern_wire.limits import LISTED_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.names import check_group
from tern_wire.settings.producer_settings import read_producer_change


class ProducerRequests(Requests):
    """ALTER_, DELETE_ and DESCRIBE_PRODUCER_GROUP. Owner: the core loop."""

    reads = frozenset({RequestCode.DESCRIBE_PRODUCER_GROUP})

    def __init__(self, config: BrokerConfig, engine: Engine, shares: NamespaceShares) -> None:
        super().__init__(config, engine)
        self._shares = shares

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {
            RequestCode.ALTER_PRODUCER_GROUP: self._alter,
            RequestCode.DELETE_PRODUCER_GROUP: self._delete,
            RequestCode.DESCRIBE_PRODUCER_GROUP: self._describe,
        }

    # What is not allowed is refused here, too: it would cost an entry to hear the same from apply.
    def _alter(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        change = read_producer_change(head)
        release = self._shares.take_producer_group(change)
        self.propose_map(link, opaque, CommandKind.ALTER_PRODUCER_GROUP, change.packed(), release=release)

    def _delete(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        request = {"producer_group": check_group(str(head["producer_group"]))}
        self.propose_map(link, opaque, CommandKind.DELETE_PRODUCER_GROUP, request)

    def _describe(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        producers = self._engine.state.producers
        if head["producer_group"]:
            found = {"groups": [producers.require(head["producer_group"]).describe()], "more": False}
        else:
            limit = bounded(head["limit"], 1, LISTED_MAX)
            namespace = None if head.get("everywhere") else str(head.get("namespace", ""))
            found = producers.describe(namespace, str(head["after"]), limit)
        link.reply(opaque, 0, body_parts(found))
