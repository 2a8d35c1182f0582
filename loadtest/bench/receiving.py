"""Consumers: batches received over several connections, each acked with the next receive.

The figure of receiving, and the classes that other figures use.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from loadtest.bench.ceilings import echo_ceiling
from loadtest.bench.closed_loop import (
    WARM_UP_S,
    BenchFailed,
    Finished,
    Prepared,
    Step,
    prepare,
    run_closed_loop,
    run_to_end,
)
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh
from tern_wire import paths

BATCH_MESSAGES = 32
CONNECTIONS = 8
GROUP = "bench"
# A message is lost if none comes for this time. Far beyond an election and a lease's look at
# 100,000 messages.
PATIENCE_S = 30.0
# A message in MessagePack with its 1 KiB body and a receipt handle; for the echo's answers.
_MESSAGE_SIZE_BYTES = 1_500


class Message(msgspec.Struct):
    """The used fields of a message."""

    queue: str
    offset: int
    receipt_handle: str
    body: bytes


class _Settled(msgspec.Struct):
    """The result of one piggy-backed ack."""

    error: msgspec.Raw | None = None


class _Reply(msgspec.Struct):
    """The answer to a receive."""

    messages: list[Message]
    settled: list[_Settled] = []


_decode_reply = msgspec.msgpack.Decoder(_Reply).decode
_HEADERS = {"Content-Type": paths.JSON, "Accept": paths.MSGPACK}
# Called with every batch before it is acked; raises BenchFailed for a wrong one.
Look = Callable[[list[Message]], None]


class Receivers:
    """Receives and acks over many connections.

    Owns the messages of each connection that are not acked yet, and the totals.
    """

    def __init__(
        self,
        topic: str,
        group: str = GROUP,
        *,
        look: Look | None = None,
        batch_messages: int = BATCH_MESSAGES,
        wanted: dict[str, str] | None = None,
        wait: str = "1s",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """*wanted*: the filter of each receive, `{"tags": ...}` or `{"sql": ...}`.

        *wait*: how long a receive may wait for a message.
        """
        self._topic, self._group, self._look, self._patience_s = topic, group, look, patience_s
        self._path = paths.receive_path(topic, group)
        self._asked: dict[str, Any] = {"max_messages": batch_messages, "wait": wait}
        if wanted is not None:
            self._asked["filter"] = wanted
        self._unacked: dict[HttpConnection, list[str]] = {}
        self._heard_s = 0.0
        self.seen: set[tuple[str, int]] = set()
        self.received = 0
        self.acked = 0

    def step(self) -> Step:
        """Return a step: one receive with the last batch's acks; None once the topic is empty."""

        async def step(connection: HttpConnection) -> int | None:
            acks, messages = await self._receive(connection)
            return acks if messages else acks or None

        return step

    async def drain(self, port: int, messages: int) -> Finished:
        """Receive until *messages* have come in all.

        Returns the number of acks until the last message arrived, and the time. BenchFailed when no
        message comes for long. The messages received last are not acked yet.
        """
        began_s = self._heard_s = time.perf_counter()
        acked_before = self.acked
        finished: Finished | None = None

        async def step(connection: HttpConnection) -> int | None:
            nonlocal finished
            if self.received >= messages:
                return None
            received = self.received
            await self._receive(connection)
            now_s = time.perf_counter()
            if self.received > received:
                self._heard_s = now_s
            elif now_s > self._heard_s + self._patience_s:
                raise BenchFailed(f"{self._topic}: {self.received} of {messages} messages were delivered, then none")
            if self.received >= messages and finished is None:
                finished = Finished(total=self.acked - acked_before, seconds=now_s - began_s)
            return 0

        await run_to_end(port, CONNECTIONS, step)
        assert finished is not None
        return finished

    async def _receive(self, connection: HttpConnection) -> tuple[int, int]:
        """Return the number of acks and the number of received messages."""
        acks = self._unacked.pop(connection, [])
        status, body = await connection.request(*self._request(acks))
        if status != 200:
            raise BenchFailed(f"a receive got {status}: {body[:300]!r}")
        reply = _decode_reply(body)
        self._count_acks(acks, reply.settled)
        self.received += len(reply.messages)
        self.seen.update([(message.queue, message.offset) for message in reply.messages])
        if self._look is not None:
            self._look(reply.messages)
        if reply.messages:
            self._unacked[connection] = [message.receipt_handle for message in reply.messages]
        return len(acks), len(reply.messages)

    def _request(self, acks: list[str]) -> Prepared:
        settle = [{"receipt_handle": handle, "action": "ack"} for handle in acks]
        return prepare("POST", self._path, msgspec.json.encode({**self._asked, "settle": settle}), _HEADERS)

    def _count_acks(self, acks: list[str], settled: list[_Settled]) -> None:
        errors = [result.error for result in settled if result.error is not None]
        if errors or len(settled) != len(acks):
            raise BenchFailed(f"{len(acks)} acks got {len(settled)} results, errors {errors[:1]}")
        self.acked += len(acks)

    def ack_the_rest(self, mesh: OwnMesh) -> None:
        """Settle the messages received last.

        BenchFailed unless every received message is acked and came once.
        """
        for acks in self._unacked.values():
            reply = mesh.ask("POST", paths.ack_path(self._topic, self._group), {"receipt_handles": acks})
            if any("error" in result for result in reply.get("results", [])):
                raise BenchFailed(f"an ack failed: {reply}")
            self.acked += len(acks)
        self._unacked.clear()
        if not self.received == self.acked == len(self.seen):
            said = f"{self.received} received, {len(self.seen)} distinct, {self.acked} acked"
            raise BenchFailed(f"{self._topic}: {said}; these must agree")

    def check_committed(self, mesh: OwnMesh) -> None:
        """Raise BenchFailed unless the group's offsets equal the number of acked messages.

        No message may be leased, and no filter may drop any.
        """
        check_committed(mesh, self._topic, self._group, self.acked)


def check_committed(mesh: OwnMesh, topic: str, group: str, acked: int) -> None:
    """Raise BenchFailed unless the committed offsets of *group* add up to *acked*."""
    committed = sum(mesh.ask("GET", f"{paths.group_offsets_path(group)}?topic={topic}")["offsets"].values())
    if committed != acked:
        raise BenchFailed(f"{topic}: {acked} acked, {committed} committed")


async def bench_receive_ack(mesh: OwnMesh, topic: str, *, seconds: float, warm_up_s: float = WARM_UP_S) -> Figure:
    """Return receive_ack of *topic*, which must hold more than the run receives.

    A message counts when its ack is confirmed.
    """
    mesh.ask("PUT", paths.group_path(GROUP), {"invisible": "60s"})
    receivers = Receivers(topic)
    run = await run_closed_loop(
        mesh.port, CONNECTIONS, receivers.step(), seconds=seconds, pids=mesh.pids, warm_up_s=warm_up_s
    )
    receivers.ack_the_rest(mesh)
    receivers.check_committed(mesh)
    answer = prepare("POST", "/", bytes(BATCH_MESSAGES * _MESSAGE_SIZE_BYTES))
    echo = await echo_ceiling([answer], CONNECTIONS)
    return Figure(
        bench="mesh",
        figure="receive_ack",
        value=run.per_s,
        unit="msg/s",
        ceiling=BATCH_MESSAGES * echo,
        cpu_us_per_message=run.cpu_us,
        more={**run.latencies(), "ceiling_is": "echo", "acked": receivers.acked},
    )
