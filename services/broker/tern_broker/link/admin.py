"""Requests that change or describe topics, groups and offsets."""

import msgspec

from tern_broker.config import BrokerConfig
from tern_broker.core.descriptions import describe_group, describe_topic, list_groups
from tern_broker.core.feature_level import EXPECTED_NOT_BEGUN_LEVEL
from tern_broker.engine import Engine
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_remoting import Link
from tern_wire.errors import UpgradeUnfinished
from tern_wire.link.commands import CommandKind
from tern_wire.link.consumer_offsets import NOT_BEGUN, CommitOffsets, OffsetsCommitted
from tern_wire.link.groups import (
    ChangeGroup,
    DeleteGroup,
    DescribeGroup,
    GroupChanged,
    GroupDeleted,
    GroupDescription,
    ListedGroups,
    ListGroups,
)
from tern_wire.link.requests import RequestCode
from tern_wire.link.topics import (
    ChangeTopic,
    DeleteTopic,
    DescribeTopic,
    TopicChanged,
    TopicDeleted,
    TopicDescription,
)
from tern_wire.names import check_group, check_topic
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.topic_settings import ALTER, read_topic_change


class AdminRequests(Requests):
    """CREATE_, DELETE_ and DESCRIBE_ of TOPIC and GROUP, LIST_GROUPS, COMMIT_OFFSETS. Owner: the
    core loop.
    """

    reads = frozenset({RequestCode.DESCRIBE_TOPIC, RequestCode.DESCRIBE_GROUP, RequestCode.LIST_GROUPS})

    def __init__(self, config: BrokerConfig, engine: Engine, shares: NamespaceShares) -> None:
        super().__init__(config, engine)
        self._shares = shares

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(ChangeTopic, self._change_topic),
            handler(DeleteTopic, self._delete_topic),
            handler(DescribeTopic, self._describe_topic),
            handler(ChangeGroup, self._change_group),
            handler(DeleteGroup, self._delete_group),
            handler(DescribeGroup, self._describe_group),
            handler(ListGroups, self._list_groups),
            handler(CommitOffsets, self._commit_offsets),
        ]

    # Invalid values are refused here as well: a refusal by apply would cost an entry.
    def _change_topic(self, link: Link, opaque: int, request: ChangeTopic, _raw: memoryview) -> None:
        # The map of the named fields, in the log's form.
        change = read_topic_change(msgspec.to_builtins(request))
        kind = CommandKind.ALTER_TOPIC if change.mode == ALTER else CommandKind.CREATE_TOPIC
        release = self._shares.take_topic(change)
        self.propose(link, opaque, kind, change.packed(), TopicChanged, release=release)

    def _change_group(self, link: Link, opaque: int, request: ChangeGroup, _raw: memoryview) -> None:
        change = read_group_change(msgspec.to_builtins(request))
        kind = CommandKind.ALTER_GROUP if change.mode == ALTER else CommandKind.CREATE_GROUP
        release = self._shares.take_group(change)
        self.propose(link, opaque, kind, change.packed(), GroupChanged, release=release)

    def _delete_topic(self, link: Link, opaque: int, request: DeleteTopic, _raw: memoryview) -> None:
        command = {"topic": check_topic(request.topic), "topic_id": request.topic_id}
        self.propose(link, opaque, CommandKind.DELETE_TOPIC, command, TopicDeleted)

    def _delete_group(self, link: Link, opaque: int, request: DeleteGroup, _raw: memoryview) -> None:
        command = {"group": check_group(request.group), "group_id": request.group_id}
        self.propose(link, opaque, CommandKind.DELETE_GROUP, command, GroupDeleted)

    def _commit_offsets(self, link: Link, opaque: int, request: CommitOffsets, _raw: memoryview) -> None:
        level = self._engine.state.feature_level.level
        if level < EXPECTED_NOT_BEGUN_LEVEL and NOT_BEGUN in request.expected.values():
            # A member may run a release that would take it for an offset.
            raise UpgradeUnfinished(broker_group=self._config.broker_group, what="`expected` of null")
        command = {
            "group": request.group,
            "topic": request.topic,
            "offsets": request.offsets,
            "expected": request.expected,
            "epochs": request.epochs,
        }
        self.propose(link, opaque, CommandKind.COMMIT_OFFSETS, command, OffsetsCommitted)

    # Reads ----------------------------------------------------------------------------------------
    def _describe_topic(self, link: Link, opaque: int, request: DescribeTopic, _raw: memoryview) -> None:
        state = self._engine.state
        found = describe_topic(state.names, state.leasing.deliveries, self.topic(request.topic))
        self.answer(link, opaque, msgspec.convert(found, TopicDescription))

    def _describe_group(self, link: Link, opaque: int, request: DescribeGroup, _raw: memoryview) -> None:
        state, group = self._engine.state, self.group(request.group)
        found = describe_group(state.names, state.leasing.deliveries, group, request.topic)
        self.answer(link, opaque, msgspec.convert(found, GroupDescription))

    def _list_groups(self, link: Link, opaque: int, request: ListGroups, _raw: memoryview) -> None:
        found = list_groups(
            self._engine.state.names,
            namespace=None if request.everywhere else request.namespace,
            pattern=request.q.lower(),
            after=request.after,
            limit=request.limit,
            descending=request.descending,
        )
        self.answer(link, opaque, msgspec.convert(found, ListedGroups))
