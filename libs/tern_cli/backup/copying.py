"""Copy of a group's log into a `BackupDirectory`, with several pieces in flight and a rate limit.

Every interruption (a new leader, a file that retention has dropped, a damaged piece, a restart)
leads to a new manifest, and the copied pieces stay. The copy fails when nothing has arrived for the
patience of `Waiting`, or when it is refused for good.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tern_cli.backup.leader_client import Leader, NoAnswer
from tern_cli.failures import CommandFailed
from tern_store.backup.backup_directory import BackupDirectory
from tern_store.copies.sink import Wanted
from tern_store.errors import CopyRefused
from tern_wire.errors import CertificateForbidden, PeerProofRefused, TernError
from tern_wire.limits import BACKUP_PATIENCE_S

# As in the rebuild of a node: some pieces are in flight while another is written.
PIECES_IN_FLIGHT = 3
PIECE_SIZE_BYTES = 1 << 20
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Clock of a copy, its sleep function, and its patience (seconds)."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    patience_s: float = BACKUP_PATIENCE_S


class Rate:
    """Limit of bytes per second; idle time earns no credit.
    Owner: one copy; any thread may wait.
    """

    def __init__(self, max_bytes_per_s: int, waiting: Waiting) -> None:
        self._max_bytes_per_s, self._waiting = max_bytes_per_s, waiting
        self._lock, self._free_at_s = threading.Lock(), 0.0

    def take(self, size_bytes: int) -> None:
        """Wait until *size_bytes* may be transferred."""
        with self._lock:
            now_s = self._waiting.monotonic()
            begin_s = max(self._free_at_s, now_s)
            self._free_at_s = begin_s + size_bytes / self._max_bytes_per_s
        if begin_s > now_s:
            self._waiting.sleep(begin_s - now_s)


def copy_log(
    backup: BackupDirectory,
    find: Callable[[], Leader],
    *,
    rate_max_bytes_per_s: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    waiting: Waiting | None = None,
) -> int:
    """Copy until nothing is missing and return the number of received bytes.
    *find* returns the current leader. CommandFailed: no progress within the patience. StoreError,
    OSError: the copy cannot be written.
    """
    waiting = Waiting() if waiting is None else waiting
    rate = Rate(rate_max_bytes_per_s, waiting)
    came, pause_s, least_index = 0, PAUSE_FIRST_S, 0
    alive_at_s = waiting.monotonic()
    while True:
        before = came
        try:
            leader = find()
            # From the first leader found: everything acknowledged before the command began is
            # included.
            least_index = least_index or leader.applied_index
            backup.begin(leader.manifest(), least_index=least_index)
            for size_bytes in _pieces(backup, leader, rate):
                came += size_bytes
                on_progress(backup.copied_bytes, backup.total_bytes)
            return came
        except (PeerProofRefused, CertificateForbidden) as error:
            raise CommandFailed(error.title, error.detail) from error
        except (NoAnswer, TernError, CopyRefused) as error:
            reason = str(error) or type(error).__name__
        now_s = waiting.monotonic()
        if came > before:
            alive_at_s, pause_s = now_s, PAUSE_FIRST_S
        if now_s - alive_at_s > waiting.patience_s:
            raise CommandFailed(
                "The backup is not complete",
                f"{reason.rstrip('.')}. Nothing has come for {waiting.patience_s:g} s. What was copied stays in {backup.directory}: "
                "the same command goes on there.",
            )
        waiting.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_MAX_S)


def _pieces(backup: BackupDirectory, leader: Leader, rate: Rate) -> Iterator[int]:
    """Write all missing pieces in order and yield the size of each.
    Requests still pending at the end are cancelled.
    """

    def fetch(wanted: Wanted) -> bytes:
        rate.take(wanted.size)
        return leader.piece(wanted)

    pending: deque[tuple[Wanted, Future[bytes]]] = deque()
    with ThreadPoolExecutor(max_workers=PIECES_IN_FLIGHT) as threads:
        try:
            while True:
                while len(pending) < PIECES_IN_FLIGHT and (piece := backup.wanted(len(pending))) is not None:
                    pending.append((piece, threads.submit(fetch, piece)))
                if not pending:
                    return
                piece, coming = pending[0]
                backup.write(piece.name, piece.position, coming.result())
                pending.popleft()
                yield piece.size
        finally:
            for _, coming in pending:
                coming.cancel()
