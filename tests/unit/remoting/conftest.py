"""Both loops that the link runs on, and a mesh of one server for its tests. Owner: each test's own server and links."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tern_remoting import Frame, Link, LinkServer, dial
from tests.support.loops import BOTH_LOOPS

KEY = bytes(range(32))
FRAME_SIZE_MAX_BYTES = 9 * 1024 * 1024


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Every test runs on the standard loop and on uvloop: their transports differ where it hurts."""
    return request.param


class Mesh:
    """One server, the frames that it got, and as many dialled links as a test asks for."""

    def __init__(
        self,
        server: LinkServer,
        frames: asyncio.Queue[tuple[Link, Frame]],
        lost: asyncio.Queue[tuple[Link, Exception | None]],
        stack: AsyncExitStack,
    ) -> None:
        self.server = server
        self.frames = frames
        self.lost = lost
        self._stack = stack

    async def dial(self, **changes: Any) -> Link:
        """A link of proxy `p` with the right key, unless *changes* say otherwise."""
        settings: dict[str, Any] = {
            "key": KEY,
            "role": "proxy",
            "name": "p",
            "group_id": "mesh-1",
            "on_frame": _ignore,
            "frame_size_max_bytes": FRAME_SIZE_MAX_BYTES,
        }
        link = await dial("127.0.0.1", self.server.port, **settings | changes)

        async def close() -> None:
            link.close("the test is over")
            await link.gone()

        self._stack.push_async_callback(close)
        return link

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection to the server, for what no honest peer would send."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)

        async def close() -> None:
            writer.transport.abort()

        self._stack.push_async_callback(close)
        return reader, writer


def _ignore(link: Link, frame: Frame) -> None:
    """A client that is never asked anything."""


@asynccontextmanager
async def mesh_of(on_frame: Any = None, port: int = 0, **changes: Any) -> AsyncIterator[Mesh]:
    """A running server whose frames go to *on_frame*, or to the mesh's queue."""
    frames: asyncio.Queue[tuple[Link, Frame]] = asyncio.Queue()
    lost: asyncio.Queue[tuple[Link, Exception | None]] = asyncio.Queue()
    settings: dict[str, Any] = {
        "key": KEY,
        "name": "broker-a-1",
        "group_id": "mesh-1",
        "on_frame": on_frame or (lambda link, frame: frames.put_nowait((link, frame))),
        "on_lost": lambda link, error: lost.put_nowait((link, error)),
        "frame_size_max_bytes": FRAME_SIZE_MAX_BYTES,
    }
    async with AsyncExitStack() as stack:
        server = LinkServer("127.0.0.1", port, **settings | changes)
        mesh = Mesh(server, frames, lost, stack)
        await server.start()
        stack.push_async_callback(server.stop)
        yield mesh


@pytest.fixture
def make_mesh() -> Any:
    """`mesh_of`, since tests have no packages to import it from."""
    return mesh_of
