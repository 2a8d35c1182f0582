"""What people say of topics, groups and offsets, and what they ask about topics and groups."""

from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.core.describing import describe_group, describe_topic, list_groups
from tern_broker.engine import Engine
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_remoting import Link
from tern_wire.limits import LISTED_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.names import check_group, check_topic
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.topic_settings import ALTER, read_topic_change

_ID_MAX = 1 << 62


class AdminRequests(Requests):
    """CREATE_, DELETE_ and DESCRIBE_ of TOPIC and GROUP, LIST_GROUPS, COMMIT_OFFSETS. Owner: the core loop."""

    reads = frozenset({RequestCode.DESCRIBE_TOPIC, RequestCode.DESCRIBE_GROUP, RequestCode.LIST_GROUPS})

    def __init__(self, config: BrokerConfig, engine: Engine, shares: NamespaceShares) -> None:
        super().__init__(config, engine)
        self._shares = shares

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {
            RequestCode.CREATE_TOPIC: self._create_topic,
            RequestCode.DELETE_TOPIC: self._delete_topic,
            RequestCode.DESCRIBE_TOPIC: self._describe_topic,
            RequestCode.CREATE_GROUP: self._create_group,
            RequestCode.DELETE_GROUP: self._delete_group,
            RequestCode.DESCRIBE_GROUP: self._describe_group,
            RequestCode.LIST_GROUPS: self._list_groups,
            RequestCode.COMMIT_OFFSETS: self._commit_offsets,
        }

    # What is not allowed is refused here, too: it would cost an entry to hear the same from apply.
    def _create_topic(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        change = read_topic_change(head)
        kind = CommandKind.ALTER_TOPIC if change.mode == ALTER else CommandKind.CREATE_TOPIC
        self.propose_map(link, opaque, kind, change.packed(), release=self._shares.take_topic(change))

    def _create_group(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        change = read_group_change(head)
        kind = CommandKind.ALTER_GROUP if change.mode == ALTER else CommandKind.CREATE_GROUP
        self.propose_map(link, opaque, kind, change.packed(), release=self._shares.take_group(change))

    def _delete_topic(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        request = {"topic": check_topic(str(head["topic"])), "topic_id": bounded(head["topic_id"], 0, _ID_MAX)}
        self.propose_map(link, opaque, CommandKind.DELETE_TOPIC, request)

    def _delete_group(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        request = {"group": check_group(str(head["group"])), "group_id": bounded(head["group_id"], 0, _ID_MAX)}
        self.propose_map(link, opaque, CommandKind.DELETE_GROUP, request)

    def _commit_offsets(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        # A proxy of an earlier release names no epochs.
        numbers = {name: head.get(name, {}) for name in ("offsets", "expected", "epochs")}
        request = {
            "group": str(head["group"]),
            "topic": str(head["topic"]),
            **{
                name: {str(int(queue)): int(number) for queue, number in found.items()}
                for name, found in numbers.items()
            },
        }
        self.propose_map(link, opaque, CommandKind.COMMIT_OFFSETS, request)

    # Reads -----------------------------------------------------------------------------------------------------
    def _describe_topic(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        state = self._engine.state
        link.reply(
            opaque, 0, body_parts(describe_topic(state.names, state.leasing.deliveries, self.topic(head["topic"])))
        )

    def _describe_group(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        state, group = self._engine.state, self.group(head["group"])
        found = describe_group(state.names, state.leasing.deliveries, group, str(head["topic"]))
        link.reply(opaque, 0, body_parts(found))

    def _list_groups(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        found = list_groups(
            self._engine.state.names,
            namespace=None if head.get("everywhere") else str(head.get("namespace", "")),
            pattern=str(head["q"]).lower(),
            after=str(head["after"]),
            limit=bounded(head["limit"], 1, LISTED_MAX),
            descending=bool(head["descending"]),
        )
        link.reply(opaque, 0, body_parts(found))
