"""A ready link: multiplexing, limits, timeouts, and what a failure costs."""

import asyncio
import random
from typing import Any

import pytest

from tern_remoting import (
    ONE_WAY,
    Frame,
    FrameTooLarge,
    HandshakeRefused,
    Link,
    LinkBusy,
    LinkClosed,
    LinkTimeout,
    PeerName,
)

MIB = 1024 * 1024


def echo(link: Link, frame: Frame) -> None:
    """Answers a request with its own body."""
    if not frame.flags & ONE_WAY:
        link.reply(frame.opaque, 0, [frame.body])


async def test_both_ends_ask_and_post_once_greeted(make_mesh: Any) -> None:
    """The link is symmetric, and each end knows the other's name."""
    ready: asyncio.Queue[Link] = asyncio.Queue()
    async with make_mesh(echo, on_ready=ready.put_nowait) as mesh:
        posts: asyncio.Queue[bytes] = asyncio.Queue()

        def on_frame(link: Link, frame: Frame) -> None:
            echo(link, frame)
            if frame.flags & ONE_WAY:
                posts.put_nowait(bytes(frame.body))

        client = await mesh.dial(on_frame=on_frame)
        server = await ready.get()
        assert (client.peer, server.peer) == (PeerName("broker", "broker-a-1"), PeerName("proxy", "p"))
        assert mesh.server.links == (server,)
        assert (await client.request(1, [b"from ", b"proxy"], timeout_s=5)).body == b"from proxy"
        assert (await server.request(1, [b"from broker"], timeout_s=5)).body == b"from broker"
        assert server.post(900, [b"one-way"])
        assert await posts.get() == b"one-way"


async def test_replies_find_their_requests_out_of_order(make_mesh: Any) -> None:
    """A hundred requests in flight, answered in an order of chance; an error number arrives as the reply's code."""
    async with make_mesh() as mesh:
        link = await mesh.dial()
        asked = [asyncio.create_task(link.request(10, [str(number).encode()], timeout_s=5)) for number in range(100)]
        held = [await mesh.frames.get() for _ in asked]
        assert link.in_flight == 100
        random.Random(3).shuffle(held)
        for server, frame in held:
            server.reply(frame.opaque, int(frame.body), [b"re ", frame.body])
        replies = await asyncio.gather(*asked)
        assert [(reply.code, bytes(reply.body)) for reply in replies] == [(n, b"re %d" % n) for n in range(100)]
        assert link.in_flight == 0


async def test_a_body_of_8_mib_goes_and_comes_back(make_mesh: Any) -> None:
    """In several parts, among small requests."""
    body = random.Random(8).randbytes(8 * MIB)
    async with make_mesh(echo) as mesh:
        link = await mesh.dial()
        small = [link.request(1, [b"small"], timeout_s=10) for _ in range(10)]
        large = link.request(1, [body[:100], memoryview(body)[100:]], timeout_s=10)
        reply, *rest = await asyncio.gather(large, *small)
        assert reply.body == body
        assert {bytes(frame.body) for frame in rest} == {b"small"}


async def test_a_frame_over_the_limit_is_refused_at_home(make_mesh: Any) -> None:
    """The sender's error leaves the link as it was."""
    async with make_mesh(echo) as mesh:
        link = await mesh.dial()
        with pytest.raises(FrameTooLarge):
            await link.request(1, [bytes(9 * MIB)], timeout_s=5)
        with pytest.raises(FrameTooLarge):
            link.post(1, [bytes(9 * MIB)])
        assert (await link.request(1, [b"still here"], timeout_s=5)).body == b"still here"


async def test_a_request_without_a_reply_times_out_and_its_late_reply_is_dropped(make_mesh: Any) -> None:
    """Each request has its own deadline; the link lives on."""
    async with make_mesh() as mesh:
        link = await mesh.dial()
        patient = asyncio.create_task(link.request(1, [b"patient"], timeout_s=30))
        with pytest.raises(LinkTimeout):
            await link.request(1, [b"hasty"], timeout_s=0.01)
        frames = {bytes(frame.body): (server, frame) for server, frame in [await mesh.frames.get() for _ in range(2)]}
        for body in (b"hasty", b"patient"):
            server, frame = frames[body]
            assert server.reply(frame.opaque, 0, [body])
        assert (await patient).body == b"patient"
        assert link.in_flight == 0


async def test_a_later_request_with_a_shorter_deadline_ends_first(make_mesh: Any) -> None:
    """The one timer is moved forward when it must be, and set again for those that remain."""
    async with make_mesh() as mesh:
        link = await mesh.dial()
        ended: list[float] = []

        async def ask(timeout_s: float) -> None:
            with pytest.raises(LinkTimeout):
                await link.request(1, [], timeout_s=timeout_s)
            ended.append(timeout_s)

        await asyncio.gather(*(ask(timeout_s) for timeout_s in (0.3, 0.01, 0.15)))
        assert ended == [0.01, 0.15, 0.3]


async def test_a_cancelled_request_leaves_nothing_behind(make_mesh: Any) -> None:
    """The caller gave up; the reply that still comes harms nobody."""
    async with make_mesh() as mesh:
        link = await mesh.dial()
        asked = asyncio.create_task(link.request(1, [b"first"], timeout_s=5))
        server, frame = await mesh.frames.get()
        asked.cancel()
        await asyncio.wait([asked])
        assert link.in_flight == 0
        server.reply(frame.opaque, 0, [])
        second = asyncio.create_task(link.request(1, [b"second"], timeout_s=5))
        server, frame = await mesh.frames.get()
        server.reply(frame.opaque, 0, [b"done"])
        assert (await second).body == b"done"


async def test_closing_ends_every_request_in_flight_at_both_ends(make_mesh: Any) -> None:
    """LinkClosed for who waits, None for the owner, False and LinkClosed for who comes later."""
    lost: asyncio.Queue[Exception | None] = asyncio.Queue()
    async with make_mesh() as mesh:
        link = await mesh.dial(on_lost=lambda link, error: lost.put_nowait(error))
        asked = [asyncio.create_task(link.request(1, [], timeout_s=30)) for _ in range(3)]
        server = (await mesh.frames.get())[0]
        back = asyncio.create_task(server.request(1, [], timeout_s=30))
        await asyncio.wait([back], timeout=0)
        server.close("enough")
        for task in (*asked, back):
            with pytest.raises(LinkClosed):
                await task
        assert await lost.get() is None
        assert (await mesh.lost.get()) == (server, None)
        assert link.closed
        assert not link.post(1, [])
        assert not server.reply(1, 0, [])
        with pytest.raises(LinkClosed):
            await link.request(1, [], timeout_s=1)


async def test_what_was_written_before_close_still_arrives(make_mesh: Any) -> None:
    """Close is orderly: 4 MiB of posts, then the end."""
    async with make_mesh() as mesh:
        link = await mesh.dial()
        for number in range(4):
            assert link.post(number, [bytes(MIB)])
        link.close("done")
        assert [(await mesh.frames.get())[1].code for _ in range(4)] == [0, 1, 2, 3]


async def test_in_flight_requests_and_buffered_bytes_are_bounded(make_mesh: Any) -> None:
    """Over either bound nothing is sent, and the caller hears it at once."""
    async with make_mesh() as mesh:
        link = await mesh.dial(in_flight_max=2, buffered_size_max_bytes=MIB)
        asked = [asyncio.create_task(link.request(1, [], timeout_s=5)) for _ in range(2)]
        held = [await mesh.frames.get() for _ in asked]
        with pytest.raises(LinkBusy):
            await link.request(1, [], timeout_s=5)
        assert link.post(1, [bytes(MIB - 100)])
        assert link.buffered_bytes > MIB - 100
        assert not link.post(1, [bytes(200)])
        for server, frame in held:
            server.reply(frame.opaque, 0, [])
        await asyncio.gather(*asked)
        assert link.post(1, [bytes(MIB - 100)])
        with pytest.raises(LinkBusy):
            await link.request(1, [bytes(200)], timeout_s=5)


async def test_a_callback_that_raises_costs_only_its_own_link(make_mesh: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The other link of the same server goes on; the failure is logged once, with its traceback."""

    def on_frame(link: Link, frame: Frame) -> None:
        if frame.code == 666:
            raise ZeroDivisionError("a bug of the application")
        echo(link, frame)

    async with make_mesh(on_frame) as mesh:
        good, bad = await mesh.dial(), await mesh.dial(name="bad")
        with pytest.raises(LinkClosed):
            await bad.request(666, [], timeout_s=5)
        server, error = await mesh.lost.get()
        assert server.peer.name == "bad"
        assert isinstance(error, ZeroDivisionError)
        assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]
        assert (await good.request(1, [b"fine"], timeout_s=5)).body == b"fine"
        assert (await (await mesh.dial()).request(1, [b"new"], timeout_s=5)).body == b"new"


async def test_on_ready_and_on_lost_that_raise_cost_only_their_link(make_mesh: Any) -> None:
    """The server goes on accepting."""
    failures = [True, False]

    def on_ready(link: Link) -> None:
        if failures.pop(0):
            raise ValueError("not ready for this")

    def on_lost(link: Link, error: Exception | None) -> None:
        raise ValueError("no farewell either")

    async with make_mesh(echo, on_ready=on_ready, on_lost=on_lost) as mesh:
        with pytest.raises(HandshakeRefused):
            await mesh.dial()
        lucky = await mesh.dial()
        assert (await lucky.request(1, [b"hi"], timeout_s=5)).body == b"hi"


async def test_a_corrupt_frame_after_the_greeting_closes_the_link(make_mesh: Any) -> None:
    """The stream cannot be trusted any more; the owner learns why."""
    async with make_mesh() as mesh:
        link = await mesh.dial()
        link._outbox.write([b"\xff\xff\xff\xff"], 4)
        await link.gone()
        _, error = await mesh.lost.get()
        assert isinstance(error, FrameTooLarge)
