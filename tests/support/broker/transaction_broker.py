"""The requests about transactions over a broker of one node, without sockets: what a proxy would ask, and what it would be told."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.producers import ProducerRequests
from tern_broker.link.sends import SendRequests
from tern_broker.link.transactions import TransactionRequests
from tern_broker.reading.reader import Reader
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_remoting import Link
from tern_wire.errors import TernError
from tern_wire.link.commands import read_entry
from tern_wire.link.heads import read_head
from tern_wire.link.requests import ERROR, Parts, RequestCode, body_parts, read_body, read_error
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_KEYED,
    FLAG_SAME_TRANSACTION,
    NO_KEY,
    SEND_ROW,
    SEND_VERDICTS,
    key_hash,
)
from tern_wire.records.properties import (
    CHECK_AFTER_S,
    KEYS,
    MESSAGE_ID,
    PRODUCER_GROUP,
    TRANSACTIONAL,
    encode_properties,
)
from tern_wire.records.write import encode_record
from tern_wire.transactions import (
    BY_CLIENT,
    COMMIT,
    END_ROW,
    END_VERDICTS,
)
from tests.support.broker.roomy_link import RoomyLink
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles


class TransactionBroker(RoomyLink):
    """The requests over a broker of one node; its clock moves when the test says so."""

    def __init__(self) -> None:
        self.broker = broker = SingleBroker(FaultyFiles())
        self.topic_id, _ = broker.create("t", 2)
        self.now_s = 50.0
        self.raft = SimpleNamespace(is_serving=True, leader="broker-a-1")
        self.engine = SimpleNamespace(
            store=broker.store,
            raft=self.raft,
            reader=Reader(broker.store),
            proposer=broker.proposer,
            on_applied=[],
            on_clock=[],
            state=broker.state,
            fail_soon=broker.failures.append,
        )
        config = BrokerConfig(
            peers=("broker-a-0=127.0.0.1:10912",),
            data_dir=Path("data"),
            cluster_key_file=Path("key"),
            group_id="a" * 32,
        )
        engine = cast(Engine, self.engine)
        self.transactions = TransactionRequests(config, engine, monotonic=lambda: self.now_s)
        self.subjects = [
            self.transactions,
            ProducerRequests(config, engine, NamespaceShares(config, lambda: broker.state)),
            SendRequests(config, engine, rng=random.Random(1), monotonic=lambda: self.now_s),
        ]
        apply = broker.proposer.applied

        def applied(index: int, term: int, what: Any) -> None:
            apply(index, term, what)
            for listener in self.engine.on_applied:
                listener(what)

        broker.proposer.applied = applied  # type: ignore[method-assign, assignment]
        self.answers: dict[int, Any] = {}
        # As a link: whether it is lost.
        self.closed = False
        self._opaque = 0

    def reply(self, opaque: int, code: int, parts: Parts) -> bool:
        """As a link: head and raw bytes of the reply, or the error."""
        assert opaque not in self.answers, "two replies to one request"
        body = b"".join(parts)
        head, raw = (read_error(body), b"") if code == ERROR else read_body(body)
        self.answers[opaque] = head if code == ERROR else (head, bytes(raw))
        return True

    def post(self, code: RequestCode, raw: bytes = b"", **head: Any) -> int:
        """One request; what it is called."""
        self._opaque += 1
        handlers = {each.code: each for subject in self.subjects for each in subject.handlers()}
        try:
            request, rest = read_head(handlers[code].kind, b"".join(body_parts(head, [raw])))
            handlers[code].handle(cast(Link, self), self._opaque, request, rest)
        except TernError as error:
            self.answers[self._opaque] = error
        self.broker.run()
        return self._opaque

    def ask(self, code: RequestCode, raw: bytes = b"", **head: Any) -> Any:
        """One request that is answered at once; head and raw bytes, or the error."""
        return self.answers.pop(self.post(code, raw, **head))

    def begin_raw(
        self, *bodies: bytes, group: str = "p", key: bytes = b"", check_after_ms: int = 0
    ) -> tuple[dict[str, Any], Any]:
        """One transaction; the reply's head, and its verdicts."""
        rows, records = [], []
        for number, body in enumerate(bodies):
            pairs = [
                (MESSAGE_ID, f"ID-{body[:8].decode()}"),
                (KEYS, "k"),
                (TRANSACTIONAL, "true"),
                (PRODUCER_GROUP, group),
                *([(CHECK_AFTER_S, str(-(-check_after_ms // 1_000)))] if check_after_ms else []),
            ]
            record = encode_record(b"t", number % 2, body, encode_properties(pairs), born_ms=7)
            is_keyed = bool(key) and not number
            flags = FLAG_HALF | (FLAG_SAME_TRANSACTION if number else 0) | (FLAG_KEYED if is_keyed else 0)
            crc, hashed = int.from_bytes(record[8:12], "big"), key_hash(b"t", key) if is_keyed else NO_KEY
            rows.append(SEND_ROW.pack(len(record), 0, number % 2, flags, 0, crc, 0, hashed, check_after_ms, 0))
            records.append(record)
        raw = b"".join(rows) + b"".join(records)
        head, verdicts = self.ask(RequestCode.SEND, raw, topics=["t"], rows=len(rows), producer_groups=[group])
        return head, np.frombuffer(verdicts, SEND_VERDICTS)

    def begin(self, *bodies: bytes, **more: Any) -> tuple[list[int], list[int], Any]:
        """As `begin_raw`: statuses, numbers and replays."""
        head, found = self.begin_raw(*bodies, **more)
        return found["status"].tolist(), found["offset"].tolist(), head["replays"]

    def producer_group(self, name: str = "p", **settings: Any) -> int:
        """Create or alter it; its id."""
        head, _ = self.ask(RequestCode.ALTER_PRODUCER_GROUP, producer_group=name, create=True, **settings)
        return int(head["producer_group_id"])

    def end(self, group_id: int, *numbers: int, outcome: int = COMMIT) -> list[int]:
        """Statuses."""
        rows = b"".join(END_ROW.pack(number, 0, group_id, outcome, BY_CLIENT) for number in numbers)
        _, raw = self.ask(RequestCode.END_TRANSACTIONS, rows, rows=len(numbers))
        statuses: list[int] = np.frombuffer(raw, END_VERDICTS)["status"].tolist()
        return statuses

    def claim(self, group: str = "p", *, wait_ms: int = 0, count: int = 16, **more: Any) -> int:
        """A CLAIM_CHECKS; what it is called."""
        head = {"checker": "c", "producer_group": group, "max": count, "claim_ms": 10_000, "max_bytes": 1 << 20}
        return self.post(RequestCode.CLAIM_CHECKS, **{**head, "wait_ms": wait_ms, **more})

    def numbers(self, opaque: int) -> list[int] | None:
        """Which transactions a claim got; None while it waits."""
        answer = self.answers.get(opaque)
        return None if answer is None else [check[0] for check in answer[0]["checks"]]

    def pass_time(self, ms: int) -> None:
        """The clock goes on; the leader proposes an entry if something ends by itself, as it does every few ms."""
        self.broker.proposer.tick()
        self.broker.mono_ms += ms
        self.now_s += ms / 1_000
        self.broker.proposer.tick()
        self.broker.run()
        for listener in self.engine.on_clock:
            listener()
        self.broker.run()

    def last_commands(self) -> list[tuple[int, int]]:
        """Kind and payload bytes of each command of the last entry."""
        _, commands = read_entry(memoryview(self.broker.store.log.entry(self.broker.store.log.end_index).body))
        return [(command.kind, len(command.payload)) for command in commands]

    def pull(self, queue: int) -> list[bytes]:
        """The visible bodies of a queue."""
        return self.broker.pull(self.topic_id, queue, 0)
