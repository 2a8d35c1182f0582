"""The cost of filters in a mesh: messages scanned a second, and stalls of the leader's core loop.

1 message in 100 passes. `*_scanned`: readers of all queues pull with the filter, again and again.
`*_received`: a new group each time receives and acks what passes, so that passing messages are
delivered too.

The leader's own gauge measures the stalls of its core loop. The effect on clients is measured
beside it: a second process requests the offsets of an empty topic, which that loop answers at once,
before the scan and during it. On a machine without a free core its maximum is the scheduler's.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from urllib.parse import quote

from loadtest.bench.beside import Latencies, probe, second_process
from loadtest.bench.closed_loop import BenchFailed, Finished, Prepared, prepare, run_to_end
from loadtest.bench.core_loops import CoreLoop
from loadtest.bench.delivery.sizes import Sizes
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.receiving import Receivers
from loadtest.bench.sending import check_stored, send_batches
from tern_wire import paths
from tern_wire.limits import PULL_MESSAGES_MAX, RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.codec import encode_msgpack
from tern_wire.records.columns import record_starts

QUEUES = 8
BATCH_MESSAGES, SENDERS = 1_000, 4
# One message in so many passes.
PASSING = 100
RECEIVED_MESSAGES = 256
BODY = b"a small message!"
_EMPTY = "empty"
_NEXT = re.compile(rf"\r\n{paths.HEADER_NEXT_OFFSET}: *(\d+)".encode(), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Case:
    """A backlog and the filter that passes one in PASSING of its messages."""

    name: str
    messages: int
    wanted: dict[str, str]
    # The fields of message n.
    fields: Callable[[int], dict[str, object]] = field(repr=False)


def cases(sizes: Sizes) -> list[Case]:
    """Return the cases: by tag, and by SQL over two properties."""
    sql = "region = 'eu' AND price BETWEEN 10 AND 11"
    return [
        Case("tags", sizes.tag_messages, {"tags": "t7"}, lambda n: {"tag": f"t{n % PASSING}"}),
        Case(
            *("sql", sizes.sql_messages, {"sql": sql}),
            lambda n: {"properties": {"region": ("eu", "us")[n % 2], "price": str(n % PASSING)}},
        ),
    ]


def backlog_batches(topic: str, case: Case) -> Iterator[Prepared]:
    """Yield all messages of the backlog; a batch goes to one queue."""
    headers = {"Content-Type": paths.MSGPACK, "Accept": paths.MSGPACK}
    # PASSING divides a batch, so all batches are the same.
    messages = [{"body": BODY, **case.fields(number)} for number in range(BATCH_MESSAGES)]
    request = prepare("POST", paths.batch_path(topic), encode_msgpack({"messages": messages}), headers)
    for _ in range(case.messages // BATCH_MESSAGES):
        yield request


async def bench_filtered(mesh: OwnMesh, sizes: Sizes, _rng: random.Random) -> AsyncIterator[Figure]:
    """Yield tags_scanned, tags_received, sql_scanned, sql_received.

    Each has `longest_step_ms` of the leader and `probe_p99_ms`.
    """
    mesh.ask("PUT", paths.topic_path(_EMPTY), {"queues": 1})
    with second_process() as beside:
        for case in cases(sizes):
            mesh.ask("PUT", paths.topic_path(case.name), {"queues": QUEUES})
            step = send_batches(backlog_batches(case.name, case), BATCH_MESSAGES)
            sent = await run_to_end(mesh.port, SENDERS, step)
            check_stored(mesh, case.name, sent.total)
            for kind, once in (("scanned", _pull_all), ("received", _receive_all)):
                yield await _measure(mesh, sizes, case, f"{case.name}_{kind}", once, beside)


async def _measure(
    mesh: OwnMesh,
    sizes: Sizes,
    case: Case,
    figure: str,
    once: Callable[[OwnMesh, Case, int], Awaitable[Finished]],
    beside: Executor,
) -> Figure:
    """Scan the whole backlog repeatedly for a window, beside the second process."""
    loop = asyncio.get_running_loop()

    def ask() -> asyncio.Future[Latencies]:
        return loop.run_in_executor(beside, probe, mesh.port, paths.offsets_path(_EMPTY), sizes.seconds)

    alone = await ask()
    core_loop = CoreLoop(mesh)
    asking = ask()
    passes, spent_s = 0, 0.0
    while not asking.done() or not passes:
        passed = await once(mesh, case, passes)
        if passed.total != case.messages // PASSING:
            raise BenchFailed(f"{figure}: {passed.total} of {case.messages // PASSING} messages passed the filter")
        passes, spent_s = passes + 1, spent_s + passed.seconds
    steps = core_loop.since()
    found = await asking
    more = {
        **steps,
        "probe_p50_ms": found.p50_ms,
        "probe_p99_ms": found.p99_ms,
        "probe_max_ms": found.max_ms,
        "probe_alone_p99_ms": alone.p99_ms,
        "probe_alone_max_ms": alone.max_ms,
        "probes": found.count,
        "messages": case.messages,
        "passes": passes,
    }
    return Figure(bench="delivery", figure=figure, value=passes * case.messages / spent_s, unit="msg/s", more=more)


async def _pull_all(mesh: OwnMesh, case: Case, _number: int) -> Finished:
    """Pull every queue from its first to its last message, all queues at a time.

    Returns the number of passing messages. BenchFailed when a pull makes no progress.
    """
    offsets = mesh.ask("GET", paths.offsets_path(case.name))["queues"]
    ends = {queue["queue"]: queue["max_offset"] for queue in offsets}
    waiting = list(ends)
    places: dict[HttpConnection, tuple[str, int]] = {}
    (name, text), *_ = case.wanted.items()
    rest = f"max_messages={PULL_MESSAGES_MAX}&max_bytes={RECEIVE_SIZE_MAX_BYTES}&{name}={quote(text)}"

    async def step(connection: HttpConnection) -> int | None:
        queue, offset = places[connection] if connection in places else (waiting.pop(), 0)
        if offset >= ends[queue]:
            return None
        path = f"{paths.pull_path(case.name, queue)}?offset={offset}&{rest}"
        status, body = await connection.request(*prepare("GET", path, b"", {"Accept": paths.RECORDS}))
        following = _NEXT.search(connection.reply_head)
        if status != 200 or following is None:
            raise BenchFailed(f"a pull got {status}: {body[:300]!r}")
        if int(following[1]) <= offset:
            raise BenchFailed(f"a pull of {queue} at {offset} of {ends[queue]} came no further")
        places[connection] = queue, int(following[1])
        return len(record_starts(body))

    return await run_to_end(mesh.port, len(ends), step)


async def _receive_all(mesh: OwnMesh, case: Case, number: int) -> Finished:
    """Receive and ack all passing messages with a new group; return their number."""
    group = f"{case.name}-{number}"
    mesh.ask("PUT", paths.group_path(group), {"invisible": "10m"})
    # No wait: at the end a waiting receive would be a pause of the load.
    receivers = Receivers(case.name, group, batch_messages=RECEIVED_MESSAGES, wanted=case.wanted, wait="0s")
    drained = await receivers.drain(mesh.port, case.messages // PASSING)
    receivers.ack_the_rest(mesh)
    return Finished(total=receivers.received, seconds=drained.seconds)
