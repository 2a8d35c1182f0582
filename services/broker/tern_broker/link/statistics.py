"""Statistics of topics and groups: sizes, rates, and lags of groups. Looked up in turns.

The lag in time: how long the first unsettled message of a group has been visible. The rate of one
queue: from the queue's own times, which give the offset of a minute ago; so it is exact, and
survives a change of leader.
"""

from collections.abc import Iterator
from typing import Any

from tern_broker.core.dead_topics import ORIGINALS
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.topics import Group, Topic
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.reading.statistics import WINDOW_S
from tern_remoting import Link
from tern_store.visibility_times import offset_at, visible_at
from tern_wire.link.requests import RequestCode
from tern_wire.link.statistics import (
    FlowNumbers,
    GetGroupStatistics,
    GetTopicStatistics,
    GroupStatistics,
    QueueLag,
    QueueNumbers,
    TopicLag,
    TopicStatistics,
)


class StatisticsRequests(Requests):
    """TOPIC_STATS, GROUP_STATS. Owner: the core loop."""

    reads = frozenset({RequestCode.TOPIC_STATS, RequestCode.GROUP_STATS})

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(GetTopicStatistics, self._topic_stats), handler(GetGroupStatistics, self._group_stats)]

    def _topic_stats(self, link: Link, opaque: int, request: GetTopicStatistics, _raw: memoryview) -> None:
        topic = self.topic(request.topic)

        def steps() -> Iterator[None]:
            queues = []
            for queue in range(topic.queues):
                queues.append(self._queue_row(topic, queue))
                yield
            statistics, state = self._engine.statistics, self._engine.state
            told = TopicStatistics(
                came_in=_flow(statistics.of(statistics.came_in, topic.topic_id)),
                went_out=_flow(statistics.of(statistics.went_out, topic.topic_id)),
                groups=sorted(
                    state.names.groups_by_id[group_id].name
                    for group_id, topic_id in state.leasing.deliveries
                    if topic_id == topic.topic_id
                ),
                queues=queues,
                # Stored messages that are in no queue before their delivery time.
                scheduled=state.timing.pending[topic.topic_id],
            )
            self.answer(link, opaque, told)

        self.answer_in_turns(link, opaque, steps())

    def _queue_row(self, topic: Topic, queue: int) -> QueueNumbers:
        least, end = topic.mins[queue], topic.ends[queue]
        if least >= end:
            return QueueNumbers(queue, least, end, last_visible_ms=0, messages_per_s=0.0)
        store = self._engine.store
        since_ms = self._engine.proposer.now_ms() - int(WINDOW_S * 1000)
        before = offset_at(store, topic.topic_id, queue, since_ms, least=least, end=end)
        last_ms = visible_at(store, topic.topic_id, queue, end - 1)
        rate = round((end - before) / WINDOW_S, 2)
        return QueueNumbers(queue, least, end, last_visible_ms=last_ms, messages_per_s=rate)

    # Groups ---------------------------------------------------------------------------------------
    def _group_stats(self, link: Link, opaque: int, request: GetGroupStatistics, _raw: memoryview) -> None:
        group = self.group(request.group)
        state = self._engine.state
        topics = [self.topic(request.topic)] if request.topic is not None else []
        if not topics:
            ids = [topic_id for group_id, topic_id in state.leasing.deliveries if group_id == group.group_id]
            topics = [topic for topic_id in ids if (topic := state.names.topics_by_id.get(topic_id)) is not None]

        def steps() -> Iterator[None]:
            rows = []
            for topic in sorted(topics, key=lambda topic: topic.name):
                row = state.leasing.deliveries.get((group.group_id, topic.topic_id), [])
                queues = []
                for queue in range(topic.queues):
                    queues.append(self._lag_row(group, topic, queue, row[queue] if queue < len(row) else None))
                    yield
                statistics = self._engine.statistics
                rows.append(
                    TopicLag(
                        topic=topic.name,
                        queues=queues,
                        went_out=_flow(statistics.of(statistics.went_out, topic.topic_id, group.group_id)),
                        went_again=_flow(statistics.of(statistics.came_again, topic.topic_id, group.group_id)),
                    )
                )
            dead = state.leasing.dead_topics.of(group.group_id)
            dead_letters = dead.ends[ORIGINALS] - dead.mins[ORIGINALS] if dead is not None else 0
            self.answer(link, opaque, GroupStatistics(topics=rows, dead_letters=dead_letters))

        self.answer_in_turns(link, opaque, steps())

    def _lag_row(self, group: Group, topic: Topic, queue: int, delivery: Delivery | None) -> QueueLag:
        end = topic.ends[queue]
        if delivery is None:
            first, lag = group.start_in(topic, queue, 0), end - group.start_in(topic, queue, 0)
            held = (0, 0, 0)
        else:
            first, lag = delivery.committed(), end - delivery.cursor + delivery.unsettled
            held = (delivery.leased, delivery.resting, len(delivery.dying))
        lag_ms = 0
        # Messages that a group holds after retention has dropped them are no longer listed, so
        # their time is unknown.
        if (visible := max(first, topic.mins[queue])) < end and lag:
            visible_ms = visible_at(self._engine.store, topic.topic_id, queue, visible)
            lag_ms = max(0, self._engine.proposer.now_ms() - visible_ms)
        return QueueLag(queue, first if delivery is not None else -1, end, lag, lag_ms, *held)


def _flow(told: dict[str, Any]) -> FlowNumbers:
    return FlowNumbers(
        messages=told["messages"],
        size_bytes=told["bytes"],
        messages_per_s=told["messages_per_s"],
        bytes_per_s=told["bytes_per_s"],
    )
