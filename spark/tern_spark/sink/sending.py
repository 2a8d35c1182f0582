"""Batches sent to the proxies until every row is stored: repeats, the next proxy, back-pressure.

    sent -> stored
         -> refused for now: the refused rows again, after a pause
         -> the key is known with another body: those rows again, under other keys
         -> refused for good: the task fails

A failed request is repeated as every SDK client does it (tern_client.transport.calling), with the
pause that the proxy requests. Threads share the connections.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from tern_client.calls.documents import read_results
from tern_client.transport.blocking_transport import BlockingCaller
from tern_client.transport.calling import call
from tern_client.transport.clock import now_ms
from tern_client.transport.retrying import RetryPolicy, asked_delay_ms
from tern_spark.sink.entries import TASK_DIGITS, Entries, Ints
from tern_spark.sink.options import WriteOptions
from tern_spark.sink.requests import Batch, request_of
from tern_wire.errors import IdempotencyKeyReused, TernError

# Pauses before rows of a partly stored batch are sent again; they double.
_PAUSE_MS, _PAUSE_MAX_MS = 50, 5_000


def new_task() -> bytes:
    """Return a first part of idempotency keys that no other task has."""
    return secrets.token_hex(TASK_DIGITS // 2).encode()


def proxies_of(options: WriteOptions, first: int) -> BlockingCaller:
    """Return a caller of the proxies that begins with number *first*, modulo their number."""
    urls = options.endpoints
    policy = RetryPolicy(
        deadline_ms=options.send_timeout_ms,
        attempt_timeout_ms=options.request_timeout_ms,
        max_delay_ms=_PAUSE_MAX_MS,
    )
    return BlockingCaller(
        urls[first % len(urls) :] + urls[: first % len(urls)],
        namespace=options.namespace,
        policy=policy,
        key_file=options.key_file,
        ca_file=options.ca_file,
    )


class BatchSends:
    """Sends batches for one task; a context manager, which closes the connections.

    *first* spreads tasks over the endpoints. *new_task*: first parts of keys for rows whose key is
    known with another body.
    """

    def __init__(
        self,
        options: WriteOptions,
        first: int,
        *,
        new_task: Callable[[], bytes] = new_task,
        pause_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._new_task, self._pause_s = new_task, pause_s
        self._caller = proxies_of(options, first)
        self._is_over = False

    def send_all(self, found: Iterable[Batch]) -> int:
        """Send batches, some at a time, and return their rows. Batches with a message group are
        sent one after the other. The first error ends all sends.
        """
        rows, under_way = 0, deque[Future[None]]()
        with ThreadPoolExecutor(self._options.requests_in_flight) as threads:
            try:
                for batch in found:
                    most = 1 if batch.entries.is_ordered else self._options.requests_in_flight
                    while len(under_way) >= most:
                        under_way.popleft().result()
                    under_way.append(threads.submit(self.send, batch))
                    rows += len(batch.entries)
                while under_way:
                    under_way.popleft().result()
            except BaseException:
                self._is_over = True
                raise
        return rows

    def send(self, batch: Batch) -> None:
        """Return when all rows of *batch* are stored, or when another send has failed. TernError of
        a row that is refused for good, or for too long.
        """
        began_ms, pause_ms = now_ms(), _PAUSE_MS
        while True:
            errors = self._send_once(batch)
            if not errors or self._is_over:
                return
            _refuse(batch.entries, errors, has_time=now_ms() - began_ms < self._options.send_timeout_ms)
            batch = _rest(batch, errors, self._new_task)
            asked_ms = max(map(asked_delay_ms, errors.values()))
            if any(not isinstance(error, IdempotencyKeyReused) for error in errors.values()):
                self._pause_s(max(pause_ms, asked_ms) / 1_000)
                pause_ms = min(2 * pause_ms, _PAUSE_MAX_MS)

    def _send_once(self, batch: Batch) -> dict[int, TernError]:
        """Return the errors of rows that are not stored, by number of the entry."""
        try:
            steps = call(self._caller.course, request_of(batch), now_ms())
            response = self._caller.drive(steps, is_over=lambda: self._is_over)
        except IdempotencyKeyReused as error:  # of all rows
            return dict.fromkeys(range(len(batch.entries)), error)
        if response.status == 200:
            return {}
        results = read_results(response)
        return {number: result for number, result in enumerate(results) if isinstance(result, TernError)}

    def __enter__(self) -> "BatchSends":
        return self

    def __exit__(self, *_: object) -> None:
        self._caller.close()


def _refuse(entries: Entries, errors: dict[int, TernError], *, has_time: bool) -> None:
    """Raise the first error that a repeat does not cure."""
    for number, error in errors.items():
        if not isinstance(error, IdempotencyKeyReused) and not (error.retryable and has_time):
            error.add_note(f"row {entries.rows[number]} of the partition, numbered from 0")
            raise error


def _rest(batch: Batch, errors: dict[int, TernError], new_task: Callable[[], bytes]) -> Batch:
    """Return the entries that are sent again, in their order, under other keys where theirs are
    known.
    """
    numbers: Ints = np.array(sorted(errors))
    reused = np.array([isinstance(errors[number], IdempotencyKeyReused) for number in numbers.tolist()])
    entries = batch.entries.chosen(numbers)
    return Batch(topic=batch.topic, entries=entries.renamed(new_task(), reused) if reused.any() else entries)
