"""What simulated clients ask about transactions as bytes of the link protocol, and replies as values. As the proxy and the checker do it."""

import struct
from typing import Any

from tern_wire.limits import LISTED_MAX, RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.transactions import END_ROW
from tests.sim.clients.bodies import read_records
from tests.sim.clients.plan import QUEUES
from tests.sim.clients.send_encoding import Request
from tests.sim.history.answers import Answered
from tests.sim.history.questions import Asked
from tests.sim.history.transaction_values import (
    Check,
    CheckNote,
    Claim,
    Describe,
    Described,
    End,
    Ended,
    ListTransactions,
    Report,
    Resolve,
    Search,
)

# What a person says who ends a transaction.
REASON = "looked up in the books"
SEARCHED_MAX = 8
_TIME_MAX_MS = (1 << 53) - 1
_END_VERDICT = struct.Struct("<IIIIIIq")


def encode_transaction(asked: Asked, ids: dict[str, int]) -> Request:
    """The request for *asked*; *ids* of producer groups by name."""
    match asked:
        case End(endings):
            packed = b"".join(
                [END_ROW.pack(number, claim, ids[group], outcome, by) for number, group, outcome, by, claim in endings]
            )
            return Request(RequestCode.END_TRANSACTIONS, body_parts({"rows": len(endings)}, [packed]), True)
        case Resolve(number, group, outcome):
            head = {"number": number, "producer_group_id": ids[group], "outcome": outcome, "reason": REASON}
            return Request(RequestCode.RESOLVE_TRANSACTION, body_parts(head), True)
        case Claim(checker, group, count_max, claim_ms, wait_ms):
            head = {"checker": checker, "producer_group": group, "max": count_max, "claim_ms": claim_ms}
            limits = {"wait_ms": wait_ms, "max_bytes": RECEIVE_SIZE_MAX_BYTES}
            return Request(RequestCode.CLAIM_CHECKS, body_parts(head | limits), False)
        case Report(reports):
            return Request(RequestCode.REPORT_CHECKS, body_parts({"reports": [list(one) for one in reports]}), True)
        case Describe(number, group):
            head = {"number": number, "producer_group_id": ids[group]}
            return Request(RequestCode.DESCRIBE_TRANSACTION, body_parts(head), True)
        case ListTransactions(state):
            head = {"producer_group": "", "state": state, "older_than_ms": 0, "after": 0, "limit": LISTED_MAX}
            return Request(RequestCode.LIST_TRANSACTIONS, body_parts(head), True)
        case Search(topic, _, message_id):
            head = {"topic": topic, "key": message_id, "begin_ms": 0, "end_ms": _TIME_MAX_MS, "count": SEARCHED_MAX}
            return Request(RequestCode.QUERY, body_parts(head | {"after": None}), True)
        case _:
            raise AssertionError(f"nobody can ask {asked}")


def decode_transaction(asked: Asked, head: dict[str, Any], raw: memoryview, ids: dict[str, int]) -> Answered:
    """What the reply to *asked* says; *ids* of topics by name."""
    match asked:
        case End():
            topics = {ids[name]: name for name in QUEUES if name in ids}
            return tuple(
                [
                    Ended(status, outcome, by, messages, topics.get(topic, ""), queue, offset)
                    for status, outcome, queue, messages, topic, by, offset in _END_VERDICT.iter_unpack(raw)
                ]
            )
        case Resolve():
            topics = {ids[name]: name for name in QUEUES if name in ids}
            place = (topics.get(head["topic_id"], ""), head["queue"], head["offset"])
            return (Ended(head["status"], head["outcome"], head["by"], head["messages"], *place),)
        case Claim():
            names = [stored.body_name for stored in read_records(raw)]
            checks = []
            for number, claim, attempt, group, _, begun_ms, until_ms, places in head["checks"]:
                mine, names = names[: len(places)], names[len(places) :]
                where = tuple((topic, queue) for topic, queue, _ in places)
                checks.append(Check(number, claim, attempt, group, begun_ms, until_ms, where, tuple(mine)))
            return tuple(checks)
        case Report():
            return bytes(raw)
        case Describe():
            return (read_description(head["transaction"]),)
        case ListTransactions():
            return tuple([read_description(one) for one in head["transactions"]])
        case Search():
            return tuple(read_records(raw))
        case _:
            raise AssertionError(f"nobody is answered {asked}")


def read_description(said: dict[str, Any]) -> Described:
    """A transaction's map."""
    return Described(
        *(said["number"], said["producer_group"], said["state"], said["begun_ms"], said["attempts"], said["by"]),
        said["message_count"],
        tuple((topic, queue, offset) for topic, queue, _, offset in said["messages"]),
        tuple(CheckNote(attempt, at_ms, checker, answer) for attempt, at_ms, checker, answer, _ in said["checks"]),
    )
