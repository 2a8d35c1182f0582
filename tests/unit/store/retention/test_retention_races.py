"""Retention among everything else that waits for an entry, on nodes that are not all alike, on disks without room."""

import errno

import pytest

from tern_store.state.state_file import STATE_FOLDER
from tests.support.broker.single_broker import DIRECTORY, HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles

SEGMENT = 1 << 16


def old_broker(files: FaultyFiles) -> SingleBroker:
    """Three full segments that are older than the retention, one that is not."""
    broker = SingleBroker(files)
    broker.create("t", 1, "g")
    broker.send("t", *((0, b"first %d" % number) for number in range(6)))
    broker.fill_segments("t", 3)
    broker.pass_time(73 * HOUR_MS)
    broker.send("t", (0, b"young"))
    broker.save()
    return broker


def test_what_is_leased_while_a_trim_waits_for_its_entry_is_copied_first() -> None:
    """The plan found nothing to copy; a receive that came before it leases messages that the trim would drop."""
    broker = old_broker(FaultyFiles())
    broker.trimmer.trim_now()
    broker.now_s += 1e6
    broker.soon.append(lambda: broker.trimmer.step(broker.now_s, held_back=lambda: broker.store.log.end_index))
    broker.soon.rotate(1)
    leased = broker.receive(messages_max=3)
    assert [body for _, body in leased] == [b"first 0", b"first 1", b"first 2"]
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 3 * SEGMENT
    broker.pass_time(61_000)
    again = broker.receive(messages_max=3)
    assert [body for _, body in again] == [b"first 0", b"first 1", b"first 2"]


def test_a_queue_goes_on_behind_a_part_of_a_redelivery_that_was_trimmed() -> None:
    """A run whose first messages are settled: what is left of it, and what lies behind, is still delivered."""
    broker = old_broker(FaultyFiles())
    rows = [row for row, _ in broker.receive(messages_max=6)]
    broker.ack(*rows[1:4])
    broker.pass_time(61_000)
    (first,) = broker.receive(messages_max=1)
    assert first[1] == b"first 0"
    broker.ack(first[0])
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 3 * SEGMENT
    bodies = [body for _, body in broker.receive(messages_max=256)]
    assert bodies[:2] == [b"first 4", b"first 5"]
    assert bodies[-1] == b"young"


@pytest.mark.parametrize("missing", [[2], [1, 2], [0, 1, 2]])
def test_a_node_without_a_state_for_the_place_keeps_more(missing: list[int]) -> None:
    """It was away, or had no room, when the segment began: its log must begin where it can be made again from."""
    files = FaultyFiles()
    broker = old_broker(files)
    boundaries = broker.store.boundaries()
    (last,) = [boundary for boundary in boundaries if boundary.position == 3 * SEGMENT]
    loaded = broker.store.load_boundary(last)
    assert loaded is not None
    for number in missing:
        files.unlink(DIRECTORY / STATE_FOLDER / boundaries[number].name)
    broker.store.want_trim(loaded[0], [])
    job = broker.store.wanted_trim()
    kept = [number for number in range(3) if number not in missing]
    assert (job is not None) == bool(kept)
    if job is not None:
        job.run()
        broker.store.trimmed(job)
    assert broker.store.log.start.position == (boundaries[kept[-1]].position if kept else 0)
    assert broker.store.wanted_trim() is None
    broker.save()
    broker.close()
    files.lose(next(path for path in files.paths() if "consumequeue" in path.parts))
    assert SingleBroker(files).store.rebuilding, "all that follows is made again from there"


def test_the_reserve_gives_its_space_to_a_trim() -> None:
    """On a full disk: what makes room must not lack it."""
    files = FaultyFiles()
    broker = old_broker(files)
    log = broker.store.log
    spare = log.preallocate_reserve()
    assert spare is not None
    spare.run()
    log.mark_preallocated(spare)
    files.capacity_bytes = files.used_bytes
    last = broker.store.load_boundary(broker.store.boundaries()[-1])
    assert last is not None
    broker.store.want_trim(last[0], [])
    job = broker.store.wanted_trim()
    assert job is not None
    with pytest.raises(OSError, match="No space") as full:
        job.run()
    assert full.value.errno == errno.ENOSPC
    assert log.give_up_reserve()
    assert not log.give_up_reserve()
    job.run()
    broker.store.trimmed(job)
    assert log.start.position == 3 * SEGMENT
