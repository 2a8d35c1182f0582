"""The Saver where the process may hardly open a file: it saves with what it has."""

from collections.abc import Callable

import pytest

from tern_broker.upkeep.saver import AGAIN_AFTER_S, SAVE_AFTER_S, Saver
from tern_store.file_errors import NotedFiles
from tern_store.files import is_done
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles

# Written by a flush, each to a file of its own: fewer than `FEW_SEQUENCES`.
QUEUES = 40
ATTEMPTS_MAX = 4


class PatientDisk:
    """Repeats the oldest job until it is not refused, as the disk thread does. Owner: one test."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Keep the job for `step`."""
        self._jobs.append((job, done))

    def step(self) -> None:
        """Run jobs up to the first refusal."""
        while self._jobs and is_done(self._jobs[0][0]):
            self._jobs.pop(0)[1]()

    def stop(self) -> None:
        """There is no thread."""


@pytest.mark.parametrize("free", [1, 2, 3, 5, 8, 20, 45])
def test_a_save_needs_hardly_a_descriptor(free: int) -> None:
    """The queues' files are closed for it, whoever holds the rest; a start has every message."""
    files, now_s = FaultyFiles(), [0.0]
    noted = NotedFiles(files, lambda: now_s[0])
    broker = SingleBroker(noted)
    topic_id, _ = broker.create(queues=QUEUES)
    for number in range(3 * QUEUES):
        broker.send("t", (number % QUEUES, b"%d" % number))
    disk = PatientDisk()
    saver = Saver(
        broker.store,
        disk,
        disk,
        state=lambda: broker.state,
        applied=lambda: broker.store.log.end_index,
        is_short=noted.take_short,
        monotonic=lambda: now_s[0],
    )
    files.open_files_max = files.open_count() + free
    now_s[0] = SAVE_AFTER_S + 1
    for _ in range(ATTEMPTS_MAX):
        saver.save_if_due()
        disk.step()
        if broker.store.applied is not None:
            break
        now_s[0] += AGAIN_AFTER_S
    assert broker.store.applied is not None, f"{ATTEMPTS_MAX} attempts and {free} descriptors are not enough"
    assert broker.store.applied.index == broker.store.log.end_index
    # A segment or a connection needs one next.
    files.relent()
    broker.store.close()
    again = SingleBroker(files)
    for queue in range(QUEUES):
        assert again.pull(topic_id, queue, 0) == [b"%d" % (queue + QUEUES * life) for life in range(3)]
