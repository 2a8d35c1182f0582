"""The figures of idempotency keys: sends with a new key each beside sends without, in turns."""

import itertools
import random
from collections.abc import AsyncIterator, Iterator

from loadtest.bench.closed_loop import Prepared, Step, prepare
from loadtest.bench.delivery.sizes import Sizes
from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.sending import (
    BATCH_CONNECTIONS,
    BATCH_MESSAGES,
    BODY_SIZE_BYTES,
    batch_requests,
    check_stored,
    send_batches,
    send_singles,
    single_requests,
)
from loadtest.bench.turns import Load, compared, in_turns
from tern_wire import paths
from tern_wire.link.codec import encode_msgpack

_SINGLE_CONNECTIONS = 16
_QUEUES = 8
_TEMPLATES = 16
# All keys have one length, so each can be written into an encoded request.
_KEY = "key-%016d"
_HOLE = b"key-" + b"-" * 16


def keyed_singles(topic: str, rng: random.Random) -> Iterator[Prepared]:
    """Yield single sends without end, each with a new key."""
    turns = itertools.cycle(single_requests(topic, rng))
    for number, request in enumerate(turns):
        header = f"{paths.HEADER_IDEMPOTENCY_KEY}: {_KEY % number}\r\n".encode()
        yield request._replace(headers=request.headers + header)


def keyed_batches(topic: str, rng: random.Random) -> Iterator[Prepared]:
    """Yield batches of 100 without end, with a new key for every message."""
    headers = {"Content-Type": paths.MSGPACK, "Accept": paths.MSGPACK}
    templates = []
    for _ in range(_TEMPLATES):
        messages = [
            {"body": rng.randbytes(BODY_SIZE_BYTES), "idempotency_key": _HOLE.decode()} for _ in range(BATCH_MESSAGES)
        ]
        pieces = encode_msgpack({"messages": messages}).split(_HOLE)
        templates.append((pieces, prepare("POST", paths.batch_path(topic), b"", headers)))
    numbers = itertools.count()
    for pieces, request in itertools.cycle(templates):
        keys = [(_KEY % number).encode() for number in itertools.islice(numbers, BATCH_MESSAGES)]
        filled = itertools.chain.from_iterable(zip(pieces, keys, strict=False))
        yield request._replace(body=b"".join((*filled, pieces[-1])))


async def bench_keyed(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield keyed_batches and keyed_singles_16.

    Every key is new: a replay would be answered and not stored, and the totals would differ.
    """
    for figure, connections, plain_step, keyed_step in (
        ("keyed_batches", BATCH_CONNECTIONS, _plain_batches, _keyed_batches),
        ("keyed_singles_16", _SINGLE_CONNECTIONS, _plain_singles, _keyed_singles),
    ):
        topics = f"{figure}-no", f"{figure}-yes"
        for topic in topics:
            mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
        plain = Load(mesh, connections, plain_step(topics[0], rng), sizes)
        keyed = Load(mesh, connections, keyed_step(topics[1], rng), sizes)
        ours, beside = await in_turns(sizes.rounds, keyed.turn, plain.turn)
        check_stored(mesh, topics[0], plain.total)
        check_stored(mesh, topics[1], keyed.total)
        yield compared(figure, ours, beside, keys=keyed.total)


def _plain_batches(topic: str, rng: random.Random) -> Step:
    return send_batches(itertools.cycle(batch_requests(topic, rng)))


def _keyed_batches(topic: str, rng: random.Random) -> Step:
    return send_batches(keyed_batches(topic, rng))


def _plain_singles(topic: str, rng: random.Random) -> Step:
    return send_singles(itertools.cycle(single_requests(topic, rng)))


def _keyed_singles(topic: str, rng: random.Random) -> Step:
    return send_singles(keyed_singles(topic, rng))
