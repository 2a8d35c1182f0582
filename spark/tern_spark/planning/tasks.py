"""Division of ranges into tasks. Pure.

Large ranges are split; small ones of several queues are joined, because a task costs some 50 ms of
CPU, JVM and mesh included: 1,000 rows over 8 queues are one task, not eight. Over 1,000 queues they
are several, because each queue costs a request.
"""

from collections.abc import Sequence
from heapq import heappush, heapreplace

from tern_spark.options import ReadOptions
from tern_spark.ranges import QueueRange, split_ranges

# Rows below which another task costs more than it saves: some 250 ms of CPU. 128,000 rows of 8
# queues took 0.74 s in 4 tasks and 0.83 s in 8, on two cores.
TASK_ROWS_MIN = 32_768
# Rows whose decoding costs as much as the request for a range: some 1 ms.
RANGE_COST_ROWS = 100

Task = tuple[QueueRange, ...]


def divide(ranges: Sequence[QueueRange], options: ReadOptions, row_size_bytes: float = 0) -> list[Task]:
    """Return the ranges of each task. *row_size_bytes*: the mean stored size of a row, for
    `maxBytesPerPartition`; 0 if it is not known.

    Every offset is in one task, and the ranges of one queue keep their order.
    """
    rows_max = options.rows_per_partition_max
    if options.bytes_per_partition_max and row_size_bytes:
        by_bytes = max(1, int(options.bytes_per_partition_max / row_size_bytes))
        rows_max = min(rows_max, by_bytes) if rows_max else by_bytes
    pieces = split_ranges(
        [found for found in ranges if found.rows], rows_max=rows_max, partitions_min=options.partitions_min
    )
    return join(pieces, rows_max=rows_max, tasks_min=options.partitions_min)


def join(pieces: Sequence[QueueRange], *, rows_max: int, tasks_min: int) -> list[Task]:
    """Join *pieces* into as few tasks as there is work for, none with more than *rows_max* rows (0:
    no limit) unless one piece has more, at least *tasks_min* if there are so many pieces.
    """
    work = [piece.rows + RANGE_COST_ROWS for piece in pieces]
    count = min(len(pieces), max(1, -(-sum(work) // TASK_ROWS_MIN), tasks_min))
    if count == len(pieces):
        return [(piece,) for piece in pieces]
    # The largest piece first, each into the task with the least work: the tasks are about even.
    tasks: list[list[int]] = [[] for _ in range(count)]
    rows = [0] * count
    emptiest = [(0, number) for number in range(count)]
    for at in sorted(range(len(pieces)), key=lambda at: (-pieces[at].rows, at)):
        filled, number = emptiest[0]
        if rows_max and rows[number] and rows[number] + pieces[at].rows > rows_max:
            tasks.append([at])
            rows.append(pieces[at].rows)
            heappush(emptiest, (work[at], len(tasks) - 1))
        else:
            tasks[number].append(at)
            rows[number] += pieces[at].rows
            heapreplace(emptiest, (filled + work[at], number))
    return [tuple(pieces[at] for at in task) for task in sorted(sorted(task) for task in tasks if task)]
