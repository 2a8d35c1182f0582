"""The Raft port of a real node, attacked over real sockets: who is not meant is closed, counted, and never understood."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tern_raft.links
import tern_raft.transport
from tern_raft.frames import RAFT_CODE, encode_message
from tern_remoting import Frame, HandshakeRefused, Link, LinkError, dial, encode_frame
from tern_remoting.handshake import HELLO, PROOF
from tern_store.state.vote_file import Standing
from tern_wire.limits import STRANGERS_MAX
from tests.fuzz.raft_port import run
from tests.fuzz.victim import GROUP, KEY, Victim, greeting_frame, hello, raft_frame

DEADLINE_S = 30.0


@pytest.fixture
def anyio_backend() -> Any:
    """The loop that brokers run on."""
    return "asyncio", {"use_uvloop": True}


class Port:
    """The node's port, and honest and dishonest ways to it. Owner: one test."""

    def __init__(self, victim: Victim, stack: AsyncExitStack) -> None:
        self.victim, self._stack = victim, stack
        self.links = victim.links
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def dial(self, **changes: Any) -> Link:
        """A link as peer n-1 makes it, unless *changes* say otherwise."""
        settings: dict[str, Any] = {
            "key": KEY,
            "role": "broker",
            "name": "n-1",
            "group_id": GROUP.hex(),
            "on_frame": self._on_frame,
            "frame_size_max_bytes": 8 << 20,
            # A busy machine accepts hundreds of connections before this one.
            "timeout_s": DEADLINE_S,
        }
        link = await dial("127.0.0.1", self.links.port, **settings | changes)
        self._stack.callback(link.abort, "the test is over")
        return link

    async def raw(self, *frames: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection that begins with *frames*."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.links.port)

        async def close() -> None:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

        self._stack.push_async_callback(close)
        writer.write(b"".join(frames))
        return reader, writer

    async def serves(self) -> bool:
        """A member is let in, and the node tells it what it is."""
        self.heard = asyncio.Queue()
        link = await self.dial(name="n-2")
        link.post(RAFT_CODE, encode_message(hello("n-2", self.victim.node, Standing.UNBORN)))
        async with asyncio.timeout(DEADLINE_S):
            found = bool(await self.heard.get())
        link.abort("enough")
        await link.gone()
        await until(lambda: "n-2" not in self.links._links)
        return found

    def count(self, reason: str) -> int:
        """How many were refused for *reason*."""
        return self.links.refusals()[reason]

    def _on_frame(self, link: Link, frame: Frame) -> None:
        self.heard.put_nowait(bytes(frame.body))


@asynccontextmanager
async def open_port(directory: Path, *, handshake_timeout_s: float = 2.0) -> AsyncIterator[Port]:
    """A node that listens."""
    victim = Victim(directory, random.Random(1), handshake_timeout_s=handshake_timeout_s)
    async with AsyncExitStack() as stack:
        await victim.links.start(victim.node.transport)
        stack.push_async_callback(victim.links.stop)
        yield Port(victim, stack)
    victim.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, but not for ever."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What still comes before the node ends the connection."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00\x00\x02hi", "garbage"),
        (b"GET / HTTP/1.1\r\n\r\n", "oversized"),
        ((4097).to_bytes(4, "big"), "oversized"),
        (greeting_frame(HELLO, b"\x01\x06broker\x03n-1"), "greeting"),
        (greeting_frame(PROOF, bytes(32)), "greeting"),
        (raft_frame(b"".join(encode_message({"type": "response_vote", "term": 1}))), "greeting"),
    ],
    ids=["no frame", "HTTP", "a size", "half a HELLO", "PROOF first", "a Raft message"],
)
async def test_what_is_no_greeting_is_closed_and_counted_unread(
    data: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one byte comes back, and no message is decoded for a stranger: nothing may be parsed before authentication."""
    decoded: list[bytes] = []
    monkeypatch.setattr(tern_raft.transport, "decode_message", decoded.append)
    async with open_port(tmp_path) as port:
        reader, _ = await port.raw(data)
        assert await ended(reader) == b""
        assert (port.count(reason), decoded) == (1, [])
    assert sum(port.links.refusals().values()) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"key": bytes(32)}, "key"), ({"group_id": "ab" * 16}, "group")],
    ids=["another key", "another group"],
)
async def test_who_does_not_know_the_key_of_this_group_is_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """The dialler is told nothing but that the connection is over."""
    async with open_port(tmp_path) as port:
        with pytest.raises(HandshakeRefused):
            await port.dial(**changes)
        # With another key it is the dialler that breaks off: the node's challenge does not know its key either.
        await until(lambda: port.count(reason) + port.count("unfinished") == 1)
        assert await port.serves()


async def test_a_wrong_proof_is_counted_as_a_wrong_key(tmp_path: Path) -> None:
    """A stranger that guesses goes on after the challenge."""
    async with open_port(tmp_path) as port:
        reader, writer = await port.raw(greeting_frame(HELLO, port.victim.client("n-1").opening().body))
        assert await reader.readexactly(4)
        writer.write(greeting_frame(PROOF, bytes(32)))
        await ended(reader)
        assert port.count("key") == 1


async def test_a_recorded_session_opens_nothing(tmp_path: Path) -> None:
    """All bytes of a good greeting again; its PROOF behind a HELLO of today; today's HELLO on two connections, one PROOF."""
    async with open_port(tmp_path) as port:
        greeting = port.victim.client("n-1")
        said_hello = greeting_frame(HELLO, greeting.opening().body)
        reader, writer = await port.raw(said_hello)
        challenge = await read_frame(reader)
        answer = greeting.receive(challenge)
        assert answer is not None
        proof = greeting_frame(PROOF, answer.body)
        twin, twin_writer = await port.raw(said_hello)
        await read_frame(twin)
        twin_writer.write(proof)
        await ended(twin)
        writer.write(proof)
        assert (await read_frame(reader)).body == b"", "the one it was made for is welcomed"
        await until(lambda: "n-1" in port.links._links)
        for first in (said_hello, greeting_frame(HELLO, port.victim.client("n-2").opening().body)):
            again, again_writer = await port.raw(first)
            await read_frame(again)
            again_writer.write(proof)
            await ended(again)
        assert port.count("key") == 3
        assert list(port.links._links) == ["n-1"]


async def test_a_challenge_sent_back_is_no_proof(tmp_path: Path) -> None:
    """The node's own MAC does not open its port."""
    async with open_port(tmp_path) as port:
        reader, writer = await port.raw(greeting_frame(HELLO, port.victim.client("n-1").opening().body))
        challenge = await read_frame(reader)
        writer.write(greeting_frame(PROOF, bytes(challenge.body[-32:])))
        await ended(reader)
        assert port.count("key") == 1


@pytest.mark.parametrize(
    "changes",
    [{"name": "n-9"}, {"name": "n-0"}, {"role": "proxy"}, {"role": "checker", "name": "n-2"}, {"name": "a"}],
    ids=["no member", "its own name", "a proxy", "a checker", "a smaller name"],
)
async def test_who_knows_the_key_and_is_no_peer_says_nothing_to_consensus(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A valid message right behind the greeting is not heard; the link is closed and counted."""
    async with open_port(tmp_path) as port:
        heard: list[str] = []
        monkeypatch.setattr(port.victim.node.transport, "receive", lambda peer, _body: heard.append(peer))
        with contextlib.suppress(LinkError):
            link = await port.dial(**changes)
            link.post(RAFT_CODE, encode_message(hello("n-1", port.victim.node, Standing.UNBORN)))
            await link.gone()
        await until(lambda: port.count("stranger") == 1)
        assert heard == []
        assert port.links._links == {}


async def test_a_second_link_in_the_name_of_a_live_peer_is_refused(tmp_path: Path) -> None:
    """The one that is there stays, and goes on being heard."""
    async with open_port(tmp_path) as port:
        first = await port.dial()
        await until(lambda: "n-1" in port.links._links)
        with contextlib.suppress(LinkError):
            await port.dial()
        await until(lambda: port.count("second") == 1)
        first.post(RAFT_CODE, encode_message(hello("n-1", port.victim.node, Standing.UNBORN)))
        await until(lambda: port.victim.node.transport.membership.has_heard("n-1"))


async def test_the_newer_link_of_a_peer_that_has_been_silent_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that lost power leaves a link behind that nobody closes; its next one must not wait for that."""
    monkeypatch.setattr(tern_raft.links, "ALIVE_S", 0.0)
    async with open_port(tmp_path) as port:
        first = await port.dial()
        await until(lambda: "n-1" in port.links._links)
        await port.dial()
        await first.gone()
        assert port.count("second") == 0
        assert not port.links._links["n-1"].closed


async def test_a_link_of_a_peer_that_went_is_free_at_once(tmp_path: Path) -> None:
    """A killed process's connection breaks at once: whoever comes in its name next is no second."""
    async with open_port(tmp_path) as port:
        for _ in range(5):
            link = await port.dial()
            await until(lambda: "n-1" in port.links._links)
            link.abort("killed")
            await link.gone()
        assert port.count("second") == 0


@pytest.mark.parametrize("greets", [False, True], ids=["silent", "HELLO only"])
async def test_who_does_not_finish_its_greeting_in_time_is_dropped(greets: bool, tmp_path: Path) -> None:
    """Silence costs a stranger its connection, whatever it began with."""
    async with open_port(tmp_path, handshake_timeout_s=0.05) as port:
        opening = greeting_frame(HELLO, port.victim.client("n-1").opening().body)
        reader, _ = await port.raw(*([opening] if greets else []))
        await ended(reader)
        assert port.count("late") == 1


async def test_a_flood_of_silent_connections_does_not_keep_a_member_out(tmp_path: Path) -> None:
    """Three times the cap, opened as fast as they can be; a member is greeted meanwhile and afterwards; all are counted."""
    async with open_port(tmp_path) as port:
        flood = [socket.socket() for _ in range(3 * STRANGERS_MAX)]
        try:
            for number, probe in enumerate(flood):
                probe.setblocking(False)
                probe.connect_ex(("127.0.0.1", port.links.port))
                if number == len(flood) // 2:
                    assert await port.serves()
            assert await port.serves()
            await until(lambda: port.count("crowded") >= 2 * STRANGERS_MAX - 2)
        finally:
            for probe in flood:
                probe.close()


@pytest.mark.parametrize(
    "data",
    [
        raft_frame(b"no message"),
        raft_frame(b"".join(encode_message({"type": "response_vote", "term": 1 << 60}))),
        b"".join(encode_frame(RAFT_CODE, 7, 0, [b""])),
        b"".join(encode_frame(RAFT_CODE + 1, 0, 2, [b""])),
    ],
    ids=["bytes", "an absurd term", "a request", "another code"],
)
async def test_a_peer_that_talks_nonsense_loses_its_link(data: bytes, tmp_path: Path) -> None:
    """Closed, counted, and let in again."""
    async with open_port(tmp_path) as port:
        link = await port.dial()
        link._transport.write(data)  # type: ignore[union-attr]
        await link.gone()
        await until(lambda: port.count("malformed") == 1)
        assert await port.serves()


def test_5_000_hostile_frames_change_nothing() -> None:
    """A million with `python -m tests.fuzz.raft_port --frames 1000000`: no exception, and the node works in between."""
    report = run(5_000, seed=20261121)
    print(report)
    assert report.worked >= 5
    assert report.led > 100
    assert (
        min(report.refusals[reason] for reason in ("garbage", "oversized", "key", "group", "stranger", "malformed")) > 0
    )


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next frame of a bare connection."""
    async with asyncio.timeout(DEADLINE_S):
        size = int.from_bytes(await reader.readexactly(4), "big")
        rest = await reader.readexactly(size)
    return Frame(int.from_bytes(rest[4:6], "big"), 0, 0, "", rest[25:])
