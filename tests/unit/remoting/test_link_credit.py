"""A ready link under load: reads wait for the asker's room, sends pass them, and nothing breaks the link."""

import asyncio
import functools
from typing import Any

from tern_remoting import Frame, FrameCorrupt, Link, Room
from tern_remoting.credit import CREDIT, UNSENT_SIZE_MAX_BYTES
from tests.support.loops import eventually

MIB = 1024 * 1024


async def test_a_peer_that_does_not_read_keeps_its_link_and_gets_no_more(make_mesh: Any) -> None:
    """Reads that it goes on asking wait unread; what it gets then is what was begun. With credit and, of an older release, without."""
    window_bytes = 4 * MIB
    for room in (Room(window_bytes=window_bytes, page_bytes=0), None):
        begun: list[int] = []

        def on_frame(link: Link, frame: Frame, begun: list[int] = begun) -> None:
            def begin(_page_bytes: int, opaque: int = frame.opaque) -> None:
                begun.append(opaque)
                link.reply(opaque, 0, [bytes(MIB)])

            link.when_room(frame.opaque, "f", MIB, begin, lambda: link.reply(frame.opaque, 1, []))

        async with make_mesh(on_frame) as mesh:
            link = await mesh.dial(room=None if room is None else lambda room=room: room)
            assert link._transport is not None
            link._transport.pause_reading()
            asked = [asyncio.create_task(link.request(7, [], timeout_s=30)) for _ in range(100)]
            (server,) = await _served(mesh)
            await eventually(lambda: len(begun) + server.window.waiting == 100, "reads at the other end")  # noqa: B023
            assert not server.closed
            assert server.buffered_bytes <= UNSENT_SIZE_MAX_BYTES + MIB
            if room is not None:
                assert len(begun) == window_bytes // MIB
            link._transport.resume_reading()
            answers = await asyncio.gather(*asked)
            assert {len(answer.body) for answer in answers} == {MIB}
            assert not server.closed


async def test_sends_pass_reads_that_wait(make_mesh: Any) -> None:
    """And an answer that nobody waits for any more gives its credit back."""
    begins: list[Any] = []

    def on_frame(link: Link, frame: Frame) -> None:
        if frame.code == 1:
            link.reply(frame.opaque, 0, [b"stored"])
        else:
            reply = functools.partial(link.reply, frame.opaque, 0, [bytes(MIB)])
            link.when_room(frame.opaque, "f", MIB, lambda _page: begins.append(reply), reply)

    async with make_mesh(on_frame) as mesh:
        link = await mesh.dial(room=lambda: Room(window_bytes=1, page_bytes=0))
        reads = [asyncio.create_task(link.request(2, [], timeout_s=30)) for _ in range(3)]
        await eventually(lambda: len(begins) == 1, "a read")
        assert (await link.request(1, [], timeout_s=30)).body == b"stored"
        reads[0].cancel()
        await asyncio.gather(reads[0], return_exceptions=True)
        for number in range(3):
            await eventually(functools.partial(_has, begins, number + 1), "the next read")
            begins[number]()
        assert [len(answer.body) for answer in await asyncio.gather(*reads[1:])] == [MIB, MIB]


async def test_a_grant_that_cannot_be_read_breaks_the_link(make_mesh: Any) -> None:
    """As every frame that is none."""
    async with make_mesh() as mesh:
        link = await mesh.dial()
        link.post(CREDIT, [b"much"])
        _, error = await mesh.lost.get()
        assert isinstance(error, FrameCorrupt)


async def _served(mesh: Any) -> tuple[Link, ...]:
    await eventually(lambda: mesh.server.links, "a link")
    links: tuple[Link, ...] = mesh.server.links
    return links


def _has(found: list[Any], count: int) -> bool:
    return len(found) == count
