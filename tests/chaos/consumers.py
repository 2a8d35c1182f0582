"""One consumer group under chaos: receives, acks, and knows what must never be delivered again.

A message may come more than once: its lease ended before the ack was applied. It must not come while somebody holds it, nor after its
ack was confirmed, and each acknowledged send comes at least once. An ack may also have been applied without anybody hearing of it; so
that all is consumed is read from the group's own offsets. One byte a message says how far it is.
"""

import asyncio
from collections import Counter

import msgspec

from tern_wire import paths
from tests.chaos.client import Client, pause
from tests.chaos.load import BODY_HEAD, RETRY_S, Load

RECEIVE_MESSAGES_MAX = 256
WAIT_MS = 250
# Clocks of the broker and of this process are one clock, but an answer travels: only a redelivery earlier than this is a violation.
LEASE_SLACK_S = 1.0
NEW, DELIVERED, SETTLED = 0, 1, 2
_HEADERS = f"content-type: {paths.JSON}\r\naccept: {paths.MSGPACK}\r\n".encode()


class Message(msgspec.Struct):
    """What a consumer looks at."""

    queue: str
    offset: int
    receipt_handle: str
    body: bytes
    invisible_until: int


class Received(msgspec.Struct):
    """The answer to a receive."""

    messages: list[Message]


class Problem(msgspec.Struct):
    """Why one ack failed."""

    code: str = ""


class Settled(msgspec.Struct):
    """The result of one ack."""

    error: Problem | None = None


class SettledAll(msgspec.Struct):
    """The answer to an ack."""

    results: list[Settled]


_read_received = msgspec.msgpack.Decoder(Received).decode
_read_settled = msgspec.msgpack.Decoder(SettledAll).decode


class Consumers:
    """A group with *count* consumers on the topic of a load. Owner of what each message has been through."""

    def __init__(self, load: Load, *, group: str = "chaos-readers", count: int = 2, invisible_s: int = 5) -> None:
        self._load, self._group, self._invisible_s = load, group, invisible_s
        self._stages = [bytearray() for _ in load.senders]
        # Who is held until when (loop time); only what was delivered and not confirmed as acked.
        self._leases: dict[tuple[int, int], float] = {}
        self._numbers = {sender.queue: sender.number for sender in load.senders}
        self.delivered = self.redelivered = self.settled = 0
        self.answers: Counter[int] = Counter()
        # Why acks failed, by code. A repeat of an ack that was applied says that its lease is over.
        self.refusals: Counter[str] = Counter()
        self._count = count
        self.offsets: dict[str, int] = {}
        self._stopping = asyncio.Event()
        self._may_run = asyncio.Event()
        self._busy = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def create(self) -> None:
        """The group."""
        client = Client(*self._load.proxies[0])
        until = asyncio.get_running_loop().time() + 20
        while True:
            status, answer = await client.ask_json(
                "PUT", paths.group_path(self._group), {"invisible": f"{self._invisible_s}s"}
            )
            if status in {200, 201}:
                break
            assert asyncio.get_running_loop().time() < until, f"no group: {status} {answer}"
            await pause(0.05)
        client.close()

    def start(self) -> None:
        """Let all consume."""
        self._may_run.set()
        self._tasks = self._tasks or [asyncio.create_task(self._run(number)) for number in range(self._count)]

    async def rest(self, *, within_s: float = 30) -> None:
        """Nobody begins another receive; returns when what was under way is acked or given up."""
        self._may_run.clear()
        until = asyncio.get_running_loop().time() + within_s
        while self._busy:
            assert asyncio.get_running_loop().time() < until, "receives found no answer"
            await pause(RETRY_S)

    async def stop(self) -> None:
        """End; what is leased stays leased."""
        self._stopping.set()
        done, _ = await asyncio.wait(self._tasks, timeout=30)
        for task in self._tasks:
            task.cancel()
        for task in done:
            task.result()

    async def drain(self, *, within_s: float) -> bool:
        """Until the group has consumed every acknowledged send; whether it came to that in time, and all of them were seen here."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        path = f"{paths.group_offsets_path(self._group)}?topic={self._load.topic}"
        client = Client(*self._load.proxies[0])
        wanted = {sender.queue: sender.acked for sender in self._load.senders if sender.acked}
        while True:
            _, found = await client.ask_json("GET", path)
            self.offsets = found.get("offsets", {}) if isinstance(found, dict) else {}
            is_done = all(self.offsets.get(queue) == acked for queue, acked in wanted.items())
            if is_done or loop.time() >= until:
                break
            await pause(0.1)
        client.close()
        return is_done and not self.never_delivered()

    def never_delivered(self) -> dict[str, list[int]]:
        """Acknowledged sends that no consumer has seen, by queue."""
        stages = {sender.queue: self._stages[sender.number].ljust(sender.acked, b"\0") for sender in self._load.senders}
        never = {
            sender.queue: [number for number in range(sender.acked) if stages[sender.queue][number] == NEW]
            for sender in self._load.senders
        }
        return {queue: numbers for queue, numbers in never.items() if numbers}

    async def _run(self, number: int) -> None:
        proxies = self._load.proxies
        clients = [Client(*proxies[(number + at) % len(proxies)]) for at in range(len(proxies))]
        turn = 0
        while not self._stopping.is_set():
            if not self._may_run.is_set():
                await pause(RETRY_S)
                continue
            self._busy += 1
            if not await self._receive(clients, turn):
                turn += 1
                await pause(RETRY_S)
            self._busy -= 1
        for client in clients:
            client.close()

    async def _receive(self, clients: list[Client], turn: int) -> bool:
        """Receive once and ack what came; False when the proxy did not answer as it should."""
        body = b'{"max_messages": %d, "wait": "%dms"}' % (RECEIVE_MESSAGES_MAX, WAIT_MS)
        path = paths.receive_path(self._load.topic, self._group)
        status, answer = await clients[turn % len(clients)].ask("POST", path, _HEADERS, body)
        self.answers[status] += 1
        if status != 200:
            return False
        messages = _read_received(answer).messages
        taken = [self._take(message) for message in messages]
        if messages:
            await self._ack(clients, turn, taken, [message.receipt_handle for message in messages])
        return True

    def missing(self) -> str:
        """What is not as it must be, for a failed run."""
        open_acks = sum(stages.count(DELIVERED) for stages in self._stages)
        never = {queue: (numbers[:5], len(numbers)) for queue, numbers in self.never_delivered().items()}
        return f"never delivered {never}; {open_acks} acks open; offsets {self.offsets}; answers {dict(self.answers)}"

    def _take(self, message: Message) -> tuple[int, int]:
        ledger, loop = self._load.ledger, asyncio.get_running_loop()
        sender = self._numbers[message.queue]
        written, number = BODY_HEAD.unpack_from(message.body)
        if written != sender or message.body != self._load.bodies.body(sender, number):
            ledger.violated(f"delivered from {message.queue} {message.offset}: a body that nobody sent")
        stages = self._stages[sender]
        if number >= len(stages):
            stages.extend(bytes(number + 1 - len(stages)))
        key = sender, number
        self.delivered += 1
        if stages[number] == SETTLED:
            ledger.violated(f"message {number} of {message.queue} was delivered after its ack was confirmed")
        elif stages[number] == DELIVERED:
            self.redelivered += 1
            if loop.time() < self._leases.get(key, 0.0) - LEASE_SLACK_S:
                ledger.violated(f"message {number} of {message.queue} was delivered while somebody held it")
        else:
            stages[number] = DELIVERED
        self._leases[key] = loop.time() + self._invisible_s
        return key

    async def _ack(self, clients: list[Client], turn: int, taken: list[tuple[int, int]], handles: list[str]) -> None:
        path = paths.ack_path(self._load.topic, self._group)
        body = msgspec.json.encode({"receipt_handles": handles})
        loop = asyncio.get_running_loop()
        until = loop.time() + self._invisible_s
        # Acking twice is acking once, so an ack with an open outcome is repeated while the lease lives.
        while loop.time() < until and not self._stopping.is_set():
            status, answer = await clients[turn % len(clients)].ask("POST", path, _HEADERS, body)
            if status in {200, 207}:
                for key, result in zip(taken, _read_settled(answer).results, strict=True):
                    if result.error is not None:
                        self.refusals[result.error.code] += 1
                    elif self._stages[key[0]][key[1]] != SETTLED:
                        self._stages[key[0]][key[1]] = SETTLED
                        self._leases.pop(key, None)
                        self.settled += 1
                return
            turn += 1
            await pause(RETRY_S)
