"""Sends hostile requests raw over sockets, many at a time, and says which were taken. Used by tests of real meshes."""

import asyncio
import contextlib
import re
from collections.abc import Sequence

from tests.support.mesh.hostile_requests import Case

AT_ONCE = 40
# Longer than every deadline of a server that goes by its limits, so that one that does not is seen.
PATIENCE_S = 15.0
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


async def throw(port: int, case: Case) -> bytes | None:
    """What the server has answered until it closed; None when it did not close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    writing = asyncio.ensure_future(_write(writer, case))
    got = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                while part := await reader.read(65_536):
                    got += part
    except TimeoutError:
        return None
    finally:
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await writing
        writer.close()
        with contextlib.suppress(ConnectionError, OSError):
            await writer.wait_closed()
    return bytes(got)


async def _write(writer: asyncio.StreamWriter, case: Case) -> None:
    with contextlib.suppress(ConnectionError):
        for part in case.parts:
            writer.write(part)
            await writer.drain()
        while case.pause_ms:
            await asyncio.sleep(case.pause_ms / 1_000)
            writer.write(case.parts[-1])
            await writer.drain()


def trouble_of(case: Case, answer: bytes | None) -> str:
    """Why *case* counts as accepted; "" when it was refused: by one 4xx, or by closing."""
    if answer is None:
        return "the connection stays open"
    statuses = [int(status) for status in _STATUS.findall(answer)]
    if any(not 400 <= status < 500 for status in statuses):
        return f"answered {statuses}"
    if len(statuses) > case.answers_max:
        return f"{len(statuses)} answers"
    return f"no HTTP: {answer[:40]!r}" if answer and not statuses else ""


async def throw_all(port: int, cases: Sequence[Case]) -> list[str]:
    """Throws every one of *cases*; the names of those that were accepted, with why."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> str:
        async with turns:
            trouble = trouble_of(case, await throw(port, case))
            return f"{case.name}: {trouble}" if trouble else ""

    return [trouble for trouble in await asyncio.gather(*map(one, cases)) if trouble]
