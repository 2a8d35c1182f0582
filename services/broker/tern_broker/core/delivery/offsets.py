"""Apply changes of offsets: a commit or a seek moves a group's place in a topic.

Law: a move drops every lease and every returned message in its queue: their receipt handles expire,
and the group continues at the new place, forward or backward. All queues of one command move, or
none. A commit that names the epochs of its queues' locks is refused once another member has had one
of the locks.
"""

from collections.abc import Mapping
from typing import Any

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.delivery.seeking import seek_moves
from tern_broker.core.feature_level import EXPECTED_NOT_BEGUN_LEVEL
from tern_broker.core.members.queue_locks import QueueLocks
from tern_broker.core.topics import Group, Names, Topic
from tern_wire.errors import GroupNotFound, InvalidField, OffsetMoved, QueueNotFound, TopicNotFound
from tern_wire.link.commands import CommandKind
from tern_wire.link.consumer_offsets import NOT_BEGUN


class Offsets:
    """Has no state of its own: a group's place is that of its deliveries. Owner: the state
    machine.
    """

    def __init__(self, names: Names, leasing: Leasing, locks: QueueLocks) -> None:
        self._names, self._leasing, self._locks = names, leasing, locks

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.COMMIT_OFFSETS: self._commit_offsets, CommandKind.SEEK: self._seek}

    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def pack(self) -> Any:
        """Return None: the part has no state."""

    def unpack(self, packed: Any) -> None:
        """Do nothing: the part has no state."""

    def _names_of(self, request: Mapping[str, Any]) -> tuple[Group, Topic]:
        group = self._names.groups.get(str(request["group"]))
        topic = self._names.topics.get(str(request["topic"]))
        if group is None:
            raise GroupNotFound(group=request["group"])
        if topic is None:
            raise TopicNotFound(topic=request["topic"])
        return group, topic

    def _commit_offsets(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        request = read_map(payload)
        group, topic = self._names_of(request)
        offsets = {int(queue): int(offset) for queue, offset in request["offsets"].items()}
        expected = {int(queue): int(offset) for queue, offset in request["expected"].items()}
        for queue, offset in (offsets | expected).items():
            if not 0 <= queue < topic.queues:
                raise QueueNotFound(queue=queue, topic=topic.name)
            if queue in offsets and not 0 <= offset <= topic.ends[queue] and queue not in expected:
                raise InvalidField(
                    reason=f"offset {offset} is not in 0..{topic.ends[queue]}", pointer=f"/offsets/{queue}"
                )
        for queue, epoch in request.get("epochs", {}).items():
            self._locks.require(group.name, topic.name, int(queue), int(epoch))
        for queue, offset in expected.items():
            if offset == NOT_BEGUN and applied.version >= EXPECTED_NOT_BEGUN_LEVEL:
                row = self._leasing.deliveries.get((group.group_id, topic.topic_id), [])
                begun = row[queue] if queue < len(row) else None
                actual = NOT_BEGUN if begun is None else begun.committed()
            else:
                actual = self._leasing.delivery(group.group_id, topic, queue).committed()
            if actual != offset:
                raise OffsetMoved(queue=queue, actual=actual, expected=offset)
        for queue, offset in offsets.items():
            end = topic.ends[queue]
            if not 0 <= offset <= end:
                raise InvalidField(reason=f"offset {offset} is not in 0..{end}", pointer=f"/offsets/{queue}")
        for queue, offset in offsets.items():
            self._leasing.delivery(group.group_id, topic, queue).seek(max(offset, topic.mins[queue]))
        applied.woken_topics.add(topic.topic_id)
        return {"offsets": {str(queue): offset for queue, offset in offsets.items()}}

    def _seek(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        request = read_map(payload)
        group, topic = self._names_of(request)
        row = self._leasing.deliveries.get((group.group_id, topic.topic_id), [])
        moves = seek_moves(topic, group, row, request)
        for move in moves:
            # A group that has not begun there begins there.
            self._leasing.delivery(group.group_id, topic, move.queue).seek(move.after)
        applied.woken_topics.add(topic.topic_id)
        return {"queues": [[move.queue, move.before, move.after] for move in moves]}
