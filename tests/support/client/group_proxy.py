"""A scripted proxy that delivers as a broker does: leases that end, attempts, retries, dead letters, order, attempt ids and long polls."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from tern_wire.errors import ReceiptExpired, TopicNotFound
from tests.support.client.scripted_proxy import Asked, Reply, packed, refused, said

EMPTY: dict[str, Any] = {"messages": [], "settled": []}


@dataclass(slots=True)
class Stored:
    """One message, and what has become of it."""

    number: int
    topic: str
    body: bytes
    message_group: str = ""
    attempt: int = 0
    visible_at: float = 0.0
    handle: str = ""
    lease_ends_at: float = 0.0
    token: str = ""
    state: str = "free"

    @property
    def message_id(self) -> str:
        """`m7`"""
        return f"m{self.number}"


class GroupProxy:
    """Topics with one consumer group each. Owner: the scripted proxy that it answers for, in whose event loop all is called.

    *lease_ms*: the group's visibility timeout. *retry_ms*: the delay after a nack without one. *fifo*: one message of a message group at a
    time. *attempts_max*: after so many a message is dead.
    """

    def __init__(
        self, *topics: str, lease_ms: int = 30_000, retry_ms: int = 0, fifo: bool = False, attempts_max: int = 16
    ) -> None:
        self.messages: dict[str, list[Stored]] = {topic: [] for topic in topics or ("t",)}
        self.lease_ms, self.retry_ms, self.fifo, self.attempts_max = lease_ms, retry_ms, fifo, attempts_max
        self.acked: list[str] = []
        self.dead: dict[str, str] = {}
        self.nacks: list[tuple[str, int | None]] = []
        self.released: list[str] = []
        self.extended: Counter[str] = Counter()
        self.refused: list[str] = []
        self.settle_requests = 0
        self.receives: dict[str, list[dict[str, Any]]] = defaultdict(list)
        # The most that was leased at a time: messages, bytes.
        self.leased_max = [0, 0]
        self._changed = asyncio.Event()

    def send(self, topic: str, *bodies: bytes, message_group: str = "") -> None:
        """Store messages."""
        for body in bodies:
            number = sum(map(len, self.messages.values()))
            self.messages[topic].append(Stored(number, topic, body, message_group))
        self._changed.set()

    def expire(self, message_id: str) -> None:
        """End the lease of a message: somebody else gets it."""
        for message in self._all():
            if message.message_id == message_id and message.state == "leased":
                message.state, message.handle = "free", ""
        self._changed.set()

    @property
    def attempts(self) -> dict[str, int]:
        """Attempts that count, by message; without those that have none."""
        return {message.message_id: message.attempt for message in self._all() if message.attempt}

    @property
    def leased(self) -> set[str]:
        """What somebody holds now."""
        self._end_leases()
        return {message.message_id for message in self._all() if message.state == "leased"}

    def is_leased(self, message_id: str, attempt: int) -> bool:
        """Whether the lease of that attempt lasts."""
        self._end_leases()
        return any(
            (each.message_id, each.attempt, each.state) == (message_id, attempt, "leased") for each in self._all()
        )

    def answer(self, asked: Asked) -> Reply | Awaitable[Reply]:
        """To a receive or a settle."""
        topic = asked.path.split("/")[3]
        if topic not in self.messages:
            return refused(TopicNotFound(topic=topic))
        if asked.path.endswith("/settle"):
            self.settle_requests += 1
            return said({"results": [self._settle(entry) for entry in asked.document["entries"]], "failed": 0})
        document = asked.document
        self.receives[topic].append(document)
        found = self._lease(topic, document)
        return packed(found) if found["messages"] or not document["wait"] else self._poll(topic, document)

    async def _poll(self, topic: str, document: dict[str, Any]) -> Reply:
        until = time.monotonic() + document["wait"] / 1_000
        while not (found := self._lease(topic, document))["messages"] and (now := time.monotonic()) < until:
            ends = [message.visible_at for message in self.messages[topic] if message.state == "free"]
            ends += [message.lease_ends_at for message in self.messages[topic] if message.state == "leased"]
            later = [end for end in ends if end > now]
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), min([until, *later]) - now)
            except TimeoutError:
                continue
        return packed(found)

    def _lease(self, topic: str, document: dict[str, Any]) -> dict[str, Any]:
        self._end_leases()
        token = document.get("attempt_id", "")
        again = [message for message in self.messages[topic] if token and message.token == token and message.handle]
        if again:
            return {**EMPTY, "messages": [self._document(message) for message in again]}
        now, left, size_left = time.monotonic(), document["max_messages"], document["max_bytes"]
        taken: list[Stored] = []
        blocked = (
            {message.message_group for message in self._all() if message.state == "leased"} if self.fifo else set()
        )
        for message in self.messages[topic]:
            if message.state not in {"free"} or (
                self.fifo and message.message_group and message.message_group in blocked
            ):
                continue
            if self.fifo:
                blocked.add(message.message_group)
            if message.visible_at > now:
                continue
            if not left or (taken and len(message.body) > size_left):
                break
            left, size_left = left - 1, size_left - len(message.body)
            message.state, message.attempt, message.token = "leased", message.attempt + 1, token
            message.handle = f"{message.message_id}.{message.attempt}.{len(self.released)}"
            message.lease_ends_at = now + (document.get("invisible") or self.lease_ms) / 1_000
            taken.append(message)
        held = [message for message in self._all() if message.state == "leased"]
        amounts = len(held), sum(len(message.body) for message in held)
        self.leased_max = [max(pair) for pair in zip(self.leased_max, amounts, strict=True)]
        return {**EMPTY, "messages": [self._document(message) for message in taken]}

    def _end_leases(self) -> None:
        now = time.monotonic()
        for message in self._all():
            if message.state == "leased" and message.lease_ends_at <= now:
                message.state, message.handle = "free", ""
                self._bury_if_spent(message)

    def _bury_if_spent(self, message: Stored) -> None:
        if message.attempt >= self.attempts_max:
            message.state = "dead"
            self.dead[message.message_id] = "attempts"

    def _settle(self, entry: dict[str, Any]) -> dict[str, Any]:
        self._end_leases()
        handle, action = entry["receipt_handle"], entry["action"]
        message = next((each for each in self._all() if each.handle == handle and each.state == "leased"), None)
        if message is None:
            self.refused.append(f"{action} {handle.split('.')[0]}")
            return {"receipt_handle": handle, "error": ReceiptExpired().problem()}
        if action == "extend":
            self.extended[message.message_id] += 1
            message.lease_ends_at = time.monotonic() + entry["invisible"] / 1_000
            return {"receipt_handle": handle, "status": "ok"}
        message.handle = ""
        if action == "ack":
            message.state = "acked"
            self.acked.append(message.message_id)
        elif action == "dead_letter":
            message.state = "dead"
            self.dead[message.message_id] = entry.get("reason", "")
        elif action == "release":
            message.state, message.attempt = "free", message.attempt - 1
            self.released.append(message.message_id)
        else:
            assert action == "nack"
            self.nacks.append((message.message_id, entry.get("delay")))
            message.state = "free"
            message.visible_at = time.monotonic() + entry.get("delay", self.retry_ms) / 1_000
            self._bury_if_spent(message)
        self._changed.set()
        return {"receipt_handle": handle, "status": "ok"}

    def _document(self, message: Stored) -> dict[str, Any]:
        lease_ms = (message.lease_ends_at - time.monotonic()) * 1_000
        return {
            "message_id": message.message_id,
            "topic": message.topic,
            "queue": "broker-a:0",
            "offset": message.number,
            "body": message.body,
            "born_at": 1,
            "stored_at": 2,
            "attempt": message.attempt,
            "receipt_handle": message.handle,
            "invisible_until": int(time.time() * 1_000 + lease_ms),
            "message_group": message.message_group,
        }

    def _all(self) -> list[Stored]:
        return [message for messages in self.messages.values() for message in messages]
