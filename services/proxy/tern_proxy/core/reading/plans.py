"""Plans of reads: one request to each broker group that has a topic of the plan, and one answer of
all. Pure.
"""

from collections.abc import Callable, Mapping, Sequence

from tern_proxy.core.documents.reads import PlannedQueue, PlannedTopic, ReadPlan, ReadPlanRequest, TopicToRead
from tern_proxy.core.documents.values import OFFSET_MAX
from tern_proxy.core.sending.parameters import number_of
from tern_proxy.core.sending.topic import Topic
from tern_wire.errors import InvalidField, LimitReached
from tern_wire.limits_reads import READ_PLAN_QUEUES_MAX, READ_PLAN_TOPICS_MAX
from tern_wire.link.planned_reads import plans as link

# (value, pointer) -> ms since 1970.
ReadTime = Callable[[str | int, str], int]


def check_plan(asked: ReadPlanRequest) -> None:
    """Raise InvalidField for a plan of no topic, of too many, or of one topic twice."""
    if not 1 <= len(asked.topics) <= READ_PLAN_TOPICS_MAX:
        reason = f"A plan has 1 to {READ_PLAN_TOPICS_MAX} topics, this one has {len(asked.topics)}"
        raise InvalidField(reason=reason, pointer="/topics")
    number_of(asked.step_bytes, "step_bytes", 0, OFFSET_MAX, "/")
    names: set[str] = set()
    for place, each in enumerate(asked.topics):
        if each.topic in names:
            raise InvalidField(reason=f"Topic '{each.topic[:160]}' is in the plan twice", pointer=f"/topics/{place}")
        names.add(each.topic)


def check_offsets(numbers: Mapping[str, int], at: str) -> None:
    """Raise InvalidField for the first of *numbers* by queue that is no offset."""
    # Thousands of queues come with two or three numbers each.
    if not numbers or (min(numbers.values()) >= 0 and max(numbers.values()) <= OFFSET_MAX):
        return
    for name, number in numbers.items():
        number_of(number, name, 0, OFFSET_MAX, at)


def parts_of(asked: ReadPlanRequest, topics: Sequence[Topic], time_of: ReadTime) -> dict[str, link.PlanRead]:
    """Return the request for each broker group; *topics* are those of *asked*, in its order.

    Raise InvalidField, QueueNotFound, LimitReached.
    """
    queues = sum(len(of_group) for topic in topics for of_group in topic.broker_groups.values())
    if queues > READ_PLAN_QUEUES_MAX:
        remedy = "Plan fewer topics at a time."
        raise LimitReached(what="queues of a plan", actual=queues, limit=READ_PLAN_QUEUES_MAX, remedy=remedy)
    sizes = asked.sizes or asked.step_bytes > 0 or any(each.budget_bytes for each in asked.topics)
    parts: dict[str, list[link.TopicToPlan]] = {}
    for place, (each, topic) in enumerate(zip(asked.topics, topics, strict=True)):
        at = f"/topics/{place}/"
        time_ms = time_of(each.time, f"{at}time") if isinstance(each.time, str | int) else -1
        ranges = _ranges(each, topic, at)
        for name in topic.broker_groups:
            part = link.TopicToPlan(
                topic=topic.name, time_ms=time_ms, ranges=ranges.get(name, []) if ranges is not None else None
            )
            parts.setdefault(name, []).append(part)
    return {
        name: link.PlanRead(topics=of_group, sizes=sizes, step_bytes=asked.step_bytes)
        for name, of_group in parts.items()
    }


def _ranges(asked: TopicToRead, topic: Topic, at: str) -> dict[str, list[link.RangeToMeasure]] | None:
    """Return what to measure by broker group; None for every queue."""
    begins, ends, budgets = asked.begin, asked.end, asked.budget_bytes
    for field, numbers in (("begin", begins), ("end", ends), ("budget_bytes", budgets)):
        check_offsets(numbers, f"{at}{field}/")
    names = begins | ends | budgets
    if not names:
        return None
    ranges: dict[str, list[link.RangeToMeasure]] = {}
    for name in names:
        queue = topic.pinned(name)
        begin, end, budget_bytes = begins.get(name, -1), ends.get(name, -1), budgets.get(name, -1)
        if 0 <= end < begin:
            raise InvalidField(reason=f"'{name}' ends at {end}, before it begins", pointer=f"{at}end/{name}")
        ranges.setdefault(queue.broker_group, []).append(link.RangeToMeasure(queue.number, begin, end, budget_bytes))
    return ranges


def put_together(
    topics: Sequence[Topic], asked: Mapping[str, link.PlanRead], answers: Mapping[str, link.ReadPlanned]
) -> ReadPlan:
    """Return the plan over all broker groups, of which *asked* were asked and gave *answers*."""
    told = {(name, each.topic): each for name, answer in answers.items() for each in answer.topics}
    wanted = {(name, each.topic): each for name, part in asked.items() for each in part.topics}
    planned: list[PlannedTopic] = []
    is_complete, size_bytes = True, 0
    for topic in topics:
        queues: list[PlannedQueue] = []
        for name in topic.broker_groups:
            found = told.get((name, topic.name))
            if found is None:
                continue
            ends = {each.queue: each for each in wanted[name, topic.name].ranges or ()}
            for row in found.queues:
                queues.append(_row(name, row))
                size_bytes += row.size_bytes
                if row.begin >= 0:
                    is_complete = is_complete and _is_whole(row, ends.get(row.queue))
        planned.append(PlannedTopic(topic=topic.name, queues=queues))
    return ReadPlan(topics=planned, is_complete=is_complete, size_bytes=size_bytes)


def _is_whole(row: link.PlannedQueue, wanted: link.RangeToMeasure | None) -> bool:
    """Return whether *row* was measured to its end, or to the end of its budget."""
    end = row.max_offset if wanted is None or wanted.end < 0 else min(wanted.end, row.max_offset)
    return row.measured_to >= end or (wanted is not None and wanted.budget_bytes >= 0)


def _row(broker_group: str, row: link.PlannedQueue) -> PlannedQueue:
    queue = PlannedQueue(queue=f"{broker_group}:{row.queue}", min_offset=row.min_offset, max_offset=row.max_offset)
    if row.offset_at >= 0:
        queue.offset_at = row.offset_at
    if row.begin >= 0:
        queue.begin, queue.measured_to, queue.size_bytes = row.begin, row.measured_to, row.size_bytes
        queue.cuts = list(row.cuts)
    return queue
