"""The task of a replay: stage the chosen rows of its slices, as one attempt at its partition."""

from collections.abc import Iterator

import msgspec

from tern_jobs.replay.plans import Choice
from tern_jobs.replay.rows import Choosing, messages_of, slice_batches
from tern_jobs.replay.slices import Slice
from tern_spark.options import ReadOptions
from tern_spark.sink.columns import rows_of
from tern_spark.sink.entries import encode
from tern_spark.sink.options import WriteOptions
from tern_spark.sink.requests import Batch, Place, batches
from tern_spark.sink.staging import Receipt, new_attempt, stage


class StageTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slices to stage, in order. An attempt gets its number when it begins: Spark may repeat it.

    *created_ms*: when their topics were made, of a replay without an archive.
    """

    query: str
    batch: int
    partition: int
    slices: list[Slice]
    created_ms: dict[str, int] = {}


def stage_slices(task: StageTask, *, choice: Choice, reading: ReadOptions, writing: WriteOptions) -> Receipt:
    """Stage the rows; return the receipt. OffsetExpired when retention was faster."""
    place = Place(query=task.query, batch=task.batch, partition=task.partition, attempt=new_attempt())
    return stage(writing, place, _batches(task, choice, reading, writing.topic))


def _batches(task: StageTask, choice: Choice, reading: ReadOptions, topic: str) -> Iterator[Batch]:
    # The broker has filtered what it sends.
    local = choice if choice.archive else msgspec.structs.replace(choice, selection=[])
    choosing, row = Choosing(local), 0
    for found in task.slices:
        for batch in slice_batches(found, choice.archive, reading, task.created_ms):
            chosen = choosing.chosen(batch)
            if not chosen.num_rows:
                continue
            rows = rows_of(messages_of(chosen, tells_origin=choice.tells_origin), row)
            yield from batches(rows, encode(rows, row, b""), topic)
            row += len(rows)
