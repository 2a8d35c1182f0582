"""The figure of consuming: batches of 32 received over several connections, each acked with the receive that follows."""

import msgspec

from loadtest.bench.ceilings import echo_ceiling
from loadtest.bench.closed_loop import BenchFailed, Prepared, Step, prepare, run_closed_loop
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh
from tern_wire import paths

BATCH_MESSAGES = 32
CONNECTIONS = 8
GROUP = "bench"
# A message in MessagePack with its 1 KiB body and a receipt handle; for the echo's answers.
_MESSAGE_SIZE_BYTES = 1_500


class _Message(msgspec.Struct):
    """What the loop needs of a message."""

    queue: str
    offset: int
    receipt_handle: str
    body: bytes


class _Settled(msgspec.Struct):
    """One piggy-backed ack's result."""

    error: msgspec.Raw | None = None


class _Reply(msgspec.Struct):
    """The answer to a receive."""

    messages: list[_Message]
    settled: list[_Settled] = []


_decode_reply = msgspec.msgpack.Decoder(_Reply).decode
_HEADERS = {"Content-Type": paths.JSON, "Accept": paths.MSGPACK}


class Receivers:
    """Receives and acks over many connections. Owns what each of them has not acked yet and what was seen in all."""

    def __init__(self, topic: str) -> None:
        self._path = paths.receive_path(topic, GROUP)
        self._unacked: dict[HttpConnection, list[str]] = {}
        self.seen: set[tuple[str, int]] = set()
        self.received = 0
        self.acked = 0

    def step(self) -> Step:
        """One receive with the last batch's acks; None once the topic has no more."""

        async def step(connection: HttpConnection) -> int | None:
            acks = self._unacked.pop(connection, [])
            status, body = await connection.request(*receive_request(self._path, acks))
            if status != 200:
                raise BenchFailed(f"a receive got {status}: {body[:300]!r}")
            reply = _decode_reply(body)
            self._count_acks(acks, reply.settled)
            self.received += len(reply.messages)
            self.seen.update([(message.queue, message.offset) for message in reply.messages])
            if not reply.messages:
                return len(acks) or None
            self._unacked[connection] = [message.receipt_handle for message in reply.messages]
            return len(acks)

        return step

    def _count_acks(self, acks: list[str], settled: list[_Settled]) -> None:
        errors = [result.error for result in settled if result.error is not None]
        if errors or len(settled) != len(acks):
            raise BenchFailed(f"{len(acks)} acks got {len(settled)} results, errors {errors[:1]}")
        self.acked += len(acks)

    def ack_the_rest(self, mesh: OwnMesh, topic: str) -> None:
        """Settle what was received last."""
        for acks in self._unacked.values():
            reply = mesh.ask("POST", paths.ack_path(topic, GROUP), {"receipt_handles": acks})
            if any("error" in result for result in reply.get("results", [])):
                raise BenchFailed(f"an ack failed: {reply}")
            self.acked += len(acks)
        self._unacked.clear()


def receive_request(path: str, acks: list[str]) -> Prepared:
    """A whole receive request with piggy-backed acks."""
    settle = [{"receipt_handle": handle, "action": "ack"} for handle in acks]
    body = msgspec.json.encode({"max_messages": BATCH_MESSAGES, "wait": "1s", "settle": settle})
    return prepare("POST", path, body, _HEADERS)


async def bench_receive_ack(mesh: OwnMesh, topic: str, *, seconds: float) -> Figure:
    """receive_ack of *topic*, which must hold more than the run takes. Counts a message when its ack is confirmed."""
    mesh.ask("PUT", paths.group_path(GROUP), {"invisible": "60s"})
    receivers = Receivers(topic)
    run = await run_closed_loop(mesh.port, CONNECTIONS, receivers.step(), seconds=seconds, pids=mesh.pids)
    receivers.ack_the_rest(mesh, topic)
    if not receivers.received == receivers.acked == len(receivers.seen):
        said = f"{receivers.received} received, {len(receivers.seen)} distinct, {receivers.acked} acked"
        raise BenchFailed(f"{topic}: {said}; these must agree")
    committed = mesh.ask("GET", f"{paths.group_offsets_path(GROUP)}?topic={topic}")["offsets"]
    if sum(committed.values()) != receivers.acked:
        raise BenchFailed(f"{topic}: {receivers.acked} acked, {sum(committed.values())} committed")
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
