"""Load of transactions for `loadtest.bench.transactions`.

Transactions are begun in one request each over many connections, committed, listed, pulled.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence

import msgspec

from loadtest.bench.closed_loop import BenchFailed, Prepared, Step, prepare, run_to_end
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh
from tern_wire import paths

TOPIC = "bench-transactions"
QUEUES = 8
CONNECTIONS = 64
PULLED_MAX = 256
_PATIENCE_S, _PAUSE_S = 60.0, 0.1


class _Begun(msgspec.Struct):
    """The used fields of the answer to a begin."""

    transaction_id: str


class _Checks(msgspec.Struct):
    """The used fields of the answer to a poll for checks."""

    checks: list[_Begun]


class _Page(msgspec.Struct):
    """The used fields of a page of transactions."""

    transactions: list[_Begun]
    next_cursor: str


_begun = msgspec.json.Decoder(_Begun).decode
_checks = msgspec.json.Decoder(_Checks).decode
_page = msgspec.json.Decoder(_Page).decode


def declare(mesh: OwnMesh, groups: Sequence[str], **settings: object) -> None:
    """Declare the topic, and producer groups with the check *settings*."""
    mesh.ask("PUT", paths.topic_path(TOPIC), {"queues": QUEUES, "type": "TRANSACTION"})
    for group in groups:
        mesh.ask("PUT", paths.producer_group_path(group), settings)


def begins(groups: Sequence[str], rng: random.Random, size_bytes: int, **headers: str) -> Iterator[Prepared]:
    """Yield begins without end, the groups in turn."""
    bodies = [rng.randbytes(size_bytes) for _ in range(64)]
    path = f"{paths.topic_path(TOPIC)}/transactions"
    each = [
        prepare("POST", path, body, {paths.HEADER_PRODUCER_GROUP: group, **headers})
        for group, body in zip(groups, itertools.cycle(bodies), strict=False)
    ]
    return itertools.cycle(each)


async def patient(connection: HttpConnection, request: Prepared) -> tuple[int, bytes]:
    """Return the first answer that is no 503 or 504, or the last one within a minute.

    A busy machine may elect another leader. An end, or a request with a key, is repeated after
    both; a begin without a key and an ordinary send are not repeated after 504.
    """
    is_repeatable = b"Idempotency-Key" in request.headers or request.path.endswith("/commit")
    give_up_s = time.monotonic() + _PATIENCE_S
    while True:
        status, body = await connection.request(*request)
        if (status != 503 and not (status == 504 and is_repeatable)) or time.monotonic() > give_up_s:
            return status, body
        await asyncio.sleep(_PAUSE_S)


def keyed(requests: Iterator[Prepared], name: str) -> Iterator[Prepared]:
    """Yield *requests*, each with an idempotency key of its own: NAME-1 and so on.

    A request with unknown outcome can so be repeated.
    """
    for number, request in enumerate(requests):
        key = f"{paths.HEADER_IDEMPOTENCY_KEY}: {name}-{number}\r\n".encode()
        yield request._replace(headers=request.headers + key)


async def begin(connection: HttpConnection, request: Prepared) -> str:
    """Begin a transaction, or find the one begun by the same key; return its id. BenchFailed."""
    status, body = await patient(connection, request)
    if status not in {200, 201}:
        raise BenchFailed(f"a begin got {status}: {body[:300]!r}")
    return _begun(body).transaction_id


async def commit(connection: HttpConnection, transaction_id: str) -> None:
    """Commit the transaction. BenchFailed unless that succeeds."""
    status, body = await patient(connection, prepare("POST", paths.transaction_path(transaction_id, "commit"), b""))
    if status != 200:
        raise BenchFailed(f"a commit got {status}: {body[:300]!r}")


async def begin_many(mesh: OwnMesh, requests: Iterator[Prepared], count: int) -> tuple[list[str], float]:
    """Begin *count* transactions; return their ids and the time that it took (s)."""
    ids: list[str] = []
    chosen = itertools.islice(requests, count)

    async def step(connection: HttpConnection) -> int | None:
        request = next(chosen, None)
        if request is None:
            return None
        ids.append(await begin(connection, request))
        return 1

    return ids, (await run_to_end(mesh.port, CONNECTIONS, step)).seconds


async def commit_many(mesh: OwnMesh, ids: Sequence[str]) -> float:
    """Commit all; return seconds."""
    waiting = iter(ids)

    async def step(connection: HttpConnection) -> int | None:
        one = next(waiting, None)
        if one is None:
            return None
        await commit(connection, one)
        return 1

    return (await run_to_end(mesh.port, CONNECTIONS, step)).seconds


def begin_and_commit(requests: Iterator[Prepared]) -> Step:
    """Return a step that begins one transaction and commits it."""

    async def step(connection: HttpConnection) -> int | None:
        await commit(connection, await begin(connection, next(requests)))
        return 1

    return step


def pull_checks(groups: Iterator[str], pulled: set[str], wanted: int) -> Step:
    """Return a step that polls for checks of the next of *groups*.

    It ends when *wanted* different transactions were checked; *pulled* collects them.
    """

    async def step(connection: HttpConnection) -> int | None:
        if len(pulled) >= wanted:
            return None
        path = f"{paths.checks_path(next(groups))}?max_messages={PULLED_MAX}&wait=1s"
        status, body = await connection.request("POST", path)
        if status != 200:
            raise BenchFailed(f"a poll for checks got {status}: {body[:300]!r}")
        found = [check.transaction_id for check in _checks(body).checks]
        if pulled.intersection(found):
            raise BenchFailed("a check was handed out twice")
        pulled.update(found)
        return len(found)

    return step


async def list_pages(mesh: OwnMesh, limit: int, pages_max: int) -> tuple[list[str], list[float]]:
    """Return ids of open transactions, at most *pages_max* pages, and the time of each page (s)."""
    connection = await HttpConnection.open("127.0.0.1", mesh.port)
    listed: list[str] = []
    took_s: list[float] = []
    cursor = ""
    try:
        while len(took_s) < pages_max:
            path = f"{paths.TRANSACTIONS_PATH}?limit={limit}&cursor={cursor}"
            began_s = time.perf_counter()
            status, body = await connection.request("GET", path)
            took_s.append(time.perf_counter() - began_s)
            if status != 200:
                raise BenchFailed(f"a page of transactions got {status}: {body[:300]!r}")
            page = _page(body)
            listed += [one.transaction_id for one in page.transactions]
            cursor = page.next_cursor
            if not cursor:
                break
    finally:
        connection.close()
    return listed, took_s
