"""`python -m loadtest.bench.delivery.fifo`: what order costs one core, and a blocked message group.

No assertion on any time. One queue, records of 1 KiB in a store on disk; receivers of 32 messages
take turns, each acks with its next receive. Every turn is an entry that is picked, appended,
applied and read as in a broker's leader, without network and without fdatasync.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from loadtest.bench.figures import Figure
from loadtest.bench.store.figures import Bar, judged, scratch, show_store
from loadtest.bench.store.node import BenchNode
from tern_broker.core.delivery.fifo_picking import FifoPick, FifoPicker, lease_fifo_payload
from tern_broker.core.delivery.picking import ReceiveRequest
from tern_broker.reading.message_groups import MessageGroups
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import ACK, NO_KEY, SEND_ROW, SETTLE_ROWS, message_group_hash
from tern_wire.records.properties import MESSAGE_GROUP, MESSAGE_ID, encode_properties
from tern_wire.records.write import encode_record

MESSAGE_GROUPS, MESSAGES, BLOCKED = 1_000, 60_000, 100_000
BATCH_MESSAGES, RECEIVERS = 32, 8
RECORD_SIZE_BYTES = 1_024
ROUNDS = 3
_FOLDER = Path(".tern/bench")
_STUCK = "stuck"
_INVISIBLE_MS = 3_600_000


class Ordered:
    """A store with one queue, and its ordered group. Owner: one round."""

    def __init__(self, node: BenchNode, names: Sequence[str]) -> None:
        """Create the topic and send.

        *names*: the message group of each message, in order of sending.
        """
        self._node = node
        created = [{"topic": "t", "queues": 1}, {"group": "g", "fifo": True}]
        kinds = (CommandKind.CREATE_TOPIC, CommandKind.CREATE_GROUP)
        self._entry(*((kind, encode_msgpack(request)) for kind, request in zip(kinds, created, strict=True)))
        self._topic, self._group = node.state.names.topics["t"], node.state.names.groups["g"]
        self._message_groups = MessageGroups(node.log.read_records)
        for first in range(0, len(names), 500):
            self._entry((CommandKind.SEND, self._send(first, names[first : first + 500])))
            node.allocate_ahead()
        # Rows that ack the messages of each receiver.
        self._held = deque([b""] * RECEIVERS)

    def receive_all(self, messages: int) -> float:
        """Receive and ack until *messages* are acked; return messages a second."""
        acked, idle, began_s = 0, 0, time.perf_counter()
        while acked < messages:
            acks = self._held.popleft()
            acked += len(acks) // SETTLE_ROWS.itemsize
            self._held.append(self._turn(acks, BATCH_MESSAGES))
            idle = 0 if acks or self._held[-1] else idle + 1
            if idle > len(self._held):
                raise RuntimeError(f"{messages - acked:,} messages are not delivered")
        return acked / (time.perf_counter() - began_s)

    def block(self) -> float:
        """Receive the first message, without an ack, and scan all behind it; return seconds."""
        began_s = time.perf_counter()
        self._turn(b"", 1)
        delivery = self._node.state.leasing.delivery(self._group.group_id, self._topic, 0)
        while delivery.cursor < BLOCKED:
            if acks := self._turn(b"", BATCH_MESSAGES):
                self._held[0] += acks
        return time.perf_counter() - began_s

    def _turn(self, acks: bytes, messages_max: int) -> bytes:
        """Make one entry: a receiver's acks and next receive; return rows for the next acks."""
        picks = self._pick(messages_max)
        commands = [(CommandKind.SETTLE, acks)] if acks else []
        if picks:
            commands.append((CommandKind.LEASE_FIFO, lease_fifo_payload(picks)))
        verdicts = self._entry(*commands)
        if not picks:
            return b""
        granted, (pick,) = verdicts[-1], picks
        held = np.flatnonzero(granted["lease"])
        if not len(held):
            return b""
        entries = pick.entries[held]
        self._node.log.read_records(entries["position"].astype(np.int64), entries["size"].astype(np.int64))
        rows = np.zeros(len(held), SETTLE_ROWS)
        rows["group"], rows["topic"], rows["action"] = self._group.group_id, self._topic.topic_id, ACK
        rows["offset"], rows["lease"] = pick.offsets[held], granted["lease"][held]
        return rows.tobytes()

    def _pick(self, messages_max: int) -> list[FifoPick]:
        picker = FifoPicker(self._node.state, self._node.store.read_queue, self._message_groups.read)
        request = ReceiveRequest(
            group=self._group,
            topic=self._topic,
            messages_max=messages_max,
            size_max_bytes=1 << 20,
            invisible_ms=_INVISIBLE_MS,
            first_queue=0,
        )
        return picker.pick(request) or []

    def _entry(self, *commands: tuple[CommandKind, bytes]) -> list[Any]:
        parts = entry_parts(self._node.state.now_ms + 1, [(kind, [payload]) for kind, payload in commands])
        return list(self._node.apply(self._node.append(parts)))

    def _send(self, first: int, names: Sequence[str]) -> bytes:
        rows, records = [], []
        for number, name in enumerate(names, first):
            properties = encode_properties([(MESSAGE_ID, f"{number:032X}"), (MESSAGE_GROUP, name)])
            record = encode_record(b"t", 0, bytes(RECORD_SIZE_BYTES - 95 - len(properties)), properties, born_ms=1)
            hashed = message_group_hash(name.encode())
            row = (len(record), self._topic.topic_id, 0, 0, 0, 0, 0, NO_KEY, 0, hashed)
            rows.append(SEND_ROW.pack(*row))
            records.append(record)
        return SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records)


def _names() -> list[str]:
    return [f"customer-{number * 7919 % MESSAGE_GROUPS}" for number in range(MESSAGES)]


def bench_fifo(folder: Path) -> Iterator[Figure]:
    """Yield rates without and with a blocked message group, and the time of one scan."""
    free, blocked, looked = [], [], []
    for _ in range(ROUNDS):
        with scratch(folder / "free") as place, BenchNode(place, 1 << 30) as node:
            free.append(Ordered(node, _names()).receive_all(MESSAGES))
        with scratch(folder / "blocked") as place, BenchNode(place, 1 << 30) as node:
            ordered = Ordered(node, [_STUCK] * BLOCKED + _names())
            looked.append(BLOCKED / ordered.block())
            blocked.append(ordered.receive_all(MESSAGES))
    note = f"{MESSAGE_GROUPS:,} message groups, batches of {BATCH_MESSAGES}"
    yield _named(judged("fifo", free, "messages/s", Bar(value=10_000), note=note))
    note = f"{BLOCKED:,} messages wait behind one that is never acked"
    yield _named(judged("fifo_blocked", blocked, "messages/s", Bar(ratio=0.8), bare=free, note=note))
    yield _named(judged("fifo_look", looked, "messages/s", Bar(value=100_000), note="once, when they are met"))


def _named(figure: Figure) -> Figure:
    return replace(figure, bench="fifo")


def main() -> int:
    """Return exit code 0 always: a missed bar is shown, never an error."""
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; one core is used, about a minute")
    figures = []
    with scratch(_FOLDER / f"fifo-{os.getpid()}") as folder:
        for figure in bench_fifo(folder):
            figures.append(figure)
            print(figure.line(), flush=True)
    show_store(figures, console, "bench fifo")
    return 0


if __name__ == "__main__":
    sys.exit(main())
