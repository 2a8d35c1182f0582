"""Writers of batches: two drivers of one query, neither of which knows of the other, as after a restart that left the first one alive.

     stage all chunks of all partitions -> publish what they are -> the next batch
          ^  a chunk is refused, a stage is gone, the driver was killed: the whole batch again, under other attempts

What a batch has follows from its number alone, as Spark fixes it before it runs. Owner: the run.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from zlib import crc32

from tests.sim.clients.plan import PUBLISHED_TOPIC, QUEUES
from tests.sim.clients.workload import ClientContext
from tests.sim.history.history import Operation
from tests.sim.history.publication_values import (
    PUBLISHED_BEFORE,
    STAGE_UNKNOWN,
    BatchPublished,
    GiveUp,
    PublishBatch,
    StageChunk,
)
from tests.sim.history.questions import Sending

PARTITIONS, CHUNKS, ROWS_MAX = 2, 2, 3
# Shares of batches: a driver is killed before or behind its publication, gives the batch up, runs a partition twice.
_KILLED, _KILLED_BEHIND, _GIVEN_UP, _TWICE = 0.08, 0.12, 0.06, 0.15
PAUSE_MAX_S = 0.3
# Another task of the batch takes so long that retention comes by.
_SLOW, SLOW_MAX_S = 0.25, 6.0


def rows_of(query: str, batch: int, partition: int, chunk: int) -> tuple[Sending, ...]:
    """The messages of a chunk, named `q0-b3.512`: the batch, and their place in it."""
    dice = crc32(f"{query} {batch} {partition} {chunk}".encode())
    queue = dice // 7 % QUEUES[PUBLISHED_TOPIC]
    first = (partition * CHUNKS + chunk) * ROWS_MAX
    return tuple(
        Sending(queue, f"{query}-b{batch}.{first + row}", "", 24 + dice // 11 % 160)
        for row in range(dice % (ROWS_MAX + 1))
    )


class Writer:
    """One driver."""

    def __init__(self, context: ClientContext, name: str, query: str, mean_s: float) -> None:
        self._context, self._name, self._query, self._mean_s = context, name, query, mean_s
        self._batch = 0
        self._attempts = count(1 + crc32(name.encode()) % 1_000 * 1_000)
        self._stages: list[tuple[int, int, int]] = []
        self._open = 0
        self._is_failed = False

    def step(self) -> None:
        """Run the batch."""
        rng = self._context.rng
        self._stages, self._open, self._is_failed = [], 0, False
        chunks: list[StageChunk] = []
        for partition in range(PARTITIONS):
            for number in range(2 if rng.random() < _TWICE else 1):
                attempt = next(self._attempts)
                found = [(chunk, rows_of(self._query, self._batch, partition, chunk)) for chunk in range(CHUNKS)]
                chunks += [
                    StageChunk(self._query, self._batch, partition, attempt, chunk, PUBLISHED_TOPIC, rows)
                    for chunk, rows in found
                    if rows
                ]
                rows = sum(len(rows) for _, rows in found)
                if not number and rows:
                    self._stages.append((partition, attempt, rows))
        rng.shuffle(chunks)
        self._open = len(chunks)
        for asked in chunks:
            if not self._context.is_open():
                return
            self._context.issue(self._name, asked, partial(self._staged, asked))
        if not chunks:
            self._all_staged()

    def _staged(self, asked: StageChunk, operation: Operation) -> None:
        if asked.batch != self._batch:
            return
        if not operation.is_ok and operation.error != PUBLISHED_BEFORE:
            self._is_failed = True
        self._open -= 1
        if not self._open:
            self._all_staged()

    def _all_staged(self) -> None:
        rng = self._context.rng
        dice = rng.random()
        if self._is_failed or dice < _KILLED:
            self._later(self.step)
            return
        if dice < _KILLED + _GIVEN_UP and self._context.is_open():
            self._context.issue(self._name, GiveUp(self._query, self._batch), lambda _operation: None)
        if rng.random() < _SLOW:
            self._context.later(rng.uniform(0, SLOW_MAX_S), self._publish)
        else:
            self._publish()

    def _publish(self) -> None:
        if self._context.is_open():
            asked = PublishBatch(self._query, self._batch, tuple(self._stages))
            self._context.issue(self._name, asked, self._published)

    def _published(self, operation: Operation) -> None:
        told = operation.answer
        if operation.is_ok and isinstance(told, BatchPublished):
            if self._context.rng.random() >= _KILLED_BEHIND:
                self._batch = told.batch + 1
            self._later(self.step)
        else:
            self._later(self.step if operation.error == STAGE_UNKNOWN else self._publish)

    def _later(self, step: Callable[[], None]) -> None:
        rng = self._context.rng
        self._context.later(self._mean_s * rng.uniform(0.4, 1.6) + rng.uniform(0, PAUSE_MAX_S), step)
