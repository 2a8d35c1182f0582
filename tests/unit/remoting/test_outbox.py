"""What is flushed early leaves at once, and nothing that waits for room begins in the middle of the caller's work."""

import asyncio
from typing import Any

import pytest

from tern_remoting.outbox import Outbox

pytestmark = pytest.mark.anyio


class _Transport:
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def write(self, data: bytes) -> None:
        self._seen.append(data.decode())

    def get_write_buffer_size(self) -> int:
        return 0


def opened() -> tuple[Outbox, list[str]]:
    """An outbox, and what it has sent and called in order."""
    seen: list[str] = []
    outbox = Outbox(asyncio.get_running_loop(), lambda: seen.append("goes on"))
    transport: Any = _Transport(seen)
    outbox.open(transport, is_tls=False)
    return outbox, seen


async def test_an_early_flush_sends_at_once_and_goes_on_in_the_next_turn() -> None:
    """Once: the flush at the end of the turn finds nothing left."""
    outbox, seen = opened()
    outbox.write([b"ab", b"c"], 3)
    outbox.flush_early()
    seen.append("the caller's work is done")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == ["abc", "the caller's work is done", "goes on"]
    outbox.flush_early()
    await asyncio.sleep(0)
    assert len(seen) == 3


async def test_without_it_all_leaves_at_the_end_of_the_turn() -> None:
    """And what waits goes on at once."""
    outbox, seen = opened()
    outbox.write([b"ab"], 2)
    outbox.write([b"c"], 1)
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["abc", "goes on"]
