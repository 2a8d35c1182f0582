"""Calls to Timers as values, so that a test can make them, check them against a dictionary, and make them again after a restart."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.files import Files
from tern_store.timers.timers import Timers
from tern_store.timers.walk import TimerPage
from tern_wire.link.timer_rows import TIMER_ROWS

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
# On the hour: borders are where tests put them.
NOW = 472_222 * HOUR
Call = tuple[Any, ...]
Pair = tuple[int, int]  # deliver_ms, timer_id


def timer_rows(times: Sequence[int], first_id: int = 0, position: int = 0) -> npt.NDArray[Any]:
    """One row for each time (ms), with the ids from *first_id* on; other fields follow from the id."""
    rows = np.zeros(len(times), TIMER_ROWS)
    ids = np.arange(first_id, first_id + len(times))
    rows["deliver_ms"], rows["timer_id"], rows["position"], rows["tag"] = times, ids, position, -ids
    rows["size"], rows["topic_id"], rows["queue"], rows["flags"] = ids % 999 + 1, ids % 7, ids % 8, ids % 2
    return rows


def pairs(rows: npt.NDArray[Any]) -> list[Pair]:
    """(deliver_ms, timer_id) of each row."""
    return list(zip(rows["deliver_ms"].tolist(), rows["timer_id"].tolist(), strict=True))


def due(timers: Timers, now_ms: int, count_max: int) -> npt.NDArray[Any]:
    """Hand out what `peek` shows: what the broker does in two steps, with an entry of the log between them."""
    rows = timers.peek(now_ms, count_max)
    assert timers.take(rows, now_ms) == 0
    return rows


def listed(timers: Timers, begin_ms: int, end_ms: int, count: int, after: Pair | None = None) -> npt.NDArray[Any]:
    """A page of pending timers."""
    page = TimerPage(begin_ms, end_ms, count, after=after)
    return page.fill(timers.walk(page.begin_ms, page.end_ms))


def drain(timers: Timers, now_ms: int, count_max: int = 1000) -> list[Pair]:
    """Everything that is due, as the broker takes it."""
    found: list[Pair] = []
    while len(rows := due(timers, now_ms, count_max)):
        assert len(rows) <= count_max
        found += pairs(rows)
    return found


def make(timers: Timers, call: Call) -> Any:
    """The result of a call, as something that can be compared."""
    kind, *arguments = call
    if kind == "add":
        return timers.add(timer_rows(*arguments))
    if kind == "due":
        return due(timers, *arguments).tolist()
    if kind == "list":
        return pairs(listed(timers, *arguments))
    if kind == "needed":
        return sorted(pair for rows in timers.needed_below(*arguments) for pair in pairs(rows))
    return timers.cancel(*arguments)


class TimerModel:
    """What Timers must answer: all pending timers in one dictionary. Owner: one test."""

    def __init__(self) -> None:
        self.pending: dict[int, tuple[int, int]] = {}  # id: deliver_ms, position; in the order of adding
        self._last_ms = -1  # deliver_ms of the last one handed out that was not late
        self._ids = 0

    def draw(self, rng: random.Random, now_ms: int) -> Call:
        """Any call, with times around *now_ms* of every size."""
        kind = rng.choices(["add", "cancel", "due", "list", "needed"], [40, 12, 40, 5, 3])[0]
        if kind == "add":
            spans = [(-2 * HOUR, 0), (0, 2 * SECOND), (0, 2 * MINUTE), (0, 3 * HOUR), (0, 40 * DAY), (HOUR, HOUR + 3)]
            count, span = rng.choice([1, 1, 3, 30, 100]), rng.choice(spans)
            call = ("add", [now_ms + rng.randrange(*span) for _ in range(count)], self._ids, rng.randrange(100))
            self._ids += count
            return call
        if kind == "cancel":
            known = rng.choice(list(self.pending)) if self.pending and rng.random() < 0.8 else None
            return ("cancel", self.pending[known][0] if known is not None else now_ms, known or rng.randrange(999))
        if kind == "due":
            return ("due", now_ms, rng.choice([1, 7, 100, 10_000]))
        if kind == "list":
            begin_ms = now_ms + rng.randrange(-HOUR, DAY)
            after = rng.choice([None, (begin_ms + rng.randrange(HOUR), rng.randrange(99))])
            return ("list", begin_ms, begin_ms + rng.choice([SECOND, HOUR, 40 * DAY]), rng.choice([1, 9, 500]), after)
        return ("needed", rng.randrange(101))

    def check(self, call: Call, result: Any) -> None:
        """Compare, and take note of what the call changed."""
        kind, *arguments = call
        if kind == "add":
            times, first_id, position = arguments
            self.pending |= {first_id + at: (time_ms, position) for at, time_ms in enumerate(times)}
        elif kind == "cancel":
            deliver_ms, timer_id = arguments
            was_pending = self.pending.get(timer_id, (None,))[0] == deliver_ms
            assert result is was_pending
            if was_pending:
                del self.pending[timer_id]
        elif kind == "due":
            self._check_due([(row[0], row[1]) for row in result], *arguments)
            assert result == timer_rows_of(result, {timer_id: self.pending.pop(timer_id) for _, timer_id, *_ in result})
        elif kind == "list":
            begin_ms, end_ms, count, after = arguments
            inside = sorted((time_ms, timer_id) for timer_id, (time_ms, _) in self.pending.items())
            wanted = [pair for pair in inside if begin_ms <= pair[0] < end_ms and (after is None or pair > after)]
            assert result == wanted[:count]
        else:
            needed = [(ms, timer_id) for timer_id, (ms, position) in self.pending.items() if position < arguments[0]]
            assert result == sorted(needed)

    def _check_due(self, found: list[Pair], now_ms: int, count_max: int) -> None:
        # Stable: the dictionary has them in the order of adding.
        due = [(ms, timer_id) for timer_id, (ms, _) in self.pending.items() if ms <= now_ms]
        due.sort(key=lambda pair: pair[0])
        assert bool(found) == bool(due)
        assert len(found) <= count_max
        if not found:
            return
        if due[0][0] < self._last_ms:  # late ones come first, those of one answer in order
            assert set(found) <= set(due)
            assert [ms for ms, _ in found] == sorted(ms for ms, _ in found)
            assert found[-1][0] < self._last_ms
        else:
            assert found == due[: len(found)]
            self._last_ms = found[-1][0]


def timer_rows_of(found: list[Any], pending: dict[int, tuple[int, int]]) -> list[Any]:
    """The rows that were added for these ids, whole."""
    return [timer_rows([pending[row[1]][0]], row[1], pending[row[1]][1]).tolist()[0] for row in found]


def small_timers(directory: Path, rng: random.Random, files: Files) -> Timers:
    """Timers whose windows, files and buffers are so small that a few hundred rows fill all of them."""
    return Timers.open(
        directory,
        window_rows=rng.choice([8, 64, 256]),
        rows_per_file=rng.choice([64, 128]),
        buffer_max_bytes=rng.choice([200, 20_000]),
        open_files_max=2,
        files=files,
    )
