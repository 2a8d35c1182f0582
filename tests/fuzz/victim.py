"""One real node, `n-0` of three, in one thread without sockets: its files, its consensus, its links; time stands still unless told.

What is real: RaftNode, PeerLinks, LinkServer's and PeerLinks' own callbacks, Link, handshakes, log and vote file. What is not: the
network (bytes go into `Link.buffer_updated` and come out of a buffer), the clock, and the sync of the disk, which does nothing.
"""

import asyncio
import heapq
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import tern_raft
from tern_raft import PeerLinks, RaftConfig, RaftNode
from tern_raft.frames import RAFT_CODE, decode_message, encode_message
from tern_raft.runtime import Disk
from tern_remoting import ONE_WAY, Frame, FrameReader, Link, encode_frame
from tern_remoting.handshake import Answer, ClientHandshake, Identity, ServerHandshake
from tern_store import CommitLog, StoredEntry, SyncLost
from tern_store.files import RealFiles
from tern_store.state.vote_file import Standing
from tern_testing.node_runtime import InstantDisk

ME, PEERS = "n-0", ("n-1", "n-2")
KEY, GROUP = bytes(range(32)), bytes(16)
# What a node of a real group takes.
FRAME_SIZE_MAX_BYTES = 8 << 20


class Unsynced(RealFiles):
    """Files whose syncs do nothing: not the disk is tried here, and it would take all the time."""

    def fdatasync(self, fd: int) -> None:
        """Nothing."""

    def fsync_dir(self, path: Path) -> None:
        """Nothing."""


class StillRuntime:
    """A node's world that moves only when told; the disk's jobs are done at once."""

    pid = 1

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._later: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._number = itertools.count()

    def monotonic(self) -> float:
        """Every look costs a microsecond, so loops that end by time end."""
        self.now_s += 1e-6
        return self.now_s

    def new_id(self) -> bytes:
        return bytes(16)

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> object:
        self._soon.append((callback, arguments))
        return None

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> object:
        heapq.heappush(self._later, (self.now_s + delay_s, next(self._number), callback, arguments))
        return None

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        return InstantDisk(self.call_soon)

    def end(self, code: int) -> NoReturn:
        raise AssertionError(f"the node ended itself with {code}")

    def turn(self, seconds: float = 0.0) -> None:
        """Let *seconds* pass, then run what is due."""
        self.now_s += seconds
        while self._later and self._later[0][0] <= self.now_s:
            _, _, callback, arguments = heapq.heappop(self._later)
            self._soon.append((callback, arguments))
        while self._soon:
            callback, arguments = self._soon.popleft()
            callback(*arguments)


class Wire(asyncio.Transport):
    """The far end of a link: what the link wrote, and whether it has closed the connection."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link, self.is_closed = link, False
        self._written: list[bytes] = []
        self._reader = FrameReader(FRAME_SIZE_MAX_BYTES)

    def write(self, data: Any) -> None:
        self._written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever kept back here."""

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    abort = close

    def said(self) -> list[Frame]:
        """The frames written since the last call."""
        written, self._written = self._written, []
        return self._reader.feed(b"".join(written))


class Victim:
    """The node and its links. Owner: one fuzz run; made in a running loop."""

    def __init__(self, directory: Path, rng: random.Random, *, handshake_timeout_s: float = 2.0) -> None:
        self.rng, self.directory = rng, directory
        self.runtime = StillRuntime()
        self.behind = 0
        self.applied: list[int] = []
        config = RaftConfig(
            node=ME,
            # Any port of its own; nobody listens where its peers would be.
            members=dict.fromkeys(PEERS, ("127.0.0.1", 1)) | {ME: ("127.0.0.1", 0)},
            group_id=GROUP,
            directory=directory,
            bootstrap=True,
            segment_size_bytes=16 << 20,
        )
        files = Unsynced()
        self.log_group = config.genesis()
        self.links = PeerLinks(
            ME,
            config.members,
            key=KEY,
            group_id=GROUP.hex(),
            listen="127.0.0.1",
            rng=rng,
            handshake_timeout_s=handshake_timeout_s,
        )
        self.votes = RaftNode.open_votes(config, incarnation=bytes(16), files=files)
        self.log = CommitLog.open(directory, group=config.genesis(), recent_max_bytes=1 << 20, files=files)
        self.node = RaftNode(
            config,
            runtime=self.runtime,
            links=self.links,
            log_=self.log,
            votes=self.votes,
            disk=self.runtime.open_disk(_raise),
            applied=1,
            apply=self._apply,
            on_role=lambda: None,
            on_behind=self._is_behind,
            on_fatal=_raise,
        )
        self.links._transport = self.node.transport
        self.server = self.links._make_server()
        self.wires: dict[str, Wire] = {}
        self.node.begin()

    # Links -----------------------------------------------------------------------------------------------------
    def accept(self) -> Wire:
        """A new connection to the node's port, nothing said yet."""
        link = self.server._make_link()
        wire = Wire(link)
        link.connection_made(wire)
        return wire

    def dial(self) -> Wire:
        """A connection that a link of our making has dialled: the side that answers is the stranger."""
        identity = Identity(key=KEY, role="broker", name=ME, group_id=GROUP.hex())
        link = Link(
            ClientHandshake(identity, self.rng.randbytes(16)),
            on_frame=self.links._on_frame,
            on_ready=lambda link: self.links._dialled("n-1", link),
            on_lost=self.links._on_lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
            refusals=self.links._refusals,
        )
        wire = Wire(link)
        link.connection_made(wire)
        return wire

    def client(self, name: str, **changes: Any) -> ClientHandshake:
        """The greeting of a peer."""
        identity = {"key": KEY, "role": "broker", "name": name, "group_id": GROUP.hex()} | changes
        return ClientHandshake(Identity(**identity), self.rng.randbytes(16))

    def answerer(self) -> ServerHandshake:
        """The greeting of who is dialled."""
        return ServerHandshake(
            Identity(key=KEY, role="broker", name="n-1", group_id=GROUP.hex()), self.rng.randbytes(16)
        )

    async def join(self, name: str) -> Wire:
        """The live link of peer *name*: the one that is there, or a new one, greeted as a member."""
        wire = self.wires.get(name)
        if wire is not None and not wire.link.closed:
            return wire
        wire, greeting = self.accept(), self.client(name)
        answer: Answer | None = greeting.opening()
        while answer is not None:
            self.feed(wire, greeting_frame(answer.code, answer.body))
            await asyncio.sleep(0)
            # Behind WELCOME the node says what it is, in the same breath.
            answer = greeting.receive(wire.said()[0])
        assert wire.link.ready, "a member is let in"
        self.wires[name] = wire
        self.say(name, hello(name, self.node, Standing.MEMBER if self.is_born else Standing.UNBORN))
        return wire

    async def leave(self, name: str) -> None:
        """The link of *name* is closed."""
        wire = self.wires.pop(name, None)
        if wire is not None:
            wire.close()
            await asyncio.sleep(0)

    @property
    def is_born(self) -> bool:
        """Whether the node is a member of its group."""
        return self.node.standing is Standing.MEMBER

    def feed(self, wire: Wire, data: bytes) -> None:
        """Bytes arrive; the node does what follows from them."""
        while data and not wire.link.closed:
            space = wire.link.get_buffer(-1)
            size = min(len(space), len(data))
            space[:size] = data[:size]
            wire.link.buffer_updated(size)
            data = data[size:]
        self.runtime.turn()

    def say(self, name: str, message: dict[str, Any]) -> None:
        """*name* sends a whole message on its link."""
        self.feed(self.wires[name], raft_frame(b"".join(encode_message(message))))

    @staticmethod
    def decode(frame: Frame) -> dict[str, Any]:
        """The Raft message in *frame*."""
        assert frame.code == RAFT_CODE
        return decode_message(frame.body)

    async def heard(self, name: str, kind: str) -> list[dict[str, Any]]:
        """The messages of *kind* that the node has sent to *name* since the last look."""
        await asyncio.sleep(0)
        wire = self.wires[name]
        messages = [decode_message(frame.body) for frame in wire.said() if frame.code == RAFT_CODE]
        return [message for message in messages if message["type"] == kind]

    def close(self) -> None:
        """Close the files."""
        self.node.finish()
        self.log.close()
        self.votes.close()

    def _apply(self, entry: StoredEntry) -> None:
        self.applied = [entry.index]

    def _is_behind(self) -> None:
        self.behind += 1


_GREETINGS = itertools.count(1)


def hello(name: str, node: RaftNode, standing: Standing) -> dict[str, Any]:
    """What an honest peer says first."""
    births = {} if standing is Standing.UNBORN else node.transport.membership.hello((0, 0))["births"]
    return {
        "type": "hello",
        "standing": int(standing),
        "incarnation": name.encode().ljust(16, b"-"),
        "births": births,
        "last_log_index": node.log.end_index,
        "last_log_term": node.log.end_term,
        "version": 1,
        "number": next(_GREETINGS),
    }


def greeting_frame(code: int, body: bytes) -> bytes:
    """A frame of the handshake."""
    return b"".join(encode_frame(code, 0, 0, [body]))


def raft_frame(body: bytes) -> bytes:
    """A frame with a Raft message."""
    return b"".join(encode_frame(RAFT_CODE, 0, ONE_WAY, [body]))


@contextmanager
def still_clocks(runtime: StillRuntime) -> Iterator[None]:
    """pysyncobj and tern_raft read *runtime*'s time: they take it from globals of their modules."""
    places = [
        (module, name)
        for key, module in list(sys.modules.items())
        for name in ("monotonic", "monotonicTime")
        if key.split(".")[0] in {"pysyncobj", tern_raft.__name__} and callable(getattr(module, name, None))
    ]
    before = [(module, name, getattr(module, name)) for module, name in places]
    for module, name in places:
        setattr(module, name, runtime.monotonic)
    try:
        yield
    finally:
        for module, name, clock in before:
            setattr(module, name, clock)


def _raise(error: Exception) -> None:
    raise AssertionError("the node would have ended its process") from error
