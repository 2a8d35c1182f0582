"""The rows of the bench: JSON texts of 1 KiB with a tag, a key and three properties, in one topic.

Sends go in batches of MessagePack over several connections. Parquet gets the rows as they are read.
"""

import asyncio
import random
from collections.abc import Iterator

import msgspec

from loadtest.bench.closed_loop import Prepared, prepare, run_to_end
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.sending import check_stored, send_batches
from tern_wire import paths

TOPIC = "rows"
QUEUES = 8
BODY_SIZE_BYTES = 1_024
BATCH_MESSAGES = 500
_CONNECTIONS = 8
_WORDS = ("alfa", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel")
_PADS = 64
_HEADERS = {"Content-Type": paths.MSGPACK, "Accept": paths.MSGPACK}


def load_rows(mesh: OwnMesh, rows: int, rng: random.Random) -> float:
    """Send *rows* messages, whole batches, to a new topic; return messages a second.

    BenchFailed when one is not stored.
    """
    mesh.ask("PUT", paths.topic_path(TOPIC), {"queues": QUEUES})
    done = asyncio.run(run_to_end(mesh.port, _CONNECTIONS, send_batches(batches(rows, rng), BATCH_MESSAGES)))
    check_stored(mesh, TOPIC, rows)
    return done.per_s


def batches(rows: int, rng: random.Random, topic: str = TOPIC) -> Iterator[Prepared]:
    """Yield requests of BATCH_MESSAGES messages each for *rows* messages of *topic*.

    They are made when they are needed: a million bodies are a gigabyte.
    """
    pads = [" ".join(f"{rng.choice(_WORDS)}{rng.randrange(1_000)}" for _ in range(300)) for _ in range(_PADS)]
    for first in range(0, rows, BATCH_MESSAGES):
        messages = [_message(number, pads[number % _PADS]) for number in range(first, first + BATCH_MESSAGES)]
        body = msgspec.msgpack.encode({"messages": messages})
        yield prepare("POST", paths.batch_path(topic), body, _HEADERS)


def _message(number: int, pad: str) -> dict[str, object]:
    head = f'{{"id":{number},"amount":{number * 31 % 5_000},"text":"'
    return {
        "body": (head + pad)[: BODY_SIZE_BYTES - 2].encode() + b'"}',
        "tag": _WORDS[number % len(_WORDS)],
        "keys": [f"k{number}"],
        "properties": {"region": f"eu-{number % 3}", "schema": "7", "src": "load"},
    }
