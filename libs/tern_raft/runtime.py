"""The world that a node runs in: its loop, its clocks, its disk thread and its end.

A node sees nothing else of the machine but its files and its links. The real one is `process.py`; a simulator has one per node, with
virtual time. Everything here belongs to the core loop, and callbacks run in it, one at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from tern_store import SyncLost
from tern_wire.link.requests import Parts

# Exit code of a node that must not go on in this process; the supervisor starts it again.
EXIT_BROKEN = 70
# Exit code that our supervisor does not restart: the disk failed, and what it holds is in doubt.
EXIT_FSYNC_FAILED = 74


class Disk(Protocol):
    """One thread that waits for the disk. Jobs run in the order given."""

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* beside the loop, then *done* in it. A job that raises SyncLost ends the node; after any other OSError it is run
        again until it is done, so it must bear that."""

    def stop(self) -> None:
        """Finish what is waiting; nothing is given afterwards."""


class Runtime(Protocol):
    """Loop, clocks, disk and process of one node."""

    @property
    def pid(self) -> int:
        """Of this process, for notes on disk."""

    def monotonic(self) -> float:
        """Seconds; never goes back, means nothing elsewhere."""

    def wall_ms(self) -> int:
        """The host's idea of the time, ms since 1970; may jump."""

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> object:
        """In the next turn of the loop."""

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> object:
        """Not before *delay_s* have passed."""

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        """Another disk thread of the node; *on_failure* is called on it and does not return."""

    def new_id(self) -> bytes:
        """16 random bytes."""

    def end(self, code: int) -> NoReturn:
        """The process ends here and now, on whatever thread; nothing is closed or flushed."""


class Links(Protocol):
    """The sockets to the peers, as consensus sees them."""

    def post(self, peer: str, parts: Parts) -> bool:
        """Send one Raft message to *peer*; False when there is no link."""

    def buffered(self, peer: str) -> int:
        """Bytes for *peer* that this process still holds."""


class PeerListener(Protocol):
    """Whom the sockets report to. What it raises besides LinkBodyMalformed has ended the node."""

    def connected(self, peer: str) -> None:
        """A link to *peer* is up; there is one at a time."""

    def lost(self, peer: str) -> None:
        """The link to *peer* is gone."""

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """One message of *peer*; LinkBodyMalformed when it is none: the link is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """A member as this node sees it. Known to a leader only: *match_index*, the last entry that it has, and how full its disk is.

    *standing*: unborn, member, rebuilding, doubtful; unknown while it has not greeted. *version*: of the state machine that it knows, 0 likewise.
    """

    name: str
    connected: bool
    match_index: int
    standing: str
    disk_permille: int
    version: int
