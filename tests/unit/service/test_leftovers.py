"""A connection that is gone leaves nothing for a garbage collection: full ones stop everything, the longer the more there is."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from tern_service.connections.bounds import Bounds
from tern_service.connections.connection import GuardedProtocol
from tern_service.connections.table import ConnectionTable
from tests.support.loops import BOTH_LOOPS
from tests.unit.service.test_arriving import CHUNKED, GET, HEAD, Reading, gone, until
from tests.unit.service.test_connection import serving_app


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """As in production, and as in other tests."""
    return request.param


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Seen:
    """How many connections there were, and those that are there."""

    def __init__(self) -> None:
        self.made = 0
        self.there: weakref.WeakSet[GuardedProtocol] = weakref.WeakSet()

    def has_made(self, count: int) -> bool:
        """Whether there were so many."""
        return self.made >= count


def has_begun(app: Reading, count: int) -> bool:
    """Whether *app* has begun so many requests."""
    return app.begun >= count


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Of all that the test makes."""
    known = Seen()
    make = GuardedProtocol.connection_made

    def connection_made(self: GuardedProtocol, transport: asyncio.Transport) -> None:
        known.made += 1
        known.there.add(self)
        make(self, transport)

    monkeypatch.setattr(GuardedProtocol, "connection_made", connection_made)
    return known


WAYS = {
    "nothing asked": (b"", 0),
    "a part of a head": (GET[:20], 0),
    "answered": (GET, 1),
    "several at once": (GET * 5, 1),
    "no HTTP": (b"what\r\n\r\n", 1),
    "a head alone": (HEAD, 0),
    "a part of a body": (CHUNKED + b"4\r\npart\r\n", 0),
    "worked on": (GET.replace(b"/ ", b"/work "), 0),
    "behind one that is worked on": (GET.replace(b"/ ", b"/work ") + GET, 0),
    "an answer that is not taken": (GET.replace(b"/ ", b"/large "), 0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("uncollected")
async def test_a_connection_that_is_gone_leaves_nothing(way: str, seen: Seen) -> None:
    """However far it had come, and whoever has ended it."""
    sent, answers = WAYS[way]
    begins = b"POST" in sent or b"/work" in sent or b"/large" in sent
    app = Reading()
    async with serving_app(app, Bounds(), ConnectionTable()) as port:
        try:
            for number in range(1, 4):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                await until(partial(seen.has_made, number))
                if answers:
                    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
                elif begins:
                    await until(partial(has_begun, app, number))
                await gone(writer)
                del reader, writer
        finally:
            app.go_on.set()
        await until(lambda: not seen.there)
