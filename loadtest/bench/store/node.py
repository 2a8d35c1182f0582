"""One node's store and its state machine, assembled as in the broker's engine, without Raft.

Everything runs on one thread.
"""

from pathlib import Path
from types import TracebackType

import numpy as np

from loadtest.bench.store.append import bench_group
from loadtest.bench.store.entries import Shape
from tern_broker.core import Applied, saving
from tern_broker.core.comparing.digest import Verdict
from tern_broker.core.machine import StateMachine
from tern_broker.upkeep.timer_delivery import apply_timers
from tern_store import REAL_FILES, EntryKind, Files, StoredEntry
from tern_store.log.entry import HEADER_SIZE_BYTES
from tern_store.store import Store
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import STATE_MACHINE_VERSION, CommandKind, entry_parts
from tern_wire.link.requests import Parts
from tern_wire.records.write import fill_in

# A broker saves its state at this interval of log bytes.
SAVE_AFTER_BYTES = 64 << 20


class BenchNode:
    """A recovered node: state loaded, the log's tail applied.

    Owner: the bench that uses it in a `with` block.
    """

    def __init__(
        self, directory: Path, segment_size_bytes: int, shape: Shape | None = None, *, files: Files = REAL_FILES
    ) -> None:
        """Open the store. If it is new, *shape* has the topics to make."""
        self.store = Store.open(directory, group=bench_group(segment_size_bytes), files=files)
        self.log, self.queues = self.store.log, self.store.queues
        payload, applied = self.store.payload, self.store.applied
        self.state = StateMachine() if payload is None else saving.load(payload)
        self._topics: dict[int, bytes] = {}
        self._name_topics()
        self._saved_position = applied.position if applied is not None else 0
        for index in range(applied.index + 1 if applied is not None else 1, self.log.end_index + 1):
            self.apply(self.log.entry(index))
        if shape is not None and not self._topics:
            commands: list[tuple[CommandKind, Parts]] = [
                (CommandKind.CREATE_TOPIC, [encode_msgpack({"topic": name, "queues": queues})])
                for name, queues in shape.topics
            ]
            self.apply(self.append(entry_parts(0, commands)))

    def append(self, parts: Parts) -> StoredEntry:
        """Append the next entry, to the page cache."""
        return self.log.append(EntryKind.COMMANDS, self.log.end_index + 1, 1, parts, STATE_MACHINE_VERSION)

    def apply(self, entry: StoredEntry) -> list[Verdict]:
        """Apply one entry and write its queues and keys; return its verdicts."""
        if entry.kind != EntryKind.COMMANDS:
            return []
        applied = self.state.apply(entry.body, entry.position + HEADER_SIZE_BYTES, entry.index)
        if applied.metadata_changed:
            self._name_topics()
        self.dispatch(entry, applied)
        apply_timers(self.store, entry, applied, self.state.names)
        return applied.verdicts

    def dispatch(self, entry: StoredEntry, applied: Applied) -> None:
        """Write consume queues and key index of an applied entry."""
        for appends in applied.appends:
            self.store.dispatch(entry, appends, self._topics, self.state.now_ms)

    def allocate_ahead(self) -> None:
        """Allocate the next segment when half of this one is full.

        In a broker the disk thread does this.
        """
        if self.log.end_position % self.log.segment_size_bytes > self.log.segment_size_bytes // 2:
            spare = self.log.preallocate_next()
            if spare is not None:
                spare.run()
                self.log.mark_preallocated(spare)

    def save_if_due(self) -> None:
        """Save after every 64 MiB of log."""
        if self.unsaved_bytes > SAVE_AFTER_BYTES:
            self.save()

    def save(self) -> None:
        """Save the state and every file, durably."""
        snapshot = saving.take(self.state)
        save = self.store.save(self.log.mark(self.log.end_index), lambda: saving.encode(snapshot))
        self.store.saved(save, is_saved=save.run())
        self._saved_position = self.log.end_position

    @property
    def unsaved_bytes(self) -> int:
        """The bytes of log that a restart after a crash would apply again."""
        return self.log.end_position - self._saved_position

    def pull(self, topic_id: int, queue: int, offset: int, count: int) -> memoryview:
        """Return the records of *count* messages from *offset* on, as for a consumer.

        They are verified, with offset and position filled in.
        """
        entries = self.store.read_queue(topic_id, queue, offset, count)
        positions, sizes = entries["position"].astype(np.int64), entries["size"].astype(np.int64)
        data = self.log.read_records(positions, sizes)
        fill_in(data, np.cumsum(sizes) - sizes, np.arange(offset, offset + len(entries), dtype=np.int64), positions)
        return data

    def close(self) -> None:
        """Close the files without a save: the state after a crash of the process."""
        self.store.close()

    def __enter__(self) -> "BenchNode":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _name_topics(self) -> None:
        self._topics = {number: topic.name.encode() for number, topic in self.state.names.topics_by_id.items()}
