"""What a broker answers to proxies about transactions: half messages sent, ended, checks claimed and waited for, producer groups."""

from collections.abc import Iterator
from typing import Any

import pytest

from tern_broker.link.transactions import COMMIT_STEP_SIZE_BYTES
from tern_wire.errors import TernError
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_SAME_TRANSACTION,
    NO_KEY,
    NO_PRODUCER_GROUP,
    PREPARED,
    PREPARED_BEFORE,
    SEND_ROW,
)
from tern_wire.records.columns import record_starts
from tern_wire.records.properties import MESSAGE_ID, PRODUCER_GROUP, TRANSACTIONAL, encode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record
from tern_wire.transactions import (
    BY_HAND,
    COMMIT,
    END_ROW,
    END_ROWS,
    ENDED,
    ENDED_BEFORE,
    ROLLBACK,
    TRANSACTION_UNKNOWN,
)
from tests.support.broker.transaction_broker import TransactionBroker


@pytest.fixture
def node() -> Iterator[TransactionBroker]:
    """A node whose broker meets no damage."""
    node = TransactionBroker()
    yield node
    assert not node.broker.failures


def test_a_transaction_is_sent_ended_and_seen(node: TransactionBroker) -> None:
    """Unknown producer group first, as a proxy meets it; then prepared, invisible, committed, visible in both queues."""
    assert node.begin(b"a")[0] == [NO_PRODUCER_GROUP]
    group_id = node.producer_group()
    head, _ = node.begin_raw(b"x", group="nobody")
    assert head["producer_groups"] == [[0, 0, 0, 0]]
    head, _ = node.begin_raw(b"x")
    assert head["producer_groups"] == [[group_id, 6_000, 30_000, 15]]
    statuses, (number, same), _ = node.begin(b"a", b"b")
    assert (statuses, number) == ([PREPARED] * 2, same)
    assert node.pull(0) == node.pull(1) == []
    assert node.end(group_id, number, 5) == [ENDED, TRANSACTION_UNKNOWN]
    assert node.end(group_id, number) == [ENDED_BEFORE]
    assert (node.pull(0), node.pull(1)) == ([b"a"], [b"b"])


def test_a_key_that_is_known_tells_the_first_transaction_and_its_messages(node: TransactionBroker) -> None:
    """While open all message ids; of a committed one the first; of a rolled back one none."""
    group_id = node.producer_group()
    _, (number, _), _ = node.begin(b"a", b"b", key=b"k")
    again = node.begin(b"a", b"b", key=b"k")
    assert again == ([PREPARED_BEFORE] * 2, [number] * 2, [[0, "ID-a", 7, 0], [1, "ID-b", 7, 0]])
    node.end(group_id, number)
    assert node.begin(b"a", b"b", key=b"k")[2] == [[0, "ID-a", 7, 0], [1, "", 0, 0]]
    _, (other,), _ = node.begin(b"c", key=b"other", check_after_ms=2_500)
    assert node.begin(b"c", key=b"other")[2] == [[0, "ID-c", 7, 3_000]]
    node.end(group_id, other, outcome=ROLLBACK)
    assert node.begin(b"c", key=b"other") == ([PREPARED_BEFORE], [other], [[0, "", 0, 0]])


@pytest.mark.parametrize(
    ("lie", "properties"),
    [
        ({"flags": FLAG_HALF | 32}, {}),
        ({"flags": FLAG_SAME_TRANSACTION | FLAG_HALF}, {}),
        ({"flags": 0, "group": 1}, {}),
        ({"group": 1}, {}),
        ({"message_group": 3}, {}),
        ({"deliver_ms": -1}, {}),
        ({"deliver_ms": 3_600_001}, {}),
        ({}, {TRANSACTIONAL: ""}),
        ({}, {PRODUCER_GROUP: "q"}),
        ({}, {"TIMER_DELIVER_MS": "99"}),
    ],
)
def test_half_messages_that_there_cannot_be_are_refused_before_they_cost_an_entry(
    node: TransactionBroker, lie: dict[str, int], properties: dict[str, str]
) -> None:
    """Order, delay, unknown flags, a group that the head does not name, a row that says other than its record."""
    node.producer_group()
    end = node.broker.store.log.end_index
    pairs = {MESSAGE_ID: "ID", TRANSACTIONAL: "true", PRODUCER_GROUP: "p"} | properties
    record = encode_record(b"t", 0, b"m", encode_properties([pair for pair in pairs.items() if pair[1]]), born_ms=7)
    facts = {"flags": FLAG_HALF, "group": 0, "deliver_ms": 0, "message_group": 0} | lie
    crc = int.from_bytes(record[8:12], "big")
    row = SEND_ROW.pack(
        *(
            len(record),
            0,
            0,
            facts["flags"],
            0,
            crc,
            facts["group"],
            NO_KEY,
            facts["deliver_ms"],
            facts["message_group"],
        )
    )
    answer = node.ask(RequestCode.SEND, row + record, topics=["t"], rows=1, producer_groups=["p"])
    assert (answer.code, answer.status) == ("link-body-malformed", 400)
    assert node.broker.store.log.end_index == end


def test_a_check_that_is_due_is_claimed_with_its_records(node: TransactionBroker) -> None:
    """All messages in their order; a claim that waits for nothing is answered at once, without an entry."""
    group_id = node.producer_group(check_after_ms=500)
    _, (number, _), _ = node.begin(b"first", b"second")
    end = node.broker.store.log.end_index
    assert node.numbers(node.claim()) == []
    assert node.broker.store.log.end_index == end
    node.pass_time(500)
    head, raw = node.answers[node.claim()]
    (check,) = head["checks"]
    assert (check[0], check[2:5]) == (number, [1, "p", group_id])
    assert [message[:2] for message in check[7]] == [["t", 0], ["t", 1]]
    assert check[6] - check[5] == 500 + 10_000
    assert [decode_record(raw, int(start)).body for start in record_starts(raw)] == [b"first", b"second"]
    assert sum(message[2] for message in check[7]) == len(raw)
    _, noted = node.ask(RequestCode.REPORT_CHECKS, reports=[[number, check[1], "timeout", 3_000], [number, 99, "x", 1]])
    assert noted == bytes([0, 1])
    head, _ = node.ask(RequestCode.DESCRIBE_TRANSACTION, number=number, producer_group_id=group_id)
    assert [one[3:] for one in head["transaction"]["checks"]] == [["timeout", 3_000]]


def test_a_claim_waits_until_something_is_due_or_its_time_is_over(node: TransactionBroker) -> None:
    """No entry while it waits; the oldest waits are woken, as many as there are checks; the others wait on."""
    node.producer_group(check_after_ms=500)
    node.producer_group("q", check_after_ms=500, check_url="http://a/c")
    _, (number,), _ = node.begin(b"m")
    waits = [
        node.claim(wait_ms=5_000),
        node.claim(wait_ms=5_000),
        node.claim("", wait_ms=5_000),
        node.claim("q", wait_ms=700),
    ]
    assert len(node.transactions.waiters) == 4
    end = node.broker.store.log.end_index
    node.pass_time(499)
    assert node.broker.store.log.end_index == end
    node.pass_time(1)
    assert [node.numbers(wait) for wait in waits] == [[number], None, None, None]
    assert [kind for kind, _ in node.last_commands()] == [CommandKind.CLAIM_CHECKS], "nobody else was woken"
    node.pass_time(200)
    assert [node.numbers(wait) for wait in waits[1:]] == [None, None, []]
    _, (called,), _ = node.begin(b"n", group="q")
    node.pass_time(500)
    assert [node.numbers(wait) for wait in waits[1:3]] == [None, [called]]
    node.pass_time(5_000)
    assert node.numbers(waits[1]) == []
    assert len(node.transactions.waiters) == 0


def test_a_wait_that_was_woken_for_what_others_took_goes_on_waiting(node: TransactionBroker) -> None:
    """Two checks are due, the first claim takes both: the second waits again, and gets the next one."""
    node.producer_group(check_after_ms=500)
    numbers = [node.begin(body)[1][0] for body in (b"1", b"2")]
    first, second = node.claim(wait_ms=9_000), node.claim(wait_ms=9_000)
    node.pass_time(500)
    assert (node.numbers(first), node.numbers(second)) == (numbers, None)
    _, (third,), _ = node.begin(b"3")
    node.pass_time(500)
    assert node.numbers(second) == [third]


def test_a_claim_of_what_ends_in_the_same_entry_goes_on_waiting(
    node: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claim and commit share an entry: there is nothing to ask about any more, and the next check that comes due is the claim's."""
    group_id = node.producer_group(check_after_ms=500)
    _, (number,), _ = node.begin(b"m")
    node.pass_time(500)
    with monkeypatch.context() as patched:
        patched.setattr(node.broker, "run", lambda: None)
        claim = node.claim(wait_ms=9_000)
    assert node.end(group_id, number) == [ENDED]
    assert [kind for kind, _ in node.last_commands()] == [CommandKind.CLAIM_CHECKS, CommandKind.END_TRANSACTIONS]
    assert node.numbers(claim) is None
    _, (other,), _ = node.begin(b"n")
    node.pass_time(500)
    assert node.numbers(claim) == [other]


def test_nothing_is_claimed_for_a_link_that_is_lost(node: TransactionBroker) -> None:
    """The check stays due, and whoever asks next gets its first claim."""
    node.producer_group(check_after_ms=500)
    _, (number,), _ = node.begin(b"m")
    lost = node.claim(wait_ms=9_000)
    node.closed = True
    node.pass_time(500)
    assert node.numbers(lost) is None
    assert len(node.transactions.waiters) == 0
    node.closed = False
    ((claimed, claim, attempt, *_),) = node.answers[node.claim(wait_ms=9_000)][0]["checks"]
    assert (claimed, claim, attempt) == (number, 1, 1)


def test_a_check_url_that_comes_later_wakes_who_waits_for_any(node: TransactionBroker) -> None:
    """The change of the settings is an entry like others."""
    node.producer_group(check_after_ms=100)
    _, (number,), _ = node.begin(b"m")
    node.pass_time(200)
    wait = node.claim("", wait_ms=9_000)
    assert node.numbers(wait) is None
    node.producer_group(check_url="http://a/c")
    assert node.numbers(wait) == [number]


def test_waits_are_refused_by_a_broker_that_does_not_lead_any_more(node: TransactionBroker) -> None:
    """Proxies ask the next leader."""
    node.producer_group()
    wait = node.claim(wait_ms=9_000)
    node.raft.is_serving = False
    node.pass_time(10)
    assert node.answers[wait].code == "not-leader"
    assert len(node.transactions.waiters) == 0


def test_ends_of_large_messages_are_split_and_answered_together_in_order(node: TransactionBroker) -> None:
    """Each entry makes about so many bytes visible; the reply has a row for each, and is told only once."""
    group_id = node.producer_group()
    numbers = [node.begin(b"%02d" % n + bytes(20_000))[1][0] for n in range(6)]
    table = node.broker.state.transactions.table
    for number in numbers:
        table.set(table.slots[number], size=COMMIT_STEP_SIZE_BYTES // 2)
    asked = [*numbers[:3], 7, *numbers[3:], numbers[0]]
    assert node.end(group_id, *asked) == [ENDED] * 3 + [TRANSACTION_UNKNOWN] + [ENDED] * 3 + [ENDED_BEFORE]
    wanted = [(CommandKind.END_TRANSACTIONS, rows * END_ROWS.itemsize) for rows in (2, 3, 2, 1)]
    assert node.last_commands() == wanted
    assert [body[:2] for body in node.pull(0)] == [b"%02d" % n for n in range(6)]


def test_people_see_and_resolve_what_nobody_has_answered_for(node: TransactionBroker) -> None:
    """Listed as expired, then resolved with a reason that is told afterwards."""
    group_id = node.producer_group(check_after_ms=100, check_interval_ms=100, max_checks=1)
    _, (number,), _ = node.begin(b"m")
    node.pass_time(100)
    ((_, claim, *_),) = node.answers[node.claim()][0]["checks"]
    node.ask(RequestCode.REPORT_CHECKS, reports=[[number, claim, "unknown", 5]])
    node.pass_time(100)
    listing: dict[str, Any] = {"producer_group": "p", "state": "expired", "older_than_ms": 0, "after": 0, "limit": 10}
    head, _ = node.ask(RequestCode.LIST_TRANSACTIONS, **listing)
    assert [one["number"] for one in head["transactions"]] == [number]
    assert node.ask(RequestCode.LIST_TRANSACTIONS, **{**listing, "older_than_ms": 201})[0]["transactions"] == []
    resolution: dict[str, Any] = {"number": number, "producer_group_id": group_id, "outcome": COMMIT, "reason": "paid"}
    head, _ = node.ask(RequestCode.RESOLVE_TRANSACTION, **resolution)
    assert (head["status"], head["by"], head["topic_id"], head["offset"]) == (ENDED, BY_HAND, node.topic_id, 0)
    head, _ = node.ask(RequestCode.DESCRIBE_TRANSACTION, number=number, producer_group_id=group_id)
    assert (head["transaction"]["reason"], head["transaction"]["by"]) == ("paid", "hand")
    unknown = node.ask(RequestCode.DESCRIBE_TRANSACTION, number=number, producer_group_id=group_id + 1)
    assert unknown.code == "transaction-unknown"


def test_producer_groups_are_changed_described_and_deleted(node: TransactionBroker) -> None:
    """A first use names nothing and changes nothing; a page goes by name; who has open transactions stays."""
    group_id = node.producer_group(max_checks=4, check_secret="whsec_AAAA")
    assert node.producer_group() == group_id
    for name in ("b", "a", "z"):
        node.producer_group(name)
    head, _ = node.ask(RequestCode.DESCRIBE_PRODUCER_GROUP, producer_group="p", after="", limit=1)
    (group,) = head["groups"]
    assert (group["max_checks"], group["check_secret"], group["producer_group_id"]) == (4, "whsec_AAAA", group_id)
    head, _ = node.ask(RequestCode.DESCRIBE_PRODUCER_GROUP, producer_group="", after="a", limit=2)
    assert ([group["producer_group"] for group in head["groups"]], head["more"]) == (["b", "p"], True)
    node.begin(b"m")
    assert node.ask(RequestCode.DELETE_PRODUCER_GROUP, producer_group="p").code == "producer-group-busy"
    assert node.ask(RequestCode.DELETE_PRODUCER_GROUP, producer_group="z")[0] == {"deleted": True}
    assert (
        node.ask(RequestCode.DESCRIBE_PRODUCER_GROUP, producer_group="z", after="", limit=1).code
        == "producer-group-not-found"
    )


@pytest.mark.parametrize(
    ("code", "head", "raw"),
    [
        (RequestCode.END_TRANSACTIONS, {"rows": 0}, b""),
        (RequestCode.END_TRANSACTIONS, {"rows": 2}, bytes(32)),
        (RequestCode.END_TRANSACTIONS, {"rows": 1}, bytes(32)),
        (RequestCode.END_TRANSACTIONS, {"rows": 1}, END_ROW.pack(1, 0, 1, COMMIT, BY_HAND)),
        (RequestCode.CLAIM_CHECKS, {"producer_group": "nobody"}, b""),
        (RequestCode.CLAIM_CHECKS, {"max": 257}, b""),
        (RequestCode.CLAIM_CHECKS, {"claim_ms": 0}, b""),
        (RequestCode.CLAIM_CHECKS, {"checker": ""}, b""),
        (RequestCode.CLAIM_CHECKS, {"wait_ms": 30_001}, b""),
        (RequestCode.REPORT_CHECKS, {"reports": [[1, 1, "x" * 33, 1]]}, b""),
        (RequestCode.REPORT_CHECKS, {"reports": [[1, 1, "x"]]}, b""),
        (RequestCode.RESOLVE_TRANSACTION, {"number": 1, "producer_group_id": 1, "outcome": 1, "reason": ""}, b""),
        (RequestCode.RESOLVE_TRANSACTION, {"number": 1, "producer_group_id": 1, "outcome": 3, "reason": "r"}, b""),
        (RequestCode.LIST_TRANSACTIONS, {"state": "committed"}, b""),
        (RequestCode.LIST_TRANSACTIONS, {"limit": 0}, b""),
        (RequestCode.ALTER_PRODUCER_GROUP, {"producer_group": "p", "max_checks": 101}, b""),
        (RequestCode.ALTER_PRODUCER_GROUP, {"producer_group": "p", "check_secret": "whsec_!"}, b""),
        (RequestCode.DELETE_PRODUCER_GROUP, {"producer_group": "a b"}, b""),
    ],
)
def test_requests_that_are_wrong_are_refused_without_an_entry(
    node: TransactionBroker, code: RequestCode, head: dict[str, Any], raw: bytes
) -> None:
    """A typed 4xx each, and the log does not grow."""
    node.producer_group()
    defaults: dict[RequestCode, dict[str, Any]] = {
        RequestCode.CLAIM_CHECKS: {
            "checker": "c",
            "producer_group": "p",
            "max": 1,
            "claim_ms": 1,
            "max_bytes": 1,
            "wait_ms": 0,
        },
        RequestCode.LIST_TRANSACTIONS: {"producer_group": "", "state": "", "older_than_ms": 0, "after": 0, "limit": 1},
    }
    end = node.broker.store.log.end_index
    answer = node.ask(code, raw, **{**defaults.get(code, {}), **head})
    assert isinstance(answer, TernError)
    assert 400 <= answer.status < 500
    assert node.broker.store.log.end_index == end
