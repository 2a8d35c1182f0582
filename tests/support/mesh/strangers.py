"""Strangers at ports of a mesh: connections that say nothing, or begin and stop, opened again as often as they are closed."""

import contextlib
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator, MutableSequence, Sequence
from pathlib import Path
from typing import Any

from tern_remoting import encode_frame
from tern_remoting.handshake import HELLO, ClientHandshake, Identity

ROUND_S = 0.1
_WHO = Identity(key=bytes(32), role="proxy", name="stranger", group_id="")
_HELLO = b"".join(encode_frame(HELLO, 0, 0, [ClientHandshake(_WHO, bytes(16)).opening().body]))
# By kind of port: nothing at all, a beginning, and all that can be said without a key.
OPENINGS = {
    "link": (b"", _HELLO[:20], _HELLO),
    "raft": (b"", _HELLO[:20], _HELLO),
    "http": (b"", b"GET /healthz HTTP/1.1\r\nhost: x", b"POST / HTTP/1.1\r\n"),
}


class Flood:
    """Holds up to *held_max* connections at each of *ports* (kind, number), with up to *opened_per_s* new ones at each. Owner of its thread."""

    def __init__(self, ports: Sequence[tuple[str, int]], *, held_max: int, opened_per_s: int) -> None:
        self._ports, self._held_max = ports, held_max
        self._per_round = max(1, int(opened_per_s * ROUND_S))
        self._held: dict[int, dict[int, socket.socket]] = {port: {} for _, port in ports}
        self._at: dict[int, int] = {}
        self._poll = select.epoll()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.opened = self.closed = 0

    @property
    def held(self) -> int:
        """How many there are, those among them that the kernel keeps waiting."""
        return len(self._at)

    def __enter__(self) -> "Flood":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)
        for connections in self._held.values():
            for probe in connections.values():
                probe.close()
        self._poll.close()

    def _work(self) -> None:
        while not self._over.is_set():
            for descriptor, _ in self._poll.poll(0, 10_000):
                self._answered(descriptor)
            for kind, port in self._ports:
                for _ in range(min(self._per_round, self._held_max - len(self._held[port]))):
                    if not self._open(kind, port):
                        break
            self._over.wait(ROUND_S)

    def _open(self, kind: str, port: int) -> bool:
        try:
            probe = socket.socket()
        except OSError:
            return False  # our own descriptors: enough are held
        probe.setblocking(False)
        probe.connect_ex(("127.0.0.1", port))
        openings = OPENINGS[kind]
        with contextlib.suppress(OSError):
            probe.send(openings[self.opened % len(openings)])
        self._held[port][probe.fileno()] = probe
        self._at[probe.fileno()] = port
        self._poll.register(probe.fileno(), select.EPOLLIN | select.EPOLLHUP | select.EPOLLRDHUP)
        self.opened += 1
        return True

    def _answered(self, descriptor: int) -> None:
        """A challenge is taken and not answered; an end is an end."""
        port = self._at[descriptor]
        probe = self._held[port][descriptor]
        with contextlib.suppress(OSError):
            if probe.recv(4096):
                return
        self._poll.unregister(descriptor)
        del self._at[descriptor], self._held[port][descriptor]
        probe.close()
        self.closed += 1


def hold(
    ports: Sequence[tuple[str, int]], held_max: int, opened_per_s: int, seconds: float, figures: MutableSequence[int]
) -> None:
    """A flood with a process of its own; *figures*: how many were opened, and held at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    until_s = time.monotonic() + seconds
    with Flood(ports, held_max=held_max, opened_per_s=opened_per_s) as flood:
        while time.monotonic() < until_s:
            figures[0], figures[1] = flood.opened, max(figures[1], flood.held)
            time.sleep(ROUND_S)


def ports_of(process: dict[str, Any]) -> list[tuple[str, int]]:
    """Kinds and numbers of what a process of `mesh.json` listens on."""
    return [(kind, int(port)) for kind, port in process["ports"].items() if kind in OPENINGS]


def open_descriptors(pid: int) -> int:
    """How many a process has; 0 when it is gone."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def lowered_limit(pid: int, room: int) -> Iterator[int]:
    """For a block the process may open *room* more than it has now; yields the limit."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    limit = open_descriptors(pid) + room
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        yield limit
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
