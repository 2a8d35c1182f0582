"""Transactions for tests of the state machine: half messages as a SEND carries them, ends, claims, reports."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core import StateMachine
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import FLAG_HALF, FLAG_KEYED, FLAG_SAME_TRANSACTION, NO_KEY, SEND_ROW, key_hash
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.write import encode_record
from tern_wire.transactions import BY_CLIENT, COMMIT, END_ROW
from tests.support.broker.entries import Log

# topic id, queue, body
Message = tuple[int, int, bytes]


def half_payload(
    producer_group_id: int, *transactions: tuple[Message, ...], key: bytes = b"", check_after_ms: int = 0
) -> bytes:
    """A SEND of *transactions*; each one's first message has *key*."""
    rows, records = [], []
    for messages in transactions:
        for number, (topic_id, queue, body) in enumerate(messages):
            record = encode_record(b"t", queue, body, b"", born_ms=5)
            is_keyed = bool(key) and not number
            flags = FLAG_HALF | (FLAG_SAME_TRANSACTION if number else 0) | (FLAG_KEYED if is_keyed else 0)
            hashed = key_hash(b"t", key) if is_keyed else NO_KEY
            crc = int.from_bytes(record[8:12], "big")
            row = (
                len(record),
                topic_id,
                queue,
                flags,
                tag_hash("T"),
                crc,
                producer_group_id,
                hashed,
                check_after_ms,
                0,
            )
            rows.append(SEND_ROW.pack(*row))
            records.append(record)
    return SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records)


class TransactionLog(Log):
    """A log with the topics `t` (2 queues) and `u` (1 queue), and the producer group `p`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.t, _ = self.create("t")
        self.u, _ = self.create("u", 1, "h")
        self.p = self.producer_group("p", **settings)

    def producer_group(self, name: str, **settings: Any) -> int:
        """Create or alter it; its id."""
        payload = encode_msgpack({"producer_group": name, "create": True, **settings})
        verdict = self.apply(self.state.now_ms or 1, (CommandKind.ALTER_PRODUCER_GROUP, payload)).verdicts[0]
        assert isinstance(verdict, dict), verdict
        return int(verdict["producer_group_id"])

    def begin(
        self, now_ms: int, *transactions: tuple[Message, ...], group: int = 0, key: bytes = b"", check_after_ms: int = 0
    ) -> tuple[list[int], list[int]]:
        """Statuses and offsets, one for each message."""
        payload = half_payload(group or self.p, *transactions, key=key, check_after_ms=check_after_ms)
        verdicts = self.apply(now_ms, (CommandKind.SEND, payload)).verdicts[0]
        assert isinstance(verdicts, np.ndarray), verdicts
        return verdicts["status"].tolist(), verdicts["offset"].tolist()

    def begin_one(self, now_ms: int, body: bytes = b"m", **more: Any) -> int:
        """One transaction of one message in queue 0 of `t`; its number."""
        _, (number,) = self.begin(now_ms, ((self.t, 0, body),), **more)
        return int(number)

    def end(
        self, now_ms: int, *numbers: int, outcome: int = COMMIT, by: int = BY_CLIENT, group: int = 0
    ) -> npt.NDArray[Any]:
        """End them in one entry; the verdicts."""
        rows = b"".join(END_ROW.pack(number, 0, group or self.p, outcome, by) for number in numbers)
        verdicts = self.apply(now_ms, (CommandKind.END_TRANSACTIONS, rows)).verdicts[0]
        assert isinstance(verdicts, np.ndarray), verdicts
        return verdicts

    def ask(self, now_ms: int, kind: CommandKind, **request: Any) -> Any:
        """One command whose payload is a map; its verdict."""
        return self.apply(now_ms, (kind, encode_msgpack(request))).verdicts[0]

    def resolve(self, now_ms: int, number: int, outcome: int = COMMIT, reason: str = "by hand") -> Any:
        """End it by hand."""
        request = {"number": number, "producer_group_id": self.p, "outcome": outcome, "reason": reason}
        return self.ask(now_ms, CommandKind.RESOLVE_TRANSACTION, **request)

    def claim(
        self, now_ms: int, group: str = "p", *, count: int = 16, claim_ms: int = 1_000, checker: str = "c"
    ) -> list[list[int]]:
        """[number, claim, attempt] of what is claimed."""
        request = {
            "producer_group": group,
            "checker": checker,
            "max": count,
            "claim_ms": claim_ms,
            "max_bytes": 1 << 20,
        }
        verdict = self.ask(now_ms, CommandKind.CLAIM_CHECKS, **request)
        assert isinstance(verdict, dict), verdict
        return list(verdict["checks"])

    def report(self, now_ms: int, *reports: tuple[int, int], answer: str = "unknown") -> list[int]:
        """Report (number, claim) of each; the status bytes."""
        rows = [[number, claim, answer, 7] for number, claim in reports]
        return list(self.ask(now_ms, CommandKind.REPORT_CHECKS, reports=rows))

    def places(self, topic_id: int, queue: int) -> list[int]:
        """Positions of the records of a queue, in order."""
        return [entry[0] for entry in self.queues.get((topic_id, queue), [])]


def facts(state: StateMachine) -> Any:
    """All that is saved of transactions and producer groups."""
    return {name: state.parts[name].pack() for name in ("producers", "transactions")}
