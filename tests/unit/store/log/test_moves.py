"""What retention copies forward and what it does not: no queue entry may point at what is gone, nothing is delivered twice."""

import numpy as np

from tern_store import EntryKind
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.store_entries import entry_body, record
from tests.support.files.store_node import GROUP, Node
from tests.support.files.store_run import BORN_MS, StoreRun
from tests.support.files.timer_calls import due

HOUR_MS = 3_600_000


class Retained:
    """A node with entries of one's own choosing."""

    def __init__(self) -> None:
        self.run = StoreRun(FaultyFiles(), 1)
        self.node: Node = self.run.open()
        self.number = 0

    def send(self, now_ms: int, *, size: int = 100, deliver_ms: int = 0) -> None:
        """One message to queue 0/0; its number is its timer's id, too."""
        self.number += 1
        expected = self.run.expected[self.node.log.mark(self.node.log.end_index).crc]
        head = {"now": now_ms, "send": [[0, 0, deliver_ms, self.number]], "fire": expected.due_at(now_ms)}
        self.run.append_body(self.node, entry_body(head, [record(0, 0, bytes([1]) * size, self.number)]))

    def roll(self, now_ms: int) -> None:
        """Go on in the next segment, and save."""
        bases = len(self.node.log.segment_bases)
        while len(self.node.log.segment_bases) == bases:
            self.send(now_ms, size=900)
        self.run.sync(self.node)
        self.run.save(self.node, quietly=True)

    def trim(self) -> None:
        """Let the log begin at the second segment."""
        ((mark, position, floors), *_) = self.node.droppable()
        needed = self.node.needed(position, floors)
        copies = bytes(self.node.log.read_records(needed.positions, needed.rows["size"].astype(np.int64)))
        drop = [mark.index, mark.position, mark.crc, mark.term]
        head = {"now": self.node.now_ms, "move": needed.rows.tobytes(), "floors": floors, "drop": drop}
        self.run.append_body(self.node, entry_body(head, [copies]))
        job = self.node.trims.pop()
        job.run()
        self.node.store.trimmed(job)


def test_no_queue_entry_points_at_what_is_gone() -> None:
    """A delayed message of the oldest segment was delivered behind that segment, longer ago than the retention: it is either
    copied or below its queue's min, never a dangling entry."""
    retained = Retained()
    retained.send(BORN_MS, deliver_ms=BORN_MS + HOUR_MS)
    retained.roll(BORN_MS)
    retained.send(BORN_MS + HOUR_MS)  # here it is delivered
    retained.roll(BORN_MS + 50 * HOUR_MS)
    retained.send(BORN_MS + 90 * HOUR_MS)
    retained.trim()
    assert retained.node.log.start.position == GROUP.segment_size_bytes
    queues, log = retained.node.store.queues, retained.node.log
    rows = retained.node.store.read_queue(0, 0, queues.min(0, 0), queues.end(0, 0))
    assert len(rows)
    assert (rows["position"] >= log.start.position).all()


def test_a_timer_that_came_due_before_its_copy_was_applied_is_delivered_once() -> None:
    """The leader proposes a copy of what waits; before that entry comes, another one delivers it. The copy changes nothing then."""
    retained = Retained()
    retained.send(BORN_MS, deliver_ms=BORN_MS + HOUR_MS)
    retained.roll(BORN_MS)
    retained.roll(BORN_MS)
    node = retained.node
    ((_, position, floors), *_) = node.droppable()
    needed = node.needed(position, floors)
    assert needed.rows["number"].tolist() == [1]
    copies = bytes(node.log.read_records(needed.positions, needed.rows["size"].astype(np.int64)))
    retained.send(BORN_MS + 2 * HOUR_MS)  # delivers it
    end = node.store.queues.end(0, 0)
    body = entry_body({"now": BORN_MS + 2 * HOUR_MS, "move": needed.rows.tobytes()}, [copies])
    node.apply(node.log.append(EntryKind.COMMANDS, node.log.end_index + 1, node.log.end_term, body, 1))
    assert node.store.timers.pending == 0
    assert len(due(node.store.timers, BORN_MS + 3 * HOUR_MS, 10)) == 0
    assert node.store.queues.end(0, 0) == end
