"""Sealed tables of keys on their way to the disk: in what order, how many may wait, and when a missing file is damage."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.core.sending.idempotency import Sealed, SealedFacts, Table
from tern_broker.link.checked_send import CheckedSend
from tern_broker.upkeep.key_tables import KeyTables
from tern_store import DerivedDamage, Genesis, Store, StoreLimits
from tern_store.keys.sent_keys import FOLDER, file_name
from tern_wire.errors import Overloaded
from tern_wire.limits import IDEMPOTENCY_TABLES_WAITING_MAX
from tern_wire.link.rows import FLAG_KEYED, SEND_ROWS
from tests.support.broker.entries import Log
from tests.support.files.faulty_files import FaultyFiles

DIRECTORY = Path("/data")


class HeldDisk:
    """A disk thread that does nothing until it is let go."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """As tern_raft.Disk."""
        self._jobs.append((job, done))

    def stop(self) -> None:
        """Nothing is left."""
        assert not self._jobs

    def let_go(self) -> None:
        """Do all that waits."""
        while self._jobs:
            job, done = self._jobs.pop(0)
            job()
            done()


def opened(files: FaultyFiles) -> tuple[Store, HeldDisk, KeyTables, list[Exception]]:
    """A node's store, its disk, and what ended it."""
    limits = StoreLimits(recent_max_bytes=0, index_slots=16, index_entries_per_file=20, table_keys_max=16)
    store = Store.open(DIRECTORY, group=Genesis(bytes(16), ("a",), 1 << 16), limits=limits, files=files)
    disk, failures = HeldDisk(), list[Exception]()
    return store, disk, KeyTables(store, disk, fail=failures.append), failures


def sealed(number: int) -> Applied:
    """What apply tells of an entry that has sealed an empty table."""
    return Applied(sealed_table=Sealed(SealedFacts(number, 0, number), Table()))


def save(store: Store) -> None:
    """A saved state of now."""
    done = store.save(store.log.mark(store.log.end_index), lambda: [b"state"])
    store.saved(done, is_saved=done.run())


def test_tables_wait_for_the_disk_thread_and_one_too_many_for_nobody() -> None:
    """Memory is bounded also where nobody can be refused: in a replay, and on a follower."""
    store, disk, tables, _ = opened(FaultyFiles())
    for number in range(1, IDEMPOTENCY_TABLES_WAITING_MAX + 5):
        tables.applied(number, sealed(number))
        assert store.sent_keys.waiting == min(number, IDEMPOTENCY_TABLES_WAITING_MAX)
    disk.let_go()
    assert store.sent_keys.waiting == 0
    assert store.sent_keys.numbers() == list(range(1, IDEMPOTENCY_TABLES_WAITING_MAX + 5))
    store.close()


def test_a_full_disk_leaves_tables_in_memory_until_a_save_has_room() -> None:
    """Nothing ends, nothing is lost."""
    files = FaultyFiles()
    store, disk, tables, failures = opened(files)
    files.capacity_bytes = 1
    tables.applied(1, sealed(1))
    disk.let_go()
    assert (store.sent_keys.waiting, failures) == (1, [])
    files.capacity_bytes = None
    save(store)
    assert store.sent_keys.waiting == 0
    store.close()


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_missing_file_ends_a_node_only_when_the_log_is_applied_and_names_it_still(is_dropped: bool) -> None:
    """A file that went with a later entry is missing rightly until that entry is applied again."""
    files = FaultyFiles()
    store, disk, tables, _ = opened(files)
    tables.applied(1, sealed(1))
    disk.let_go()
    save(store)
    store.close()
    files.unlink(DIRECTORY / FOLDER / file_name(1))
    store, _, tables, failures = opened(files)
    end = store.log.end_index
    tables.applied(end - 1, Applied())
    assert failures == []
    tables.applied(end, Applied(dropped_tables=[1]) if is_dropped else Applied())
    assert [type(failure) for failure in failures] == ([] if is_dropped else [DerivedDamage])
    store.close()


def test_a_leader_whose_disk_is_behind_takes_no_more_keys() -> None:
    """`overloaded`; sends without keys go on."""
    for flags, waiting, is_refused in ((FLAG_KEYED, 1, False), (FLAG_KEYED, 2, True), (0, 9, False)):
        rows = np.zeros(1, SEND_ROWS)
        rows["flags"] = flags
        send = CheckedSend(rows, bytearray(), np.zeros(1, np.int64), Log().state)
        if is_refused:
            with pytest.raises(Overloaded):
                send.require_room_for_keys(waiting)
        else:
            send.require_room_for_keys(waiting)
