"""Plans of reads: offsets of the queues of many topics, and stored bytes between offsets. Looked up
in turns.
"""

from collections.abc import Iterator

from tern_broker.core.topics import Topic
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.reading.measuring import Allowance, Measurement
from tern_remoting import Link
from tern_store.visibility_times import offset_at
from tern_wire.errors import LimitReached
from tern_wire.limits_reads import READ_PLAN_CUTS_MAX, READ_PLAN_QUEUES_MAX, READ_PLAN_ROWS_MAX
from tern_wire.link.planned_reads.plans import (
    PlannedQueue,
    PlannedTopic,
    PlanRead,
    RangeToMeasure,
    ReadPlanned,
    TopicToPlan,
)
from tern_wire.link.requests import RequestCode


class ReadPlanRequests(Requests):
    """PLAN_READ. Owner: the core loop."""

    reads = frozenset({RequestCode.PLAN_READ})

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(PlanRead, self._plan)]

    def _plan(self, link: Link, opaque: int, request: PlanRead, _raw: memoryview) -> None:
        topics = [self.topic(asked.topic) for asked in request.topics]
        queues = sum(topic.queues for topic in topics)
        if queues > READ_PLAN_QUEUES_MAX:
            remedy = "Plan fewer topics at a time."
            raise LimitReached(what="queues of a plan", actual=queues, limit=READ_PLAN_QUEUES_MAX, remedy=remedy)

        def steps() -> Iterator[None]:
            planned: list[PlannedTopic] = []
            allowance = Allowance(READ_PLAN_ROWS_MAX, READ_PLAN_CUTS_MAX)
            wanted = [
                ranges_of(asked, topic) if request.sizes else {}
                for asked, topic in zip(request.topics, topics, strict=True)
            ]
            left = sum(map(len, wanted))
            for asked, topic, ranges in zip(request.topics, topics, wanted, strict=True):
                rows: list[PlannedQueue] = []
                for queue in range(topic.queues):
                    least, end = topic.mins[queue], topic.ends[queue]
                    at = -1
                    if asked.time_ms >= 0:
                        store = self._engine.store
                        at = offset_at(store, topic.topic_id, queue, asked.time_ms, least=least, end=end)
                    measured = None
                    if queue in ranges:
                        # A queue may read its part of what is left; what it does not need is for
                        # the next ones.
                        measured = _measurement(ranges[queue], least, end, request.step_bytes)
                        yield from measured.steps(
                            self._engine.store,
                            topic.topic_id,
                            queue,
                            end=_end(ranges[queue], end),
                            rows_max=allowance.rows // left,
                            allowance=allowance,
                        )
                        left -= 1
                    rows.append(_row(queue, least, end, at, measured))
                    yield
                planned.append(PlannedTopic(topic=topic.name, queues=rows))
            self.answer(link, opaque, ReadPlanned(topics=planned))

        self.answer_in_turns(link, opaque, steps())


def ranges_of(asked: TopicToPlan, topic: Topic) -> dict[int, RangeToMeasure]:
    """Return what to measure of *topic*, by queue; unknown queues are left out."""
    if asked.ranges is None:
        return {queue: RangeToMeasure(queue) for queue in range(topic.queues)}
    return {each.queue: each for each in asked.ranges if each.queue < topic.queues}


def _measurement(wanted: RangeToMeasure, least: int, end: int, step_bytes: int) -> Measurement:
    begin = min(max(wanted.begin, least), end)
    return Measurement(begin=begin, step_bytes=step_bytes, budget_bytes=wanted.budget_bytes)


def _end(wanted: RangeToMeasure, end: int) -> int:
    return end if wanted.end < 0 else min(wanted.end, end)


def _row(queue: int, least: int, end: int, at: int, measured: Measurement | None) -> PlannedQueue:
    if measured is None:
        return PlannedQueue(queue, least, end, at)
    return PlannedQueue(queue, least, end, at, measured.begin, measured.measured_to, measured.size_bytes, measured.cuts)
