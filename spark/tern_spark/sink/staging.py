"""Exactly once, in a task: rows are staged in chunks, invisible until the driver publishes the
batch.

     rows -> chunks -> staged, each attempt under a number of its own -> receipt -> driver

A failed, repeated or speculative task leaves a stage that no publication names; the broker drops it
with the batch, or when its time is over. A task of a batch that is published already has nothing to
do: the query has run this batch before, and its driver ended before Spark noted that.
"""

import secrets
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tern_client.transport.calling import call
from tern_client.transport.clock import now_ms
from tern_spark.sink.options import WriteOptions
from tern_spark.sink.requests import Batch, Place, stage_request
from tern_spark.sink.sending import proxies_of
from tern_wire.errors import BatchPublished, TernError

_ATTEMPT_BITS = 52


def new_attempt() -> int:
    """Return the number of an attempt that no other has. Spark's own numbers begin again with each
    driver, and a chunk is staged once only.
    """
    return secrets.randbits(_ATTEMPT_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a task tells the driver: its stage, with the number of its rows, and their topics.
    *is_published*: the batch was published before, so nothing is staged.
    """

    query: str
    batch: int
    partition: int
    attempt: int
    rows: int
    topics: tuple[str, ...] = ()
    is_published: bool = False


class Stages:
    """Stages the chunks of one task; a context manager, which closes the connections.

    *place*: of the stage.
    """

    def __init__(self, options: WriteOptions, place: Place) -> None:
        self._options, self._place = options, place
        self._caller = proxies_of(options, place.partition)
        self._is_over = False

    def stage_all(self, found: Iterable[Batch]) -> Receipt:
        """Stage batches, some requests at a time; return the receipt. The first error ends all
        requests.
        """
        rows, chunk, topics = 0, 0, set[str]()
        under_way = deque[Future[None]]()
        is_published = False
        with ThreadPoolExecutor(self._options.requests_in_flight) as threads:
            try:
                for batch in found:
                    while len(under_way) >= self._options.requests_in_flight:
                        under_way.popleft().result()
                    under_way.append(threads.submit(self._stage, batch, chunk))
                    rows, chunk = rows + len(batch.entries), chunk + 1
                    topics.add(batch.topic)
                while under_way:
                    under_way.popleft().result()
            except BatchPublished:
                # The others end with the same answer.
                self._is_over = is_published = True
            except BaseException:
                self._is_over = True
                raise
        place = self._place
        return Receipt(
            query=place.query,
            batch=place.batch,
            partition=place.partition,
            attempt=place.attempt,
            rows=0 if is_published else rows,
            topics=tuple(sorted(topics)),
            is_published=is_published,
        )

    def _stage(self, batch: Batch, chunk: int) -> None:
        try:
            request = stage_request(batch, self._place, chunk, self._options)
            self._caller.drive(call(self._caller.course, request, now_ms()), is_over=lambda: self._is_over)
        except TernError as error:
            if (row := _row_of(error, batch)) is not None:
                error.add_note(f"row {row} of the partition, numbered from 0")
            raise

    def __enter__(self) -> "Stages":
        return self

    def __exit__(self, *_: object) -> None:
        self._caller.close()


def stage(options: WriteOptions, place: Place, batches: Iterable[Batch]) -> Receipt:
    """Stage all *batches* of a task."""
    with Stages(options, place) as stages:
        return stages.stage_all(batches)


def _row_of(error: TernError, batch: Batch) -> int | None:
    """Return the number of the row that *error* points to (`/messages/3/tag`); None without one."""
    steps = str(error.fields.get("pointer", "")).split("/")
    if len(steps) < 3 or steps[1] != "messages" or not steps[2].isdecimal():
        return None
    number = int(steps[2])
    return int(batch.entries.rows[number]) if number < len(batch.entries) else None
