"""A node's files under a scripted run, by seed, and what it has promised at every point of it.

Law: a promise is noted before what it allows can happen, and after what it requires has happened. So at cut k of the run's tape (see
`crash_states.py`) the last note at or before k says what a recovery must find, and what it may find.
"""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tern_store import EntryKind, Genesis, StoredEntry, small_files
from tern_store.store import StoreLimits
from tests.support.files.faulty_disk import Effect
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.store_entries import (
    MORTAL_QUEUES,
    MORTAL_TOPIC,
    QUEUES,
    TOPICS,
    Expected,
    entry_body,
    record,
)
from tests.support.files.store_node import DIRECTORY, GROUP, LIMITS, LONE_GROUP, Node

# Logical time begins here.
BORN_MS = 1_795_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a recovery may find, and what it must."""

    crcs: dict[int, int] = field(default_factory=dict)  # by index: what may be found, as far as it reaches
    before_cut: dict[int, int] | None = None  # may be found instead while a cut is under way
    end_index: int = 0  # entries up to here must be found
    state_index: int = 0  # a saved state of this entry or a later one must be found
    committed_index: int = 0  # a broker never cuts up to here
    first_index: int = 1  # the log may begin here, or before
    begins: tuple[int, ...] = ()  # positions at which it may begin; keys of what lies before may be found or not
    votes: tuple[tuple[int, str | None], ...] = ((0, None),)  # one of these must be found
    is_running: bool = False  # a restart must learn that the stop was none
    checkpoints: tuple[bytes, ...] = ()  # one of these must be found, if there are any


class StoreRun:
    """One run of a node under a seeded load, recorded."""

    def __init__(
        self,
        files: FaultyFiles,
        seed: int,
        before: "tuple[StoreRun, int] | None" = None,
        *,
        delays: bool = True,
        trims: bool = True,
        group: Genesis | None = None,
    ) -> None:
        """*before*: the life before, and at which cut it ended; None if the files are empty. *delays*: whether messages are
        delayed, *trims*: whether the log is trimmed. *group*: instead of the one that the seed would choose."""
        self.files, self.rng, self._delays, self._trims = files, random.Random(seed), delays, trims
        # Half of all runs are those of a group of one, whose log waits for its disk.
        chosen = group or (GROUP if seed // 10 % 2 == 0 else LONE_GROUP)
        self.group: Genesis = chosen if before is None else before[0].group
        self.limits: StoreLimits = LIMITS[seed // 10 % 2] if before is None else before[0].limits
        self.mortal: int = 0 if before is None else before[0].mortal  # the queue of the mortal topic that is in use
        self.tape: list[Effect] = []
        genesis = self.group.entry()
        self.entries: dict[int, StoredEntry] = {genesis.crc: genesis} if before is None else before[0].entries
        # By the checksum of the last entry, which stands for all before it.
        self.expected: dict[int, Expected] = before[0].expected if before is not None else {}
        self.expected.setdefault(genesis.crc, Expected(crc=genesis.crc))
        promise = Promise(crcs={1: genesis.crc}) if before is None else before[0].promise_at(before[1])
        self.notes: list[tuple[int, Promise]] = [(0, promise)]
        self.now_ms, self.term, self.number = BORN_MS, 0, seed * 100_000
        self.counts: dict[str, int] = {}

    def play(self, steps: int) -> None:
        """Open a node and do *steps* things to it."""
        self.files.tape = self.tape
        node = self.open()
        actions: list[tuple[int, Callable[[Node], Node | None]]] = [
            (24, self.append),
            (6, self.sync),
            (3, self.save),
            (1, self._cut),
            (1, self.vote),
            (1, self.preallocate),
            (3 * self._trims, self.trim),
            (1, self._reopen),
        ]
        for _ in range(steps):
            (action,) = self.rng.choices([act for _, act in actions], [weight for weight, _ in actions])
            self.counts[action.__name__] = self.counts.get(action.__name__, 0) + 1
            node = action(node) or node
        self.files.tape = None

    def promise_at(self, cut: int) -> Promise:
        """What holds when the power goes behind effect *cut*."""
        return next(promise for at, promise in reversed(self.notes) if at <= cut)

    # Below -----------------------------------------------------------------------------------------------------
    @property
    def promise(self) -> Promise:
        """What holds now."""
        return self.notes[-1][1]

    def _note(self, at: int | None = None, **changes: Any) -> None:
        self.notes.append((len(self.tape) if at is None else at, replace(self.promise, **changes)))

    def open(self) -> Node:
        """A node on the run's files; what it found is promised from now on."""
        node = Node(self.files, self.limits, group=self.group)
        log = node.log
        # What a recovery has found stays, and what it has not found never comes back.
        found = {index: crc for index, crc in self.promise.crcs.items() if index < log.first_index}
        found |= {index: log.mark(index).crc for index in range(log.first_index, log.end_index + 1)}
        vote = (node.votes.term, node.votes.voted_for)
        self._note(crcs=found, before_cut=None, end_index=log.end_index, votes=(vote,), is_running=True)
        self.term = max(self.term, log.end_term, node.votes.term)
        self.now_ms = max(self.now_ms, self.expected[found[log.end_index]].now_ms)
        return node

    def append(self, node: Node) -> None:
        """An entry of some size, and what follows from it."""
        self.term += self.rng.random() < 0.1
        self.append_body(node, self._some_body(self.expected[self.promise.crcs[node.log.end_index]]))

    def append_body(self, node: Node, body: list[bytes]) -> None:
        """An entry with this body, and what follows from it."""
        before, index = len(self.tape), node.log.end_index + 1
        expected = self.expected[self.promise.crcs[index - 1]]
        entry = node.log.append(EntryKind.COMMANDS, index, max(self.term, node.log.end_term), body, 1)
        self.entries[entry.crc] = entry
        self.expected[entry.crc] = expected.after(entry)
        self._note(before, crcs={**self.promise.crcs, index: entry.crc})
        node.apply(entry)

    def _some_body(self, expected: Expected) -> list[bytes]:
        rng = self.rng
        self.now_ms += rng.choice([0, 1, 300, 20_000, 900_000])
        head: dict[str, Any] = {"now": self.now_ms, "send": [], "fire": expected.due_at(self.now_ms)}
        records: list[bytes] = []
        for _ in range(rng.choice([0, 1, 1, 2, 4, 12])):
            self.number += 1
            topic, queue = rng.randrange(TOPICS), rng.randrange(QUEUES)
            delay_ms = rng.choice([0, 0, 0, 5_000, 600_000, 7_200_000, -10_000]) * self._delays
            if rng.random() < 0.1:
                topic, queue, delay_ms = MORTAL_TOPIC, self.mortal, 0
            head["send"].append([topic, queue, self.now_ms + delay_ms if delay_ms else 0, self.number])
            records.append(record(topic, queue, rng.randbytes(rng.choice([1, 20, 100])), self.number))
        if rng.random() < 0.2:
            body = rng.randbytes(rng.choice([300, 800]))
            # Every other one holds whole sectors of zeros: they must not pass for what a crash lost.
            records.append(record(0, 0, body[:20] + bytes(1100) if self.number % 2 else body, self.number + 1))
            self.number += 1
            head["send"].append([0, 0, 0, self.number])
        if expected.timers and rng.random() < 0.2:
            timer = rng.choice(expected.timers)[1]
            if timer[0] > self.now_ms:
                head["cancel"] = [[timer[0], timer[1]]]
        if self.mortal < MORTAL_QUEUES - 1 and rng.random() < 0.05:
            head["remove"] = [[MORTAL_TOPIC, self.mortal]]
            self.mortal += 1
        return entry_body(head, records)

    def sync(self, node: Node) -> None:
        """Make durable what was appended, then the states of the segments that began."""
        job = node.log.take_sync()
        if job is not None:
            if self.rng.random() < 0.3:
                self.append(node)  # while the job is on its way
            job.run()
            node.log.mark_synced(job)
            self._note_synced(node)
        while node.boundaries and node.boundaries[0][0] <= node.log.synced_index:
            index, boundary = node.boundaries[0]
            boundary.run()
            del node.boundaries[0]
            self._note(committed_index=max(self.promise.committed_index, index))

    def _note_synced(self, node: Node) -> None:
        self._note(end_index=max(self.promise.end_index, node.log.synced_index))

    def save(self, node: Node, *, quietly: bool = False) -> None:
        """Save the node's state and note what that promises; unless *quietly*, something may be appended meanwhile."""
        packed, mark = node.payload(), node.log.mark(node.log.end_index)
        save = node.store.save(mark, lambda: [packed])
        if not quietly and self.rng.random() < 0.5:
            self.append(node)
        if not save.run():
            node.store.saved(save, is_saved=False)
            raise OSError(errno.ENOSPC, "no room for the state")
        self._note(state_index=mark.index, committed_index=max(self.promise.committed_index, mark.index))
        node.store.saved(save, is_saved=True)
        node.state_index = mark.index
        self._note_synced(node)
        self.checkpoint(node)

    def checkpoint(self, node: Node) -> None:
        """The page that says how far the files reach."""
        checkpoint = small_files.Checkpoint(newest_ms=node.now_ms, position=node.log.end_position)
        none = (b"", bytes(small_files.CHECKPOINT_SIZE_BYTES))  # the first one may arrive as a name, or a size, alone
        self._note(checkpoints=(*(self.promise.checkpoints or none), checkpoint.encode()))
        small_files.write_checkpoint(DIRECTORY, checkpoint, self.files)
        self._note(checkpoints=(checkpoint.encode(),))

    def trim(self, node: Node) -> None:
        """Copy what is needed, order a trim, run what was ordered."""
        self.sync(node)
        droppable = node.droppable()
        if droppable:
            mark, position, floors = self.rng.choice(droppable)
            needed = node.needed(position, floors)
            sizes = needed.rows["size"].astype(np.int64)
            if sizes.sum() < 2500:
                # No time passes: what is due by now is delivered, and needs no copy as a timer.
                expected = self.expected[node.log.mark(node.log.end_index).crc]
                head = {"now": node.now_ms, "move": needed.rows.tobytes(), "floors": floors}
                head["fire"] = expected.due_at(node.now_ms)
                head["drop"] = [mark.index, mark.position, mark.crc, mark.term]
                copies = bytes(node.log.read_records(needed.positions, sizes))
                first_index = max(self.promise.first_index, mark.index + 1)
                self._note(first_index=first_index, begins=(*self.promise.begins, position))
                self.append_body(node, entry_body(head, [copies]))
                self.counts["drop"] = self.counts.get("drop", 0) + 1
                self._note(committed_index=node.log.end_index)
        # Committed before it is applied, in a broker.
        self.sync(node)
        if self.rng.random() < 0.3:
            self.save(node)
        while node.trims:
            job = node.trims[0]
            job.run()
            node.store.trimmed(job)
            del node.trims[0]

    def _cut(self, node: Node) -> Node:
        first = max(2, node.log.end_index - 4, self.promise.committed_index + 1)
        return self.cut(node, self.rng.randint(min(first, node.log.end_index + 1), node.log.end_index + 1))

    def cut(self, node: Node, index: int) -> Node:
        """Cut entry *index* and all behind it."""
        kept = {at: crc for at, crc in self.promise.crcs.items() if at < index}
        self._note(crcs=kept, before_cut=self.promise.crcs, end_index=min(self.promise.end_index, index - 1))
        node.log.truncate_from(index)
        self._note(before_cut=None, end_index=node.log.synced_index)
        self.term += 1
        # What was applied and is gone now: a broker never applies what may be cut, this one begins again.
        return self._reopen(node)

    def vote(self, node: Node) -> None:
        """A vote in a new term."""
        self.term += 1
        vote = (self.term, self.rng.choice(["a", "b", None]))
        self._note(votes=(*self.promise.votes, vote))
        node.votes.save(*vote)
        self._note(votes=(vote,))

    def preallocate(self, node: Node) -> None:
        """Make the next segment's file."""
        job = node.log.preallocate_next()
        if job is not None:
            job.run()
            node.log.mark_preallocated(job)

    def _reopen(self, node: Node) -> Node:
        node.close()
        if self.rng.random() < 0.3:
            self._note(is_running=False)
            small_files.remove_abort(DIRECTORY, self.files)
        return self.open()


# What comes after a crash ------------------------------------------------------------------------------------------
def examine(node: Node, run: StoreRun, promise: Promise, *, is_damaged: bool = False) -> dict[str, Any]:
    """Compare a recovered node with what was promised; what it serves. What *is_damaged* may be made again from the log."""
    log = node.log
    found = {index: log.entry(index) for index in range(log.first_index, log.end_index + 1)}
    crcs = {index: entry.crc for index, entry in found.items()}
    assert log.end_index >= promise.end_index, f"{promise.end_index} was acknowledged, the log ends at {log.end_index}"
    assert log.first_index <= promise.first_index, "the log begins behind what was trimmed"
    allowed = [promise.crcs] if promise.before_cut is None else [promise.crcs, promise.before_cut]
    assert any(crcs.items() <= those.items() for those in allowed), (
        "an entry is served that was never written, or was cut"
    )
    assert all(entry.raw == run.entries[entry.crc].raw for entry in found.values())
    assert log.synced_index == log.end_index, "a recovered log is durable"
    assert is_damaged or node.state_index >= promise.state_index, "a saved state was lost"
    assert is_damaged or node.store.rebuilding == "", "a crash was taken for damage"
    assert is_damaged or node.before is not None or not promise.is_running, "a crash was taken for a clean stop"
    vote = (node.votes.term, node.votes.voted_for)
    assert vote in promise.votes, f"vote {vote}, promised {promise.votes}"
    checkpoint = read_whole(node.files, DIRECTORY / small_files.CHECKPOINT)
    assert is_damaged or not promise.checkpoints or checkpoint in promise.checkpoints, (
        f"a checkpoint of {len(checkpoint)} bytes"
    )
    facts = require_served(node, run, promise)
    return {**facts, "crcs": crcs, "vote": vote}


def require_served(node: Node, run: StoreRun, promise: Promise) -> dict[str, Any]:
    """What a node serves is what follows from its log, as it ends now."""
    log = node.log
    facts, expected = node.facts(), run.expected[log.mark(log.end_index).crc]
    assert facts["queues"] == expected.queue_facts(), "the queues are not those of the log"
    assert facts["timers"] == expected.timer_facts(), "the timers are not those of the log"
    # A state may have been saved between the order to trim and the trim itself: keys go first.
    begins = {log.start.position, *(at for at in promise.begins if at > log.start.position)}
    assert any(facts["keys"] == expected.key_facts(at) for at in sorted(begins)), "the keys are not those of the log"
    return facts


def read_whole(files: FaultyFiles, path: Path) -> bytes:
    """A file's bytes; none if it is not there."""
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return b""
    data = files.pread(fd, files.size(fd), 0)
    files.close(fd)
    return data


def write_one_more(node: Node, run: StoreRun, promise: Promise, rng: random.Random) -> Promise:
    """An entry of some size, synced; what holds from then on."""
    log = node.log
    expected = run.expected[log.mark(log.end_index).crc]
    number = rng.randrange(1 << 60)
    now_ms = expected.now_ms + rng.choice([0, 1000])
    head = {"now": now_ms, "send": [[1, 1, 0, number]], "fire": expected.due_at(now_ms)}
    body = entry_body(head, [record(1, 1, rng.randbytes(rng.choice([1, 400, 1200])), number)])
    entry = log.append(EntryKind.COMMANDS, log.end_index + 1, log.end_term + 1, body, 1)
    run.entries[entry.crc], run.expected[entry.crc] = entry, expected.after(entry)
    node.apply(entry)
    job = log.take_sync()
    assert job is not None
    job.run()
    log.mark_synced(job)
    crcs = {index: log.mark(index).crc for index in range(log.first_index, log.end_index + 1)}
    vote = (node.votes.term, node.votes.voted_for)
    return replace(promise, crcs=crcs, before_cut=None, end_index=log.end_index, votes=(vote,), is_running=True)
