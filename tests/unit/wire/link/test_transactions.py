"""What travels about transactions and their checks: rows, what an older peer leaves out, and what is out of range."""

import subprocess
import sys
from typing import Any

import pytest

from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import ENDS_PER_REQUEST_MAX, LISTED_MAX, WAIT_MAX_MS
from tern_wire.link.checks import (
    CheckReport,
    ClaimChecks,
    ClaimedCheck,
    ClaimedChecks,
    ClaimedMessage,
    EndTransactions,
    ReportChecks,
)
from tern_wire.link.heads import head_parts, read_head
from tern_wire.link.requests import body_parts, read_body
from tern_wire.link.transactions import ListTransactions, ResolveTransaction, TransactionCheck, TransactionMessage
from tern_wire.transactions import BY_CLIENT, BY_HAND, COMMIT, NUMBER_MAX

CLAIM = {"checker": "c", "producer_group": "", "max": 1, "claim_ms": 1, "wait_ms": 0, "max_bytes": 1}
LIST = {"producer_group": "", "state": "", "older_than_ms": 0, "after": 0, "limit": 1}
RESOLUTION = {"number": 1, "producer_group_id": 2, "outcome": COMMIT, "reason": "paid"}


def body(head: dict[str, Any]) -> bytes:
    """A body with any head."""
    return b"".join(body_parts(head))


def test_claimed_checks_travel_as_rows_of_rows() -> None:
    """Each may get more columns; a size that no record has is refused."""
    check = ClaimedCheck(7, 8, 1, "p", 2, 100, 200, [ClaimedMessage("t", 3, 64)])
    data = b"".join(head_parts(ClaimedChecks(checks=[check], now_ms=150)))
    row = [7, 8, 1, "p", 2, 100, 200, [["t", 3, 64]]]
    assert read_body(data)[0] == {"checks": [row], "now_ms": 150}
    longer = [*row[:7], [["t", 3, 64, "more"]], "more"]
    assert read_head(ClaimedChecks, body({"checks": [longer], "now_ms": 150}))[0].checks == [check]
    with pytest.raises(LinkBodyMalformed):
        read_head(ClaimedChecks, body({"checks": [[*row[:7], [["t", 3, -1]]]], "now_ms": 150}))


def test_nothing_claimed_has_no_time() -> None:
    """As it always was; that there are no checks is said."""
    data = b"".join(head_parts(ClaimedChecks(checks=[])))
    assert read_body(data)[0] == {"checks": []}
    assert read_head(ClaimedChecks, data)[0].now_ms == 0
    with pytest.raises(LinkBodyMalformed):
        read_head(ClaimedChecks, body({}))


def test_reports_travel_as_rows() -> None:
    """In the order of old."""
    data = b"".join(head_parts(ReportChecks(reports=[CheckReport(7, 8, "timeout", 3_000)])))
    assert read_body(data)[0] == {"reports": [[7, 8, "timeout", 3_000]]}
    for row in ([7, 8, "timeout"], [7, 8, 9, 3_000], {"number": 7}):
        with pytest.raises(LinkBodyMalformed):
            read_head(ReportChecks, body({"reports": [row]}))


@pytest.mark.parametrize(
    ("kind", "head", "lie"),
    [
        (ClaimChecks, CLAIM, {"wait_ms": -1}),
        (ClaimChecks, CLAIM, {"wait_ms": WAIT_MAX_MS + 1}),
        (EndTransactions, {"rows": 1}, {"rows": 0}),
        (EndTransactions, {"rows": 1}, {"rows": ENDS_PER_REQUEST_MAX + 1}),
        (ListTransactions, LIST, {"limit": 0}),
        (ListTransactions, LIST, {"limit": LISTED_MAX + 1}),
        (ListTransactions, LIST, {"after": NUMBER_MAX + 1}),
        (ListTransactions, LIST, {"older_than_ms": -1}),
        (ListTransactions, LIST, {"state": "committed"}),
        (ListTransactions, LIST, {"state": "open\n"}),
        (ListTransactions, LIST, {"state": "reopen"}),
    ],
)
def test_what_is_out_of_range_is_refused(kind: Any, head: dict[str, Any], lie: dict[str, Any]) -> None:
    """By the proxy already, so this is a broken peer."""
    read_head(kind, body(head))
    with pytest.raises(LinkBodyMalformed):
        read_head(kind, body({**head, **lie}))


@pytest.mark.parametrize("state", ["", "open", "expired"])
def test_both_states_of_what_has_not_ended_can_be_listed(state: str) -> None:
    """A proxy from before namespaces names none: it means transactions in none."""
    listed, _ = read_head(ListTransactions, body({**LIST, "state": state}))
    assert (listed.state, listed.namespace) == (state, "")


def test_who_resolves_without_saying_who_it_is_is_a_person() -> None:
    """As before a client could say why it ends its own."""
    assert read_head(ResolveTransaction, body(RESOLUTION))[0].by == BY_HAND
    assert read_head(ResolveTransaction, body({**RESOLUTION, "by": BY_CLIENT}))[0].by == BY_CLIENT


def test_messages_and_checks_of_a_transaction_are_rows() -> None:
    """In the order of old."""
    assert TransactionMessage.__struct_fields__ == ("topic", "queue", "size_bytes", "offset")
    assert TransactionCheck.__struct_fields__ == ("attempt", "at_ms", "checker", "answer", "latency_ms")
    assert TransactionMessage.__struct_config__.array_like
    assert TransactionCheck.__struct_config__.array_like


def test_what_a_checker_asks_with_brings_no_numpy() -> None:
    """A checker does without it until there is something to check."""
    code = "import sys, tern_wire.link.checks; print('numpy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "False"
