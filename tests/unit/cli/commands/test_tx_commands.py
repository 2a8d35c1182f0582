"""`ternmq tx` and `ternmq producer-group`: what they ask a proxy, and what they show."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_wire.errors import ProducerGroupBusy, TransactionExpired, TransactionResolved
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, refused, said

RUNNER = CliRunner()
TRANSACTION: dict[str, Any] = {
    "transaction_id": "AQ-1",
    "producer_group": "shop",
    "state": "open",
    "begun_at": 1_769_860_800_000,
    "check_at": 1_769_860_806_000,
    "attempts": 1,
    "message_count": 2,
    "messages": [
        {"topic": "orders", "queue": "broker-a:3", "size": 120},
        {"topic": "bills", "queue": "broker-a:0", "size": 80},
    ],
    "checks": [{"attempt": 1, "at": 1_769_860_803_000, "checker": "c-7", "answer": "http-503", "latency_ms": 12}],
}
ENDED = {"transaction_id": "AQ-1", "state": "committed", "by": "hand", "messages": 2}
ENDED |= {"topic": "orders", "queue": "broker-a:3", "offset": 42}
GROUP: dict[str, Any] = {
    "producer_group": "shop",
    "check_url": "http://127.0.0.1:9000/checks",
    "has_secret": True,
    "timeout_ms": 3_000,
    "max_checks": 15,
    "check_after_ms": 6_000,
    "check_interval_ms": 30_000,
    "include_body": False,
    "stats": {"open": 1, "expired": 2, "committed": 30, "rolled_back": 4, "checks": 5},
}


def run(answer: Reply | Callable[[Asked], Reply], *words: str) -> tuple[Result, list[Asked]]:
    """A command at a proxy that says *answer*; and what it was asked."""
    with blocking_proxy(answer if callable(answer) else lambda _: answer) as made:
        done = RUNNER.invoke(app, [*words, "--endpoint", made.url])
    return done, made.asked


def test_transactions_that_have_not_ended_are_listed_to_the_count() -> None:
    """Conditions travel as they are; pages follow each other until there are enough."""
    page = said({"transactions": [TRANSACTION], "next_cursor": "c"})
    words = ("tx", "ls", "-g", "shop", "--state", "open", "--older-than", "5m", "-n", "2")
    done, asked = run(page, *words)
    assert done.exit_code == 0, done.output
    assert [each.path for each in asked] == [
        "/v1/transactions?producer_group=shop&state=open&older_than=300000&limit=2",
        "/v1/transactions?producer_group=shop&state=open&older_than=300000&limit=1&cursor=c",
    ]
    for text in (
        "AQ-1",
        "shop",
        "2026-01-31T12:00:00.000Z",
        "bills orders",
        "2 transactions have not ended, and more.",
    ):
        assert text in done.stdout
    done, _ = run(said({"transactions": [TRANSACTION], "next_cursor": ""}), "tx", "ls", "-o", "json")
    (shown,) = json.loads(done.stdout)
    assert (shown["transaction_id"], shown["begun_at"], len(shown["messages"])) == ("AQ-1", 1_769_860_800_000, 2)
    done, _ = run(said({"transactions": []}), "tx", "ls")
    assert "0 transactions have not ended." in done.stdout


def test_one_transaction_is_shown_with_its_messages_and_every_check() -> None:
    """Open, and ended by hand with a reason."""
    done, asked = run(said(TRANSACTION), "tx", "show", "AQ/1")
    assert done.exit_code == 0, done.output
    assert [each.path for each in asked] == ["/v1/transactions/AQ%2F1"]
    for text in ("open", "broker-a:3", "http-503", "c-7", "2026-01-31T12:00:03.000Z"):
        assert text in done.stdout
    ended = {**TRANSACTION, "state": "rolled-back", "by": "hand", "reason": "ticket 17", "checks": []}
    done, _ = run(said(ended), "tx", "show", "AQ-1")
    assert "rolled-back (by hand)" in done.stdout
    assert "ticket 17" in done.stdout
    done, _ = run(said(ended), "tx", "show", "AQ-1", "-o", "json")
    assert json.loads(done.stdout)["reason"] == "ticket 17"


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_with_a_reason_it_is_ended_by_hand_and_without_as_its_producer_would(verb: str) -> None:
    """Two routes; what became of it is told."""
    done, asked = run(said(ENDED), "tx", verb, "AQ-1", "--reason", "ticket 17")
    assert done.exit_code == 0, done.output
    assert (asked[0].method, asked[0].path) == ("POST", "/v1/transactions/AQ-1/resolve")
    assert asked[0].document == {"outcome": verb, "reason": "ticket 17"}
    assert "is committed (by hand). Its first message is at broker-a:3, offset 42, of orders." in done.stdout
    done, asked = run(said({**ENDED, "by": "client"}), "tx", verb, "AQ-1", "-o", "json")
    assert [(each.method, each.path, each.body) for each in asked] == [("POST", f"/v1/transactions/AQ-1/{verb}", b"")]
    assert json.loads(done.stdout)["by"] == "client"


@pytest.mark.parametrize(
    "error", [TransactionResolved(state="rolled-back"), TransactionExpired()], ids=lambda e: e.code
)
def test_what_cannot_be_ended_so_is_a_failure(error: Any) -> None:
    """Exit code 1, and the proxy's own words."""
    done, _ = run(refused(error), "tx", "commit", "AQ-1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert error.title in done.stderr


def test_transactions_are_counted_by_producer_group() -> None:
    """All groups, or one; what waits for somebody is said."""

    def answer(asked: Asked) -> Reply:
        if "?" in asked.path:
            return said({"producer_groups": [{"producer_group": "shop"}], "next_cursor": ""})
        return said(GROUP)

    done, asked = run(answer, "tx", "stats")
    assert done.exit_code == 0, done.output
    assert [each.path for each in asked] == ["/v1/producer-groups?limit=1000", "/v1/producer-groups/shop"]
    assert "2 wait for somebody to end them" in done.stdout
    done, asked = run(answer, "tx", "stats", "shop", "-o", "json")
    assert json.loads(done.stdout) == [{"producer_group": "shop", **GROUP["stats"]}]
    assert len(asked) == 1


def test_a_producer_group_is_created_with_what_is_named_and_its_secret_shown_once() -> None:
    """Durations in ms; what is not named does not travel."""
    made = said({**GROUP, "created": True, "check_secret": "whsec_x"}, 201)
    words = ("producer-group", "create", "shop")
    done, asked = run(made, *words, "--check-url", GROUP["check_url"], "--check-after", "60s", "--max-checks", "3")
    assert done.exit_code == 0, done.output
    assert (asked[0].method, asked[0].path) == ("PUT", "/v1/producer-groups/shop")
    assert asked[0].document == {"check_url": GROUP["check_url"], "check_after": 60_000, "max_checks": 3}
    assert "asked at http://127.0.0.1:9000/checks" in done.stdout
    assert "not shown again: whsec_x" in done.stdout
    done, asked = run(said({**GROUP, "check_url": ""}), *words)
    assert asked[0].document == {}
    assert "asked by pull" in done.stdout
    assert "secret" not in done.stdout


def test_producer_groups_are_listed_described_and_deleted() -> None:
    """As tables and as JSON."""
    done, _ = run(said({"producer_groups": [GROUP, {**GROUP, "check_url": ""}]}), "producer-group", "ls")
    assert "by pull" in done.stdout
    assert "30 s" in done.stdout
    done, _ = run(said(GROUP), "producer-group", "describe", "shop")
    assert done.exit_code == 0, done.output
    for text in ("rolled back", "30", "15 times", "3 s; callbacks go without bodies"):
        assert text in done.stdout
    done, _ = run(said(GROUP), "producer-group", "describe", "shop", "-o", "json")
    assert json.loads(done.stdout) == GROUP
    done, asked = run(Reply(status=204, body=b"", headers={}), "producer-group", "rm", "shop", "--yes", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"producer_group": "shop", "deleted": True})
    assert [(each.method, each.path) for each in asked] == [("DELETE", "/v1/producer-groups/shop")]
    done, _ = run(
        refused(ProducerGroupBusy(producer_group="shop", open=1, expired=0)), *("producer-group", "rm", "shop", "-y")
    )
    assert done.exit_code == 1
    assert "have not ended" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("tx", "ls", "--state", "committed"),
        ("tx", "ls", "--older-than", "long"),
        ("tx", "ls", "-n", "0"),
        ("producer-group", "create", "shop", "--max-checks", "0"),
        ("producer-group", "create", "shop", "--timeout", "soon"),
        ("producer-group", "create", "no group"),
        ("producer-group", "rm", "shop"),
    ],
)
def test_what_is_asked_wrongly_is_not_asked_at_all(words: tuple[str, ...]) -> None:
    """Exit code 2, and the proxy hears nothing."""
    done, asked = run(said(GROUP), *words)
    assert done.exit_code == 2, done.output
    assert asked == []
