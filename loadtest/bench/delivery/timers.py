"""`python -m loadtest.bench.delivery.timers [--mesh]`: delayed messages stored and due a second.

No assertion on any time. In one process: records of 1 KiB for 8 queues in a store on disk; every
entry is built, appended, synced and applied as in a broker's leader, without network. With --mesh:
a fresh mesh of three brokers, in which everything is due at one moment; the rate counts from that
moment until the last message is in its queue.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from rich.console import Console

from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import HOST, OwnMesh, own_mesh
from loadtest.bench.store.figures import Bar, judged, scratch, show_store
from loadtest.bench.store.node import BenchNode
from tern_broker.upkeep.timer_delivery import FIRE_ROWS_MAX
from tern_wire import paths
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import NO_KEY, SEND_ROW
from tern_wire.records.properties import MESSAGE_ID, encode_properties
from tern_wire.records.write import encode_record

MESSAGES, MESH_MESSAGES, QUEUES = 200_000, 60_000, 8
SEND_MESSAGES, BATCH_MESSAGES = 500, 1_000
RECORD_SIZE_BYTES = 1_024
# All messages are due within SPREAD_MS, and AHEAD_MS is the time to store them.
SPREAD_MS, AHEAD_MS = 30_000, 30_000
ROUNDS = 3
# A mesh that has not delivered everything so long after its time has lost a message.
PATIENCE_S = 300
_FOLDER = Path(".tern/bench")
BAR = Bar(value=10_000)


class Delayed:
    """A store with delayed messages. Owner: one round."""

    def __init__(self, node: BenchNode) -> None:
        self._node = node
        self._entry(0, CommandKind.CREATE_TOPIC, encode_msgpack({"topic": "t", "queues": QUEUES}))
        self._topic_id = node.state.names.topics["t"].topic_id

    def store_all(self) -> float:
        """Store all; return messages a second."""
        payloads = [self._send(first) for first in range(0, MESSAGES, SEND_MESSAGES)]
        began_s = time.perf_counter()
        for number, payload in enumerate(payloads):
            self._entry(number, CommandKind.SEND, payload)
            self._node.allocate_ahead()
        return MESSAGES / (time.perf_counter() - began_s)

    def fire_all(self) -> float:
        """Deliver all, which are due; return messages a second."""
        timers, now_ms = self._node.store.timers, AHEAD_MS + SPREAD_MS
        began_s = time.perf_counter()
        while len(rows := timers.peek(now_ms, FIRE_ROWS_MAX)):
            self._entry(now_ms, CommandKind.FIRE, rows.tobytes())
        spent_s = time.perf_counter() - began_s
        stored = sum(self._node.state.names.topics["t"].ends)
        if stored != MESSAGES or timers.pending:
            raise RuntimeError(f"{stored:,} of {MESSAGES:,} messages were delivered, {timers.pending:,} wait")
        return MESSAGES / spent_s

    def _entry(self, now_ms: int, kind: CommandKind, payload: bytes) -> None:
        entry = self._node.append(entry_parts(now_ms, [(kind, [payload])]))
        sync = self._node.log.take_sync()
        if sync is not None:
            sync.run()
            self._node.log.mark_synced(sync)
        self._node.apply(entry)

    def _send(self, first: int) -> bytes:
        rows, records = [], []
        for number in range(first, first + SEND_MESSAGES):
            properties = encode_properties([(MESSAGE_ID, f"{number:032X}")])
            queue, deliver_ms = number % QUEUES, AHEAD_MS + number * 7919 % SPREAD_MS
            record = encode_record(b"t", queue, bytes(RECORD_SIZE_BYTES - 95 - len(properties)), properties, born_ms=1)
            crc = int.from_bytes(record[8:12], "big")
            rows.append(SEND_ROW.pack(len(record), self._topic_id, queue, 0, 0, crc, 0, NO_KEY, deliver_ms, 0))
            records.append(record)
        return SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records)


def bench_timers(folder: Path) -> Iterator[Figure]:
    """Yield the figures of storing and delivering in one process."""
    stored, fired = [], []
    for _ in range(ROUNDS):
        with scratch(folder / "timers") as place, BenchNode(place, 1 << 30) as node:
            delayed = Delayed(node)
            stored.append(delayed.store_all())
            fired.append(delayed.fire_all())
    note = f"{MESSAGES:,} messages, all due within {SPREAD_MS // 1000} s, entries of {SEND_MESSAGES}"
    yield _named(judged("delay_store", stored, "messages/s", note=note))
    yield _named(judged("delay_fire", fired, "messages/s", BAR, note=f"entries of {FIRE_ROWS_MAX:,}, each synced"))


def bench_mesh(folder: Path) -> Iterator[Figure]:
    """Yield the figure of delivering in a mesh of its own."""
    with own_mesh(folder) as mesh:
        yield fire_in_mesh(mesh)


def fire_in_mesh(mesh: OwnMesh, messages: int = MESH_MESSAGES, ahead_ms: int = AHEAD_MS) -> Figure:
    """Return delay_fire_mesh: through Raft, on three nodes that share this machine.

    *messages*: a multiple of BATCH_MESSAGES; they must be stored within *ahead_ms*.
    """
    mesh.ask("PUT", "/v1/topics/delayed", {"queues": QUEUES, "type": "DELAY"})
    due_ms = time.time_ns() // 1_000_000 + ahead_ms
    connection = HTTPConnection(HOST, mesh.port, timeout=30)
    message = {"body": bytes(RECORD_SIZE_BYTES), "deliver_at": due_ms}
    batch = encode_msgpack({"messages": [message] * BATCH_MESSAGES})
    for _ in range(messages // BATCH_MESSAGES):
        connection.request("POST", paths.batch_path("delayed"), batch, {"Content-Type": paths.MSGPACK})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"a batch was answered {reply.status}: {reply.read()[:500]!r}")
        reply.read()
    connection.close()
    early = mesh.stored("delayed")
    if early or time.time_ns() // 1_000_000 > due_ms:
        raise RuntimeError(
            f"{early:,} messages were there before their time, or the time was over before all were sent"
        )
    give_up_s = due_ms / 1_000 + PATIENCE_S
    while (stored := mesh.stored("delayed")) < messages:
        if time.time() > give_up_s:
            raise RuntimeError(
                f"{PATIENCE_S} s after their time {stored:,} of {messages:,} messages are in their queues"
            )
        time.sleep(0.02)
    spent_s = time.time() - due_ms / 1_000
    if stored != messages:
        raise RuntimeError(f"{messages:,} messages were sent, {stored:,} are stored")
    note = f"{messages:,} messages due at one moment; the last was in its queue {spent_s:.2f} s later"
    return _named(judged("delay_fire_mesh", [messages / spent_s], "messages/s", BAR, note=note))


def _named(figure: Figure) -> Figure:
    return replace(figure, bench="timers")


def main() -> int:
    """Return exit code 1 when a total was wrong; a missed bar is shown, never an error."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.delivery.timers", description=__doc__)
    parser.add_argument("--mesh", action="store_true", help="measure a fresh mesh, too")
    options = parser.parse_args()
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    try:
        for bench in (bench_timers, bench_mesh)[: 1 + options.mesh]:
            for figure in bench(_FOLDER):
                figures.append(figure)
                print(figure.line(), flush=True)
    except (RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    show_store(figures, console, "bench timers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
