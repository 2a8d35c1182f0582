"""Small batches of a stream, read by the driver while it plans them.

A task of Python costs some 60 ms before its first row, as much as a trigger of 1,000 rows needs
otherwise. PySpark lets a reader give rows with its partition, and Spark keeps them as a block from
which a task of the JVM alone takes them. A lost block is no loss: then the task reads as if there
had been none.

        latestOffset -> partitions -> [rows <= limit] read -> block -> task in the JVM
                                      [more, or an error]          -> task in Python

Law: a read here changes nothing but the time that a batch takes. Whatever goes wrong is left to the
task, which repeats requests, fails over and says what is wrong.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tern_spark.options import ReadOptions
from tern_spark.partition import TaskPartition
from tern_spark.ranges import TopicMadeAgain
from tern_spark.reading import read_ranges
from tern_wire.errors import TernError
from tern_wire.limits import MIB

_log = logging.getLogger("tern_spark")

# Of Arrow: it passes through the driver, which may have little memory, and all of it is there at
# once.
SIZE_MAX_BYTES = 8 * MIB
# Each is a request, some 3 ms: with more, a task of Python is a small part of a trigger, and a slow
# proxy would hold the planning of it for long.
RANGES_MAX = 64
# Of one request. A task has another limit.
TIMEOUT_MAX_MS = 2_000
# Batches left to tasks behind one that could not be read here: it was larger than thought, or a
# proxy is away.
PASSED_OVER = 16


class SmallBatches:
    """Reads batches of one task. Owner: the driver's reader."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._rows_max = options.driver_rows_max
        self._columns = columns
        # No repeats, no thread, no passing over of what was deleted: the task has them.
        self._options = replace(
            options,
            fail_on_data_loss=True,
            fetch_retries=0,
            prefetch_pages=0,
            fetch_timeout_ms=min(options.fetch_timeout_ms, TIMEOUT_MAX_MS),
            page_size_bytes=min(options.page_size_bytes, SIZE_MAX_BYTES),
        )
        self._pass_over = 0

    def read(self, tasks: Sequence[TaskPartition]) -> list[Any] | None:
        """Return the RecordBatches of a batch of *tasks*; None if tasks have to read it."""
        if len(tasks) != 1 or len(tasks[0].ranges) > RANGES_MAX:
            return None
        if sum(found.rows for found in tasks[0].ranges) > self._rows_max:
            return None
        if self._pass_over:
            self._pass_over -= 1
            return None
        found = self._read(tasks[0])
        if found is None:
            self._pass_over = PASSED_OVER
        return found

    def _read(self, task: TaskPartition) -> list[Any] | None:
        batches: list[Any] = []
        size_bytes = 0
        try:
            for batch in read_ranges(task.ranges, self._options, self._columns, None, task.created_ms):
                batches.append(batch)
                size_bytes += batch.nbytes
                if size_bytes > SIZE_MAX_BYTES:
                    return None
        except (TernError, TopicMadeAgain, OSError) as error:
            _log.info("the driver leaves a small batch to its task: %s", error)
            return None
        return batches
