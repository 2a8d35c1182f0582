"""Ten thousand queues beside one: rates of append and apply, memory, open files."""

from collections.abc import Iterator
from pathlib import Path

from loadtest.bench.figures import Figure
from loadtest.bench.store.apply import Applying
from loadtest.bench.store.entries import EntryMaker, Shape
from loadtest.bench.store.figures import Bar, in_process, in_turns, judged, memory_mb, open_files, scratch
from loadtest.bench.store.node import BenchNode
from loadtest.bench.store.sizes import Sizes

# Messages in a row to one queue: a batch of the SDK, a gathered lane, and the worst case.
RUNS = (100, 16, 1)


def bench_queues(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield rates in turns with a store of one queue, then memory and open files.

    The latter are measured in processes of their own.
    """
    for run in RUNS:
        many, one = Shape(queues=sizes.queues, run=run), Shape()
        with (
            scratch(folder / "queues") as place,
            BenchNode(place / "many", sizes.segment_size_bytes, many) as node,
            BenchNode(place / "one", sizes.segment_size_bytes, one) as other,
        ):
            fill(node, EntryMaker(Shape(queues=sizes.queues, run=1)), sizes.queues)
            mine = Applying(node, many, sizes.queue_messages, with_append=True)
            alone = Applying(other, one, sizes.queue_messages, with_append=True)
            found, bare = in_turns(sizes.rounds, mine.round, alone.round)
        note = f"{run} messages to a queue, then the next; bare: one queue"
        yield judged(f"queues_{sizes.queues}_runs_{run}", found, "messages/s", Bar(ratio=0.6), bare=bare, note=note)
    messages = sizes.queue_messages * sizes.rounds
    with scratch(folder / "queues") as place:
        few_mb, _ = in_process(held, place / "one", sizes.segment_size_bytes, Shape(), messages)
        many_mb, files = in_process(
            held, place / "many", sizes.segment_size_bytes, Shape(queues=sizes.queues, run=1), messages
        )
    note = f"{many_mb:.0f} MB against {few_mb:.0f} MB with one queue"
    bar = Bar(value=150, more_is_better=False)
    yield judged(f"queues_{sizes.queues}_memory_growth", [many_mb - few_mb], "MB", bar, note=note)
    yield judged(f"queues_{sizes.queues}_open_files", [files], "files", Bar(value=512, more_is_better=False))


def fill(node: BenchNode, maker: EntryMaker, messages: int) -> int:
    """Append and apply at least *messages* messages; return the maximum of open files."""
    most = 0
    while maker.made < messages:
        node.apply(node.append(maker.take()))
        node.allocate_ahead()
        most = max(most, open_files())
        node.save_if_due()
    return most


def held(place: Path, segment_size_bytes: int, shape: Shape, messages: int) -> tuple[float, int]:
    """Return MB of memory and the maximum of open files.

    The memory is the larger of that after *messages* messages and that after the following save.
    """
    with BenchNode(place, segment_size_bytes, shape) as node:
        files, memory = fill(node, EntryMaker(shape), messages), memory_mb()
        node.save()
        return max(memory, memory_mb()), max(files, open_files())
