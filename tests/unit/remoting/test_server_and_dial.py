"""Who gets in, what strangers can do to a server, and a link that is kept alive."""

import asyncio
import contextlib
import os
import random
import resource
import socket
from typing import Any

import pytest

from tern_remoting import (
    Frame,
    HandshakeRefused,
    Link,
    LinkServer,
    LinkTimeout,
    PortInUse,
    Redialer,
    dial,
    encode_frame,
)
from tern_remoting.handshake import HELLO, ClientHandshake, Identity

KEY = bytes(range(32))
IDENTITY = Identity(key=KEY, role="proxy", name="p", group_id="mesh-1")
# A good greeting, whose sender then stops.
HELLO_BYTES = b"".join(encode_frame(HELLO, 0, 0, [ClientHandshake(IDENTITY, bytes(16)).opening().body]))


def echo(link: Link, frame: Frame) -> None:
    """Answers a request with its own body."""
    link.reply(frame.opaque, 0, [frame.body])


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What still comes before the server ends the connection, by its end or by a reset."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def serves(mesh: Any) -> bool:
    """A new member is greeted and answered."""
    link = await mesh.dial()
    return bytes((await link.request(1, [b"served"], timeout_s=5)).body) == b"served"


@pytest.mark.parametrize("changes", [{"key": bytes(32)}, {"group_id": "mesh-2"}], ids=["key", "group id"])
async def test_a_stranger_is_refused_and_logged_once(
    make_mesh: Any, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Another key or another group id: HandshakeRefused, no callback, one line that names no secret."""
    seen: list[Link] = []
    async with make_mesh(echo, on_ready=seen.append) as mesh:
        with pytest.raises(HandshakeRefused):
            await mesh.dial(**changes)
        assert seen == []
        assert await serves(mesh)
    assert [record.getMessage() for record in caplog.records].count("refused a link") == 1


async def test_a_refused_connection_is_told_nothing(make_mesh: Any) -> None:
    """A request instead of a greeting gets the end of the connection, and not one byte before it."""
    async with make_mesh(echo) as mesh:
        reader, writer = await mesh.raw()
        writer.write(b"".join(encode_frame(310, 1, 0, [b"let me in"])))
        assert await rest_of(reader) == b""
        assert await serves(mesh)


async def test_before_the_greeting_frames_are_small(make_mesh: Any) -> None:
    """A greeting of more than 4 KiB is refused by its size field alone."""
    async with make_mesh(echo) as mesh:
        reader, writer = await mesh.raw()
        writer.write((4097).to_bytes(4, "big"))
        assert await rest_of(reader) == b""


@pytest.mark.parametrize("first", [b"", HELLO_BYTES[:20], HELLO_BYTES], ids=["silent", "half a HELLO", "no PROOF"])
async def test_a_connection_that_does_not_greet_in_time_is_dropped(make_mesh: Any, first: bytes) -> None:
    """Silence and half a frame end at the deadline; so does a handshake that stops in the middle."""
    async with make_mesh(echo, handshake_timeout_s=0.05) as mesh:
        reader, writer = await mesh.raw()
        writer.write(first)
        if first == HELLO_BYTES:
            assert await reader.readexactly(4)
        await rest_of(reader)
        assert mesh.server.links == ()


async def test_300_connections_of_random_garbage_leave_the_server_serving(make_mesh: Any) -> None:
    """Bytes from a seed, some of them dressed as a greeting, all at once; a member is served meanwhile and after."""
    seed = 300
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def stranger() -> None:
        reader, writer = await mesh.raw()
        garbage = chance.randbytes(chance.randrange(1, 3_000))
        if chance.random() < 0.5:
            garbage = b"".join(encode_frame(HELLO, 0, 0, [garbage]))
        writer.write(garbage)
        writer.write_eof()
        await rest_of(reader)

    async with make_mesh(echo) as mesh:
        member = await mesh.dial()
        await asyncio.gather(*(stranger() for _ in range(300)))
        assert (await member.request(1, [b"member"], timeout_s=5)).body == b"member"
        assert await serves(mesh)


async def test_connections_are_capped_and_strangers_make_room_for_members(make_mesh: Any) -> None:
    """At the cap a silent stranger is dropped for a newcomer; ready members never are."""
    async with make_mesh(echo, connections_max=2, strangers_max=1) as mesh:
        first = await mesh.dial()
        reader, _ = await mesh.raw()
        second = await mesh.dial()
        assert await rest_of(reader) == b""
        with pytest.raises(HandshakeRefused):
            await mesh.dial()
        second.abort("another may come")
        async with asyncio.timeout(30):
            while len(mesh.server.links) > 1 or mesh.server._members_count > 1:
                await asyncio.sleep(0.001)
        second = await mesh.dial()
        for link in (first, second):
            assert (await link.request(1, [b"member"], timeout_s=5)).body == b"member"


async def test_accepting_goes_on_after_the_descriptors_ran_out(make_mesh: Any) -> None:
    """With no descriptor left the server cannot accept; once there are some, the waiting connection is served."""
    async with make_mesh(echo) as mesh:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken: list[int] = []
        refused = asyncio.Event()
        server = mesh.server
        lack = server._acceptor._on_lack

        def note(error: OSError) -> None:
            refused.set()
            lack(error)

        server._acceptor._on_lack = note
        client = socket.socket()
        client.setblocking(False)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(client.fileno()))
            assert len(taken) < 256
            # The kernel completes this one in the listener's backlog; accepting it takes a descriptor.
            client.connect_ex(("127.0.0.1", server.port))
            async with asyncio.timeout(30):
                await refused.wait()
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(HELLO_BYTES)
        assert await reader.readexactly(4)
        writer.transport.abort()
        assert await serves(mesh)


async def test_a_port_in_use_is_named_with_the_setting_to_change() -> None:
    """The operator reads host, port and option, not errno 98."""

    def server(port: int) -> LinkServer:
        return LinkServer(
            "127.0.0.1",
            port,
            key=KEY,
            name="b",
            group_id="",
            on_frame=echo,
            frame_size_max_bytes=1000,
            option="--link-port",
        )

    first = server(0)
    await first.start()
    try:
        with pytest.raises(PortInUse) as refused:
            await server(first.port).start()
    finally:
        await first.stop()
    assert str(refused.value) == f"port {first.port} on 127.0.0.1 is in use; choose another with --link-port"
    again = server(first.port)
    await again.start()
    await again.stop()


async def test_dialling_a_listener_that_never_answers_times_out() -> None:
    """A port that accepts and says nothing costs the dialler its own timeout and no more."""
    # The kernel accepts for it.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LinkTimeout):
            await dial(
                "127.0.0.1",
                port,
                key=KEY,
                role="proxy",
                name="p",
                group_id="",
                on_frame=echo,
                frame_size_max_bytes=1000,
                timeout_s=0.05,
            )


async def test_a_redialer_comes_back_after_the_server_did(make_mesh: Any) -> None:
    """Up, down with the server, up again on the same port; close ends it for good."""
    events: asyncio.Queue[str] = asyncio.Queue()
    async with make_mesh(echo) as mesh:
        port = mesh.server.port
        redialer = Redialer(
            "127.0.0.1",
            port,
            key=KEY,
            role="broker",
            name="broker-a-2",
            group_id="mesh-1",
            on_frame=echo,
            on_up=lambda link: events.put_nowait("up"),
            on_down=lambda link, error: events.put_nowait("down"),
            frame_size_max_bytes=100_000,
            rng=random.Random(5),
        )
        assert redialer.link is None
        assert await events.get() == "up"
        assert redialer.link is not None
        assert (await redialer.link.request(1, [b"1"], timeout_s=5)).body == b"1"
        await mesh.server.stop()
        assert await events.get() == "down"
        assert redialer.link is None
    async with make_mesh(echo, port=port) as mesh:
        assert await events.get() == "up"
        assert (await redialer.link.request(1, [b"2"], timeout_s=5)).body == b"2"
        redialer.close()
        redialer.close()
        assert await events.get() == "down"
        assert redialer.link is None


async def test_a_link_is_up_before_its_first_frame_is_delivered(make_mesh: Any) -> None:
    """A server may speak the moment it has welcomed: the owner of the link must know the link by then."""
    order: list[str] = []
    done = asyncio.Event()

    def on_frame(link: Link, frame: Frame) -> None:
        order.append(f"frame {frame.code}")
        done.set()

    async with make_mesh(on_ready=lambda link: link.post(7, [bytes(20_000)])) as mesh:
        redialer = Redialer(
            "127.0.0.1",
            mesh.server.port,
            key=KEY,
            role="broker",
            name="broker-a-2",
            group_id="mesh-1",
            on_frame=on_frame,
            on_up=lambda link: order.append("up"),
            frame_size_max_bytes=100_000,
            rng=random.Random(5),
        )
        await done.wait()
        redialer.close()
        assert order == ["up", "frame 7"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_link_that_is_ready_stays_though_its_time_is_over_in_the_same_turn(
    make_mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stood still for a second finds both at once; what was sent on the link when it came up has an answer."""
    loop = asyncio.get_running_loop()
    asked: list[asyncio.Task[Frame]] = []
    clock = loop.time

    def on_ready(link: Link) -> None:
        asked.append(asyncio.create_task(link.request(1, [b"1"], timeout_s=600)))
        monkeypatch.setattr(loop, "time", lambda: clock() + 60)

    async with make_mesh(echo) as mesh:
        link = await mesh.dial(on_ready=on_ready, timeout_s=5)
        assert not link.closed
        assert (await asked[0]).body == b"1"
