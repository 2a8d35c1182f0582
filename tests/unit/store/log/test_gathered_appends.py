"""Very many queues at once: what waits together is what each queue would have got one by one."""

import random
from pathlib import Path

import numpy as np
import pytest

from tern_store import ConsumeQueues
from tern_store.log.gathered_appends import GATHER_QUEUES_MIN, HANDED_OUT_ROWS, GatheredAppends
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppend, QueueAppends


def batch(rng: random.Random, ends: dict[tuple[int, int], int], queues: int) -> list[QueueAppend]:
    """One to three entries for each of so many queues of two topics."""
    appends = []
    for topic_id, queue in rng.sample([(1 + n % 2, n // 2) for n in range(3 * queues)], queues):
        first = ends.get((topic_id, queue), 0)
        count = rng.randint(1, 3)
        rows = [(rng.getrandbits(40), rng.randint(1, 1 << 20), rng.randint(-9, 9)) for _ in range(count)]
        appends.append(QueueAppend(topic_id, queue, first, np.array(rows, QUEUE_ENTRIES)))
        ends[topic_id, queue] = first + count
    return appends


@pytest.mark.parametrize("seed", range(6))
def test_gathered_appends_are_the_same_as_single_ones(tmp_path: Path, seed: int) -> None:
    """Entries, times, reads and hand-outs in between, and a restore from marks, against queues that are appended to one by one."""
    rng = random.Random(seed)
    ends: dict[tuple[int, int], int] = {}
    ours, plain = ConsumeQueues.open(tmp_path / "ours"), ConsumeQueues.open(tmp_path / "plain")
    now_ms = 1_000
    for turn in range(60):
        now_ms += rng.choice([0, 1, 500])
        appends = batch(rng, ends, rng.choice([3, GATHER_QUEUES_MIN, 3 * GATHER_QUEUES_MIN]))
        ours.append_all(QueueAppends.of(appends), now_ms)
        for append in appends:
            plain.append(append.topic_id, append.queue, append.first_offset, append.entries, now_ms)
        if rng.random() < 0.3:
            ours.hand_out_some()
        if turn % 7 == 0:
            key = rng.choice(list(ends))
            assert ours.end(*key) == plain.end(*key) == ends[key]
    for queues in (ours, plain):
        queues.flush().run()
    marks = ours.marks()
    again = ConsumeQueues.open(tmp_path / "ours")
    again.restore(marks)
    for key, end in ends.items():
        expected = plain.read(*key, 0, end).tolist()
        assert ours.read(*key, 0, end).tolist() == again.read(*key, 0, end).tolist() == expected
        for offset in range(end):
            assert ours.visible_at(*key, offset) == plain.visible_at(*key, offset) == again.visible_at(*key, offset)


def test_a_look_at_the_clock_hands_out_a_part_of_what_waits(tmp_path: Path) -> None:
    """As much as it may and what came with the last of it, the oldest first; after a few nothing waits, and then it does nothing."""
    rng, queues = random.Random(1), ConsumeQueues.open(tmp_path)
    gathered: GatheredAppends = queues._gathered
    ends: dict[tuple[int, int], int] = {}
    for now_ms in range(20):
        queues.append_all(QueueAppends.of(batch(rng, ends, GATHER_QUEUES_MIN)), now_ms)
    waiting, looks = gathered.rows, 0
    assert waiting == sum(ends.values())
    while gathered.rows:
        before = gathered.rows
        queues.hand_out_some()
        assert min(before, HANDED_OUT_ROWS) <= before - gathered.rows < HANDED_OUT_ROWS + 3 * GATHER_QUEUES_MIN
        looks += 1
    assert looks == pytest.approx(waiting / HANDED_OUT_ROWS, rel=0.5)
    queues.hand_out_some()
    for key, end in ends.items():
        assert queues.end(*key) == end
