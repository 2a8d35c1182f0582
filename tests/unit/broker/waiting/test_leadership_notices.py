"""The broker's notices, over a real link to a real proxy's view of the group."""

import asyncio

import pytest

from tern_broker.waiting.leadership_notices import LeadershipNotices
from tern_remoting import Frame, Link, LinkServer, dial
from tern_wire.limits import FRAME_SIZE_MAX_BYTES
from tern_wire.link.heads import read_head
from tern_wire.link.requests import NoticeCode
from tern_wire.link.status import Leadership

pytestmark = pytest.mark.anyio
KEY = bytes(range(32))


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


class Node:
    """A broker's link port with its notices, and a role that the test sets."""

    def __init__(self) -> None:
        self.role = (3, False)
        self.notices = LeadershipNotices("broker-a-0", lambda: self.role)
        self.lost: list[Link] = []
        self.server = LinkServer(
            "127.0.0.1",
            0,
            key=KEY,
            name="broker-a-0",
            group_id="",
            on_frame=lambda link, frame: None,
            on_ready=self.notices.opened,
            on_lost=self._lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )

    def _lost(self, link: Link, error: Exception | None) -> None:
        self.notices.lost(link, error)
        self.lost.append(link)

    def set_role(self, term: int, is_serving: bool) -> None:
        """The role changes, and the node says so."""
        self.role = (term, is_serving)
        self.notices.role_changed()


class Listener:
    """Whoever dials: what it was told."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()

    async def dial(self, node: Node, role: str) -> Link:
        """A link to *node*."""
        return await dial(
            *("127.0.0.1", node.server.port),
            key=KEY,
            role=role,
            name=f"{role}-1",
            group_id="",
            on_frame=lambda _, frame: self.frames.put_nowait(frame),
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )

    async def next(self) -> Leadership:
        """The next notice."""
        frame = await asyncio.wait_for(self.frames.get(), 10)
        assert frame.code == NoticeCode.LEADERSHIP
        return read_head(Leadership, frame.body)[0]


async def test_a_proxy_is_told_when_it_links_and_whenever_serving_changes() -> None:
    """With the term; a follower's changes of term are nobody's business."""
    node, proxy = Node(), Listener()
    await node.server.start()
    try:
        link = await proxy.dial(node, "proxy")
        assert await proxy.next() == Leadership("broker-a-0", 3, False)
        node.set_role(4, False)
        node.set_role(5, True)
        assert await proxy.next() == Leadership("broker-a-0", 5, True)
        node.set_role(6, False)
        assert await proxy.next() == Leadership("broker-a-0", 6, False)
        node.set_role(7, False)
        node.set_role(8, True)
        assert await proxy.next() == Leadership("broker-a-0", 8, True)
        link.close("done")
        await link.gone()
    finally:
        await node.server.stop()


async def test_only_proxies_and_checkers_are_told_and_nobody_who_is_gone() -> None:
    """Another broker on the port hears nothing; a closed link is forgotten."""
    node, broker, checker, proxy = Node(), Listener(), Listener(), Listener()
    await node.server.start()
    try:
        await broker.dial(node, "broker")
        link = await proxy.dial(node, "proxy")
        await proxy.next()
        asks = await checker.dial(node, "checker")
        assert await checker.next() == Leadership("broker-a-0", 3, False)
        asks.abort("gone")
        link.abort("gone")
        deadline = asyncio.get_running_loop().time() + 10
        while len(node.lost) < 2 and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.002)
        assert len(node.lost) == 2
        assert not node.notices._links
        node.set_role(5, True)
        await Listener().dial(node, "proxy")
        assert broker.frames.empty()
    finally:
        await node.server.stop()
