"""The load of a chaos run: senders that know exactly what was promised to them, in memory that does not grow.

Each sender has a queue of its own, empty before, and one request under way. It repeats a batch with the same idempotency keys until
every message of it has a receipt, and only then goes on. So the promise is arithmetic, and no list of messages has to be kept:

     the message with sequence number n lies at offset n of the queue, holds body n, and there is no other

A receipt that says anything else is a violation at once; the rest is what `verify.py` reads back. Without keys (`is_keyed=False`,
for rates that the memory of keys does not allow) a repeat may be stored twice, so only the order and the bodies are promised.
"""

import asyncio
import random
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tern_wire import paths
from tests.chaos.client import Client, pause

BROKER_GROUP = "broker-a"
# Sender and sequence number, then bytes that only this message has.
BODY_HEAD = struct.Struct(">IQ")
_FILLING_SIZE_BYTES = 1 << 16
# Between two attempts at one batch: an outage is measured to about this.
RETRY_S = 0.005
VIOLATIONS_MAX = 20
# Requests that are remembered with their times: a trial's worth.
EVENTS_MAX = 400_000
_HEADERS = f"content-type: {paths.MSGPACK}\r\naccept: {paths.MSGPACK}\r\n".encode()
_encode = msgspec.msgpack.encode


class Receipt(msgspec.Struct):
    """What counts in one result of a batch."""

    queue: str = ""
    offset: int = -1
    replayed: bool = False
    error: msgspec.Raw | None = None


class Receipts(msgspec.Struct):
    """The answer to a batch."""

    results: list[Receipt]


_decode = msgspec.msgpack.Decoder(Receipts).decode


class Event(NamedTuple):
    """One send: when it began and ended (loop time, s), whether all of it was accepted."""

    began_s: float
    ended_s: float
    ok: bool


class Bodies:
    """Body n of sender s, any time again: a head and a cut from random bytes at a place that depends on both."""

    def __init__(self, seed: int, size_bytes: int) -> None:
        assert size_bytes >= BODY_HEAD.size
        self.size_bytes = size_bytes
        self._filling = random.Random(f"bodies {seed}").randbytes(_FILLING_SIZE_BYTES + size_bytes)

    def body(self, sender: int, number: int) -> bytes:
        """*size_bytes* long."""
        at = (number * 7919 + sender * 104_729) % _FILLING_SIZE_BYTES
        return BODY_HEAD.pack(sender, number) + self._filling[at : at + self.size_bytes - BODY_HEAD.size]


@dataclass(slots=True)
class Ledger:
    """What all senders saw: answers by status (0: none came), sends with their times, and what must not have happened."""

    answers: Counter[int] = field(default_factory=Counter)
    events: list[Event] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    violation_count: int = 0
    replayed: int = 0

    def violated(self, what: str) -> None:
        """Something that must not happen did."""
        self.violation_count += 1
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(what)

    def saw(self, event: Event) -> None:
        """A send ended."""
        if len(self.events) < EVENTS_MAX:
            self.events.append(event)


class Sender:
    """One queue, one connection, one request at a time. `acked`: how many messages have a receipt; they are 0 to acked-1."""

    def __init__(
        self,
        number: int,
        proxies: list[tuple[str, int]],
        topic: str,
        *,
        bodies: Bodies,
        batch: int,
        ledger: Ledger,
        is_keyed: bool,
        is_pinned: bool,
    ) -> None:
        self.number, self.queue, self.is_pinned = number, f"{BROKER_GROUP}:{number}", is_pinned
        self.acked = 0
        self.is_busy = False
        self.batch = batch
        self._clients = [Client(host, port) for host, port in proxies]
        self._turn = number
        self._path = paths.batch_path(topic)
        self._bodies, self._ledger, self._is_keyed = bodies, ledger, is_keyed
        # The offset after the last one received; without keys a repeat leaves gaps.
        self._next_offset = 0

    async def run(self, may_run: asyncio.Event, stopping: asyncio.Event) -> None:
        """Send until told to stop; what is under way is finished first."""
        while not stopping.is_set():
            if not may_run.is_set():
                await pause(RETRY_S)
                continue
            self.is_busy = True
            await self._send_batch()
            self.is_busy = False

    async def _send_batch(self) -> None:
        """The next batch, as often as it takes."""
        first = self.acked
        messages = []
        for number in range(first, first + self.batch):
            message = {"body": self._bodies.body(self.number, number), "queue": self.queue}
            if self._is_keyed:
                message["idempotency_key"] = f"{self.number}-{number}"
            messages.append(message)
        body = _encode({"messages": messages})
        loop = asyncio.get_running_loop()
        while True:
            client = self._clients[self._turn % len(self._clients)]
            began_s = loop.time()
            status, answer = await client.ask("POST", self._path, _HEADERS, body)
            is_ok = status == 200 and self._accept(first, answer)
            self._ledger.answers[status] += 1
            if not self.is_pinned:
                self._ledger.saw(Event(began_s, loop.time(), is_ok))
            if is_ok:
                return
            if status not in {0, 207, 503, 504}:
                self._ledger.violated(f"sender {self.number} got {status}: {answer[:200]!r}")
            self._turn += 1
            await pause(RETRY_S)

    def _accept(self, first: int, answer: bytes) -> bool:
        receipts = _decode(answer).results
        if len(receipts) != self.batch or any(receipt.error is not None for receipt in receipts):
            return False
        for number, receipt in enumerate(receipts, first):
            self._ledger.replayed += receipt.replayed
            is_next = receipt.offset == number if self._is_keyed else receipt.offset >= self._next_offset
            if receipt.queue != self.queue or not is_next:
                self._ledger.violated(f"message {number} of {self.queue} was acked at {receipt.queue} {receipt.offset}")
            self._next_offset = receipt.offset + 1
        self.acked = first + self.batch
        return True

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()


class Load:
    """Senders of one topic. Owner of their tasks.

    The last *pinned* senders know only the last proxy, which a scenario may stop together with a leader: woken, it still believes in that
    one. They do not count in outages.
    """

    def __init__(
        self,
        proxies: list[tuple[str, int]],
        *,
        seed: int,
        topic: str = "chaos",
        senders: int = 16,
        batch: int = 16,
        body_size_bytes: int = 256,
        is_keyed: bool = True,
        pinned: int = 0,
    ) -> None:
        self.topic, self.is_keyed = topic, is_keyed
        self.proxies = proxies[:-1] if pinned else proxies
        self.ledger = Ledger()
        self.bodies = Bodies(seed, body_size_bytes)
        sizes = [1 + (batch - 1) * number // max(1, senders - 1) for number in range(senders)]
        self.senders = [
            Sender(
                number,
                proxies[-1:] if number >= senders - pinned else self.proxies,
                topic,
                bodies=self.bodies,
                batch=size,
                ledger=self.ledger,
                is_keyed=is_keyed,
                is_pinned=number >= senders - pinned,
            )
            for number, size in enumerate(sizes)
        ]
        self._may_run = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def acked(self) -> int:
        """Messages with a receipt."""
        return sum(sender.acked for sender in self.senders)

    async def create(self) -> None:
        """The topic, with a queue for each sender."""
        client = Client(*self.proxies[0])
        until = asyncio.get_running_loop().time() + 20
        while True:
            status, answer = await client.ask_json("PUT", paths.topic_path(self.topic), {"queues": len(self.senders)})
            if status in {200, 201}:
                break
            assert asyncio.get_running_loop().time() < until, f"no topic: {status} {answer}"
            await pause(0.05)
        client.close()

    def start(self) -> None:
        """Let everybody send."""
        self._may_run.set()
        if not self._tasks:
            self._tasks = [asyncio.create_task(sender.run(self._may_run, self._stopping)) for sender in self.senders]

    async def rest(self, *, within_s: float = 60) -> None:
        """Nobody begins a new batch; returns when what was under way has its receipts."""
        self._may_run.clear()
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while any(sender.is_busy for sender in self.senders):
            self.raise_failures()
            assert loop.time() < until, "sends found no answer"
            await pause(RETRY_S)

    async def stop(self, *, within_s: float = 60) -> None:
        """Finish what is under way, and end."""
        self._stopping.set()
        _, late = await asyncio.wait(self._tasks, timeout=within_s)
        for task in late:
            task.cancel()
        for sender in self.senders:
            sender.close()
        self.raise_failures()
        if late:
            self.ledger.violated(f"{len(late)} senders found no answer within {within_s} s")
        self._tasks = []

    def raise_failures(self) -> None:
        """A sender's own bug must not look like a quiet one."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
