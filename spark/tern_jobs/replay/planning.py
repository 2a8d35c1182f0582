"""The plan of a new replay: the ranges of the chosen queues, as they are now. And whether the plan
of an earlier run still means the same rows.
"""

import secrets
from collections.abc import Iterable

import msgspec

from tern_jobs.frame.outcome import JobFailed
from tern_jobs.replay.plans import VERSION, Choice, ReplayedQueue, ReplayPlan
from tern_jobs.replay.slices import Shelf, batches_of
from tern_spark.options import ReadOptions
from tern_spark.planning.bounds import bounds_of
from tern_spark.planning.catalog import Catalog
from tern_spark.planning.plan import marks_of
from tern_spark.ranges import QueueSpan
from tern_wire.limits_publications import PUBLICATION_KEPT_MS

_QUERY_BYTES = 12


def plan_of_archive(choice: Choice, shelf: Shelf, *, batch_rows: int, rate: int, now_ms: int) -> ReplayPlan:
    """Return the plan for what *shelf* has of the chosen time."""
    queues = shelf.queues(since_ms=choice.since_ms, until_ms=choice.until_ms)
    plan = _plan(choice, queues, {}, batch_rows=batch_rows, rate=rate, now_ms=now_ms)
    if choice.selection or choice.since_ms or choice.until_ms:
        return plan
    return msgspec.structs.replace(plan, rows=shelf.rows(queues))


def plan_of_topics(
    choice: Choice, reading: ReadOptions, catalog: Catalog, *, batch_rows: int, rate: int, now_ms: int
) -> ReplayPlan:
    """Return the plan for what the brokers have of the chosen time."""
    now = [catalog.now(topic) for topic in choice.topics]
    spans: list[QueueSpan] = [span for topic in now for span in topic.spans]
    bounds = bounds_of(spans, reading, marks_of(reading, catalog, spans, now_ms))
    queues = [
        ReplayedQueue(topic=found.topic, queue=found.queue, start=found.start, end=found.end)
        for found in sorted(bounds.ranges, key=lambda found: (found.topic, found.queue))
    ]
    created_ms = {topic.topic: topic.created_ms for topic in now}
    return _plan(choice, queues, created_ms, batch_rows=batch_rows, rate=rate, now_ms=now_ms)


def _plan(
    choice: Choice,
    queues: list[ReplayedQueue],
    created_ms: dict[str, int],
    *,
    batch_rows: int,
    rate: int,
    now_ms: int,
) -> ReplayPlan:
    offsets = sum(queue.end - queue.start for queue in queues)
    return ReplayPlan(
        version=VERSION,
        query=f"replay-{secrets.token_hex(_QUERY_BYTES)}",
        made_ms=now_ms,
        choice=choice,
        created_ms=created_ms,
        queues=queues,
        batches=batches_of(offsets, batch_rows=batch_rows, rate=rate),
    )


def check_continued(plan: ReplayPlan, *, last_ms: int, now_ms: int) -> None:
    """Raise JobFailed when nobody knows any more which batches were published. *last_ms*: when this
    replay last published one.
    """
    if now_ms - max(plan.made_ms, last_ms) >= PUBLICATION_KEPT_MS:
        days = PUBLICATION_KEPT_MS // (24 * 3_600_000)
        raise JobFailed(
            "The replay is too old to go on",
            f"It stood still for {days} days, and the brokers have forgotten what it published. Look at what is in "
            f"'{plan.choice.to}', then begin anew with --again.",
        )


def check_topics(plan: ReplayPlan, catalog: Catalog) -> None:
    """Raise JobFailed when a topic was deleted and made again since it was planned."""
    for topic in other_topics(plan, ((topic, catalog.now(topic).created_ms) for topic in plan.created_ms)):
        raise JobFailed(
            "The topic is another one",
            f"'{topic}' was deleted and made again since this replay began. --again begins anew.",
        )


def other_topics(plan: ReplayPlan, found: Iterable[tuple[str, int]]) -> list[str]:
    """Return the topics of (topic, created_ms) pairs that are not those of the plan."""
    return [topic for topic, created_ms in found if created_ms != plan.created_ms[topic]]
