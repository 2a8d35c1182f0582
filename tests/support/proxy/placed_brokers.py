"""Broker groups in memory for a mesh whose topics move: the real state machines behind the link's requests, and what each has stored of whom.

`Told` is the judge. One key, one stored message: the same key is stored again only when a window has passed. One message group, one order:
no consumer gets a message before all that its producer had a receipt for earlier are settled, in whatever broker group.
"""

import random
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from tern_broker.core import Applied
from tern_broker.core.descriptions import describe_topic, topic_settings
from tern_broker.core.sending.idempotency import Table
from tern_broker.link.checked_send import check_send
from tern_wire.errors import GroupNotFound, TernError, TopicNotFound
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.key_rows import Receipt, split_keys
from tern_wire.link.requests import RequestCode
from tern_wire.link.rows import ACK, FLAG_KEYED, PREPARED, SEND_ROWS, SENT, SETTLED
from tern_wire.link.sends import Send
from tern_wire.records.read import decode_record
from tern_wire.settings.producer_settings import ProducerChange
from tern_wire.settings.topic_settings import ALTER, read_topic_change
from tests.support.broker.fifo_log import FifoLog, Held

_VERDICT = struct.Struct("<IIq")
# A message group, and its message's number in it.
Ordered = tuple[str, int]


class Told:
    """What was stored, told and settled. Owner: one run."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.stored = self.delivered = 0
        # By topic and key: when and where it was stored.
        self._keys: dict[tuple[str, bytes], list[tuple[int, str]]] = defaultdict(list)
        # By message group: numbers of messages whose producer has a receipt, and that nobody has settled.
        self._open: dict[str, set[int]] = defaultdict(set)
        self._settled: set[Ordered] = set()

    def store_key(self, topic: str, key: bytes, broker_group: str, now_ms: int) -> None:
        """A message with *key* was stored; *broker_group*: where, and as what."""
        for at_ms, where in self._keys[topic, key]:
            if now_ms - at_ms < IDEMPOTENCY_WINDOW_MS:
                self.faults.append(
                    f"{now_ms}: a key of {topic} is stored in {broker_group}, and was {now_ms - at_ms} ms ago in {where}"
                )
        self._keys[topic, key].append((now_ms, broker_group))

    def receipt(self, ordered: Ordered) -> None:
        """Its producer knows that it is stored."""
        if ordered not in self._settled:
            self._open[ordered[0]].add(ordered[1])

    def deliver(self, ordered: Ordered, broker_group: str, now_ms: int) -> None:
        """A consumer has got it."""
        self.delivered += 1
        earlier = [number for number in self._open[ordered[0]] if number < ordered[1]]
        if earlier:
            self.faults.append(f"{now_ms}: {ordered} is delivered in {broker_group} before {earlier[:3]}")

    def settle(self, ordered: Ordered) -> None:
        """And has settled it."""
        self._settled.add(ordered)
        self._open[ordered[0]].discard(ordered[1])


class PlacedBroker(FifoLog):
    """The leader of broker group *name*. Group g reads topic t in order; producer group p is there."""

    def __init__(self, name: str, told: Told, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self.name, self._told, self._now_ms = name, told, now_ms
        self.is_down = False
        self._check = random.Random(name)
        self.heard = self._keep_tables
        self._tables: dict[int, Table] = {}
        self._ordered: dict[tuple[int, int, int], Ordered] = {}
        self.apply(1, (CommandKind.DELETE_TOPIC, encode_msgpack({"topic": "t", "topic_id": 0})))
        change = ProducerChange(producer_group="p", create=True, settings={})
        self.apply(1, (CommandKind.ALTER_PRODUCER_GROUP, encode_msgpack(change.packed())))

    def answer(self, code: RequestCode, head: dict[str, Any], raw: memoryview) -> tuple[dict[str, Any], bytes]:
        """As a leader answers; TernError."""
        names = self.state.names
        match code:
            case RequestCode.SEND:
                return self._send(head, raw)
            case RequestCode.CREATE_TOPIC:
                change = read_topic_change(head)
                kind = CommandKind.ALTER_TOPIC if change.mode == ALTER else CommandKind.CREATE_TOPIC
                return self._do(kind, encode_msgpack(change.packed())), b""
            case RequestCode.DESCRIBE_TOPIC:
                if head["topic"] not in names.topics:
                    raise TopicNotFound(topic=head["topic"])
                return describe_topic(names, self.state.leasing.deliveries, names.topics[head["topic"]]), b""
        assert code == RequestCode.DESCRIBE_GROUP, code
        raise GroupNotFound(group=head["group"])

    def routes(self) -> dict[str, dict[str, Any]]:
        """What it tells name servers of its topics."""
        return {name: topic_settings(topic) for name, topic in self.state.names.topics.items()}

    def _do(self, kind: CommandKind, payload: bytes) -> dict[str, Any]:
        verdict = self._apply(kind, payload)
        if isinstance(verdict, TernError):
            raise verdict
        assert isinstance(verdict, dict)
        return verdict

    def _apply(self, kind: CommandKind, payload: bytes) -> Any:
        return self.apply(self._now_ms(), (kind, payload)).verdicts[0]

    def _keep_tables(self, applied: Applied) -> None:
        if applied.sealed_table is not None:
            self._tables[applied.sealed_table.facts.number] = applied.sealed_table.table
        for number in applied.dropped_tables:
            self._tables.pop(number, None)

    def _find(self, keys: bytes) -> dict[int, Receipt]:
        found: dict[int, Receipt] = {}
        for table in self._tables.values():
            found |= table.find_halves(*split_keys(keys))
        return found

    def _send(self, head: dict[str, Any], raw: memoryview) -> tuple[dict[str, Any], bytes]:
        names = np.frombuffer(raw, SEND_ROWS, head["rows"])["topic"].tolist()
        send = check_send(msgspec.convert(head, Send), raw, self.state, self._check)
        now_ms = self._now_ms()
        payload = b"".join(send.payload(now_ms, bytes(8), self._find))
        verdicts = self._apply(CommandKind.SEND, payload)
        assert isinstance(verdicts, np.ndarray), verdicts
        for name, row, start, verdict in zip(names, send.rows, send.starts.tolist(), verdicts.tolist(), strict=True):
            status, queue, offset = verdict
            if status not in {SENT, PREPARED}:
                continue
            self._told.stored += 1
            if row["flags"] & FLAG_KEYED:
                as_what = f"{self.name} (flags {row['flags']}, placed {self.state.names.topics[head['topics'][name]].placement_text})"
                self._told.store_key(head["topics"][name], row["key"].tobytes(), as_what, now_ms)
            if row["message_group"]:
                message_group, _, number = decode_record(send.records, start).body.decode().partition(" ")
                self._ordered[int(row["topic"]), queue, offset] = (message_group, int(number))
        facts = [[1, 1_000, 1_000, 1]] * len(head.get("producer_groups", ()))
        reply = {"rows": len(verdicts), "replays": [], "producer_groups": facts}
        return reply, b"".join(_VERDICT.pack(*verdict) for verdict in verdicts.tolist())

    # Reading --------------------------------------------------------------------------------------------------
    def consume(self, rng: random.Random) -> None:
        """Receive what there is of topic t, and settle some of it; the rest comes again when its lease is over."""
        names = self.state.names
        if "t" not in names.topics:
            return
        held = self.receive_in_order(self._now_ms(), rng.randint(1, 8))
        self.topic_id, self.group_id = names.topics["t"].topic_id, names.groups["g"].group_id
        for each in held:
            if (ordered := self._ordered_of(each)) is not None:
                self._told.deliver(ordered, self.name, self._now_ms())
        chosen = [each for each in held if rng.random() < 0.8]
        statuses = self.settle_held(self._now_ms(), ACK, chosen) if chosen else b""
        for each, status in zip(chosen, statuses, strict=True):
            if status == SETTLED and (ordered := self._ordered_of(each)) is not None:
                self._told.settle(ordered)

    def _ordered_of(self, held: Held) -> Ordered | None:
        return self._ordered.get((self.topic_id, held.queue, held.offset))
