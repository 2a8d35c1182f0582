"""Answers that nobody takes: bounded in all, at the cost of who has held them for longest of whoever holds most, and of nobody who is quick."""

import asyncio

import pytest

from tern_service.connections.bounds import Bounds
from tern_service.connections.table import ConnectionTable
from tern_service.connections.unsent_answers import Unsent
from tern_wire.limits_requests import UNSENT_HELD_MIN_MS
from tests.unit.service.test_arriving import GET, Reading, gone, until
from tests.unit.service.test_connection import serving_app

LATE_S = UNSENT_HELD_MIN_MS / 1_000


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


class Connection:
    """One that notes that it was broken off."""

    def __init__(self) -> None:
        self.is_broken = False

    def break_off(self) -> None:
        """It is."""
        self.is_broken = True


def holding(unsent: Unsent, *held: tuple[str, int, float]) -> list[Connection]:
    """Connections that hold, each of a host, so many bytes since then."""
    connections = []
    for host, size_bytes, since_s in held:
        connections.append(Connection())
        unsent.note(connections[-1], host, size_bytes, since_s)
    return connections


def test_up_to_the_limit_everybody_may_be_slow() -> None:
    """And what is taken, or gone, is not held; telling it twice changes nothing."""
    unsent = Unsent(1_000)
    one, other = holding(unsent, ("a", 600, 0.0), ("b", 400, 100.0))
    unsent.note(one, "a", 500, 200.0)
    assert unsent.size_bytes == 900
    unsent.forget(one)
    unsent.forget(one)
    assert (unsent.size_bytes, one.is_broken, other.is_broken) == (400, False, False)


def test_beyond_it_who_holds_most_and_longest_goes() -> None:
    """The one slow connection of another host stays, although it is older."""
    unsent = Unsent(1_000)
    held = holding(unsent, ("b", 300, 0.0), ("a", 300, 1.0), ("a", 300, 2.0), ("a", 300, 2.0 + LATE_S))
    assert [one.is_broken for one in held] == [False, True, False, False]
    assert (unsent.size_bytes, unsent.broken_off) == (900, 1)


def test_who_is_quick_is_never_broken_off() -> None:
    """A thousand large answers at once are no trouble while they are being taken."""
    unsent = Unsent(1_000)
    held = holding(unsent, *(("a", 300, number / 1_000) for number in range(1_000)))
    assert not any(one.is_broken for one in held)
    for one in held:
        unsent.forget(one)
    assert unsent.size_bytes == 0


@pytest.mark.anyio
async def test_a_connection_notes_what_its_client_has_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five clients that do not read 20 MB each: with room for two such answers, three are broken off; then nothing is held."""
    monkeypatch.setattr("tern_service.connections.unsent_answers.UNSENT_HELD_MIN_MS", 0)
    table = ConnectionTable()
    table.unsent = Unsent(40_000_000)
    writers = []
    async with serving_app(Reading(), Bounds(), table) as port:
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET.replace(b"/ ", b"/large "))
            writers.append(writer)
            await until(lambda: table.unsent.size_bytes > 0)
        await until(lambda: table.unsent.broken_off >= 2)
        assert table.unsent.size_bytes <= 40_000_000
        for writer in writers:
            await gone(writer)
        await until(lambda: table.unsent.size_bytes == 0)
