"""Tables of idempotency keys on their way from the state to their files: carries out apply's
decisions on the store.
"""

from collections.abc import Callable
from functools import partial

from tern_broker.core.applied import Applied
from tern_raft import Disk
from tern_store import DerivedDamage, LogRot, Store
from tern_store.files import is_done
from tern_store.keys.sent_keys import KeyFileJob
from tern_wire.limits import IDEMPOTENCY_TABLES_WAITING_MAX


class KeyTables:
    """Owner: the core loop."""

    def __init__(self, store: Store, disk: Disk, *, fail: Callable[[Exception], object]) -> None:
        """*disk* is the thread that saves states; *fail* ends the node."""
        self._store, self._disk, self._fail = store, disk, fail
        # From this index on, every table that the state names must be readable; before, some may
        # have been dropped rightly.
        self._check_index: int | None = store.log.end_index

    def applied(self, index: int, applied: Applied) -> None:
        """Handle the tables that the applied entry *index* has sealed or dropped."""
        sent_keys = self._store.sent_keys
        for number in applied.dropped_tables:
            sent_keys.drop(number)
        if (sealed := applied.sealed_table) is not None:
            job = sent_keys.add(sealed.facts.number, sealed.table, sealed.facts.newest_ms)
            if sent_keys.waiting <= IDEMPOTENCY_TABLES_WAITING_MAX:
                self._disk.run_soon(partial(_write, job), sent_keys.settle)
            else:
                # A replay is faster than the disk, or a follower's disk slower than the leader's:
                # memory must not fill up.
                _write(job)
                sent_keys.settle()
        if self._check_index is not None and index >= self._check_index:
            self._check_index = None
            try:
                sent_keys.require_all()
            except (LogRot, DerivedDamage) as damage:
                self._fail(damage)


def _write(job: KeyFileJob) -> None:
    """Without room the table stays in memory, and the next save tries again."""
    is_done(job.run)
