"""The figures of 10,000 topics: creation, restart, and sends to all of them beside sends to one."""

import itertools
import random
import time
from collections.abc import AsyncIterator, Sequence

import msgspec

from loadtest.bench.closed_loop import BenchFailed, Prepared, prepare, run_to_end
from loadtest.bench.delivery.sizes import Sizes
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh, restart
from loadtest.bench.sending import check_stored, send_singles, single_requests
from loadtest.bench.turns import Load, compared, in_turns
from tern_wire import paths

CREATORS, SENDERS = 16, 64
_ONE = "the-one"
_PREFIX = "many-"
_PAGE = 1_000
_ACCEPT_WITHIN_S = 60
_JSON = {"Content-Type": paths.JSON}


class _Queue(msgspec.Struct):
    """The used fields of a queue's offsets."""

    min_offset: int
    max_offset: int


class _Offsets(msgspec.Struct):
    """The answer with a topic's offsets."""

    queues: list[_Queue]


async def bench_topics(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield topics_10000_created, _restart and _sends.

    A restart ends when every broker is ready and a send to the last topic is stored.
    """
    names = [f"{_PREFIX}{number:05d}" for number in range(sizes.topics)]
    created_s = await create_topics(mesh, names)
    check_listed(mesh, names)
    more: dict[str, float] = {"topics": sizes.topics, "connections": CREATORS, "per_s": round(sizes.topics / created_s)}
    yield Figure(bench="delivery", figure="topics_10000_created", value=created_s, unit="s", more=more)
    again = restart(mesh)
    took_s = again.startup_s + accept(again, names[-1])
    check_listed(again, names)
    more = {
        "topics": sizes.topics,
        "brokers_ready_s": round(again.startup_s, 2),
        "new_mesh_s": round(mesh.startup_s, 2),
    }
    yield Figure(bench="delivery", figure="topics_10000_restart", value=took_s, unit="s", more=more)
    yield await _bench_sends(again, names, sizes, rng)


async def create_topics(mesh: OwnMesh, names: Sequence[str]) -> float:
    """Create topics over several connections with the default of 8 queues; return seconds.

    BenchFailed unless each is new.
    """
    requests = iter([prepare("PUT", paths.topic_path(name), b"{}", _JSON) for name in names])

    async def step(connection: HttpConnection) -> int | None:
        request = next(requests, None)
        if request is None:
            return None
        status, body = await connection.request(*request)
        if status != 201:
            raise BenchFailed(f"creating {request.path} got {status}: {body[:300]!r}")
        return 1

    return (await run_to_end(mesh.port, CREATORS, step)).seconds


def accept(mesh: OwnMesh, topic: str) -> float:
    """Send one message repeatedly with one idempotency key until it is stored; return seconds.

    BenchFailed after a minute.
    """
    began_s = time.monotonic()
    while True:
        try:
            mesh.ask("POST", f"{paths.messages_path(topic)}?idempotency_key=after-restart", "accepted")
        except (RuntimeError, OSError) as refused:
            if time.monotonic() > began_s + _ACCEPT_WITHIN_S:
                raise BenchFailed(f"{topic} took no message after the restart: {refused}") from refused
            time.sleep(0.02)
        else:
            return time.monotonic() - began_s


def check_listed(mesh: OwnMesh, names: Sequence[str]) -> None:
    """Raise BenchFailed unless the mesh lists exactly these topics."""
    listed: list[str] = []
    cursor = ""
    while True:
        page = mesh.ask("GET", f"{paths.TOPICS_PATH}?q={_PREFIX}&limit={_PAGE}&cursor={cursor}")
        listed += [row["topic"] for row in page["topics"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    if listed != list(names):
        raise BenchFailed(f"{len(names)} topics were created, {len(listed)} are listed")


async def stored_in_all(mesh: OwnMesh, names: Sequence[str]) -> int:
    """Return the number of messages in all topics together."""
    waiting = iter(names)
    decode = msgspec.json.Decoder(_Offsets).decode

    async def step(connection: HttpConnection) -> int | None:
        name = next(waiting, None)
        if name is None:
            return None
        status, body = await connection.request("GET", paths.offsets_path(name))
        if status != 200:
            raise BenchFailed(f"the offsets of {name} got {status}: {body[:300]!r}")
        return sum(queue.max_offset - queue.min_offset for queue in decode(body).queues)

    return (await run_to_end(mesh.port, CREATORS, step)).total


def spread_requests(names: Sequence[str], rng: random.Random) -> list[Prepared]:
    """Return a single send for each topic, in a random order."""
    bodies = itertools.cycle([request.body for request in single_requests(_ONE, rng)])
    requests = [prepare("POST", paths.messages_path(name), body) for name, body in zip(names, bodies, strict=False)]
    rng.shuffle(requests)
    return requests


async def _bench_sends(mesh: OwnMesh, names: Sequence[str], sizes: Sizes, rng: random.Random) -> Figure:
    mesh.ask("PUT", paths.topic_path(_ONE), {})
    requests = spread_requests(names, rng)
    # One send to each topic before the measurement: the cost of a first message is not compared.
    first = await run_to_end(mesh.port, SENDERS, send_singles(iter(requests)))
    many = Load(mesh, SENDERS, send_singles(itertools.cycle(requests)), sizes)
    one = Load(mesh, SENDERS, send_singles(itertools.cycle(single_requests(_ONE, rng))), sizes)
    ours, plain = await in_turns(sizes.rounds, many.turn, one.turn)
    check_stored(mesh, _ONE, one.total)
    stored = await stored_in_all(mesh, names)
    acknowledged = 1 + first.total + many.total  # one message showed that the restart was over
    if stored != acknowledged:
        raise BenchFailed(f"{acknowledged} sends were acknowledged, {stored} messages are in the topics")
    return compared("topics_10000_sends", ours, plain, topics=len(names), connections=SENDERS)
