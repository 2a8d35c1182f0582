"""The environment of a node: its loop, its clocks, its disk thread and its end.

A node uses nothing else of the machine but its files and its links. The real one is `process.py`; a
simulator has one per node, with virtual time. Everything belongs to the core loop, and callbacks
run in it, one at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from tern_store import SyncLost
from tern_wire.link.requests import Parts

# Exit code of a node that must not continue in this process; the supervisor starts it again.
EXIT_BROKEN = 70
# Exit code after which the supervisor does not restart: the disk failed, and its data is in doubt.
EXIT_FSYNC_FAILED = 74


class Disk(Protocol):
    """One thread that waits for the disk. Jobs run in the order given."""

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* beside the loop, then *done* in it.
        SyncLost of a job ends the node; after any other OSError the job is repeated until it is
        done, so it must be repeatable.
        """

    def stop(self) -> None:
        """Finish the waiting jobs; no job may be given afterwards."""


class Runtime(Protocol):
    """Loop, clocks, disk and process of one node."""

    @property
    def pid(self) -> int:
        """This process's pid, for notes on disk."""

    def monotonic(self) -> float:
        """Seconds that never go back, from any origin."""

    def wall_ms(self) -> int:
        """The host's wall clock, ms since 1970; may jump."""

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> object:
        """Call *callback* in the next turn of the loop."""

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> object:
        """Call *callback* no earlier than in *delay_s*."""

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        """Make another disk thread; *on_failure* is called on it and does not return."""

    def new_id(self) -> bytes:
        """16 random bytes."""

    def end(self, code: int) -> NoReturn:
        """End the process now, on any thread; nothing is closed or flushed."""


class Links(Protocol):
    """The sockets to the peers, as used by consensus."""

    def post(self, peer: str, parts: Parts) -> bool:
        """Send one Raft message to *peer*; False if there is no link."""

    def buffered(self, peer: str) -> int:
        """Bytes for *peer* that this process still holds."""


class PeerListener(Protocol):
    """Receiver of the sockets' events. Any error but LinkBodyMalformed has ended the node."""

    def connected(self, peer: str) -> None:
        """Handle a new link to *peer*; there is one at a time."""

    def lost(self, peer: str) -> None:
        """Handle the loss of the link to *peer*."""

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """Handle one message of *peer*; LinkBodyMalformed if it is none, and the link is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """A member as this node sees it.
    Known to a leader only: *match_index*, its last entry, and how full its disk is. *standing*:
    unborn, member, rebuilding, doubtful; unknown before its greeting. *version*: of its state
    machine, 0 before its greeting.
    """

    name: str
    connected: bool
    match_index: int
    standing: str
    disk_permille: int
    version: int
