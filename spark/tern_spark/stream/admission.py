"""How many rows of each queue a batch takes when more wait than its limit allows. Pure.

Law, for every strategy: a batch has at most the limit, at least one row if any waits, and never
more of a queue than waits there. `proportional` and `even` serve every queue again and again: if
there are fewer rows than queues, the first queue served moves on with the offsets, so that a
restarted query continues where it was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Offsets *start* to below *end* of a queue that no batch has read."""

    topic: str
    queue: str
    start: int
    end: int

    @property
    def rows(self) -> int:
        """The number of offsets."""
        return self.end - self.start


# First offset of a queue, by topic and queue, that was visible at a time or later.
OffsetsAt = Callable[[int], Mapping[tuple[str, str], int]]


def proportional(waiting: Sequence[Waiting], rows_max: int) -> list[int]:
    """Return rows in proportion to the backlog of each of *waiting*, at least one if they go
    round.
    """
    backlog = [each.rows for each in waiting]
    if sum(backlog) <= rows_max:
        return backlog
    rows = [0] * len(waiting)
    _serve_in_turn(waiting, rows, rows_max)
    left = rows_max - sum(rows)
    open_rows = [there - taken for there, taken in zip(backlog, rows, strict=True)]
    total = sum(open_rows)
    shares = [divmod(left * there, total) for there in open_rows]
    left -= sum(share for share, _ in shares)
    by_remainder = sorted(range(len(waiting)), key=lambda at: (-shares[at][1], at))
    for at, (share, _) in enumerate(shares):
        rows[at] += share
    for at in by_remainder[:left]:
        rows[at] += 1
    return rows


def even(waiting: Sequence[Waiting], rows_max: int) -> list[int]:
    """Return the same number of rows of each of *waiting*; what a short queue leaves, others
    take.
    """
    rows = [0] * len(waiting)
    left = min(rows_max, sum(each.rows for each in waiting))
    while left:
        open_at = [at for at, each in enumerate(waiting) if each.rows > rows[at]]
        share = left // len(open_at)
        if not share:
            break
        for at in open_at:
            taken = min(share, waiting[at].rows - rows[at])
            rows[at] += taken
            left -= taken
    _serve_in_turn(waiting, rows, left)
    return rows


def _serve_in_turn(waiting: Sequence[Waiting], rows: list[int], left: int) -> None:
    """Add one row to up to *left* queues with rows left, beginning where the last batch ended."""
    open_at = [at for at, each in enumerate(waiting) if each.rows > rows[at]]
    if not open_at:
        return
    turn = sum(each.start for each in waiting)
    for step in range(min(left, len(open_at))):
        rows[open_at[(turn + step) % len(open_at)]] += 1


def oldest(waiting: Sequence[Waiting], rows_max: int, offsets_at: OffsetsAt, now_ms: int) -> list[int]:
    """Return the *rows_max* oldest rows by store time; of rows of one millisecond, some of each
    queue.
    """
    if sum(each.rows for each in waiting) <= rows_max:
        return [each.rows for each in waiting]
    below, above = _cut(waiting, rows_max, offsets_at, now_ms)
    return _filled(waiting, below, above, rows_max)


def aligned(waiting: Sequence[Waiting], rows_max: int, offsets_at: OffsetsAt, now_ms: int) -> list[int]:
    """Return all rows of each queue up to one store time: the latest that keeps the limit.

    If one millisecond has more than *rows_max* rows, part of it is taken.
    """
    if sum(each.rows for each in waiting) <= rows_max:
        return [each.rows for each in waiting]
    below, above = _cut(waiting, rows_max, offsets_at, now_ms)
    return below if any(below) else _filled(waiting, below, above, rows_max)


def _filled(waiting: Sequence[Waiting], below: list[int], above: list[int], rows_max: int) -> list[int]:
    between = [
        Waiting(topic=each.topic, queue=each.queue, start=each.start + low, end=each.start + high)
        for each, low, high in zip(waiting, below, above, strict=True)
    ]
    more = even(between, rows_max - sum(below))
    return [low + taken for low, taken in zip(below, more, strict=True)]


def _cut(waiting: Sequence[Waiting], rows_max: int, offsets_at: OffsetsAt, now_ms: int) -> tuple[list[int], list[int]]:
    """Return the rows before the latest time at which they are at most *rows_max*, and those before
    the millisecond that follows, which are more.
    """

    def before(time_ms: int) -> list[int]:
        at = offsets_at(time_ms)
        return [
            min(max(at.get((each.topic, each.queue), each.end), each.start), each.end) - each.start for each in waiting
        ]

    low_ms, below = 0, [0] * len(waiting)
    high_ms, above = now_ms + 1, [each.rows for each in waiting]
    step_ms = 1_000
    # Times before now, each four times as far, until one has few enough rows; then halves.
    while high_ms - low_ms > 1:
        middle_ms = high_ms - step_ms if low_ms == 0 and high_ms > step_ms else (low_ms + high_ms) // 2
        rows = before(middle_ms)
        if sum(rows) <= rows_max:
            low_ms, below = middle_ms, rows
            if sum(rows) == rows_max:
                break
        else:
            high_ms, above = middle_ms, rows
            step_ms *= 4
    return below, above


def within_bytes(
    waiting: Sequence[Waiting], size_max_bytes: int, row_sizes: Sequence[float], admit: Callable[[int], list[int]]
) -> list[int]:
    """Return what *admit* gives for the largest number of rows that keeps *size_max_bytes*, by the
    mean *row_sizes* of each of *waiting*; at least one row.
    """
    low, high = 1, max(1, sum(each.rows for each in waiting))
    while low < high:
        middle = (low + high + 1) // 2
        size_bytes = sum(size * taken for size, taken in zip(row_sizes, admit(middle), strict=True))
        low, high = (middle, high) if size_bytes <= size_max_bytes else (low, middle - 1)
    return admit(low)
