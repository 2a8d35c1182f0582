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
from tests.support.broker.transaction_desk import TransactionDesk


@pytest.fixture
def desk() -> Iterator[TransactionDesk]:
    """A desk whose broker meets no damage."""
    desk = TransactionDesk()
    yield desk
    assert not desk.broker.failures


def test_a_transaction_is_sent_ended_and_seen(desk: TransactionDesk) -> None:
    """Unknown producer group first, as a proxy meets it; then prepared, invisible, committed, visible in both queues."""
    assert desk.begin(b"a")[0] == [NO_PRODUCER_GROUP]
    group_id = desk.producer_group()
    head, _ = desk.begin_raw(b"x", group="nobody")
    assert head["producer_groups"] == [[0, 0, 0, 0]]
    head, _ = desk.begin_raw(b"x")
    assert head["producer_groups"] == [[group_id, 6_000, 30_000, 15]]
    statuses, (number, same), _ = desk.begin(b"a", b"b")
    assert (statuses, number) == ([PREPARED] * 2, same)
    assert desk.pull(0) == desk.pull(1) == []
    assert desk.end(group_id, number, 5) == [ENDED, TRANSACTION_UNKNOWN]
    assert desk.end(group_id, number) == [ENDED_BEFORE]
    assert (desk.pull(0), desk.pull(1)) == ([b"a"], [b"b"])


def test_a_key_that_is_known_tells_the_first_transaction_and_its_messages(desk: TransactionDesk) -> None:
    """While open all message ids; of a committed one the first; of a rolled back one none."""
    group_id = desk.producer_group()
    _, (number, _), _ = desk.begin(b"a", b"b", key=b"k")
    again = desk.begin(b"a", b"b", key=b"k")
    assert again == ([PREPARED_BEFORE] * 2, [number] * 2, [[0, "ID-a", 7, 0], [1, "ID-b", 7, 0]])
    desk.end(group_id, number)
    assert desk.begin(b"a", b"b", key=b"k")[2] == [[0, "ID-a", 7, 0], [1, "", 0, 0]]
    _, (other,), _ = desk.begin(b"c", key=b"other", check_after_ms=2_500)
    assert desk.begin(b"c", key=b"other")[2] == [[0, "ID-c", 7, 3_000]]
    desk.end(group_id, other, outcome=ROLLBACK)
    assert desk.begin(b"c", key=b"other") == ([PREPARED_BEFORE], [other], [[0, "", 0, 0]])


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
    desk: TransactionDesk, lie: dict[str, int], properties: dict[str, str]
) -> None:
    """Order, delay, unknown flags, a group that the head does not name, a row that says other than its record."""
    desk.producer_group()
    end = desk.broker.store.log.end_index
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
    answer = desk.ask(RequestCode.SEND, row + record, topics=["t"], rows=1, producer_groups=["p"])
    assert (answer.code, answer.status) == ("link-body-malformed", 400)
    assert desk.broker.store.log.end_index == end


def test_a_check_that_is_due_is_claimed_with_its_records(desk: TransactionDesk) -> None:
    """All messages in their order; a claim that waits for nothing is answered at once, without an entry."""
    group_id = desk.producer_group(check_after_ms=500)
    _, (number, _), _ = desk.begin(b"first", b"second")
    end = desk.broker.store.log.end_index
    assert desk.numbers(desk.claim()) == []
    assert desk.broker.store.log.end_index == end
    desk.pass_time(500)
    head, raw = desk.answers[desk.claim()]
    (check,) = head["checks"]
    assert (check[0], check[2:5]) == (number, [1, "p", group_id])
    assert [message[:2] for message in check[7]] == [["t", 0], ["t", 1]]
    assert check[6] - check[5] == 500 + 10_000
    assert [decode_record(raw, int(start)).body for start in record_starts(raw)] == [b"first", b"second"]
    assert sum(message[2] for message in check[7]) == len(raw)
    _, noted = desk.ask(RequestCode.REPORT_CHECKS, reports=[[number, check[1], "timeout", 3_000], [number, 99, "x", 1]])
    assert noted == bytes([0, 1])
    head, _ = desk.ask(RequestCode.DESCRIBE_TRANSACTION, number=number, producer_group_id=group_id)
    assert [one[3:] for one in head["transaction"]["checks"]] == [["timeout", 3_000]]


def test_a_claim_waits_until_something_is_due_or_its_time_is_over(desk: TransactionDesk) -> None:
    """No entry while it waits; the oldest waits are woken, as many as there are checks; the others wait on."""
    desk.producer_group(check_after_ms=500)
    desk.producer_group("q", check_after_ms=500, check_url="http://a/c")
    _, (number,), _ = desk.begin(b"m")
    waits = [
        desk.claim(wait_ms=5_000),
        desk.claim(wait_ms=5_000),
        desk.claim("", wait_ms=5_000),
        desk.claim("q", wait_ms=700),
    ]
    assert len(desk.transactions.waiters) == 4
    end = desk.broker.store.log.end_index
    desk.pass_time(499)
    assert desk.broker.store.log.end_index == end
    desk.pass_time(1)
    assert [desk.numbers(wait) for wait in waits] == [[number], None, None, None]
    assert [kind for kind, _ in desk.last_commands()] == [CommandKind.CLAIM_CHECKS], "nobody else was woken"
    desk.pass_time(200)
    assert [desk.numbers(wait) for wait in waits[1:]] == [None, None, []]
    _, (called,), _ = desk.begin(b"n", group="q")
    desk.pass_time(500)
    assert [desk.numbers(wait) for wait in waits[1:3]] == [None, [called]]
    desk.pass_time(5_000)
    assert desk.numbers(waits[1]) == []
    assert len(desk.transactions.waiters) == 0


def test_a_wait_that_was_woken_for_what_others_took_goes_on_waiting(desk: TransactionDesk) -> None:
    """Two checks are due, the first claim takes both: the second waits again, and gets the next one."""
    desk.producer_group(check_after_ms=500)
    numbers = [desk.begin(body)[1][0] for body in (b"1", b"2")]
    first, second = desk.claim(wait_ms=9_000), desk.claim(wait_ms=9_000)
    desk.pass_time(500)
    assert (desk.numbers(first), desk.numbers(second)) == (numbers, None)
    _, (third,), _ = desk.begin(b"3")
    desk.pass_time(500)
    assert desk.numbers(second) == [third]


def test_a_claim_of_what_ends_in_the_same_entry_goes_on_waiting(
    desk: TransactionDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claim and commit share an entry: there is nothing to ask about any more, and the next check that comes due is the claim's."""
    group_id = desk.producer_group(check_after_ms=500)
    _, (number,), _ = desk.begin(b"m")
    desk.pass_time(500)
    with monkeypatch.context() as patched:
        patched.setattr(desk.broker, "run", lambda: None)
        claim = desk.claim(wait_ms=9_000)
    assert desk.end(group_id, number) == [ENDED]
    assert [kind for kind, _ in desk.last_commands()] == [CommandKind.CLAIM_CHECKS, CommandKind.END_TRANSACTIONS]
    assert desk.numbers(claim) is None
    _, (other,), _ = desk.begin(b"n")
    desk.pass_time(500)
    assert desk.numbers(claim) == [other]


def test_nothing_is_claimed_for_a_link_that_is_lost(desk: TransactionDesk) -> None:
    """The check stays due, and whoever asks next gets its first claim."""
    desk.producer_group(check_after_ms=500)
    _, (number,), _ = desk.begin(b"m")
    lost = desk.claim(wait_ms=9_000)
    desk.closed = True
    desk.pass_time(500)
    assert desk.numbers(lost) is None
    assert len(desk.transactions.waiters) == 0
    desk.closed = False
    ((claimed, claim, attempt, *_),) = desk.answers[desk.claim(wait_ms=9_000)][0]["checks"]
    assert (claimed, claim, attempt) == (number, 1, 1)


def test_a_check_url_that_comes_later_wakes_who_waits_for_any(desk: TransactionDesk) -> None:
    """The change of the settings is an entry like others."""
    desk.producer_group(check_after_ms=100)
    _, (number,), _ = desk.begin(b"m")
    desk.pass_time(200)
    wait = desk.claim("", wait_ms=9_000)
    assert desk.numbers(wait) is None
    desk.producer_group(check_url="http://a/c")
    assert desk.numbers(wait) == [number]


def test_waits_are_refused_by_a_broker_that_does_not_lead_any_more(desk: TransactionDesk) -> None:
    """Proxies ask the next leader."""
    desk.producer_group()
    wait = desk.claim(wait_ms=9_000)
    desk.raft.is_serving = False
    desk.pass_time(10)
    assert desk.answers[wait].code == "not-leader"
    assert len(desk.transactions.waiters) == 0


def test_ends_of_large_messages_are_split_and_answered_together_in_order(desk: TransactionDesk) -> None:
    """Each entry makes about so many bytes visible; the reply has a row for each, and is told only once."""
    group_id = desk.producer_group()
    numbers = [desk.begin(b"%02d" % n + bytes(20_000))[1][0] for n in range(6)]
    table = desk.broker.state.transactions.table
    for number in numbers:
        table.set(table.slots[number], size=COMMIT_STEP_SIZE_BYTES // 2)
    asked = [*numbers[:3], 7, *numbers[3:], numbers[0]]
    assert desk.end(group_id, *asked) == [ENDED] * 3 + [TRANSACTION_UNKNOWN] + [ENDED] * 3 + [ENDED_BEFORE]
    wanted = [(CommandKind.END_TRANSACTIONS, rows * END_ROWS.itemsize) for rows in (2, 3, 2, 1)]
    assert desk.last_commands() == wanted
    assert [body[:2] for body in desk.pull(0)] == [b"%02d" % n for n in range(6)]


def test_people_see_and_resolve_what_nobody_has_answered_for(desk: TransactionDesk) -> None:
    """Listed as expired, then resolved with a reason that is told afterwards."""
    group_id = desk.producer_group(check_after_ms=100, check_interval_ms=100, max_checks=1)
    _, (number,), _ = desk.begin(b"m")
    desk.pass_time(100)
    ((_, claim, *_),) = desk.answers[desk.claim()][0]["checks"]
    desk.ask(RequestCode.REPORT_CHECKS, reports=[[number, claim, "unknown", 5]])
    desk.pass_time(100)
    listing: dict[str, Any] = {"producer_group": "p", "state": "expired", "older_than_ms": 0, "after": 0, "limit": 10}
    head, _ = desk.ask(RequestCode.LIST_TRANSACTIONS, **listing)
    assert [one["number"] for one in head["transactions"]] == [number]
    assert desk.ask(RequestCode.LIST_TRANSACTIONS, **{**listing, "older_than_ms": 201})[0]["transactions"] == []
    resolution: dict[str, Any] = {"number": number, "producer_group_id": group_id, "outcome": COMMIT, "reason": "paid"}
    head, _ = desk.ask(RequestCode.RESOLVE_TRANSACTION, **resolution)
    assert (head["status"], head["by"], head["topic_id"], head["offset"]) == (ENDED, BY_HAND, desk.topic_id, 0)
    head, _ = desk.ask(RequestCode.DESCRIBE_TRANSACTION, number=number, producer_group_id=group_id)
    assert (head["transaction"]["reason"], head["transaction"]["by"]) == ("paid", "hand")
    unknown = desk.ask(RequestCode.DESCRIBE_TRANSACTION, number=number, producer_group_id=group_id + 1)
    assert unknown.code == "transaction-unknown"


def test_producer_groups_are_changed_described_and_deleted(desk: TransactionDesk) -> None:
    """A first use names nothing and changes nothing; a page goes by name; who has open transactions stays."""
    group_id = desk.producer_group(max_checks=4, check_secret="whsec_AAAA")
    assert desk.producer_group() == group_id
    for name in ("b", "a", "z"):
        desk.producer_group(name)
    head, _ = desk.ask(RequestCode.DESCRIBE_PRODUCER_GROUP, producer_group="p", after="", limit=1)
    (group,) = head["groups"]
    assert (group["max_checks"], group["check_secret"], group["producer_group_id"]) == (4, "whsec_AAAA", group_id)
    head, _ = desk.ask(RequestCode.DESCRIBE_PRODUCER_GROUP, producer_group="", after="a", limit=2)
    assert ([group["producer_group"] for group in head["groups"]], head["more"]) == (["b", "p"], True)
    desk.begin(b"m")
    assert desk.ask(RequestCode.DELETE_PRODUCER_GROUP, producer_group="p").code == "producer-group-busy"
    assert desk.ask(RequestCode.DELETE_PRODUCER_GROUP, producer_group="z")[0] == {"deleted": True}
    assert (
        desk.ask(RequestCode.DESCRIBE_PRODUCER_GROUP, producer_group="z", after="", limit=1).code
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
    desk: TransactionDesk, code: RequestCode, head: dict[str, Any], raw: bytes
) -> None:
    """A typed 4xx each, and the log does not grow."""
    desk.producer_group()
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
    end = desk.broker.store.log.end_index
    answer = desk.ask(code, raw, **{**defaults.get(code, {}), **head})
    assert isinstance(answer, TernError)
    assert 400 <= answer.status < 500
    assert desk.broker.store.log.end_index == end
